/* Tables that the host lends: what of them is faster in C. See `_cellar_prelude/calls/columnar.py`. */
#include "shim.h"

#include <string.h>

#include "glue.h"

/* Bytes of a table that are taken at once. */
#define TAKEN_MAX (4u << 20)
/* Texts that are looked for among those before: columns repeat them. Powers of two, the second for long columns. */
#define KNOWN_FEW 1024
#define KNOWN_MANY 16384
#define LONG_COLUMN 65536
/* Bytes of such a text. */
#define SHORT_MAX 32
/* Looking goes on after so many texts if one of so many was known. */
#define TRIED 8192
#define KNOWN_SHARE 8

/* take(table, buffer) -> bytes: fills the beginning of a buffer with the next bytes of a table. */
PyObject *cellar_take(PyObject *module, PyObject *args) {
    unsigned long long table;
    Py_buffer buffer;
    if (!PyArg_ParseTuple(args, "Kw*", &table, &buffer)) {
        return NULL;
    }
    uint32_t wanted = (size_t)buffer.len < TAKEN_MAX ? (uint32_t)buffer.len : TAKEN_MAX;
    kernel_list_u8_t piece = {0};
    if (wanted > 0) {
        glue_aim(buffer.buf, wanted);
    }
    cellar_kernel_fetches_take(table, wanted, &piece);
    size_t taken = piece.len;
    if (!glue_landed() || taken > wanted) {
        taken = 0;
    }
    PyBuffer_Release(&buffer);
    return PyLong_FromSize_t(taken);
}

/* A text that was made, which the column keeps, and the bytes that it was made of. */
typedef struct {
    /* Bits of the hash, and the length. */
    uint32_t mark;
    PyObject *text;
    const char *bytes;
} known_t;
#define LENGTH_BITS 63u

typedef struct {
    /* NULL when nothing is looked for. */
    known_t *table;
    uint32_t mask;
    uint32_t tried, found;
    /* Whether all bytes of the column are ASCII. */
    bool is_ascii;
    /* Behind the last byte of the column. */
    const char *end;
} memory_t;

static uint64_t hash_of(const char *bytes, size_t length, const char *end) {
    uint64_t hash = length;
    for (size_t at = 0; at < length; at += 8) {
        uint64_t piece = 0;
        size_t left = length - at < 8 ? length - at : 8;
        if (end - bytes - (ptrdiff_t)at >= 8) {
            memcpy(&piece, bytes + at, 8);
            piece &= ~(uint64_t)0 >> (64 - 8 * left);
        } else {
            for (size_t i = left; i > 0; i--) {
                piece = piece << 8 | (uint8_t)bytes[at + i - 1];
            }
        }
        hash = (hash ^ piece) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return hash;
}

static bool holds_ascii(const char *bytes, size_t length) {
    uint64_t seen = 0;
    size_t at = 0;
    for (; length - at >= sizeof seen; at += sizeof seen) {
        uint64_t piece;
        memcpy(&piece, bytes + at, sizeof piece);
        seen |= piece;
    }
    for (; at < length; at++) {
        seen |= (uint8_t)bytes[at];
    }
    return (seen & 0x8080808080808080u) == 0;
}

static PyObject *new_text(const char *bytes, size_t length, const memory_t *memory) {
    /* There is one object of each text of one ASCII character. */
    if (length < 2 || !(memory->is_ascii || holds_ascii(bytes, length))) {
        return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)length, "replace");
    }
    PyObject *text = PyUnicode_New((Py_ssize_t)length, 127);
    if (text != NULL) {
        memcpy(PyUnicode_1BYTE_DATA(text), bytes, length);
    }
    return text;
}

static PyObject *text_of(const char *bytes, size_t length, memory_t *memory) {
    if (length > SHORT_MAX || memory->table == NULL) {
        return new_text(bytes, length, memory);
    }
    uint64_t hash = hash_of(bytes, length, memory->end);
    uint32_t mark = ((uint32_t)(hash >> 32) & ~LENGTH_BITS) | (uint32_t)length;
    known_t *known = &memory->table[hash & memory->mask];
    memory->tried++;
    if (known->text != NULL && known->mark == mark) {
        /* What an ASCII text holds lies beside its count of references, which is about to change. */
        bool is_ascii = PyUnicode_IS_COMPACT_ASCII(known->text);
        const void *before = is_ascii ? PyUnicode_DATA(known->text) : (const void *)known->bytes;
        if (memcmp(before, bytes, length) == 0) {
            memory->found++;
            return Py_NewRef(known->text);
        }
    }
    PyObject *text = new_text(bytes, length, memory);
    *known = (known_t){mark, text, bytes};
    if (memory->tried == TRIED && memory->found < TRIED / KNOWN_SHARE) {
        /* The column does not repeat its texts. */
        PyMem_Free(memory->table);
        memory->table = NULL;
    }
    return text;
}

static memory_t remember(Py_ssize_t count, const Py_buffer *data) {
    size_t room = count < LONG_COLUMN ? KNOWN_FEW : KNOWN_MANY;
    return (memory_t){
        .table = PyMem_Calloc(room, sizeof(known_t)),
        .mask = (uint32_t)room - 1,
        .is_ascii = holds_ascii(data->buf, (size_t)data->len),
        .end = (const char *)data->buf + data->len,
    };
}

