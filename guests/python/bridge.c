/* The functions of `_cellar` that reach the host, but for calls. */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>

#include "cellar_threads.h"
#include "glue.h"
#include "threads.h"
#include "wasi.h"

/* display(bundle, display id or None, update[, is the value of the cell]) */
static PyObject *bridge_display(PyObject *module, PyObject *args) {
    PyObject *pairs, *id;
    int update, is_value = 0;
    cellar_kernel_output_display_data_t display = {0};
    PyObject *owner = NULL;
    if (!PyArg_ParseTuple(args, "OOp|p", &pairs, &id, &update, &is_value)) {
        return NULL;
    }
    display.display_id.is_some = id != Py_None;
    if (display.display_id.is_some && !PyUnicode_Check(id)) {
        PyErr_Format(PyExc_TypeError, "a display is named by a str, not %.200s", Py_TYPE(id)->tp_name);
        return NULL;
    }
    if ((display.display_id.is_some && cellar_borrow_text(id, &display.display_id.val, &owner) < 0)
        || cellar_copy_bundle(pairs, &display.data) < 0) {
        Py_XDECREF(owner);
        return NULL;
    }
    display.update = update;
    display.is_value = is_value;
    cellar_stream_flush();
    size_t size = glue_bundle_bytes(&display.data) + (display.display_id.is_some ? display.display_id.val.len : 0);
    if (size > GLUE_DISPLAY_BYTES_MAX) {
        glue_cell = cellar_current_cell();
        glue_display_left_out(size);
    } else {
        cellar_kernel_output_display(cellar_current_cell(), &display);
    }
    kernel_mime_bundle_free(&display.data);
    Py_XDECREF(owner);
    Py_RETURN_NONE;
}

/* sleep(seconds): suspends the thread. Raises when the cell must stop. */
static PyObject *bridge_sleep(PyObject *module, PyObject *seconds) {
    double duration = PyFloat_AsDouble(seconds);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!(duration >= 0)) {
        PyErr_SetString(PyExc_ValueError, "sleep length must be non-negative");
        return NULL;
    }
    if (duration > 1e9) {
        PyErr_SetString(PyExc_OverflowError, "sleep length is too large");
        return NULL;
    }
    cellar_stream_flush();
    uint64_t until = cellar_kernel_control_monotonic_clock() + (uint64_t)(duration * 1e9), wake;
    do {
        wake = cellar_alarm_before(until);
        glue_cell = cellar_current_cell();
        PyThreadState *state = PyEval_SaveThread();
        cellar_threads_sleep(wake);
        PyEval_RestoreThread(state);
        if (cellar_thread_was_stopped() || cellar_raise_if_stopped()) {
            return NULL;
        }
        if (wake < until) {
            cellar_alarm_check(cellar_kernel_control_monotonic_clock());
            if (PyErr_CheckSignals() < 0) {
                return NULL;
            }
        }
    } while (wake < until);
    Py_RETURN_NONE;
}

/* process_time() and process_time_ns(): the kernel's processor time. The C library has no clock for it. */
static PyObject *bridge_process_time(PyObject *module, PyObject *unused) {
    return PyFloat_FromDouble((double)cellar_kernel_control_cpu_clock() / 1e9);
}

static PyObject *bridge_process_time_ns(PyObject *module, PyObject *unused) {
    return PyLong_FromUnsignedLongLong(cellar_kernel_control_cpu_clock());
}

/* should_stop(cell) -> index of the reason, or None */
static PyObject *bridge_should_stop(PyObject *module, PyObject *cell) {
    uint32_t number = (uint32_t)PyLong_AsUnsignedLong(cell);
    cellar_kernel_control_stop_reason_t reason;
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (cellar_kernel_control_should_stop(number, &reason)) {
        return PyLong_FromLong(reason);
    }
    Py_RETURN_NONE;
}

