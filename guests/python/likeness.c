/* Makes CPython look as it does on a 64-bit Linux machine where programs can tell: numbers of errors, modes and owners of
   files, lengths and counts beyond 32 bits, native sizes of `struct` and `array`. */
#define Py_BUILD_CORE 1
#include "shim.h"

#include <string.h>
#include <sys/stat.h>

#include "pycore_interp.h"

/* --- Errors --- */

/* From the text of an error of the C library to (its number, the number on Linux, the text there, or what gives the text). */
static PyObject *error_texts;

/* The text of a known error. */
static PyObject *text_of(PyObject *known, PyObject *own) {
    PyObject *text = PyTuple_GET_ITEM(known, 2);
    if (!PyCallable_Check(text)) {
        return Py_NewRef(text);
    }
    PyObject *made = PyObject_CallNoArgs(text);
    if (made == NULL || !PyUnicode_Check(made)) {
        PyErr_Clear();
        Py_XSETREF(made, Py_NewRef(own));
    }
    return made;
}

/* The arguments of an error that C code raises, which have the C library's number and text: those of Linux. Borrows. */
static PyObject *linux_arguments(PyObject *const *args, Py_ssize_t count) {
    PyObject *known = NULL;
    if (error_texts != NULL && count >= 2 && PyLong_CheckExact(args[0]) && PyUnicode_CheckExact(args[1])) {
        known = PyDict_GetItemWithError(error_texts, args[1]);
        if (known != NULL && PyLong_AsLong(PyTuple_GET_ITEM(known, 0)) != PyLong_AsLong(args[0])) {
            known = NULL;
        }
        PyErr_Clear();
    }
    PyObject *arguments = PyTuple_New(count);
    for (Py_ssize_t i = 0; arguments != NULL && i < count; i++) {
        PyObject *own = args[i];
        if (known != NULL && i == 1) {
            PyTuple_SET_ITEM(arguments, i, text_of(known, own));
        } else {
            PyTuple_SET_ITEM(arguments, i, Py_NewRef(known != NULL && i == 0 ? PyTuple_GET_ITEM(known, 1) : own));
        }
    }
    return arguments;
}

/* `OSError(...)`, by C code or by cells; its subclasses are called as they are. */
static PyObject *call_error(PyObject *type, PyObject *const *args, size_t flagged, PyObject *names) {
    Py_ssize_t count = PyVectorcall_NARGS(flagged);
    PyObject *keywords = names != NULL && PyTuple_GET_SIZE(names) > 0 ? PyDict_New() : NULL;
    for (Py_ssize_t i = 0; keywords != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[count + i]);
    }
    PyObject *arguments = linux_arguments(args, count);
    PyObject *error = arguments != NULL ? PyType_Type.tp_call(type, arguments, keywords) : NULL;
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    return error;
}

/* set_errors(texts, classes): takes the table of texts, and gives numbers of errors their classes. */
PyObject *cellar_set_errors(PyObject *module, PyObject *args) {
    PyObject *texts, *classes;
    if (!PyArg_ParseTuple(args, "O!O!", &PyDict_Type, &texts, &PyDict_Type, &classes)) {
        return NULL;
    }
    PyObject *map = PyInterpreterState_Get()->exc_state.errnomap;
    PyDict_Clear(map);
    if (PyDict_Update(map, classes) < 0) {
        return NULL;
    }
    Py_XSETREF(error_texts, Py_NewRef(texts));
    ((PyTypeObject *)PyExc_OSError)->tp_vectorcall = call_error;
    Py_RETURN_NONE;
}

/* error_classes() -> {number of the C library: class} */
PyObject *cellar_error_classes(PyObject *module, PyObject *unused) {
    return PyDict_Copy(PyInterpreterState_Get()->exc_state.errnomap);
}

/* --- Modes and owners of files --- */

/* (device, inode) -> the permission bits that cells have set. */
static PyObject *modes;
#define OWNER 1000

PyObject *cellar_set_modes(PyObject *module, PyObject *dict) {
    Py_XSETREF(modes, Py_NewRef(dict));
    Py_RETURN_NONE;
}

static unsigned permissions(PyObject *result, unsigned mode) {
    if (modes != NULL && PyDict_Check(modes) && PyDict_GET_SIZE(modes) > 0) {
        PyObject *key = PyTuple_Pack(2, PyStructSequence_GET_ITEM(result, 2), PyStructSequence_GET_ITEM(result, 1));
        PyObject *kept = key != NULL ? PyDict_GetItemWithError(modes, key) : NULL;
        Py_XDECREF(key);
        PyErr_Clear();
        if (kept != NULL) {
            return (unsigned)PyLong_AsUnsignedLongMask(kept) & 07777;
        }
    }
    return S_ISDIR(mode) ? 0755 : S_ISREG(mode) ? 0644 : S_ISLNK(mode) ? 0777 : 0600;
}

