/* What cells say besides text and displays. */
#include "shim.h"

#include "glue.h"

/* clear(wait): drops what the cell has shown, when the next output comes if `wait` is true */
static PyObject *output_clear(PyObject *module, PyObject *wait) {
    cellar_stream_flush();
    cellar_kernel_output_clear(cellar_current_cell(), PyObject_IsTrue(wait) == 1);
    Py_RETURN_NONE;
}

static int copy_scalar(PyObject *value, cellar_kernel_types_scalar_t *out) {
    if (PyBool_Check(value)) {
        out->tag = CELLAR_KERNEL_TYPES_SCALAR_BOOLEAN;
        out->val.boolean = value == Py_True;
    } else if (PyLong_Check(value)) {
        out->tag = CELLAR_KERNEL_TYPES_SCALAR_INTEGER;
        out->val.integer = PyLong_AsLongLong(value);
    } else if (PyFloat_Check(value)) {
        out->tag = CELLAR_KERNEL_TYPES_SCALAR_NUMBER;
        out->val.number = PyFloat_AS_DOUBLE(value);
    } else {
        out->tag = CELLAR_KERNEL_TYPES_SCALAR_TEXT;
        cellar_copy_word(value, &out->val.text);
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* status(op, {field: str | int | float | bool}) */
static PyObject *output_status(PyObject *module, PyObject *args) {
    PyObject *op, *fields, *name, *value;
    if (!PyArg_ParseTuple(args, "UO!", &op, &PyDict_Type, &fields)) {
        return NULL;
    }
    cellar_kernel_output_list_tuple2_string_scalar_t list = {0};
    list.ptr = calloc((size_t)PyDict_GET_SIZE(fields) + 1, sizeof *list.ptr);
    if (list.ptr == NULL) {
        return PyErr_NoMemory();
    }
    Py_ssize_t position = 0;
    while (!PyErr_Occurred() && PyDict_Next(fields, &position, &name, &value)) {
        cellar_copy_word(name, &list.ptr[list.len].f0);
        copy_scalar(value, &list.ptr[list.len].f1);
        list.len++;
    }
    if (!PyErr_Occurred()) {
        kernel_string_t name;
        cellar_copy_word(op, &name);
        cellar_stream_flush();
        cellar_kernel_output_status(cellar_current_cell(), &name, &list);
        kernel_string_free(&name);
    }
    for (size_t i = 0; i < list.len; i++) {
        cellar_kernel_output_tuple2_string_scalar_free(&list.ptr[i]);
    }
    free(list.ptr);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* flush(): sends what is gathered of the output */
static PyObject *output_flush(PyObject *module, PyObject *unused) {
    cellar_stream_flush();
    Py_RETURN_NONE;
}

PyMethodDef cellar_output_methods[] = {
    {"clear", output_clear, METH_O, NULL},
    {"status", output_status, METH_VARARGS, NULL},
    {"flush", output_flush, METH_NOARGS, NULL},
    {0},
};