/* Puts the texts of a column into slots. Where `there` is given, its bytes that are 0 have `missing` instead. */
static int put_texts(Py_buffer *offsets, Py_buffer *data, const char *there, PyObject *missing, PyObject **slots, Py_ssize_t count) {
    const int32_t *at = offsets->buf;
    memory_t memory = remember(count, data);
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && i < count; i++) {
        PyObject *text;
        if (at[i] < 0 || at[i] > at[i + 1] || at[i + 1] > data->len) {
            PyErr_SetString(PyExc_ValueError, "the texts of a column are not where they should be");
            text = NULL;
        } else if (there != NULL && there[i] == 0) {
            text = Py_NewRef(missing);
        } else {
            text = text_of((const char *)data->buf + at[i], (size_t)(at[i + 1] - at[i]), &memory);
        }
        if (text == NULL) {
            status = -1;
        } else {
            Py_XSETREF(slots[i], text);
        }
    }
    PyMem_Free(memory.table);
    return status;
}

static Py_ssize_t count_of(Py_buffer *offsets) {
    Py_ssize_t count = offsets->len / (Py_ssize_t)sizeof(int32_t) - 1;
    return count > 0 ? count : 0;
}

/* texts(offsets, data) -> list of str: `offsets` are numbers of 32 bits, one more than there are texts. */
PyObject *cellar_texts(PyObject *module, PyObject *args) {
    Py_buffer offsets, data;
    if (!PyArg_ParseTuple(args, "y*y*", &offsets, &data)) {
        return NULL;
    }
    Py_ssize_t count = count_of(&offsets);
    PyObject *list = PyList_New(count);
    if (list != NULL && put_texts(&offsets, &data, NULL, NULL, ((PyListObject *)list)->ob_item, count) < 0) {
        Py_CLEAR(list);
    }
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    return list;
}

/* Puts texts into slots: for each its number among `texts`, a list, or -1 for `missing`. */
static int put_repeated(Py_buffer *codes, PyObject *texts, PyObject *missing, PyObject **slots, Py_ssize_t count) {
    const int32_t *code = codes->buf;
    PyObject **known = ((PyListObject *)texts)->ob_item;
    uint32_t known_count = (uint32_t)PyList_GET_SIZE(texts);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (code[i] != -1 && (uint32_t)code[i] >= known_count) {
            PyErr_SetString(PyExc_ValueError, "the texts of a column are not where they should be");
            return -1;
        }
        Py_XSETREF(slots[i], Py_NewRef(code[i] == -1 ? missing : known[code[i]]));
    }
    return 0;
}

/* repeated(codes, texts) -> list: of a list of texts those that the numbers of 32 bits say, None for -1. */
PyObject *cellar_repeated(PyObject *module, PyObject *args) {
    Py_buffer codes;
    PyObject *texts;
    if (!PyArg_ParseTuple(args, "y*O!", &codes, &PyList_Type, &texts)) {
        return NULL;
    }
    Py_ssize_t count = codes.len / (Py_ssize_t)sizeof(int32_t);
    PyObject *list = PyList_New(count);
    if (list != NULL && put_repeated(&codes, texts, Py_None, ((PyListObject *)list)->ob_item, count) < 0) {
        Py_CLEAR(list);
    }
    PyBuffer_Release(&codes);
    return list;
}

/* The slots of an array of objects of NumPy, if it has so many. */
static int open_slots(PyObject *array, Py_ssize_t count, Py_buffer *slots) {
    if (PyObject_GetBuffer(array, slots, PyBUF_WRITABLE | PyBUF_FORMAT | PyBUF_ND) < 0) {
        return -1;
    }
    if (slots->format == NULL || strcmp(slots->format, "O") != 0 || slots->len != count * (Py_ssize_t)sizeof(PyObject *)) {
        PyBuffer_Release(slots);
        PyErr_SetString(PyExc_ValueError, "the texts of a column do not fit");
        return -1;
    }
    return 0;
}

/* fill_repeated(codes, texts, missing, objects): the same into an array of objects of NumPy, with `missing` for -1. */
PyObject *cellar_fill_repeated(PyObject *module, PyObject *args) {
    Py_buffer codes, slots;
    PyObject *texts, *missing, *array;
    if (!PyArg_ParseTuple(args, "y*O!OO", &codes, &PyList_Type, &texts, &missing, &array)) {
        return NULL;
    }
    Py_ssize_t count = codes.len / (Py_ssize_t)sizeof(int32_t);
    int status = open_slots(array, count, &slots);
    if (status == 0) {
        status = put_repeated(&codes, texts, missing, slots.buf, count);
        PyBuffer_Release(&slots);
    }
    PyBuffer_Release(&codes);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

/* fill_texts(offsets, data, there, missing, objects): texts by their offsets into an array of objects of NumPy. `there` has a byte
   for each, 0 for `missing`, or is empty. */
PyObject *cellar_fill_texts(PyObject *module, PyObject *args) {
    Py_buffer offsets, data, there, slots;
    PyObject *missing, *array;
    if (!PyArg_ParseTuple(args, "y*y*y*OO", &offsets, &data, &there, &missing, &array)) {
        return NULL;
    }
    Py_ssize_t count = count_of(&offsets);
    int status = open_slots(array, count, &slots);
    if (status == 0) {
        if (there.len != 0 && there.len != count) {
            PyErr_SetString(PyExc_ValueError, "the texts of a column do not fit");
            status = -1;
        } else {
            status = put_texts(&offsets, &data, there.len != 0 ? there.buf : NULL, missing, slots.buf, count);
        }
        PyBuffer_Release(&slots);
    }
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    PyBuffer_Release(&there);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}