static void set_item(PyObject *result, Py_ssize_t index, long value) {
    PyObject *number = PyLong_FromLong(value);
    if (number != NULL) {
        PyObject *before = PyStructSequence_GET_ITEM(result, index);
        PyStructSequence_SET_ITEM(result, index, number);
        Py_XDECREF(before);
    }
}

/* What the host does not tell of a file. */
static PyObject *complete_status(PyObject *result) {
    if (result != NULL) {
        unsigned mode = (unsigned)PyLong_AsUnsignedLongMask(PyStructSequence_GET_ITEM(result, 0));
        set_item(result, 0, (long)(mode | permissions(result, mode)));
        set_item(result, 4, OWNER);
        set_item(result, 5, OWNER);
    }
    return result;
}

typedef PyObject *(*fast_t)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
typedef PyObject *(*method_t)(PyObject *, PyTypeObject *, PyObject *const *, size_t, PyObject *);

/* CPython takes the descriptor -1 for no path at all. */
static PyObject *bad_address(PyObject *path) {
    PyObject *args = Py_BuildValue("(isO)", 14, "Bad address", path);
    PyErr_SetObject(PyExc_OSError, args);
    Py_XDECREF(args);
    return NULL;
}

#define STATUS(X) X(stat) X(lstat) X(fstat)
#define DEFINE_STATUS(name) \
    static fast_t status_of_##name; \
    static PyObject *complete_##name(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) { \
        PyObject *result = status_of_##name(self, args, count, names); \
        if (result == NULL && count > 0 && PyLong_CheckExact(args[0]) && PyErr_ExceptionMatches(PyExc_FileNotFoundError)) { \
            return bad_address(args[0]); \
        } \
        return complete_status(result); \
    }
STATUS(DEFINE_STATUS)

static method_t status_of_entry;

static PyObject *complete_entry(PyObject *self, PyTypeObject *type, PyObject *const *args, size_t count, PyObject *names) {
    PyObject *result = status_of_entry(self, type, args, count, names);
    /* A directory entry keeps what it was told, and gives it again. */
    if (result != NULL && PyLong_AsLong(PyStructSequence_GET_ITEM(result, 4)) != OWNER) {
        complete_status(result);
    }
    return result;
}

static PyMethodDef *method_of(PyObject *owner, const char *name) {
    PyObject *function = PyObject_GetAttrString(owner, name);
    PyMethodDef *method = NULL;
    if (function != NULL && PyCFunction_Check(function)) {
        method = ((PyCFunctionObject *)function)->m_ml;
    } else if (function != NULL && Py_TYPE(function) == &PyMethodDescr_Type) {
        method = ((PyMethodDescrObject *)function)->d_method;
    }
    Py_XDECREF(function);
    PyErr_Clear();
    return method;
}

static int replace_status(void) {
    PyObject *posix = PyImport_ImportModule("posix");
    if (posix == NULL) {
        return -1;
    }
#define REPLACE_STATUS(name) \
    PyMethodDef *of_##name = method_of(posix, #name); \
    if (of_##name != NULL && of_##name->ml_flags == (METH_FASTCALL | METH_KEYWORDS)) { \
        status_of_##name = (fast_t)(void (*)(void))of_##name->ml_meth; \
        of_##name->ml_meth = (PyCFunction)(void (*)(void))complete_##name; \
    }
    STATUS(REPLACE_STATUS)
    PyObject *entry = PyObject_GetAttrString(posix, "DirEntry");
    PyMethodDef *method = entry != NULL ? method_of(entry, "stat") : NULL;
    if (method != NULL && method->ml_flags == (METH_METHOD | METH_FASTCALL | METH_KEYWORDS)) {
        status_of_entry = (method_t)(void (*)(void))method->ml_meth;
        method->ml_meth = (PyCFunction)(void (*)(void))complete_entry;
    }
    Py_XDECREF(entry);
    Py_DECREF(posix);
    return 0;
}

/* --- Lengths --- */

static PyCFunction builtin_len;
/* Computes lengths that are too large for C. */
static PyObject *long_length;

PyObject *cellar_set_long_length(PyObject *module, PyObject *function) {
    Py_XSETREF(long_length, Py_NewRef(function));
    Py_RETURN_NONE;
}

static PyObject *any_len(PyObject *module, PyObject *object) {
    PyObject *length = builtin_len(module, object);
    if (length != NULL || long_length == NULL || !PyErr_ExceptionMatches(PyExc_OverflowError)) {
        return length;
    }
    PyErr_Clear();
    return PyObject_CallOneArg(long_length, object);
}

