/* Recursion in C that CPython does not count: the hash of nested tuples, and iterators over iterators. Each level takes
   some of the native stack, and running out of that kills the kernel. Here they are counted as other recursion is, and
   end with a `RecursionError`. */
#include "shim.h"

/* Types whose `__next__` asks an iterator that may be of the same kind. */
#define ITERATORS(X) \
    X(builtins, enumerate) X(builtins, filter) X(builtins, map) X(builtins, zip) X(itertools, accumulate) \
    X(itertools, batched) X(itertools, chain) X(itertools, compress) X(itertools, cycle) X(itertools, dropwhile) \
    X(itertools, filterfalse) X(itertools, groupby) X(itertools, islice) X(itertools, pairwise) X(itertools, starmap) \
    X(itertools, takewhile) X(itertools, zip_longest)

static hashfunc tuple_hash;

static Py_hash_t counted_tuple_hash(PyObject *self) {
    if (Py_EnterRecursiveCall(" while hashing a tuple")) {
        return -1;
    }
    Py_hash_t hash = tuple_hash(self);
    Py_LeaveRecursiveCall();
    return hash;
}

#define DEFINE(module, name) \
    static iternextfunc next_of_##name; \
    static PyObject *counted_##name(PyObject *self) { \
        if (Py_EnterRecursiveCall(" in " #name ".__next__")) { \
            return NULL; \
        } \
        PyObject *item = next_of_##name(self); \
        Py_LeaveRecursiveCall(); \
        return item; \
    }

ITERATORS(DEFINE)

static int replace_next(const char *module_name, const char *name, iternextfunc *original, iternextfunc counted) {
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *type = module != NULL ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
    if (type == NULL) {
        return -1;
    }
    PyTypeObject *slots = (PyTypeObject *)type;
    *original = slots->tp_iternext;
    slots->tp_iternext = counted;
    /* The type lives as long as its module, which is never let go of. */
    Py_DECREF(type);
    return 0;
}

int cellar_count_recursion(void) {
    tuple_hash = PyTuple_Type.tp_hash;
    PyTuple_Type.tp_hash = counted_tuple_hash;
#define REPLACE(module, name) \
    if (replace_next(#module, #name, &next_of_##name, counted_##name) < 0) { \
        return -1; \
    }
    ITERATORS(REPLACE)
    return 0;
}
