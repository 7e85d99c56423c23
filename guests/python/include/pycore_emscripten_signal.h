/* Takes the place of CPython's header of this name: it lies earlier on the include path. CPython calls these two macros
   where a signal could be handled; on WASI they are empty, here they ask whether the cell must stop. */
#ifndef Py_EMSCRIPTEN_SIGNAL_H
#define Py_EMSCRIPTEN_SIGNAL_H

/* Passes of the eval breaker until the host is asked again; see poll.c. */
extern int cellar_poll_countdown;

/* Asks the host; when the cell must stop, makes the interpreter raise at its next instruction. */
void cellar_poll(void);

/* For long C loops, which ask through PyErr_CheckSignals: 1 with an exception set when the cell must stop. */
int cellar_check_stop(void);

/* 1 with an exception set when the cell must stop, of which the host has been asked just now. */
int cellar_raise_if_stopped(void);

/* In _PyErr_CheckSignalsTstate, which returns an int. */
#define _Py_CHECK_EMSCRIPTEN_SIGNALS() \
    do { \
        if (cellar_check_stop()) { \
            return -1; \
        } \
    } while (0)

/* A call of a Python function does not reach the eval breaker: RESUME_CHECK counts by these two names, and leaves its
   fast path when the count is 0. */
#define _Py_emscripten_signal_clock cellar_poll_countdown
#define Py_EMSCRIPTEN_SIGNAL_HANDLING 1

/* In CHECK_EVAL_BREAKER: each backward jump and each call. */
#define _Py_CHECK_EMSCRIPTEN_SIGNALS_PERIODICALLY() \
    do { \
        if (--cellar_poll_countdown <= 0) { \
            cellar_poll(); \
        } \
    } while (0)

#endif
