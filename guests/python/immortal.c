/* Makes everything that is baked immortal. Counting references to an object writes to it, and each write to a page of the
   image gives the kernel a copy of its own: objects that are never counted stay shared among all kernels. */
#define Py_BUILD_CORE 1
#include "shim.h"

#include "pycore_backoff.h"
#include "pycore_code.h"
#include "pycore_opcode_metadata.h"

#include <stdbool.h>
#include <string.h>

/* Objects whose own references have not been followed yet. */
static PyObject **waiting;
static size_t waiting_count, waiting_room;

static int make_immortal(PyObject *object, void *unused) {
    if (object == NULL || _Py_IsImmortal(object)) {
        return 0;
    }
    if (waiting_count == waiting_room) {
        size_t room = waiting_room == 0 ? 4096 : waiting_room * 2;
        PyObject **grown = PyMem_RawRealloc(waiting, room * sizeof *grown);
        if (grown == NULL) {
            return -1;
        }
        waiting = grown;
        waiting_room = room;
    }
    object->ob_refcnt = _Py_IMMORTAL_REFCNT;
    waiting[waiting_count++] = object;
    return 0;
}

/* Lets counters rest by which instructions find out what to specialise for: a counter lies in the code. Those of the
   prelude, which baking has warmed up, and those that have counted and found nothing. */
static void rest_counters(PyCodeObject *code) {
    const char *file = PyUnicode_AsUTF8(code->co_filename), *folder = "/cellar/prelude/";
    bool is_prelude = file != NULL && strncmp(file, folder, strlen(folder)) == 0;
    PyErr_Clear();
    _Py_CODEUNIT *instructions = _PyCode_CODE(code);
    for (Py_ssize_t i = 0; i < Py_SIZE(code);) {
        int base = _Py_GetBaseOpcode(code, (int)i), caches = _PyOpcode_Caches[base];
        if (caches > 0) {
            _Py_BackoffCounter *counter = &instructions[i + 1].counter;
            bool is_idle = instructions[i].op.code == base && counter->as_counter != adaptive_counter_warmup().as_counter;
            if (is_prelude || is_idle) {
                *counter = initial_unreachable_backoff_counter();
            }
        }
        i += 1 + caches;
    }
}

/* The parts of a code object, which the collector does not know. */
static void follow_code(PyCodeObject *code) {
    rest_counters(code);
    PyObject *parts[] = {
        code->co_consts,   code->co_names, code->co_exceptiontable, code->co_localsplusnames, code->co_localspluskinds,
        code->co_filename, code->co_name,  code->co_qualname,       code->co_linetable,
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        make_immortal(parts[i], NULL);
    }
}

/* immortalize(objects): makes these and all that can be reached from them immortal. Call it once, last of all. */
PyObject *cellar_immortalize(PyObject *module, PyObject *objects) {
    if (!PyList_Check(objects)) {
        PyErr_SetString(PyExc_TypeError, "immortalize takes a list");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objects); i++) {
        make_immortal(PyList_GET_ITEM(objects, i), NULL);
    }
    while (waiting_count > 0) {
        PyObject *object = waiting[--waiting_count];
        if (PyCode_Check(object)) {
            follow_code((PyCodeObject *)object);
        } else if (Py_TYPE(object)->tp_traverse != NULL) {
            Py_TYPE(object)->tp_traverse(object, make_immortal, NULL);
        }
        make_immortal((PyObject *)Py_TYPE(object), NULL);
    }
    PyMem_RawFree(waiting);
    waiting = NULL;
    waiting_room = 0;
    Py_RETURN_NONE;
}
