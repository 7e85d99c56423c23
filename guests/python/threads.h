/* What the C files about threads share: threads.c schedules them, pthreads.c has what CPython knows of POSIX threads, and
   thread_methods.c what the prelude is given. */
#ifndef CELLAR_PYTHON_THREADS_H
#define CELLAR_PYTHON_THREADS_H

#include <limits.h>
#include <pthread.h>

#include "shim.h"

#define NEVER UINT64_MAX

/* IDLE is the main thread alone, between visits. */
enum progress { RUNNING, READY, WAITING, OVER, IDLE };

/* Why a wait was cut short. */
enum cut { NOT_CUT, CUT_BY_STOP, CUT_BY_DEADLOCK, CUT_BY_END };

struct thread {
    enum progress progress;
    /* Those that became ready, or began to wait, earlier have a smaller number. */
    uint64_t order;
    uint32_t index;
    void *stack_pointer;
    uint64_t *stack;
    void *(*run)(void *);
    void *argument;
    /* Nobody will join it any more. */
    bool is_given_up;
    /* Runs what the host entered the guest for: see `cellar_visit`. */
    bool is_visitor;
    /* The entry that it was made for has returned; it goes on in later ones. */
    bool is_away;
    /* The main thread ended its last visit without the interpreter lock. */
    bool has_released;
    /* Current tasks of asyncio loops, in a visitor besides the main thread. */
    PyObject *tasks;
    /* The condition, or whatever else it waits for, and until when. */
    const void *waits_for;
    uint64_t until;
    bool has_timed_out;
    enum cut cut;
    /* The call that it waits for, and its end. */
    uint64_t call;
    kernel_completion_t *completion;
    /* What the running thread has in globals. */
    int error_number;
    uint32_t cell;
    PyThreadState *state;
    struct cellar_poll_state poll;
    bool is_prelude;
    const void *keys[PTHREAD_KEYS_MAX];
    /* What C++ code has of its own, where there is such code: exceptions that were caught, and those that were not yet; and
       the call at hand. */
    struct {
        void *caught;
        unsigned uncaught;
    } exceptions;
    void *call_frame;
};

extern struct thread cellar_main_thread;
/* The one that has its turn. */
extern struct thread *cellar_running;

/* All of them, by numbers from 0 on, those that are over included; NULL after the last. */
struct thread *cellar_thread_at(int i);
/* The one that `threading.get_ident` names so, unless it is over. Not the main thread. */
struct thread *cellar_thread_find(uintptr_t ident);
/* Ends the waits of visitors that nothing else can end: nothing is ready, due or called. Whether there were any. */
bool cellar_threads_cut_deadlock(void);
/* Lets others run until something stops the wait. The interpreter lock is not held. */
void cellar_wait_for(const void *what, uint64_t until);
void cellar_stop_waiting(struct thread *thread);
/* Cuts the wait of a thread short, if it waits. */
void cellar_cut_short(struct thread *thread, enum cut why);

/* Threads of programs that are alive. */
int cellar_threads_count(void);
/* Whether there is no other thread, none was lost, none has stopped with its cell, and the prelude has seen the ends of all
   calls. */
bool cellar_threads_are_settled(void);
/* Gives every other thread that is ready a turn. When the next one is ready: 0 for now, NEVER for never. */
uint64_t cellar_threads_run(void);
/* The ends of calls that no thread has waited for; the caller frees them. */
kernel_list_completion_t cellar_threads_take_completions(void);
/* How many threads a captured memory had since this was last asked. */
int cellar_threads_take_lost(void);

#endif
