/* Compiles a cell without building Python objects for its syntax tree, which is most of the time of a small cell. */
#define Py_BUILD_CORE 1
#include "shim.h"

#include "pycore_ast.h"
#include "pycore_compile.h"
#include "pycore_parser.h"
#include "pycore_pyarena.h"

/* `from __future__` features of the cells so far: they stay in force, as in an interactive interpreter. */
static int futures;

static PyObject *compile_part(mod_ty module, PyObject *filename, PyArena *arena) {
    PyCompilerFlags flags = _PyCompilerFlags_INIT;
    flags.cf_flags = PyCF_ALLOW_TOP_LEVEL_AWAIT | PyCF_SOURCE_IS_UTF8 | futures;
    PyCodeObject *code = _PyAST_Compile(module, filename, &flags, -1, arena);
    if (code != NULL) {
        futures |= code->co_flags & PyCF_MASK;
    }
    return (PyObject *)code;
}

static PyObject *compile_parts(mod_ty module, PyObject *filename, PyArena *arena) {
    asdl_stmt_seq *statements = module->v.Module.body;
    Py_ssize_t count = asdl_seq_LEN(statements);
    mod_ty expression = NULL;
    if (count > 0) {
        stmt_ty last = asdl_seq_GET(statements, count - 1);
        if (last->kind == Expr_kind) {
            expression = _PyAST_Expression(last->v.Expr.value, arena);
            if (expression == NULL) {
                return NULL;
            }
            statements->size = --count;
        }
    }
    PyObject *body = count > 0 ? compile_part(module, filename, arena) : Py_NewRef(Py_None);
    if (body == NULL) {
        return NULL;
    }
    PyObject *value = expression != NULL ? compile_part(expression, filename, arena) : Py_NewRef(Py_None);
    if (value == NULL) {
        Py_DECREF(body);
        return NULL;
    }
    PyObject *parts = PyTuple_Pack(2, body, value);
    Py_DECREF(body);
    Py_DECREF(value);
    return parts;
}

PyObject *cellar_compile(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "compile needs a source and a file name");
        return NULL;
    }
    Py_ssize_t length;
    const char *source = PyUnicode_AsUTF8AndSize(args[0], &length);
    if (source == NULL) {
        return NULL;
    }
    if (strlen(source) != (size_t)length) {
        PyErr_SetString(PyExc_SyntaxError, "source code string cannot contain null bytes");
        return NULL;
    }
    PyArena *arena = _PyArena_New();
    if (arena == NULL) {
        return NULL;
    }
    PyCompilerFlags flags = _PyCompilerFlags_INIT;
    flags.cf_flags = PyCF_ALLOW_TOP_LEVEL_AWAIT | PyCF_SOURCE_IS_UTF8 | PyCF_IGNORE_COOKIE | futures;
    PyObject *parts = NULL;
    mod_ty tree = _PyParser_ASTFromString(source, args[1], Py_file_input, &flags, arena);
    if (tree != NULL) {
        parts = compile_parts(tree, args[1], arena);
    }
    _PyArena_Free(arena);
    if (parts == NULL && !PyErr_Occurred()) {
        /* The parser does not always say that there was no memory. */
        PyErr_NoMemory();
    }
    return parts;
}
