/* Keeps what the prelude runs on as it was baked, whatever cells do to it.

   Cells can reach all of Python: they may empty modules, replace built-in functions, or hang hooks into the interpreter
   that raise. Three things keep the kernel answering. The prelude's modules have built-in names of their own. The tables
   below know what was in the dictionaries of modules at the end of baking; CPython tells of each change to one, and before
   the kernel is entered again what is missing or useless in a changed one is put back. And while the prelude runs, hooks
   that cells have set are laid aside, so that they can fail nothing but the cells' own code. */
#define Py_BUILD_CORE 1
#include "shim.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pycore_dict.h"
#include "pycore_instruments.h"
#include "pycore_interp.h"
#include "pycore_object.h"

/* What is put back of a dictionary that cells have changed. */
enum care {
    /* All of it: the prelude's own. */
    EXACT,
    /* Names that are gone, and types and constants that are others: the built-in names. */
    BUILTIN,
    /* Names that are gone or bound to None, and what could be called and cannot be now. What else cells replace is theirs. */
    USABLE,
};

typedef struct {
    PyObject *dict;
    PyObject **names, **values;
    Py_ssize_t count;
    enum care care;
    bool is_changed;
} table_t;

/* The attributes of a class, put back only when the prelude has failed. */
typedef struct {
    PyTypeObject *type;
    PyObject **names, **values;
    Py_ssize_t count;
} class_t;

/* What a function of the prelude does. */
typedef struct {
    PyFunctionObject *function;
    PyObject *code, *defaults, *keyword_defaults;
} function_t;

static table_t *tables;
static class_t *classes;
static function_t *functions;
static Py_ssize_t table_count, class_count, function_count;
/* The first so many functions run with every cell. */
static Py_ssize_t vital_count;
static bool any_changed;
/* Finds the codecs of the library. */
static PyObject *search_codecs;
static int watcher = -1;

/* --- Noticing changes --- */

static int compare_tables(const void *one, const void *other) {
    uintptr_t a = (uintptr_t)((const table_t *)one)->dict, b = (uintptr_t)((const table_t *)other)->dict;
    return a < b ? -1 : a > b;
}

static table_t *find_table(PyObject *dict) {
    table_t wanted = {.dict = dict};
    return bsearch(&wanted, tables, (size_t)table_count, sizeof *tables, compare_tables);
}

static int note_change(PyDict_WatchEvent event, PyObject *dict, PyObject *name, PyObject *value) {
    table_t *table = find_table(dict);
    if (table != NULL) {
        table->is_changed = any_changed = true;
    }
    return 0;
}

/* --- Remembering --- */

/* Copies the pairs of a dictionary; the values as borrowed, for all that is baked lives for ever. */
static int copy_pairs(PyObject *dict, PyObject ***names, PyObject ***values, Py_ssize_t *count) {
    size_t room = (size_t)PyDict_GET_SIZE(dict) + 1;
    *names = PyMem_RawCalloc(room, sizeof **names);
    *values = PyMem_RawCalloc(room, sizeof **values);
    if (*names == NULL || *values == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t at = 0, filled = 0;
    PyObject *name, *value;
    while (PyDict_Next(dict, &at, &name, &value)) {
        if (PyUnicode_CheckExact(name)) {
            (*names)[filled] = Py_NewRef(name);
            (*values)[filled++] = Py_NewRef(value);
        }
    }
    *count = filled;
    return 0;
}

static int add_table(PyObject *dict, enum care care) {
    table_t *table = &tables[table_count];
    *table = (table_t){.dict = Py_NewRef(dict), .care = care};
    table_count++;
    return copy_pairs(table->dict, &table->names, &table->values, &table->count);
}

static int add_tables(PyObject *dicts, enum care care) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(dicts); i++) {
        if (add_table(PyList_GET_ITEM(dicts, i), care) < 0) {
            return -1;
        }
    }
    return 0;
}

