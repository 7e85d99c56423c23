/* Plain data as JSON and back, where both are short and simple: most arguments and answers of calls are. Everything else is
   the module `json`'s, with the same texts. */
#include "shim.h"

#include <math.h>
#include <string.h>

/* Values within more values are not simple. */
#define SIMPLE_DEPTH_MAX 8
/* Nor are numbers of more characters. */
#define NUMBER_BYTES_MAX 40

/* What one of these functions makes of something that is not simple. No exception is set. */
#define NOT_SIMPLE (-2)

/* --- To JSON --- */

static int put(cellar_json_t *text, const char *bytes, size_t length) {
    if (length > CELLAR_JSON_BYTES_MAX - text->length) {
        return NOT_SIMPLE;
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    return 0;
}

/* Whether all bytes are ASCII characters that stand for themselves in a JSON text. */
static bool is_literal(const char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)bytes[i] < ' ' || (unsigned char)bytes[i] > '~' || bytes[i] == '"' || bytes[i] == '\\') {
            return false;
        }
    }
    return true;
}

static int put_string(cellar_json_t *text, PyObject *string) {
    if (!PyUnicode_IS_COMPACT_ASCII(string)) {
        return NOT_SIMPLE;
    }
    const char *bytes = PyUnicode_DATA(string);
    size_t length = (size_t)PyUnicode_GET_LENGTH(string);
    if (length > CELLAR_JSON_BYTES_MAX || !is_literal(bytes, length) || put(text, "\"", 1) || put(text, bytes, length)) {
        return NOT_SIMPLE;
    }
    return put(text, "\"", 1);
}

static int put_integer(cellar_json_t *text, PyObject *integer) {
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(integer, &overflow);
    if (overflow) {
        return NOT_SIMPLE;
    }
    char digits[24], *at = digits + sizeof digits;
    unsigned long long rest = number < 0 ? 0 - (unsigned long long)number : (unsigned long long)number;
    do {
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (number < 0) {
        *--at = '-';
    }
    return put(text, at, (size_t)(digits + sizeof digits - at));
}

static int put_float(cellar_json_t *text, PyObject *number) {
    double value = PyFloat_AS_DOUBLE(number);
    char *digits = isfinite(value) ? PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL) : NULL;
    if (digits == NULL) {
        PyErr_Clear();
        return NOT_SIMPLE;
    }
    int failed = put(text, digits, strlen(digits));
    PyMem_Free(digits);
    return failed;
}

static int put_value(cellar_json_t *text, PyObject *value, int depth);

static int put_member(cellar_json_t *text, PyObject *name, PyObject *value, int depth) {
    bool is_first = text->bytes[text->length - 1] == '{';
    if (!PyUnicode_CheckExact(name) || (!is_first && put(text, ", ", 2)) || put_string(text, name) || put(text, ": ", 2)) {
        return NOT_SIMPLE;
    }
    return put_value(text, value, depth);
}

static int put_dict(cellar_json_t *text, PyObject *dict, int depth) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    if (put(text, "{", 1)) {
        return NOT_SIMPLE;
    }
    while (PyDict_Next(dict, &at, &name, &value)) {
        if (put_member(text, name, value, depth)) {
            return NOT_SIMPLE;
        }
    }
    return put(text, "}", 1);
}

static int put_list(cellar_json_t *text, PyObject *list, int depth) {
    if (put(text, "[", 1)) {
        return NOT_SIMPLE;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        if ((i > 0 && put(text, ", ", 2)) || put_value(text, PyList_GET_ITEM(list, i), depth)) {
            return NOT_SIMPLE;
        }
    }
    return put(text, "]", 1);
}

/* Runs no code of the value's own, so that nothing changes meanwhile. */
static int put_value(cellar_json_t *text, PyObject *value, int depth) {
    if (value == Py_None) {
        return put(text, "null", 4);
    }
    if (PyBool_Check(value)) {
        return value == Py_True ? put(text, "true", 4) : put(text, "false", 5);
    }
    if (PyLong_CheckExact(value)) {
        return put_integer(text, value);
    }
    if (PyUnicode_CheckExact(value)) {
        return put_string(text, value);
    }
    if (PyFloat_CheckExact(value)) {
        return put_float(text, value);
    }
    if (depth == SIMPLE_DEPTH_MAX) {
        return NOT_SIMPLE;
    }
    if (PyDict_CheckExact(value)) {
        return put_dict(text, value, depth + 1);
    }
    return PyList_CheckExact(value) ? put_list(text, value, depth + 1) : NOT_SIMPLE;
}

bool cellar_json_members(cellar_json_t *text, PyObject *names, PyObject *const *values) {
    text->length = 0;
    if (put(text, "{", 1)) {
        return false;
    }
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        if (put_member(text, PyTuple_GET_ITEM(names, i), values[i], 1)) {
            return false;
        }
    }
    return put(text, "}", 1) == 0;
}

PyObject *cellar_to_json(PyObject *Py_UNUSED(module), PyObject *value) {
    cellar_json_t text;
    text.length = 0;
    if (put_value(&text, value, 0)) {
        Py_RETURN_NONE;
    }
    return PyUnicode_FromStringAndSize(text.bytes, (Py_ssize_t)text.length);
}

/* --- From JSON --- */

typedef struct {
    const char *at;
    const char *end;
} reader_t;