/* --- Counts: what is larger than any container can be is as good as the largest --- */

static PyObject *clamped(PyObject *value) {
    if (PyLong_CheckExact(value)) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow == 0 && number > PY_SSIZE_T_MAX) {
            return PyLong_FromSsize_t(PY_SSIZE_T_MAX);
        }
    }
    return Py_NewRef(value);
}

static PyObject *clamp_all(PyObject *args) {
    PyObject *changed = PyTuple_New(PyTuple_GET_SIZE(args));
    for (Py_ssize_t i = 0; changed != NULL && i < PyTuple_GET_SIZE(args); i++) {
        PyTuple_SET_ITEM(changed, i, clamped(PyTuple_GET_ITEM(args, i)));
    }
    return changed;
}

static PyObject *clamp_keywords(PyObject *keywords) {
    PyObject *changed = keywords != NULL ? PyDict_Copy(keywords) : NULL;
    Py_ssize_t at = 0;
    PyObject *name, *value;
    while (changed != NULL && PyDict_Next(keywords, &at, &name, &value)) {
        PyObject *fits = clamped(value);
        if (fits == NULL || PyDict_SetItem(changed, name, fits) < 0) {
            PyErr_Clear();
        }
        Py_XDECREF(fits);
    }
    return changed;
}

#define COUNTING(X) X(itertools, islice) X(itertools, repeat) X(functools, _lru_cache_wrapper)
#define DEFINE_COUNTING(module, name) \
    static newfunc new_##name; \
    static PyObject *new_clamped_##name(PyTypeObject *type, PyObject *args, PyObject *keywords) { \
        PyObject *fits = clamp_all(args), *named = clamp_keywords(keywords); \
        PyObject *made = fits != NULL ? new_##name(type, fits, named) : NULL; \
        Py_XDECREF(fits); \
        Py_XDECREF(named); \
        return made; \
    }
COUNTING(DEFINE_COUNTING)

static initproc init_deque;

static int init_clamped_deque(PyObject *self, PyObject *args, PyObject *keywords) {
    PyObject *fits = clamp_all(args), *named = clamp_keywords(keywords);
    int failed = fits == NULL ? -1 : init_deque(self, fits, named);
    Py_XDECREF(fits);
    Py_XDECREF(named);
    return failed;
}

/* --- Formats: a C `long`, a size and a pointer have 64 bits --- */

static PyObject *wide_format(PyObject *format) {
    PyObject *text = PyBytes_CheckExact(format) ? PyUnicode_FromEncodedObject(format, "latin-1", NULL) : Py_NewRef(format);
    if (text == NULL || !PyUnicode_CheckExact(text) || !PyUnicode_IS_ASCII(text)) {
        PyErr_Clear();
        Py_XDECREF(text);
        return Py_NewRef(format);
    }
    const char *letters = (const char *)PyUnicode_1BYTE_DATA(text);
    if (strchr("<>=!", letters[0]) != NULL && letters[0] != 0) {
        Py_DECREF(text);
        return Py_NewRef(format);
    }
    if (strpbrk(letters, "lLnNP") == NULL) {
        return text;
    }
    PyObject *wide = PyUnicode_New(PyUnicode_GET_LENGTH(text), 127);
    for (Py_ssize_t i = 0; wide != NULL && i < PyUnicode_GET_LENGTH(text); i++) {
        char letter = letters[i];
        letter = letter == 'l' || letter == 'n' ? 'q' : letter == 'L' || letter == 'N' || letter == 'P' ? 'Q' : letter;
        PyUnicode_1BYTE_DATA(wide)[i] = (Py_UCS1)letter;
    }
    Py_DECREF(text);
    return wide;
}

/* Calls with more arguments than this use formats as they are. */
#define FORMAT_ARGS_MAX 64

typedef PyObject *(*plain_t)(PyObject *, PyObject *const *, Py_ssize_t);

#define PACKING(X) X(pack) X(pack_into) X(unpack) X(iter_unpack)
#define DEFINE_PACKING(name) \
    static plain_t plain_##name; \
    static PyObject *wide_##name(PyObject *module, PyObject *const *args, Py_ssize_t count) { \
        PyObject *copy[FORMAT_ARGS_MAX]; \
        if (count == 0 || count > FORMAT_ARGS_MAX || !(PyUnicode_CheckExact(args[0]) || PyBytes_CheckExact(args[0]))) { \
            return plain_##name(module, args, count); \
        } \
        memcpy(copy, args, (size_t)count * sizeof *copy); \
        copy[0] = wide_format(args[0]); \
        PyObject *result = copy[0] != NULL ? plain_##name(module, copy, count) : NULL; \
        Py_XDECREF(copy[0]); \
        return result; \
    }