static int add_classes(PyObject *types) {
    classes = PyMem_RawCalloc((size_t)PyList_GET_SIZE(types) + 1, sizeof *classes);
    for (Py_ssize_t i = 0; classes != NULL && i < PyList_GET_SIZE(types); i++) {
        PyTypeObject *type = (PyTypeObject *)PyList_GET_ITEM(types, i);
        class_t *class = &classes[class_count];
        class->type = (PyTypeObject *)Py_NewRef(type);
        if (copy_pairs(type->tp_dict, &class->names, &class->values, &class->count) < 0) {
            return -1;
        }
        class_count++;
    }
    return classes != NULL ? 0 : -1;
}

static int add_functions(PyObject *list) {
    functions = PyMem_RawCalloc((size_t)PyList_GET_SIZE(list) + 1, sizeof *functions);
    for (Py_ssize_t i = 0; functions != NULL && i < PyList_GET_SIZE(list); i++) {
        PyFunctionObject *function = (PyFunctionObject *)Py_NewRef(PyList_GET_ITEM(list, i));
        functions[function_count++] = (function_t){
            .function = function,
            .code = Py_NewRef(function->func_code),
            .defaults = Py_XNewRef(function->func_defaults),
            .keyword_defaults = Py_XNewRef(function->func_kwdefaults),
        };
    }
    return functions != NULL ? 0 : -1;
}

/* guard(own, builtin, library, sealed, types, functions, vital): remembers dictionaries of the prelude, of built-in names and
   of other modules; classes that become immutable; classes and functions that are put back, of which the first `vital` are
   looked at before each cell. Call it once, in baking. */
PyObject *cellar_guard(PyObject *module, PyObject *args) {
    PyObject *own, *builtin, *library, *sealed, *types, *list;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!n", &PyList_Type, &own, &PyList_Type, &builtin, &PyList_Type, &library,
                          &PyList_Type, &sealed, &PyList_Type, &types, &PyList_Type, &list, &vital_count)) {
        return NULL;
    }
    struct codecs_state *codecs = &PyInterpreterState_Get()->codecs;
    search_codecs = Py_NewRef(PyList_GetItem(codecs->search_path, 0));
    size_t room = (size_t)(PyList_GET_SIZE(own) + PyList_GET_SIZE(builtin) + PyList_GET_SIZE(library));
    tables = PyMem_RawCalloc(room + 2, sizeof *tables);
    if (tables == NULL) {
        return PyErr_NoMemory();
    }
    if (add_table(codecs->error_registry, EXACT) < 0 || add_tables(own, EXACT) < 0 || add_tables(builtin, BUILTIN) < 0 || add_tables(library, USABLE) < 0
        || add_classes(types) < 0 || add_functions(list) < 0) {
        return NULL;
    }
    qsort(tables, (size_t)table_count, sizeof *tables, compare_tables);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(sealed); i++) {
        PyTypeObject *type = (PyTypeObject *)PyList_GET_ITEM(sealed, i);
        type->tp_flags |= Py_TPFLAGS_IMMUTABLETYPE;
    }
    Py_RETURN_NONE;
}

int cellar_guard_begin(void) {
    watcher = PyDict_AddWatcher(note_change);
    if (watcher < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < table_count; i++) {
        table_t *table = &tables[i];
        for (Py_ssize_t n = 0; n < table->count; n++) {
            /* What every cell writes to was made anew after it was remembered. */
            PyObject *value = PyDict_GetItemWithError(table->dict, table->names[n]);
            if (value != NULL) {
                table->values[n] = Py_NewRef(value);
            }
        }
        if (PyDict_Watch(watcher, table->dict) < 0) {
            return -1;
        }
    }
    any_changed = false;
    return 0;
}

/* --- Putting back --- */

static bool is_stream_name(PyObject *name) {
    return PyUnicode_EqualToUTF8(name, "stdout") || PyUnicode_EqualToUTF8(name, "stderr");
}

/* Whether the class of an object has an attribute of this name. Runs no code of cells. */
static bool class_has(PyObject *object, const char *name) {
    PyObject *text = PyUnicode_InternFromString(name);
    bool found = text != NULL && _PyType_Lookup(Py_TYPE(object), text) != NULL;
    Py_XDECREF(text);
    PyErr_Clear();
    return found;
}

/* Whether something can be printed to, as far as its class says. */
static bool may_be_written(PyObject *stream) {
    return class_has(stream, "write") || class_has(stream, "__getattr__");
}

