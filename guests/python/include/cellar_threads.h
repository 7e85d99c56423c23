/* What CPython asks of the shim's threads; see threads.c. */
#ifndef CELLAR_THREADS_H
#define CELLAR_THREADS_H

#include <stdint.h>

/* Whether nobody is there who could release a lock that a thread would wait for, with nanoseconds or -1. */
int cellar_lock_is_hopeless(int64_t timeout);

/* Called instead of such a wait: the time passes, or an exception says that nobody will release it. Returns a
   PyLockStatus. */
int cellar_wait_for_lock(int64_t timeout);

/* The current tasks of loops in the running thread, borrowed; NULL where they are the interpreter's. */
struct _object *cellar_current_tasks(void);

/* Whether the wait of this thread was cut short, with the exception set that says why. */
int cellar_thread_was_stopped(void);

/* For long C loops: 1 with an exception set when the cell must stop. */
int cellar_check_stop(void);

/* Why the last thread that was asked for was not started. */
const char *cellar_thread_refusal(void);

/* Levels of C recursion that a thread besides the main one may reach, as CPython counts them. */
extern const int cellar_thread_depth;

/* Levels of the parser that the running thread may reach. */
extern int cellar_parser_depth;

#endif
