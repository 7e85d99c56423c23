/* Standard output and error. A print is two or more writes: they are gathered and go to the host together when the
   guest is left, when there is much, when they have waited, or when another cell or stream writes. */
#include "shim.h"

#include "glue.h"

#include <string.h>

#define ROOM 8192
/* Longest wait in nanoseconds. */
#define PATIENCE 40000000

static char gathered[ROOM];
static size_t used;
static uint32_t of_cell;
static uint8_t of_stream;
static uint64_t since;

static void send(uint32_t cell, uint8_t stream, const char *text, size_t length) {
    kernel_string_t string = {(uint8_t *)text, length};
    cellar_kernel_output_write(cell, stream, &string);
}

void cellar_stream_flush(void) {
    if (used > 0) {
        size_t length = used;
        used = 0;
        send(of_cell, of_stream, gathered, length);
    }
}

void cellar_stream_flush_if_old(uint64_t now) {
    /* The poll comes by here with the time. */
    cellar_alarm_check(now);
    if (used > 0 && now - since >= PATIENCE) {
        cellar_stream_flush();
    }
}

void cellar_stream_reset(void) {
    memset(gathered, 0, sizeof gathered);
    since = 0;
}

/* Sends a long text in pieces that end between characters. */
static void send_long(uint32_t cell, uint8_t stream, const char *text, size_t length) {
    const size_t piece = 1 << 20;
    while (length > piece) {
        size_t cut = piece;
        while (cut > piece - 4 && ((unsigned char)text[cut] & 0xC0) == 0x80) {
            cut--;
        }
        send(cell, stream, text, cut);
        text += cut;
        length -= cut;
    }
    send(cell, stream, text, length);
}

/* Gathers text that crosses as it is. */
static void put(uint8_t stream, const char *text, size_t length) {
    uint32_t cell = cellar_current_cell();
    if (used > 0 && (cell != of_cell || stream != of_stream || used + length > ROOM)) {
        cellar_stream_flush();
    }
    if (length > ROOM) {
        send_long(cell, stream, text, length);
    } else if (length > 0) {
        if (used == 0) {
            of_cell = cell;
            of_stream = stream;
            since = cellar_kernel_control_monotonic_clock();
        }
        memcpy(gathered + used, text, length);
        used += length;
    }
}

static void put_bytes(uint8_t stream, const char *bytes, size_t length) {
    size_t plain = glue_plain_prefix(stream, bytes, length);
    put(stream, bytes, plain);
    if (plain < length) {
        cellar_stream_flush();
        glue_cell = cellar_current_cell();
        glue_write_bytes(stream, bytes + plain, length - plain);
    }
}

PyObject *cellar_stream_write(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyUnicode_Check(args[1])) {
        PyErr_Format(PyExc_TypeError, "write() argument must be str, not %.200s",
                     count == 2 ? Py_TYPE(args[1])->tp_name : "nothing");
        return NULL;
    }
    uint8_t stream = (uint8_t)(PyLong_AsLong(args[0]) & 1);
    Py_ssize_t characters = PyUnicode_GET_LENGTH(args[1]);
    if (glue_exact && !PyUnicode_IS_ASCII(args[1])) {
        /* Surrogates stand for the bytes that they were read from, as in any program. */
        PyObject *bytes = PyUnicode_AsEncodedString(args[1], "utf-8", "surrogateescape");
        if (bytes != NULL) {
            put_bytes(stream, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
            Py_DECREF(bytes);
            return PyLong_FromSsize_t(characters);
        }
        PyErr_Clear();
    }
    kernel_string_t text;
    PyObject *owner;
    if (cellar_borrow_text(args[1], &text, &owner) < 0) {
        return NULL;
    }
    if (text.len > 0) {
        if (glue_holds(stream)) {
            cellar_stream_flush();
            glue_flush();
        }
        put(stream, (const char *)text.ptr, text.len);
    }
    Py_DECREF(owner);
    return PyLong_FromSsize_t(characters);
}

PyObject *cellar_stream_write_bytes(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer view;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "write_bytes() takes a stream and bytes");
        return NULL;
    }
    if (PyObject_GetBuffer(args[1], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    Py_ssize_t length = view.len;
    put_bytes((uint8_t)(PyLong_AsLong(args[0]) & 1), view.buf, (size_t)length);
    PyBuffer_Release(&view);
    return PyLong_FromSsize_t(length);
}

PyObject *cellar_stream_write_exactly(PyObject *module, PyObject *unused) {
    glue_exact = true;
    Py_RETURN_NONE;
}

PyObject *cellar_escape_bytes(PyObject *module, PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    char *text = PyMem_Malloc((size_t)view.len * 4 + 1);
    PyObject *result = text == NULL ? PyErr_NoMemory() : NULL;
    if (text != NULL) {
        size_t length = utf8_escaped(view.buf, (size_t)view.len, text);
        result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "strict");
        PyMem_Free(text);
    }
    PyBuffer_Release(&view);
    return result;
}

PyObject *cellar_unescape_text(PyObject *module, PyObject *text) {
    Py_ssize_t length;
    const char *escaped = PyUnicode_AsUTF8AndSize(text, &length);
    PyObject *result = escaped == NULL ? NULL : PyBytes_FromStringAndSize(NULL, length);
    if (result != NULL) {
        _PyBytes_Resize(&result, (Py_ssize_t)utf8_unescaped(escaped, (size_t)length, PyBytes_AS_STRING(result)));
    }
    return result;
}
