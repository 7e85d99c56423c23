/* Stopping a cell softly: CPython's eval breaker counts down, asks the host, and raises in the cell's code. */
#include "shim.h"

#include "cellar_threads.h"
#include "glue.h"

#include <string.h>

#include "pycore_emscripten_signal.h"

/* Bounds of the countdown. The upper one keeps the price of asking near 1% of a tight loop; it also bounds how late
   the first question is when a fast loop turns into a slow one. */
#define COUNTDOWN_MAX 768
#define COUNTDOWN_MIN 1
/* What a cell begins with: its first loop may be one over slow functions. */
#define COUNTDOWN_FIRST 8
/* Growth while passes are quick, so that a cell that begins a tight loop asks four times until it asks seldom. */
#define GROWTH 4
/* Bytes that C code fills in the time of a pass or two, as a power of two. */
#define PASS_SHIFT 14
/* How often the host should be asked, in nanoseconds. */
#define INTERVAL 1000000
/* How long the code has before it is told to stop once more, in nanoseconds. */
#define RAISE_INTERVAL 50000000

/* This and what follows begins as zero, so that all that is written with each cell lies together; see `cellar_poll_reset`. */
int cellar_poll_countdown;

struct cellar_poll_state cellar_poll_state;

static int countdown;
/* 0 right after user code was entered: how long the kernel waited before says nothing about the code. */
static uint64_t last_poll;
/* When code that answers an editor must stop, for which the host keeps no time; 0 when no such code runs. */
static uint64_t deadline;
static PyObject *stop_classes;
static PyObject *live_cells;

