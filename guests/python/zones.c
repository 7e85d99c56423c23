/* Local time: the C library of WASI knows UTC alone. The prelude hands over the spans of a zone, and these functions, which
   `localtime_r`, `mktime` and `strftime` ask, stand in the place of the library's. */
#include "shim.h"

#include <string.h>
#include <time.h>

/* Zones with more spans than this are refused; those of the database have some 250 until 2037, and two each year after that. */
#define SPANS_MAX 4096
#define KINDS_MAX 256

/* What holds in a span: seconds east of UTC, whether that is summer time, and the zone's letters. */
typedef struct {
    int offset;
    int is_summer;
    char name[16];
} kind_t;

const char __utc[] = "UTC";

static kind_t kinds[KINDS_MAX];
/* Span 0 comes before the first of `starts`, and span `i + 1` begins at `starts[i]`. */
static long long starts[SPANS_MAX];
static uint8_t kind_of[SPANS_MAX + 1];
/* -1: UTC. */
static int count = -1;

/* The span of a time; of one on the clock on the wall when `local`, where what a clock shows twice is the first. */
static int span_at(long long time, int local) {
    int low = 0, high = count;
    while (low < high) {
        int middle = (low + high) / 2;
        long long at = local ? time - kinds[kind_of[middle]].offset : time;
        if (at >= starts[middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void __secs_to_zone(long long time, int local, int *is_summer, int *offset, long *other, const char **name) {
    const kind_t *kind = NULL, *opposite = NULL;
    if (count >= 0) {
        int span = span_at(time, local);
        kind = opposite = &kinds[kind_of[span]];
        for (int step = 1; step >= -1 && opposite == kind; step -= 2) {
            int near = span + step;
            if (near >= 0 && near <= count && kinds[kind_of[near]].is_summer != kind->is_summer) {
                opposite = &kinds[kind_of[near]];
            }
        }
    }
    if (is_summer != NULL) {
        *is_summer = kind != NULL ? kind->is_summer : 0;
    }
    if (offset != NULL) {
        *offset = kind != NULL ? kind->offset : 0;
    }
    if (other != NULL) {
        *other = opposite != NULL ? opposite->offset : 0;
    }
    if (name != NULL) {
        *name = kind != NULL ? kind->name : __utc;
    }
}

const char *__tm_to_tzname(const struct tm *time) {
    return time->__tm_zone;
}

/* set_zone(starts, kinds of spans, [(seconds east, is summer, letters)]), or set_zone(None, b"", []) for UTC. */
PyObject *cellar_set_zone(PyObject *module, PyObject *args) {
    PyObject *times, *list;
    const char *spans;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "Oy#O!", &times, &spans, &length, &PyList_Type, &list)) {
        return NULL;
    }
    count = -1;
    if (times == Py_None) {
        Py_RETURN_NONE;
    }
    Py_ssize_t known = PyList_GET_SIZE(list), changes = PyList_Check(times) ? PyList_GET_SIZE(times) : -1;
    if (changes < 0 || changes > SPANS_MAX || length != changes + 1 || known > KINDS_MAX) {
        PyErr_SetString(PyExc_ValueError, "this is no zone");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < known; i++) {
        const char *name;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "ips", &kinds[i].offset, &kinds[i].is_summer, &name)) {
            return NULL;
        }
        strncpy(kinds[i].name, name, sizeof kinds[i].name - 1);
    }
    for (Py_ssize_t i = 0; i <= changes; i++) {
        if ((uint8_t)spans[i] >= known) {
            PyErr_SetString(PyExc_ValueError, "this is no zone");
            return NULL;
        }
        kind_of[i] = (uint8_t)spans[i];
    }
    for (Py_ssize_t i = 0; i < changes; i++) {
        starts[i] = PyLong_AsLongLong(PyList_GET_ITEM(times, i));
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    count = (int)changes;
    Py_RETURN_NONE;
}