/* raise_if_stopped(): raises when the current cell must stop */
static PyObject *bridge_raise_if_stopped(PyObject *module, PyObject *unused) {
    if (cellar_raise_if_stopped()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* note_stop(): see shim.h */
static PyObject *bridge_note_stop(PyObject *module, PyObject *unused) {
    cellar_poll_note_stop();
    Py_RETURN_NONE;
}

/* enable_stop(flag) -> what it was. With the stop come the hooks that cells have set: both are for code of cells. A number
   instead of True names the cell, where the context does not. */
static PyObject *bridge_enable_stop(PyObject *module, PyObject *flag) {
    if (flag != Py_False) {
        cellar_guard_release();
    } else {
        cellar_guard_hold();
    }
    int before = cellar_poll_enable(flag != Py_False);
    if (!PyBool_Check(flag)) {
        glue_cell = (uint32_t)PyLong_AsUnsignedLong(flag);
    }
    return PyErr_Occurred() ? NULL : PyBool_FromLong(before);
}

/* run(code, names): what `exec` and `eval` do of compiled code of a cell, which audit hooks do not hear of. */
static PyObject *bridge_run(PyObject *module, PyObject *args) {
    PyObject *code, *names;
    if (!PyArg_ParseTuple(args, "O!O!", &PyCode_Type, &code, &PyDict_Type, &names)) {
        return NULL;
    }
    Py_DECREF(bridge_enable_stop(module, Py_True));
    PyObject *value = PyEval_EvalCode(code, names, names);
    cellar_guard_end_watchers();
    return value;
}

/* limit_time(nanoseconds): see shim.h */
static PyObject *bridge_limit_time(PyObject *module, PyObject *number) {
    unsigned long long nanoseconds = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) {
        return NULL;
    }
    cellar_poll_limit(nanoseconds);
    Py_RETURN_NONE;
}

/* `os.dup`, which CPython leaves out because WASI has none. */
static PyObject *bridge_duplicate(PyObject *module, PyObject *descriptor) {
    int from = PyLong_AsInt(descriptor);
    if (from == -1 && PyErr_Occurred()) {
        return NULL;
    }
    __wasi_fd_t fd;
    errno = wasi_duplicate((__wasi_fd_t)from, &fd);
    return errno == 0 ? PyLong_FromUnsignedLong(fd) : PyErr_SetFromErrno(PyExc_OSError);
}

/* How a file is open: flags of `os.open`. */
static PyObject *bridge_file_flags(PyObject *module, PyObject *descriptor) {
    int from = PyLong_AsInt(descriptor);
    if (from == -1 && PyErr_Occurred()) {
        return NULL;
    }
    int flags = fcntl(from, F_GETFL);
    return flags >= 0 ? PyLong_FromLong(flags) : PyErr_SetFromErrno(PyExc_OSError);
}

/* Bytes of the kernel's memory. */
static PyObject *bridge_memory_size(PyObject *module, PyObject *unused) {
    return PyLong_FromUnsignedLongLong(exports_kernel_memory_size());
}

static PyObject *bridge_log(PyObject *module, PyObject *message) {
    kernel_string_t text;
    cellar_copy_word(message, &text);
    cellar_kernel_control_log(&text);
    kernel_string_free(&text);
    Py_RETURN_NONE;
}

PyMethodDef cellar_bridge_methods[] = {
    {"take", cellar_take, METH_VARARGS, NULL},
    {"texts", cellar_texts, METH_VARARGS, NULL},
    {"fill_texts", cellar_fill_texts, METH_VARARGS, NULL},
    {"repeated", cellar_repeated, METH_VARARGS, NULL},
    {"fill_repeated", cellar_fill_repeated, METH_VARARGS, NULL},
    {"display", bridge_display, METH_VARARGS, NULL},
    {"process_time", bridge_process_time, METH_NOARGS, NULL},
    {"process_time_ns", bridge_process_time_ns, METH_NOARGS, NULL},
    {"sleep", bridge_sleep, METH_O, NULL},
    {"should_stop", bridge_should_stop, METH_O, NULL},
    {"raise_if_stopped", bridge_raise_if_stopped, METH_NOARGS, NULL},
    {"note_stop", bridge_note_stop, METH_NOARGS, NULL},
    {"enable_stop", bridge_enable_stop, METH_O, NULL},
    {"limit_time", bridge_limit_time, METH_O, NULL},
    {"run", bridge_run, METH_VARARGS, NULL},
    {"trace_names", cellar_trace_names, METH_VARARGS, NULL},
    {"traced_names", cellar_traced_names, METH_O, NULL},
    {"bound", cellar_bound, METH_VARARGS, NULL},
    {"set_stop_classes", cellar_poll_set_classes, METH_O, NULL},
    {"set_live_cells", cellar_poll_set_live, METH_O, NULL},
    {"write", (PyCFunction)(void (*)(void))cellar_stream_write, METH_FASTCALL, NULL},
    {"write_bytes", (PyCFunction)(void (*)(void))cellar_stream_write_bytes, METH_FASTCALL, NULL},
    {"escape_bytes", cellar_escape_bytes, METH_O, NULL},
    {"unescape_text", cellar_unescape_text, METH_O, NULL},
    {"write_exactly", cellar_stream_write_exactly, METH_NOARGS, NULL},
    {"compile", (PyCFunction)(void (*)(void))cellar_compile, METH_FASTCALL, NULL},
    {"duplicate", bridge_duplicate, METH_O, NULL},
    {"file_flags", bridge_file_flags, METH_O, NULL},
    {"memory_size", bridge_memory_size, METH_NOARGS, NULL},
    {"set_zone", cellar_set_zone, METH_VARARGS, NULL},
    {"log", bridge_log, METH_O, NULL},
    {0},
};
