/* Threads as the prelude sees them; see `_cellar_prelude/cells/threads.py`. */
#include "threads.h"

#include "cellar_threads.h"
#include "glue.h"

/* is_alone(): whether there is no other thread, none was lost, none has stopped with its cell, and the prelude has seen the
   ends of all calls */
static PyObject *is_alone(PyObject *module, PyObject *unused) {
    return PyBool_FromLong(cellar_threads_are_settled());
}

/* thread_count(): how many threads of programs there are */
static PyObject *thread_count(PyObject *module, PyObject *unused) {
    return PyLong_FromLong(cellar_threads_count());
}

/* is_away(): whether the entry that this code ran for has returned, since it waited */
static PyObject *is_away(PyObject *module, PyObject *unused) {
    return PyBool_FromLong(cellar_visit_is_over());
}

/* cut_deadlock(): raises in cells that wait for what no thread can do any more; whether there were any */
static PyObject *cut_deadlock(PyObject *module, PyObject *unused) {
    return PyBool_FromLong(cellar_threads_cut_deadlock());
}

/* end_away(): has all that waits in an earlier entry raise SystemExit; how many there are */
static PyObject *end_away(PyObject *module, PyObject *unused) {
    long count = 0;
    struct thread *thread;
    for (int i = 0; (thread = cellar_thread_at(i)) != NULL; i++) {
        if (!thread->is_away) {
            continue;
        }
        count++;
        if (thread->progress == WAITING) {
            cellar_cut_short(thread, CUT_BY_END);
        } else {
            PyThreadState_SetAsyncExc((unsigned long)(uintptr_t)thread, PyExc_SystemExit);
        }
    }
    return PyLong_FromLong(count);
}

/* raise_if_cut(): raises what a wait of this thread was cut short for, if it has ended otherwise before it could say so */
static PyObject *raise_if_cut(PyObject *module, PyObject *unused) {
    if (cellar_thread_was_stopped()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* run_threads(): gives every other thread that is ready a turn. When the next one is ready: in nanoseconds, 0 for now, None
   for never. */
static PyObject *run_threads(PyObject *module, PyObject *unused) {
    uint64_t ready_at = cellar_threads_run();
    if (ready_at == NEVER) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLongLong(ready_at);
}

/* take_completions(): the ends of calls that no thread has waited for; see `resume` */
static PyObject *take_completions(PyObject *module, PyObject *unused) {
    kernel_list_completion_t list = cellar_threads_take_completions();
    PyObject *taken = cellar_completions(&list);
    kernel_list_completion_free(&list);
    return taken;
}

/* wait_call(number, nanoseconds or None): waits for the end of a call that was started, until a moment of the monotonic
   clock. (number, ok, answer) as `resume` is given it, or None when the moment comes first. */
static PyObject *wait_call(PyObject *module, PyObject *args) {
    unsigned long long number;
    PyObject *moment;
    uint64_t until = NEVER;
    if (!PyArg_ParseTuple(args, "KO", &number, &moment)) {
        return NULL;
    }
    if (moment != Py_None) {
        until = PyLong_AsUnsignedLongLong(moment);
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    cellar_stream_flush();
    glue_cell = cellar_current_cell();
    for (;;) {
        uint64_t wake = cellar_alarm_before(until);
        kernel_completion_t end = {0};
        if (cellar_threads_call(number, wake, &end)) {
            kernel_list_completion_t list = {&end, 1};
            PyObject *taken = cellar_completions(&list);
            if (end.response.is_err) {
                cellar_kernel_types_call_error_free(&end.response.val.err);
            } else {
                cellar_kernel_types_response_free(&end.response.val.ok);
            }
            PyObject *first = taken != NULL ? PySequence_GetItem(taken, 0) : NULL;
            Py_XDECREF(taken);
            return first;
        }
        if (cellar_thread_was_stopped() || cellar_raise_if_stopped()) {
            return NULL;
        }
        uint64_t now = cellar_kernel_control_monotonic_clock();
        cellar_alarm_check(now);
        if (PyErr_CheckSignals() < 0) {
            return NULL;
        }
        if (now >= until) {
            Py_RETURN_NONE;
        }
    }
}

static struct thread *find(PyObject *number) {
    return cellar_thread_find(PyLong_AsUnsignedLong(number));
}

/* thread_cell(ident): the cell that started a thread; None when there is no such thread */
static PyObject *thread_cell(PyObject *module, PyObject *number) {
    struct thread *thread = find(number);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (thread == NULL) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLong(thread == cellar_running ? glue_cell : thread->cell);
}

/* end_thread(ident): has a thread raise SystemExit, where it waits or at its next instruction */
static PyObject *end_thread(PyObject *module, PyObject *number) {
    struct thread *thread = find(number);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (thread != NULL && thread->progress == WAITING) {
        cellar_cut_short(thread, CUT_BY_END);
    } else if (thread != NULL) {
        PyThreadState_SetAsyncExc((unsigned long)(uintptr_t)thread, PyExc_SystemExit);
    }
    Py_RETURN_NONE;
}

/* end_wait(ident): has a thread raise SystemExit where it waits; nothing happens to one that does not */
static PyObject *end_wait(PyObject *module, PyObject *number) {
    struct thread *thread = find(number);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (thread != NULL) {
        cellar_cut_short(thread, CUT_BY_END);
    }
    Py_RETURN_NONE;
}

/* stop_threads(cell): wakes the threads of a cell that wait, because it must stop */
static PyObject *stop_threads(PyObject *module, PyObject *cell) {
    unsigned long number = PyLong_AsUnsignedLong(cell);
    if (PyErr_Occurred()) {
        return NULL;
    }
    cellar_threads_stop((uint32_t)number);
    Py_RETURN_NONE;
}

/* take_lost(): how many threads a captured memory had since this was last asked */
static PyObject *take_lost(PyObject *module, PyObject *unused) {
    return PyLong_FromLong(cellar_threads_take_lost());
}

PyMethodDef cellar_thread_methods[] = {
    {"is_alone", is_alone, METH_NOARGS, NULL},
    {"thread_count", thread_count, METH_NOARGS, NULL},
    {"is_away", is_away, METH_NOARGS, NULL},
    {"cut_deadlock", cut_deadlock, METH_NOARGS, NULL},
    {"end_away", end_away, METH_NOARGS, NULL},
    {"raise_if_cut", raise_if_cut, METH_NOARGS, NULL},
    {"run_threads", run_threads, METH_NOARGS, NULL},
    {"take_completions", take_completions, METH_NOARGS, NULL},
    {"wait_call", wait_call, METH_VARARGS, NULL},
    {"thread_cell", thread_cell, METH_O, NULL},
    {"end_thread", end_thread, METH_O, NULL},
    {"end_wait", end_wait, METH_O, NULL},
    {"stop_threads", stop_threads, METH_O, NULL},
    {"take_lost", take_lost, METH_NOARGS, NULL},
    {0},
};