static bool is_useless(const table_t *table, PyObject *name, PyObject *before, PyObject *now) {
    if (now == NULL || table->care == EXACT) {
        return true;
    }
    if (now == Py_None) {
        return before != Py_None;
    }
    if (table->care == BUILTIN && (PyType_Check(before) || !PyCallable_Check(before))) {
        return true;
    }
    if (PyCallable_Check(before) || PyModule_Check(before)) {
        return !PyCallable_Check(now) && !(PyModule_Check(before) && !PyLong_Check(now) && !PyUnicode_Check(now));
    }
    return is_stream_name(name) && class_has(before, "write") && !may_be_written(now);
}

static void mend_table(table_t *table, bool all) {
    if (!DK_IS_UNICODE(((PyDictObject *)table->dict)->ma_keys)) {
        /* Keys that are no texts could answer to any name. */
        PyDict_Clear(table->dict);
    }
    for (Py_ssize_t i = 0; i < table->count; i++) {
        PyObject *name = table->names[i], *before = table->values[i];
        PyObject *now = PyDict_GetItemWithError(table->dict, name);
        if (now != before && (all || is_useless(table, name, before, now))) {
            PyDict_SetItem(table->dict, name, before);
        }
        PyErr_Clear();
    }
    table->is_changed = false;
}

static void mend_functions(Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        const function_t *each = &functions[i];
        PyFunctionObject *function = each->function;
        if (function->func_code != each->code || function->func_defaults != each->defaults
            || function->func_kwdefaults != each->keyword_defaults) {
            PyFunction_SetDefaults((PyObject *)function, each->defaults != NULL ? each->defaults : Py_None);
            PyFunction_SetKwDefaults((PyObject *)function, each->keyword_defaults != NULL ? each->keyword_defaults : Py_None);
            PyObject_SetAttrString((PyObject *)function, "__code__", each->code);
            PyErr_Clear();
        }
    }
}

static void mend_classes(void) {
    for (Py_ssize_t i = 0; i < class_count; i++) {
        const class_t *class = &classes[i];
        for (Py_ssize_t n = 0; n < class->count; n++) {
            PyObject *now = PyDict_GetItemWithError(class->type->tp_dict, class->names[n]);
            if (now != class->values[n]) {
                PyType_Type.tp_setattro((PyObject *)class->type, class->names[n], class->values[n]);
            }
            PyErr_Clear();
        }
    }
}

static void mend_changed(bool all) {
    any_changed = false;
    for (Py_ssize_t i = 0; i < table_count; i++) {
        if (all || tables[i].is_changed) {
            mend_table(&tables[i], all);
        }
    }
    any_changed = false;
}

/* Has the library asked for codecs before functions of cells are. */
static void mend_codecs(void) {
    PyObject *path = PyInterpreterState_Get()->codecs.search_path;
    if (PyList_GET_SIZE(path) == 0 || PyList_GET_ITEM(path, 0) != search_codecs) {
        PyList_Insert(path, 0, search_codecs);
        PyErr_Clear();
    }
}

/* mend(): puts everything back that was remembered. For when the prelude has failed all the same. */
PyObject *cellar_guard_mend(PyObject *module, PyObject *unused) {
    PyObject *raised = PyErr_GetRaisedException();
    mend_changed(true);
    mend_functions(function_count);
    mend_classes();
    PyErr_SetRaisedException(raised);
    Py_RETURN_NONE;
}

/* --- Hooks of cells --- */

/* While the prelude runs: the audit hooks of cells, their limit on recursion (0 when it was not raised), and whether the
   garbage collector is to run. All this is the interpreter's, so that a switch of threads may have to change it; see
   `cellar_guard_switch`. */
static PyObject *audit_hooks;
static int recursion_limit;
static bool is_held, collects;

/* The prelude needs so many frames. */
#define PRELUDE_DEPTH 900
/* With less than this not even a small cell runs. */
#define CELL_DEPTH 100