PACKING(DEFINE_PACKING)

static fast_t plain_unpack_from;

static PyObject *wide_unpack_from(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *copy[FORMAT_ARGS_MAX];
    Py_ssize_t all = count + (names != NULL ? PyTuple_GET_SIZE(names) : 0);
    if (count == 0 || all > FORMAT_ARGS_MAX || !(PyUnicode_CheckExact(args[0]) || PyBytes_CheckExact(args[0]))) {
        return plain_unpack_from(module, args, count, names);
    }
    memcpy(copy, args, (size_t)all * sizeof *copy);
    copy[0] = wide_format(args[0]);
    PyObject *result = copy[0] != NULL ? plain_unpack_from(module, copy, count, names) : NULL;
    Py_XDECREF(copy[0]);
    return result;
}

static PyCFunction plain_calcsize;

static PyObject *wide_calcsize(PyObject *module, PyObject *format) {
    PyObject *wide = wide_format(format);
    PyObject *size = wide != NULL ? plain_calcsize(module, wide) : NULL;
    Py_XDECREF(wide);
    return size;
}

static PyObject *with_wide_first(PyObject *args) {
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    PyObject *changed = PyTuple_New(count);
    for (Py_ssize_t i = 0; changed != NULL && i < count; i++) {
        PyObject *each = PyTuple_GET_ITEM(args, i);
        bool is_format = i == 0 && (PyUnicode_CheckExact(each) || PyBytes_CheckExact(each));
        PyTuple_SET_ITEM(changed, i, is_format ? wide_format(each) : Py_NewRef(each));
    }
    return changed;
}

static initproc init_struct;

static int init_wide_struct(PyObject *self, PyObject *args, PyObject *keywords) {
    PyObject *wide = with_wide_first(args);
    int failed = wide == NULL ? -1 : init_struct(self, wide, keywords);
    Py_XDECREF(wide);
    return failed;
}

static newfunc new_array;

static PyObject *new_wide_array(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    PyObject *wide = with_wide_first(args);
    PyObject *array = wide != NULL ? new_array(type, wide, keywords) : NULL;
    Py_XDECREF(wide);
    return array;
}

static PyTypeObject *type_of(const char *module_name, const char *name) {
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *type = module != NULL ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
    return (PyTypeObject *)type;
}

static int replace_formats(void) {
    PyObject *module = PyImport_ImportModule("_struct");
    if (module == NULL) {
        return -1;
    }
    PyMethodDef *method;
#define REPLACE_PACKING(name) \
    method = method_of(module, #name); \
    if (method != NULL && method->ml_flags == METH_FASTCALL) { \
        plain_##name = (plain_t)(void (*)(void))method->ml_meth; \
        method->ml_meth = (PyCFunction)(void (*)(void))wide_##name; \
    }
    PACKING(REPLACE_PACKING)
    method = method_of(module, "unpack_from");
    if (method != NULL && method->ml_flags == (METH_FASTCALL | METH_KEYWORDS)) {
        plain_unpack_from = (fast_t)(void (*)(void))method->ml_meth;
        method->ml_meth = (PyCFunction)(void (*)(void))wide_unpack_from;
    }
    method = method_of(module, "calcsize");
    if (method != NULL && method->ml_flags == METH_O) {
        plain_calcsize = method->ml_meth;
        method->ml_meth = wide_calcsize;
    }
    Py_DECREF(module);
    PyTypeObject *type = type_of("_struct", "Struct"), *array = type_of("array", "array");
    if (type == NULL || array == NULL) {
        return -1;
    }
    init_struct = type->tp_init;
    type->tp_init = init_wide_struct;
    new_array = array->tp_new;
    array->tp_new = new_wide_array;
    return 0;
}

int cellar_install_likeness(void) {
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    PyMethodDef *method = method_of(PyImport_AddModule("builtins"), "len");
    if (method != NULL) {
        builtin_len = method->ml_meth;
        method->ml_meth = any_len;
        /* Else calls of `len` are specialised to what cannot count so far. */
        interpreter->callable_cache.len = NULL;
    }
    PyTypeObject *type;
#define REPLACE_NEW(module, name) \
    type = type_of(#module, #name); \
    if (type == NULL) { \
        return -1; \
    } \
    new_##name = type->tp_new; \
    type->tp_new = new_clamped_##name;
    COUNTING(REPLACE_NEW)
    type = type_of("collections", "deque");
    if (type == NULL) {
        return -1;
    }
    init_deque = type->tp_init;
    type->tp_init = init_clamped_deque;
    return replace_status() < 0 ? -1 : replace_formats();
}