int cellar_poll_enable(int enable) {
    struct cellar_poll_state *state = &cellar_poll_state;
    int before = state->enabled;
    if (enable && !before) {
        glue_cell = cellar_current_cell();
        last_poll = 0;
    }
    state->enabled = enable;
    if (state->is_raising && !enable) {
        /* What was to be raised in user code must not be raised in the prelude. */
        state->is_raising = 0;
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

size_t cellar_poll_live_count(void) {
    return live_cells != NULL ? (size_t)PySet_GET_SIZE(live_cells) : 0;
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

/* Folders and files with the machinery that runs the user's code. */
static const char *const machinery[] = {
    "/cellar/prelude/",
    "/usr/lib/python3.13/asyncio/",
    "/usr/lib/python3.13/concurrent/",
    "/usr/lib/python3.13/threading.py",
};

/* Of the prelude, what does the work of cells itself, for as long as that takes: the shell and its commands. What they keep they
   put back as they unwind. */
static const char *const workers[] = {
    "/cellar/prelude/shell/",
};

static int begins_with_any(const char *file, const char *const *starts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (strncmp(file, starts[i], strlen(starts[i])) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Whether the innermost Python frame belongs to that machinery: an exception there would lose a callback or a task instead
   of ending what it runs. */
int cellar_poll_in_machinery(void) {
    PyFrameObject *frame = PyEval_GetFrame();
    if (frame == NULL) {
        return 1;
    }
    PyCodeObject *code = PyFrame_GetCode(frame);
    const char *file = PyUnicode_AsUTF8(code->co_filename);
    int is_machinery = file == NULL
        || (begins_with_any(file, machinery, sizeof machinery / sizeof *machinery)
            && !begins_with_any(file, workers, sizeof workers / sizeof *workers));
    Py_DECREF(code);
    return is_machinery;
}

/* The class for the reason why the cell must stop, borrowed, or NULL when it may go on. All its threads stop with it. */
static PyObject *stop_class(void) {
    cellar_kernel_types_stop_reason_t reason;
    uint32_t cell = stop_classes != NULL ? cell_at_fault() : 0;
    if (stop_classes == NULL || !cellar_kernel_control_should_stop(cell, &reason) || reason > 3) {
        return NULL;
    }
    cellar_threads_stop(cell);
    return PyTuple_GET_ITEM(stop_classes, reason);
}

/* Aims at one question per INTERVAL. */
static void adapt(uint64_t now) {
    uint64_t passed = last_poll != 0 ? now - last_poll : INTERVAL;
    last_poll = now;
    if (passed > 2 * INTERVAL) {
        uint64_t wanted = (uint64_t)countdown * INTERVAL / passed;
        countdown = wanted < COUNTDOWN_MIN ? COUNTDOWN_MIN : (int)wanted;
    } else if (passed < INTERVAL / GROWTH) {
        countdown = countdown * GROWTH < COUNTDOWN_MAX ? countdown * GROWTH : COUNTDOWN_MAX;
    }
    cellar_poll_countdown = countdown;
}

/* Asks the host, and gives the class to raise now, borrowed, or NULL to go on. */
static PyObject *ask(void) {
    if (!cellar_poll_state.enabled) {
        cellar_poll_countdown = countdown;
        return NULL;
    }
    uint64_t now = cellar_kernel_control_monotonic_clock();
    adapt(now);
    cellar_stream_flush_if_old(now);
    int is_late = deadline != 0 && now >= deadline && stop_classes != NULL;
    PyObject *class = is_late ? PyTuple_GET_ITEM(stop_classes, 0) : stop_class();
    if (class == NULL || now - cellar_poll_state.last_raise < RAISE_INTERVAL) {
        return NULL;
    }
    if (cellar_poll_in_machinery()) {
        /* The user's code is near: look again at once. */
        cellar_poll_countdown = COUNTDOWN_MIN;
        return NULL;
    }
    cellar_poll_state.last_raise = now;
    return class;
}

void cellar_poll(void) {
    if (!cellar_thread_is_alone() && cellar_poll_state.enabled) {
        cellar_threads_take_turns();
    }
    PyObject *class = ask();
    if (class != NULL) {
        cellar_poll_state.is_raising = 1;
        PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), class);
    }
}

int cellar_check_stop(void) {
    /* What lies between two of these questions is more than a jump. */
    cellar_poll_countdown -= 8;
    PyObject *class = cellar_poll_countdown <= 0 ? ask() : NULL;
    if (class == NULL) {
        return 0;
    }
    PyErr_SetNone(class);
    return 1;
}

/* What takes much memory fills it, or copies what was in another place: a loop over functions that do asks as often as one over
   quick ones. */
void glue_note_allocation(size_t bytes) {
    /* What is due already stays due, and cannot overflow. */
    if (cellar_poll_countdown > 0) {
        cellar_poll_countdown -= (int)(bytes >> PASS_SHIFT);
    }
}

void cellar_poll_reset(void) {
    last_poll = cellar_poll_state.last_raise = 0;
    cellar_poll_countdown = countdown = COUNTDOWN_FIRST;
}

void cellar_poll_limit(uint64_t nanoseconds) {
    deadline = nanoseconds != 0 ? cellar_kernel_control_monotonic_clock() + nanoseconds : 0;
    cellar_poll_state.last_raise = 0;
}

void cellar_poll_note_stop(void) {
    cellar_poll_state.last_raise = cellar_kernel_control_monotonic_clock();
}

int cellar_raise_if_stopped(void) {
    PyObject *class = stop_class();
    if (class == NULL) {
        return 0;
    }
    PyErr_SetNone(class);
    return 1;
}

int cellar_wait_for_lock(int64_t timeout) {
    if (timeout < 0) {
        PyErr_SetString(PyExc_RuntimeError, "deadlock: the lock is held, and there is no other thread that could release it");
        return PY_LOCK_INTR;
    }
    uint64_t until = cellar_kernel_control_monotonic_clock() + (uint64_t)timeout;
    cellar_stream_flush();
    cellar_kernel_control_sleep_until(cellar_current_cell(), until);
    return cellar_raise_if_stopped() ? PY_LOCK_INTR : PY_LOCK_FAILURE;
}
