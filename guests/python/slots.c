/* Wraps a few slots of CPython's types, for three reasons.

   Recursion in C that CPython does not count: the hash of nested tuples, and iterators over iterators. Each level takes
   some of the native stack, and running out of that kills the kernel. Here they end with a `RecursionError`.

   Loops in C that ask nobody whether they must stop: `sum(range(10 ** 12))`, `any(iter(int, 1))`. The iterators that can
   go on for ever ask instead. A `for` loop over a range does not come here.

   Recursion in C that CPython counts for more than it takes: a cached function that calls itself. */
#include "shim.h"

#include "pycore_emscripten_signal.h"

/* Types whose `__next__` asks an iterator that may be of the same kind. */
#define NESTING(X) \
    X(builtins, enumerate) X(builtins, filter) X(builtins, map) X(builtins, zip) X(itertools, accumulate) \
    X(itertools, batched) X(itertools, chain) X(itertools, compress) X(itertools, cycle) X(itertools, dropwhile) \
    X(itertools, filterfalse) X(itertools, groupby) X(itertools, islice) X(itertools, pairwise) X(itertools, starmap) \
    X(itertools, takewhile) X(itertools, zip_longest)

/* Types whose iterators end late or never. */
#define ENDLESS(X) \
    X(itertools, combinations) X(itertools, combinations_with_replacement) X(itertools, count) X(itertools, permutations) \
    X(itertools, product) X(itertools, repeat)

static hashfunc tuple_hash;

static Py_hash_t counted_tuple_hash(PyObject *self) {
    if (Py_EnterRecursiveCall(" while hashing a tuple")) {
        return -1;
    }
    Py_hash_t hash = tuple_hash(self);
    Py_LeaveRecursiveCall();
    return hash;
}

/* Whether the cell must stop, with the exception set; asks the host once in a while. */
static inline int must_stop(void) {
    return --cellar_poll_countdown <= 0 && cellar_check_stop();
}

#define DEFINE_NESTING(module, name) \
    static iternextfunc next_of_##name; \
    static PyObject *counted_##name(PyObject *self) { \
        if (must_stop() || Py_EnterRecursiveCall(" in " #name ".__next__")) { \
            return NULL; \
        } \
        PyObject *item = next_of_##name(self); \
        Py_LeaveRecursiveCall(); \
        return item; \
    }

#define DEFINE_ENDLESS(module, name) \
    static iternextfunc next_of_##name; \
    static PyObject *counted_##name(PyObject *self) { \
        return must_stop() ? NULL : next_of_##name(self); \
    }

NESTING(DEFINE_NESTING)
ENDLESS(DEFINE_ENDLESS)
DEFINE_ENDLESS(, range)
DEFINE_ENDLESS(, long_range)
DEFINE_ENDLESS(, callable)

/* A call of a cached function in Python is counted three times: as a call, and twice by the loop that runs it. All of that takes no
   more of the stack than one count stands for. */
#define CACHED_CALL_SURPLUS 2

/* What `functools` keeps of a cached function, as far as it is read here. */
typedef struct {
    PyObject_HEAD
    void *previous, *next;
    Py_hash_t hash;
    PyObject *key, *result;
    void *wrapper;
    int is_typed;
    PyObject *cache;
    Py_ssize_t hits;
    PyObject *function;
} CachedFunction;

static ternaryfunc call_of_cached;

static PyObject *counted_cached_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (!PyFunction_Check(((CachedFunction *)self)->function)) {
        return call_of_cached(self, args, kwargs);
    }
    PyThreadState *thread = PyThreadState_Get();
    thread->c_recursion_remaining += CACHED_CALL_SURPLUS;
    PyObject *result = call_of_cached(self, args, kwargs);
    thread->c_recursion_remaining -= CACHED_CALL_SURPLUS;
    return result;
}

static int replace_cached_call(void) {
    PyObject *module = PyImport_ImportModule("functools");
    PyObject *type = module != NULL ? PyObject_GetAttrString(module, "_lru_cache_wrapper") : NULL;
    Py_XDECREF(module);
    /* One that is made of a known function tells whether its fields are where they are read. */
    PyObject *cached = type != NULL ? PyObject_CallFunction(type, "OOOO", type, Py_None, Py_False, type) : NULL;
    if (cached == NULL || ((CachedFunction *)cached)->function != type) {
        return -1;
    }
    Py_DECREF(cached);
    call_of_cached = ((PyTypeObject *)type)->tp_call;
    ((PyTypeObject *)type)->tp_call = counted_cached_call;
    /* As below, its module keeps it. */
    Py_DECREF(type);
    return 0;
}

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

#define REPLACE_SLOT(type, name) \
    next_of_##name = (type).tp_iternext; \
    (type).tp_iternext = counted_##name;

int cellar_wrap_slots(void) {
    tuple_hash = PyTuple_Type.tp_hash;
    PyTuple_Type.tp_hash = counted_tuple_hash;
#define REPLACE(module, name) \
    if (replace_next(#module, #name, &next_of_##name, counted_##name) < 0) { \
        return -1; \
    }
    NESTING(REPLACE)
    ENDLESS(REPLACE)
    REPLACE_SLOT(PyRangeIter_Type, range)
    REPLACE_SLOT(PyLongRangeIter_Type, long_range)
    REPLACE_SLOT(PyCallIter_Type, callable)
    return replace_cached_call();
}
