/* The names that cells bind at the top level, noted as they do. Only while a cell is traced is the dict watched, so that all
   others cost nothing. A name that is bound to the object that it had is not heard of: see `_cellar_prelude/cells/binding.py`. */
#include "shim.h"

/* Names of one cell that are noted, of which no more are told. */
#define NAMES_MAX 65536

static int watcher = -1;
/* Cell number -> set of names. */
static PyObject *traced;
/* The dict that is watched while there are any. */
static PyObject *watched;

static void note(PyObject *names, PyObject *name) {
    if (name != NULL && PyUnicode_CheckExact(name) && PySet_GET_SIZE(names) < NAMES_MAX) {
        PySet_Add(names, name);
    }
}

/* The set of the cell whose code runs; borrowed, null when it is not traced. */
static PyObject *names_of_current(void) {
    PyObject *cell = PyLong_FromUnsignedLong(cellar_current_cell());
    PyObject *names = cell != NULL ? PyDict_GetItemWithError(traced, cell) : NULL;
    Py_XDECREF(cell);
    return names;
}

static int note_change(PyDict_WatchEvent event, PyObject *dict, PyObject *name, PyObject *Py_UNUSED(value)) {
    PyObject *raised = PyErr_GetRaisedException();
    PyObject *names = dict == watched ? names_of_current() : NULL;
    if (names != NULL && event == PyDict_EVENT_CLEARED) {
        PyObject *each;
        for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &each, NULL);) {
            note(names, each);
        }
    } else if (names != NULL && event != PyDict_EVENT_DEALLOCATED) {
        note(names, name);
    }
    /* What cannot be noted is not told: the cell itself must not fail of it. */
    PyErr_SetRaisedException(raised);
    return 0;
}

PyObject *cellar_trace_names(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *cell, *dict;
    if (!PyArg_ParseTuple(args, "O!O!", &PyLong_Type, &cell, &PyDict_Type, &dict)) {
        return NULL;
    }
    if (watcher < 0 && (watcher = PyDict_AddWatcher(note_change)) < 0) {
        return NULL;
    }
    if (traced == NULL && (traced = PyDict_New()) == NULL) {
        return NULL;
    }
    PyObject *names = PySet_New(NULL);
    int failed = names == NULL || PyDict_SetItem(traced, cell, names) < 0;
    Py_XDECREF(names);
    if (failed || PyDict_Watch(watcher, dict) < 0) {
        return NULL;
    }
    watched = dict;
    Py_RETURN_NONE;
}

PyObject *cellar_traced_names(PyObject *Py_UNUSED(module), PyObject *cell) {
    PyObject *names = NULL;
    if (traced == NULL || PyDict_Pop(traced, cell, &names) < 0) {
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    if (traced != NULL && PyDict_GET_SIZE(traced) == 0 && watched != NULL) {
        PyObject *dict = watched;
        watched = NULL;
        if (PyDict_Unwatch(watcher, dict) < 0) {
            Py_XDECREF(names);
            return NULL;
        }
    }
    return names != NULL ? names : Py_NewRef(Py_None);
}

/* Texts of a list, which the caller frees. */
static kernel_list_string_t texts_of(PyObject *list) {
    Py_ssize_t count = PyList_GET_SIZE(list);
    kernel_list_string_t texts = {count > 0 ? calloc((size_t)count, sizeof *texts.ptr) : NULL, 0};
    for (Py_ssize_t i = 0; texts.ptr != NULL && i < count; i++) {
        cellar_copy_text(PyList_GET_ITEM(list, i), &texts.ptr[texts.len++]);
    }
    return texts;
}

PyObject *cellar_bound(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned int cell, left_out;
    PyObject *bound, *deleted, *read;
    if (!PyArg_ParseTuple(args, "IO!O!O!I", &cell, &PyList_Type, &bound, &PyList_Type, &deleted, &PyList_Type, &read,
                          &left_out)) {
        return NULL;
    }
    cellar_kernel_output_bound_names_t names = {texts_of(bound), texts_of(deleted), texts_of(read), left_out};
    cellar_kernel_output_bound(cell, &names);
    cellar_kernel_output_bound_names_free(&names);
    Py_RETURN_NONE;
}
