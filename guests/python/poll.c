/* Stopping a cell softly: CPython's eval breaker counts down, asks the host, and raises in the cell's code. */
#include "shim.h"

#include "glue.h"

#include "pycore_emscripten_signal.h"

/* Bounds of the countdown. The upper one keeps the price of asking near 1% of a tight loop; it also bounds how late
   the first question is when a fast loop turns into a slow one. */
#define COUNTDOWN_MAX 768
#define COUNTDOWN_MIN 1
/* How often the host should be asked, in nanoseconds. */
#define INTERVAL 1000000

int cellar_poll_countdown = COUNTDOWN_MAX;

static int countdown = COUNTDOWN_MAX;
static int enabled;
/* Whether the interpreter was told to raise. */
static int raising;
static uint64_t last_poll;
static PyObject *stop_classes;
static PyObject *live_cells;

int cellar_poll_enable(int enable) {
    int before = enabled;
    if (enable) {
        glue_cell = cellar_current_cell();
    }
    enabled = enable;
    if (raising && !enable) {
        /* What was to be raised in user code must not be raised in the prelude. */
        raising = 0;
        PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), NULL);
    }
    return before;
}

PyObject *cellar_poll_set_classes(PyObject *module, PyObject *classes) {
    if (!PyTuple_Check(classes) || PyTuple_GET_SIZE(classes) != 4) {
        PyErr_SetString(PyExc_TypeError, "four exception classes are needed");
        return NULL;
    }
    Py_XSETREF(stop_classes, Py_NewRef(classes));
    Py_RETURN_NONE;
}

PyObject *cellar_poll_set_live(PyObject *module, PyObject *live) {
    Py_XSETREF(live_cells, Py_NewRef(live));
    Py_RETURN_NONE;
}

/* The cell to ask about: what a cell left behind when it ended is nobody's fault. */
static uint32_t cell_at_fault(void) {
    uint32_t cell = cellar_current_cell();
    if (cell == 0 || live_cells == NULL) {
        return 0;
    }
    PyObject *raised = PyErr_GetRaisedException();
    PyObject *number = PyLong_FromUnsignedLong(cell);
    int found = number != NULL && PySet_Contains(live_cells, number) == 1;
    Py_XDECREF(number);
    PyErr_Clear();
    PyErr_SetRaisedException(raised);
    return found ? cell : 0;
}

/* The class to raise now, borrowed, or NULL to go on. */
static PyObject *stop_class(void) {
    if (!enabled || stop_classes == NULL) {
        return NULL;
    }
    cellar_kernel_types_stop_reason_t reason;
    if (!cellar_kernel_control_should_stop(cell_at_fault(), &reason) || reason > 3) {
        return NULL;
    }
    return PyTuple_GET_ITEM(stop_classes, reason);
}

/* Aims at one question per INTERVAL: halves or doubles, so that one odd pass does not throw it off. */
static void adapt(uint64_t now) {
    uint64_t passed = now - last_poll;
    last_poll = now;
    if (passed > 2 * INTERVAL) {
        uint64_t wanted = (uint64_t)countdown * INTERVAL / passed;
        countdown = wanted < COUNTDOWN_MIN ? COUNTDOWN_MIN : (int)wanted;
    } else if (passed < INTERVAL / 2 && countdown < COUNTDOWN_MAX) {
        countdown = countdown * 2 < COUNTDOWN_MAX ? countdown * 2 : COUNTDOWN_MAX;
    }
    cellar_poll_countdown = countdown;
}

void cellar_poll(void) {
    uint64_t now = cellar_kernel_control_monotonic_clock();
    adapt(now);
    if (!enabled) {
        return;
    }
    cellar_stream_flush_if_old(now);
    PyObject *class = stop_class();
    if (class != NULL) {
        raising = 1;
        PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), class);
    }
}

int cellar_check_stop(void) {
    PyObject *class = stop_class();
    if (class == NULL) {
        return 0;
    }
    PyErr_SetNone(class);
    return 1;
}