/* Ends what watches each call by Python functions of cells; profilers in C go on. */
static void end_monitoring(PyInterpreterState *interpreter) {
    for (int tool = 0; tool < PY_MONITORING_SYS_PROFILE_ID; tool++) {
        bool is_python = false;
        for (int event = 0; event < _PY_MONITORING_EVENTS; event++) {
            PyObject *callable = interpreter->monitoring_callables[tool][event];
            PyObject *owner = callable != NULL && PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : NULL;
            is_python |= callable != NULL && (owner == NULL || strcmp(Py_TYPE(owner)->tp_name, "_lsprof.Profiler") != 0);
        }
        if (is_python) {
            _PyMonitoring_SetEvents(tool, 0);
            PyErr_Clear();
        }
    }
}

static bool is_monitored(const PyInterpreterState *interpreter) {
    for (size_t i = 0; i < sizeof interpreter->monitors.tools; i++) {
        if (interpreter->monitors.tools[i] != 0) {
            return true;
        }
    }
    return false;
}

void cellar_guard_end_watchers(void) {
    PyThreadState *thread = PyThreadState_Get();
    if (thread->c_tracefunc != NULL || thread->c_profilefunc != NULL || is_monitored(thread->interp)) {
        PyObject *raised = PyErr_GetRaisedException();
        PyEval_SetTrace(NULL, NULL);
        PyEval_SetProfile(NULL, NULL);
        end_monitoring(thread->interp);
        PyErr_SetRaisedException(raised);
    }
}

/* As Py_SetRecursionLimit, which wants the interpreter lock to be held. */
static void set_recursion_limit(PyInterpreterState *interpreter, int limit) {
    interpreter->ceval.recursion_limit = limit;
    for (PyThreadState *thread = interpreter->threads.head; thread != NULL; thread = thread->next) {
        int depth = thread->py_recursion_limit - thread->py_recursion_remaining;
        thread->py_recursion_limit = limit;
        thread->py_recursion_remaining = limit - depth;
    }
}

static void lay_aside(PyInterpreterState *interpreter) {
    is_held = true;
    int limit = interpreter->ceval.recursion_limit;
    recursion_limit = limit < PRELUDE_DEPTH ? limit : 0;
    if (recursion_limit != 0) {
        set_recursion_limit(interpreter, PRELUDE_DEPTH);
    }
    collects = interpreter->gc.enabled;
    interpreter->gc.enabled = 0;
}

static void take_up(PyInterpreterState *interpreter) {
    is_held = false;
    if (recursion_limit != 0) {
        set_recursion_limit(interpreter, recursion_limit);
    }
    interpreter->gc.enabled = collects;
}

void cellar_guard_hold(void) {
    PyInterpreterState *interpreter = PyThreadState_Get()->interp;
    if (interpreter->audit_hooks != NULL) {
        Py_XSETREF(audit_hooks, interpreter->audit_hooks);
        interpreter->audit_hooks = NULL;
    }
    cellar_guard_end_watchers();
    if (!is_held) {
        lay_aside(interpreter);
    }
}

void cellar_guard_release(void) {
    PyInterpreterState *interpreter = PyThreadState_Get()->interp;
    if (!is_held) {
        return;
    }
    take_up(interpreter);
    if (audit_hooks != NULL) {
        Py_XSETREF(interpreter->audit_hooks, audit_hooks);
        audit_hooks = NULL;
    }
}

bool cellar_guard_is_held(void) {
    return is_held;
}

void cellar_guard_switch(bool hold) {
    if (hold == is_held) {
        return;
    }
    PyInterpreterState *interpreter = PyInterpreterState_Main();
    PyObject *hooks = interpreter->audit_hooks;
    interpreter->audit_hooks = audit_hooks;
    audit_hooks = hooks;
    if (hold) {
        lay_aside(interpreter);
    } else {
        take_up(interpreter);
    }
}

void cellar_guard_enter(bool is_new_cell) {
    cellar_guard_hold();
    if (is_new_cell) {
        Py_CLEAR(audit_hooks);
        recursion_limit = recursion_limit != 0 && recursion_limit < CELL_DEPTH ? CELL_DEPTH : recursion_limit;
    }
    if (any_changed) {
        mend_changed(false);
    }
    mend_codecs();
    mend_functions(vital_count);
}
