/* Tables that the host lends: what of them is faster in C. See `prelude/columnar.py`. */
#include "shim.h"

#include <string.h>

/* Bytes of a table that are taken at once: they lie in memory twice for a moment. */
#define TAKEN_MAX (4u << 20)
/* Texts that are looked for among those before: columns repeat them. A power of two. */
#define RECENT 1024
/* Bytes of such a text. */
#define SHORT_MAX 32

/* take(table, buffer) -> bytes: fills the beginning of a buffer with the next bytes of a table. */
PyObject *cellar_take(PyObject *module, PyObject *args) {
    unsigned long long table;
    Py_buffer buffer;
    if (!PyArg_ParseTuple(args, "Kw*", &table, &buffer)) {
        return NULL;
    }
    uint32_t wanted = (size_t)buffer.len < TAKEN_MAX ? (uint32_t)buffer.len : TAKEN_MAX;
    kernel_list_u8_t piece = {0};
    cellar_kernel_tools_take(table, wanted, &piece);
    size_t taken = piece.len < wanted ? piece.len : wanted;
    if (taken > 0) {
        memcpy(buffer.buf, piece.ptr, taken);
    }
    kernel_list_u8_free(&piece);
    PyBuffer_Release(&buffer);
    return PyLong_FromSize_t(taken);
}

/* A text that was made, which the list keeps, and the bytes that it was made of. */
typedef struct {
    PyObject *text;
    const char *bytes;
    size_t length;
} recent_t;

static PyObject *text_of(const char *bytes, size_t length, recent_t *recent) {
    if (length > SHORT_MAX) {
        return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)length, "replace");
    }
    uint32_t hash = (uint32_t)length;
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (uint8_t)bytes[i]) * 16777619u;
    }
    recent_t *known = &recent[(hash ^ hash >> 16) & (RECENT - 1)];
    if (known->text != NULL && known->length == length && memcmp(known->bytes, bytes, length) == 0) {
        return Py_NewRef(known->text);
    }
    PyObject *text = PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)length, "replace");
    *known = (recent_t){text, bytes, length};
    return text;
}

/* texts(offsets, data) -> list of str: `offsets` are numbers of 32 bits, one more than there are texts. */
PyObject *cellar_texts(PyObject *module, PyObject *args) {
    Py_buffer offsets, data;
    if (!PyArg_ParseTuple(args, "y*y*", &offsets, &data)) {
        return NULL;
    }
    const int32_t *at = offsets.buf;
    Py_ssize_t count = offsets.len / (Py_ssize_t)sizeof *at - 1;
    PyObject *list = PyList_New(count > 0 ? count : 0);
    recent_t *recent = PyMem_Calloc(RECENT, sizeof *recent);
    if (recent == NULL) {
        PyErr_NoMemory();
        Py_CLEAR(list);
    }
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        if (at[i] < 0 || at[i] > at[i + 1] || at[i + 1] > data.len) {
            PyErr_SetString(PyExc_ValueError, "the texts of a column are not where they should be");
            Py_CLEAR(list);
            break;
        }
        PyObject *text = text_of((const char *)data.buf + at[i], (size_t)(at[i + 1] - at[i]), recent);
        if (text == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, text);
    }
    PyMem_Free(recent);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    return list;
}
