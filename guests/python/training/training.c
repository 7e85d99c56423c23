/* Runs programs.py in CPython and writes how often each piece of CPython ran to the file `/counts`.
 *
 * The builder compiles CPython for WebAssembly with clang's counters, links it with this, and reads them to compile
 * CPython for the guest. What CPython's patches call of the guest does as little as it may here: nothing is ever stopped,
 * and there is one thread. Whatever could differ from one run or one machine to the next is fixed, so that the counts are
 * the same wherever they are made. */
#include <Python.h>

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "cellar_threads.h"
#include "counters.h"
#include "pycore_emscripten_signal.h"

/* --- What CPython asks of the guest --- */

#define COUNTDOWN 768

int cellar_poll_countdown = COUNTDOWN;
/* No object is baked. */
uintptr_t cellar_sealed;
const int cellar_thread_depth = 500;
int cellar_parser_depth = 6000;
/* No stack is full. */
char *cellar_stack_end;

void cellar_poll(void) {
    cellar_poll_countdown = COUNTDOWN;
}

int cellar_check_stop(void) {
    return 0;
}

int cellar_raise_if_stopped(void) {
    return 0;
}

int cellar_lock_is_hopeless(int64_t timeout) {
    return 1;
}

PyObject *cellar_current_tasks(void) {
    return NULL;
}

int cellar_thread_was_stopped(void) {
    return 0;
}

const char *cellar_thread_refusal(void) {
    return "can't start new thread";
}

int cellar_wait_for_lock(int64_t timeout) {
    abort();
}

/* --- POSIX threads, of which there is one: its locks are free, and nobody else lets it go on --- */

int pthread_mutex_init(pthread_mutex_t *restrict mutex, const pthread_mutexattr_t *restrict attributes) {
    return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *mutex) {
    return 0;
}

int pthread_mutex_trylock(pthread_mutex_t *mutex) {
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    return 0;
}

int pthread_condattr_init(pthread_condattr_t *attributes) {
    return 0;
}

int pthread_condattr_setclock(pthread_condattr_t *attributes, clockid_t clock) {
    return 0;
}

int pthread_cond_init(pthread_cond_t *restrict condition, const pthread_condattr_t *restrict attributes) {
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *condition) {
    return 0;
}

int pthread_cond_wait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex) {
    abort();
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    abort();
}

int pthread_cond_signal(pthread_cond_t *condition) {
    return 0;
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*run)(void *),
                   void *restrict argument) {
    return EAGAIN;
}

int pthread_detach(pthread_t thread) {
    return 0;
}

int pthread_join(pthread_t thread, void **result) {
    abort();
}

pthread_t pthread_self(void) {
    return (pthread_t)(uintptr_t)&cellar_poll_countdown;
}

_Noreturn int pthread_exit(void *result) {
    abort();
}

int pthread_attr_init(pthread_attr_t *attributes) {
    return 0;
}

int pthread_attr_setstacksize(pthread_attr_t *attributes, size_t bytes) {
    return 0;
}

int pthread_attr_destroy(pthread_attr_t *attributes) {
    return 0;
}

static const void *values[PTHREAD_KEYS_MAX];
static pthread_key_t keys;

int pthread_key_create(pthread_key_t *key, void (*destroy)(void *)) {
    *key = keys;
    return keys++ < PTHREAD_KEYS_MAX ? 0 : EAGAIN;
}

int pthread_key_delete(pthread_key_t key) {
    values[key] = NULL;
    return 0;
}

void *pthread_getspecific(pthread_key_t key) {
    return (void *)values[key];
}

int pthread_setspecific(pthread_key_t key, const void *value) {
    values[key] = value;
    return 0;
}

/* --- The module `training` --- */

static PyObject *begin(PyObject *module, PyObject *unused) {
    counters_clear();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"begin", begin, METH_NOARGS, "Forgets what was counted so far."},
    {0},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "training", .m_methods = methods};

static PyObject *make_module(void) {
    return PyModule_Create(&definition);
}

static const char programs[] = {
#embed "programs.py"
    , 0};

/* Starts CPython with nothing of what it would find on its machine. */
static bool start(void) {
    PyPreConfig before;
    PyPreConfig_InitIsolatedConfig(&before);
    before.utf8_mode = 1;
    PyStatus status = Py_PreInitialize(&before);
    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    config.use_hash_seed = 1;
    config.hash_seed = 0;
    config.site_import = 0;
    config.write_bytecode = 0;
    config.module_search_paths_set = 1;
    if (!PyStatus_Exception(status)) {
        status = PyWideStringList_Append(&config.module_search_paths, L"/start");
    }
    if (!PyStatus_Exception(status)) {
        status = Py_InitializeFromConfig(&config);
    }
    PyConfig_Clear(&config);
    if (PyStatus_Exception(status)) {
        fprintf(stderr, "CPython did not start: %s\n", status.err_msg);
        return false;
    }
    return true;
}

int main(void) {
    if (PyImport_AppendInittab("training", make_module) != 0 || !start()) {
        return 1;
    }
    if (PyRun_SimpleString(programs) != 0) {
        return 1;
    }
    bool is_written = counters_write();
    /* Taking CPython down would be a matter of minutes in Node, and of no use. */
    _Exit(is_written ? 0 : 1);
}