static bool takes(reader_t *reader, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0) {
        return false;
    }
    reader->at += length;
    return true;
}

static void skip_blanks(reader_t *reader) {
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\n' || *reader->at == '\t' || *reader->at == '\r')) {
        reader->at++;
    }
}

static bool is_digit(const reader_t *reader) {
    return reader->at < reader->end && Py_ISDIGIT(*reader->at);
}

/* NULL without an exception is what is not simple, of this and of all that read. */
static PyObject *read_number(reader_t *reader) {
    const char *start = reader->at;
    bool is_negative = takes(reader, "-");
    const char *digits = reader->at;
    long long number = 0;
    while (is_digit(reader)) {
        if (reader->at - digits == 18) {
            return NULL;
        }
        number = 10 * number + (*reader->at++ - '0');
    }
    if (reader->at == digits || (*digits == '0' && reader->at - digits > 1)) {
        return NULL;
    }
    if (reader->at == reader->end || (*reader->at != '.' && *reader->at != 'e' && *reader->at != 'E')) {
        return PyLong_FromLongLong(is_negative ? -number : number);
    }
    if (takes(reader, ".")) {
        if (!is_digit(reader)) {
            return NULL;
        }
        while (is_digit(reader)) {
            reader->at++;
        }
    }
    if (takes(reader, "e") || takes(reader, "E")) {
        if (!takes(reader, "-")) {
            takes(reader, "+");
        }
        if (!is_digit(reader)) {
            return NULL;
        }
        while (is_digit(reader)) {
            reader->at++;
        }
    }
    char number_text[NUMBER_BYTES_MAX + 1];
    size_t length = (size_t)(reader->at - start);
    if (length > NUMBER_BYTES_MAX) {
        return NULL;
    }
    memcpy(number_text, start, length);
    number_text[length] = 0;
    double value = PyOS_string_to_double(number_text, NULL, NULL);
    return PyErr_Occurred() ? NULL : PyFloat_FromDouble(value);
}

static PyObject *read_string(reader_t *reader) {
    const char *start = reader->at, *end = memchr(start, '"', (size_t)(reader->end - start));
    if (end == NULL || !is_literal(start, (size_t)(end - start))) {
        return NULL;
    }
    reader->at = end + 1;
    return PyUnicode_FromStringAndSize(start, end - start);
}

static PyObject *read_value(reader_t *reader, int depth);

static PyObject *read_dict(reader_t *reader, int depth) {
    PyObject *dict = PyDict_New();
    skip_blanks(reader);
    if (dict == NULL || takes(reader, "}")) {
        return dict;
    }
    do {
        skip_blanks(reader);
        PyObject *name = takes(reader, "\"") ? read_string(reader) : NULL, *value = NULL;
        if (name != NULL) {
            skip_blanks(reader);
            value = takes(reader, ":") ? read_value(reader, depth) : NULL;
        }
        int failed = value == NULL || PyDict_SetItem(dict, name, value) < 0;
        Py_XDECREF(name);
        Py_XDECREF(value);
        if (failed) {
            Py_DECREF(dict);
            return NULL;
        }
        skip_blanks(reader);
    } while (takes(reader, ","));
    if (!takes(reader, "}")) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *read_list(reader_t *reader, int depth) {
    PyObject *list = PyList_New(0);
    skip_blanks(reader);
    if (list == NULL || takes(reader, "]")) {
        return list;
    }
    do {
        PyObject *value = read_value(reader, depth);
        int failed = value == NULL || PyList_Append(list, value) < 0;
        Py_XDECREF(value);
        if (failed) {
            Py_DECREF(list);
            return NULL;
        }
        skip_blanks(reader);
    } while (takes(reader, ","));
    if (!takes(reader, "]")) {
        Py_CLEAR(list);
    }
    return list;
}

static PyObject *read_value(reader_t *reader, int depth) {
    skip_blanks(reader);
    if (takes(reader, "\"")) {
        return read_string(reader);
    }
    if (depth < SIMPLE_DEPTH_MAX && takes(reader, "{")) {
        return read_dict(reader, depth + 1);
    }
    if (depth < SIMPLE_DEPTH_MAX && takes(reader, "[")) {
        return read_list(reader, depth + 1);
    }
    if (takes(reader, "null")) {
        return Py_NewRef(Py_None);
    }
    if (takes(reader, "true")) {
        return Py_NewRef(Py_True);
    }
    return takes(reader, "false") ? Py_NewRef(Py_False) : read_number(reader);
}

PyObject *cellar_json_value(const char *bytes, size_t length) {
    if (length > CELLAR_JSON_BYTES_MAX) {
        return NULL;
    }
    reader_t reader = {bytes, bytes + length};
    PyObject *value = read_value(&reader, 0);
    skip_blanks(&reader);
    if (reader.at != reader.end) {
        Py_CLEAR(value);
    }
    return value;
}

PyObject *cellar_from_json(PyObject *Py_UNUSED(module), PyObject *text) {
    bool is_plain = PyUnicode_CheckExact(text) && PyUnicode_IS_COMPACT_ASCII(text);
    PyObject *value = is_plain ? cellar_json_value(PyUnicode_DATA(text), (size_t)PyUnicode_GET_LENGTH(text)) : NULL;
    return value == NULL && !PyErr_Occurred() ? Py_NewRef(Py_NotImplemented) : value;
}
