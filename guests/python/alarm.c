/* `signal.alarm` and `signal.setitimer`: the poll, which asks whether the cell must stop, also looks at the clock. */
#include "shim.h"

#include <signal.h>

/* When the alarm is due on the monotonic clock, 0 when none is set; and after what time it is due again, or 0. */
static uint64_t due, interval;

void cellar_alarm_check(uint64_t now) {
    if (due == 0 || now < due) {
        return;
    }
    due = interval != 0 ? now + interval : 0;
    /* The handler is called where CPython next looks for signals. */
    PyErr_SetInterruptEx(SIGALRM);
    cellar_threads_signal();
}

uint64_t cellar_alarm_before(uint64_t until) {
    return due != 0 && due < until ? due : until;
}

/* set_alarm(nanoseconds or 0, interval or 0) -> what was left, and the interval */
PyObject *cellar_set_alarm(PyObject *module, PyObject *args) {
    unsigned long long first, again;
    if (!PyArg_ParseTuple(args, "KK", &first, &again)) {
        return NULL;
    }
    uint64_t now = cellar_kernel_control_monotonic_clock(), left = due > now ? due - now : 0, before = interval;
    due = first != 0 ? now + first : 0;
    interval = again;
    return Py_BuildValue("(KK)", (unsigned long long)left, (unsigned long long)before);
}

/* alarm() -> what is left, and the interval */
PyObject *cellar_alarm(PyObject *module, PyObject *unused) {
    uint64_t now = cellar_kernel_control_monotonic_clock();
    return Py_BuildValue("(KK)", (unsigned long long)(due > now ? due - now : 0), (unsigned long long)interval);
}
