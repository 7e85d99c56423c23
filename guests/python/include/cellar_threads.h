/* What CPython asks of the shim's threads; see threads.c. */
#ifndef CELLAR_THREADS_H
#define CELLAR_THREADS_H

#include <stdint.h>

/* Whether the main thread is the only one. */
int cellar_thread_is_alone(void);

/* Called where the only thread would wait for a lock that is held, with nanoseconds or -1: the time passes, or an
   exception says that nobody will release it. Returns a PyLockStatus. */
int cellar_wait_for_lock(int64_t timeout);

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
