/* Standard output and error. A print is two or more writes: they are gathered and go to the host together when the
   guest is left, when there is much, when they have waited, or when another cell or stream writes. */
#include "shim.h"

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

PyObject *cellar_stream_write(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyUnicode_Check(args[1])) {
        PyErr_Format(PyExc_TypeError, "write() argument must be str, not %.200s",
                     count == 2 ? Py_TYPE(args[1])->tp_name : "nothing");
        return NULL;
    }
    uint8_t stream = (uint8_t)(PyLong_AsLong(args[0]) & 1);
    kernel_string_t text;
    PyObject *owner;
    if (cellar_borrow_text(args[1], &text, &owner) < 0) {
        return NULL;
    }
    uint32_t cell = cellar_current_cell();
    if (used > 0 && (cell != of_cell || stream != of_stream || used + text.len > ROOM)) {
        cellar_stream_flush();
    }
    if (text.len > ROOM) {
        send_long(cell, stream, (const char *)text.ptr, text.len);
    } else if (text.len > 0) {
        if (used == 0) {
            of_cell = cell;
            of_stream = stream;
            since = cellar_kernel_control_monotonic_clock();
        }
        memcpy(gathered + used, text.ptr, text.len);
        used += text.len;
    }
    Py_DECREF(owner);
    return PyLong_FromSsize_t(PyUnicode_GET_LENGTH(args[1]));
}
