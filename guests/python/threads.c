/* Threads that take turns: POSIX threads for CPython, made of the component model's cooperative threads.

   One thread runs at a time, and the next is always named, either here or, when all wait, by the host: no two threads ever
   run at once, so that nothing here needs a lock. A switch happens where a thread waits for a condition, sleeps or waits
   for a call, and, for code that does none of it, at a poll when it has had its time. The order depends on nothing but
   the guest's own state and the clocks, which the host records: a replay schedules in the same way.

   The main thread is the one in which the host entered the guest, which is another one of the component model each time.
   Threads do not end with an entry: they stand still until the next. */
#define Py_BUILD_CORE 1
#include "shim.h"
#include "threads.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cellar_threads.h"
#include "glue.h"
#include "pycore_interp.h"
#include "pycore_parking_lot.h"
#include "pycore_pystate.h"

#define ROOT(name) __attribute__((import_module("$root"), import_name(name)))
ROOT("[thread-new-indirect-v0]") uint32_t thread_new_indirect(void (*start)(void *), void *argument);
ROOT("[thread-index]") uint32_t thread_index(void);
ROOT("[thread-suspend-then-resume]") uint32_t thread_suspend_then_resume(uint32_t index);
ROOT("[thread-resume-later]") void thread_resume_later(uint32_t index);

/* Threads besides the main one. */
#define THREADS_MAX 64
#define STRING(value) #value
#define TEXT(value) STRING(value)

/* The C stack of a thread. No page guards it: what guards it are the depths below, in the proportion in which the main
   thread's 4,000 levels of C and 6,000 of the parser stand to its 8 MiB, where CPython stops before it is full, and a look at
   its end at each switch. */
#define STACK_BYTES (1 << 20)
#define PARSER_DEPTH 6000
#define PARSER_DEPTH_OF_THREAD (PARSER_DEPTH / 8)
const int cellar_thread_depth = 4000 / 8;
int cellar_parser_depth = PARSER_DEPTH;
/* What of a stack CPython leaves alone, for what it calls. The main thread's stack begins at the address 0. */
#define STACK_LEFT (256 << 10)
#define STACK_LEFT_OF_THREAD (64 << 10)
char *cellar_stack_end = (char *)STACK_LEFT;
/* At the end of a stack so many words are never written. */
#define GUARD_WORDS 8
/* So many bytes of zeros below what a stack has used are taken for the untouched rest of it. */
#define UNTOUCHED_BYTES (32 << 10)
/* Stacks that are kept for threads to come. */
#define SPARES_MAX 4

/* How long a thread runs while others are ready, in nanoseconds. */
#define SLICE 5000000

extern _Thread_local PyThreadState *_Py_tss_tstate;

struct thread cellar_main_thread = {.progress = RUNNING};
struct thread *cellar_running = &cellar_main_thread;
/* All others, those that are over included until somebody else runs. */
static struct thread *others[THREADS_MAX + 1];
static int others_count, alive;
static uint64_t last_order;
/* Threads that wait for a call. */
static int callers;
/* When the current thread got its turn; 0 when that has to be asked first. */
static uint64_t turn_began;
/* Set while the guest works for no cell: no thread but the main one has a turn. */
static bool is_held;
static const char *refusal;
/* Threads that were alive in a memory that was captured. */
static int lost;
static uint64_t *spares[SPARES_MAX];
static int spares_count;
/* Ends of calls that no thread waits for: the prelude takes them when it has its turn. */
static kernel_completion_t *undelivered;
static size_t undelivered_count, undelivered_room;

int cellar_thread_is_alone(void) {
    return alive == 0;
}

uint32_t cellar_thread_cell(void) {
    return cellar_running == &cellar_main_thread ? 0 : glue_cell;
}

/* --- Stacks --- */

static inline void *stack_pointer(void) {
    void *pointer;
    __asm__ volatile("global.get __stack_pointer\nlocal.set %0" : "=r"(pointer));
    return pointer;
}

static inline void set_stack_pointer(void *pointer) {
    __asm__ volatile("local.get %0\nglobal.set __stack_pointer" ::"r"(pointer));
}

static uint64_t *new_stack(void) {
    return spares_count > 0 ? spares[--spares_count] : calloc(1, STACK_BYTES);
}

/* Zeros what was used of a stack, so that it takes no room in a snapshot and can be used again. */
static void free_stack(uint64_t *stack) {
    const size_t words = STACK_BYTES / sizeof *stack, untouched = UNTOUCHED_BYTES / sizeof *stack;
    size_t zeros = 0;
    for (size_t at = words; at > 0 && zeros < untouched; at--) {
        zeros = stack[at - 1] == 0 ? zeros + 1 : 0;
        stack[at - 1] = 0;
    }
    if (spares_count < SPARES_MAX) {
        spares[spares_count++] = stack;
    } else {
        free(stack);
    }
}

static void check_guard(const struct thread *thread) {
    for (int i = 0; thread->stack != NULL && i < GUARD_WORDS; i++) {
        if (thread->stack[i] != 0) {
            glue_log("a thread has used up its stack");
            __builtin_trap();
        }
    }
}

/* Lets go of the threads that are over. Not of the current one, which stands on its stack. */
static void bury(void) {
    for (int i = 0; i < others_count;) {
        struct thread *thread = others[i];
        if (thread->progress != OVER || thread == cellar_running) {
            i++;
            continue;
        }
        others[i] = others[--others_count];
        free_stack(thread->stack);
        thread->stack = NULL;
        if (thread->is_given_up) {
            free(thread);
        }
    }
}

/* --- Who runs --- */

struct thread *cellar_thread_at(int i) {
    return i < others_count ? others[i] : i == others_count ? &cellar_main_thread : NULL;
}

struct thread *cellar_thread_find(uintptr_t ident) {
    for (int i = 0; i < others_count; i++) {
        if ((uintptr_t)others[i] == ident && others[i]->progress != OVER) {
            return others[i];
        }
    }
    return NULL;
}

static void make_ready(struct thread *thread) {
    thread->progress = READY;
    thread->order = ++last_order;
}

void cellar_stop_waiting(struct thread *thread) {
    if (thread->call != 0) {
        callers--;
    }
    thread->waits_for = NULL;
    make_ready(thread);
}

void cellar_cut_short(struct thread *thread, enum cut why) {
    if (thread->progress == WAITING) {
        thread->cut = why;
        cellar_stop_waiting(thread);
    }
}

void cellar_threads_stop(uint32_t cell) {
    for (int i = 0; i <= others_count; i++) {
        if (cellar_thread_at(i)->cell == cell) {
            cellar_cut_short(cellar_thread_at(i), CUT_BY_STOP);
        }
    }
}

/* The thread whose wait is over first; NULL when none waits until some time. */
static struct thread *first_due(void) {
    struct thread *first = NULL;
    for (int i = 0; i <= others_count; i++) {
        struct thread *thread = cellar_thread_at(i);
        bool waits = thread->progress == WAITING && thread->until != NEVER && (!is_held || thread == &cellar_main_thread);
        if (waits && (first == NULL || thread->until < first->until)) {
            first = thread;
        }
    }
    return first;
}

/* Makes those ready whose time has come, in the order in which it has; returns when the next one's comes. */
static uint64_t wake_due(uint64_t now) {
    struct thread *next;
    while ((next = first_due()) != NULL && next->until <= now) {
        next->has_timed_out = true;
        cellar_stop_waiting(next);
    }
    return next != NULL ? next->until : NEVER;
}

/* The thread that has been ready for longest; NULL when none is. */
static struct thread *first_ready(void) {
    struct thread *first = NULL;
    for (int i = 0; i <= others_count; i++) {
        struct thread *thread = cellar_thread_at(i);
        bool may_run = thread->progress == READY && (!is_held || thread == &cellar_main_thread);
        if (may_run && (first == NULL || thread->order < first->order)) {
            first = thread;
        }
    }
    return first;
}

/* Whether a thread waits for this call, which it is then given the end of. */
static bool give_to_caller(kernel_completion_t *completion) {
    for (int i = 0; callers > 0 && i <= others_count; i++) {
        struct thread *thread = cellar_thread_at(i);
        if (thread->progress == WAITING && thread->call == completion->call) {
            *thread->completion = *completion;
            cellar_stop_waiting(thread);
            thread->call = 0;
            return true;
        }
    }
    return false;
}

bool cellar_threads_deliver(kernel_completion_t *completion) {
    bool given = give_to_caller(completion);
    if (given) {
        /* What it has is the caller's now. */
        memset(completion, 0, sizeof *completion);
    }
    return given;
}

static void set_aside(const kernel_completion_t *completion) {
    if (undelivered_count == undelivered_room) {
        size_t room = undelivered_room == 0 ? 16 : undelivered_room * 2;
        kernel_completion_t *grown = realloc(undelivered, room * sizeof *grown);
        if (grown == NULL) {
            __builtin_trap(); /* a call whose end is never told would hang its cell */
        }
        undelivered = grown;
        undelivered_room = room;
    }
    undelivered[undelivered_count++] = *completion;
}

/* All wait: the host has its turn. The cell in whose name it does is that of the main thread, which holds the guest. */
static void let_host_wait(uint64_t until) {
    uint32_t cell = cellar_main_thread.cell;
    cellar_stream_flush();
    if (callers == 0) {
        cellar_kernel_control_sleep_until(cell, until);
    } else {
        cellar_kernel_control_list_completion_t ended = {0};
        cellar_kernel_control_wait(cell, until, &ended);
        for (size_t i = 0; i < ended.len; i++) {
            if (!give_to_caller(&ended.ptr[i])) {
                set_aside(&ended.ptr[i]);
            }
        }
        if (ended.len > 0) {
            free(ended.ptr);
        }
    }
    cellar_kernel_control_stop_reason_t reason;
    if (cellar_kernel_control_should_stop(cell, &reason)) {
        cellar_threads_stop(cell);
    }
}

/* Signals are handled in the main thread, whose wait ends for it, unless that is for a call. */
static bool may_be_signalled(void) {
    return cellar_main_thread.progress == WAITING && cellar_main_thread.call == 0;
}

void cellar_threads_signal(void) {
    if (alive > 0 && may_be_signalled()) {
        cellar_stop_waiting(&cellar_main_thread);
    }
}

static struct thread *next_to_run(void) {
    for (;;) {
        uint64_t now = cellar_kernel_control_monotonic_clock(), earliest = wake_due(now);
        if (may_be_signalled()) {
            earliest = cellar_alarm_before(earliest);
            if (earliest <= now) {
                cellar_stop_waiting(&cellar_main_thread);
            }
        }
        struct thread *next = first_ready();
        if (next != NULL) {
            return next;
        }
        bool awaits_call = is_held ? cellar_main_thread.call != 0 : callers > 0;
        if (earliest == NEVER && !awaits_call) {
            cellar_cut_short(&cellar_main_thread, CUT_BY_DEADLOCK);
        } else {
            let_host_wait(earliest);
        }
    }
}

/* Sets how deep the running thread may recurse. */
static void set_limits(const struct thread *me) {
    bool is_main = me == &cellar_main_thread;
    cellar_parser_depth = is_main ? PARSER_DEPTH : PARSER_DEPTH_OF_THREAD;
    cellar_stack_end = is_main ? (char *)STACK_LEFT : (char *)me->stack + STACK_LEFT_OF_THREAD;
}

/* Runs another thread until this one has its turn again. */
static __attribute__((noinline)) void switch_to(struct thread *next) {
    struct thread *me = cellar_running;
    if (next != me) {
        if (me == &cellar_main_thread) {
            me->index = thread_index();
        }
        check_guard(me);
        me->stack_pointer = stack_pointer();
        me->error_number = errno;
        me->cell = glue_cell;
        me->state = _Py_tss_tstate;
        me->poll = cellar_poll_state;
        me->is_prelude = cellar_guard_is_held();
        cellar_running = next;
        thread_suspend_then_resume(next->index);
        set_stack_pointer(me->stack_pointer);
        errno = me->error_number;
        glue_cell = me->cell;
        _Py_tss_tstate = me->state;
        cellar_poll_state = me->poll;
        cellar_guard_switch(me->is_prelude);
        set_limits(me);
        cellar_running = me;
        turn_began = 0;
        bury();
    }
    me->progress = RUNNING;
}

void cellar_wait_for(const void *what, uint64_t until) {
    cellar_running->progress = WAITING;
    cellar_running->order = ++last_order;
    cellar_running->waits_for = what;
    cellar_running->until = until;
    cellar_running->has_timed_out = false;
    cellar_running->cell = glue_cell;
    switch_to(next_to_run());
}

bool cellar_threads_sleep(uint64_t until) {
    if (alive == 0) {
        return false;
    }
    cellar_wait_for(&cellar_main_thread, until);
    return true;
}

static void sleep_in_c(uint64_t until) {
    if (!cellar_threads_sleep(until)) {
        cellar_kernel_control_sleep_until(glue_cell, until);
    }
}

/* --- A thread's life --- */

static __attribute__((noinline)) void live(void) {
    cellar_running->run(cellar_running->argument);
    check_guard(cellar_running);
    cellar_running->progress = OVER;
    uint32_t left = (uint32_t)--alive;
    cellar_kernel_control_threads(&left);
    struct thread *next = next_to_run();
    cellar_running = next;
    thread_resume_later(next->index);
}

/* Sets its stack first: it must have no frame of its own. */
static void begin(void *argument) {
    set_stack_pointer(((struct thread *)argument)->stack_pointer);
    _Py_tss_tstate = NULL;
    glue_cell = ((struct thread *)argument)->cell;
    cellar_poll_state = (struct cellar_poll_state){.enabled = 1};
    cellar_guard_switch(false);
    set_limits(argument);
    cellar_running->progress = RUNNING;
    turn_began = 0;
    bury();
    live();
}

const char *cellar_thread_refusal(void) {
    return refusal;
}

static int refuse(const char *why) {
    refusal = why;
    return EAGAIN;
}

int pthread_create(pthread_t *restrict created, const pthread_attr_t *restrict attributes, void *(*run)(void *),
                   void *restrict argument) {
    bury();
    uint32_t wanted = (uint32_t)alive + 1;
    if (is_held || glue_baking) {
        return refuse("can't start new thread: no cell runs that it could belong to");
    }
    if (wanted > THREADS_MAX) {
        return refuse("can't start new thread: at most " TEXT(THREADS_MAX) " threads can be alive at once in this sandbox; "
                      "join some first, or hand the work to ThreadPoolExecutor(max_workers=...)");
    }
    struct thread *thread = calloc(1, sizeof *thread);
    uint64_t *stack = new_stack();
    if (thread == NULL || stack == NULL) {
        free(thread);
        free(stack);
        return refuse("can't start new thread: there is no memory for its stack");
    }
    if (cellar_kernel_control_threads(&wanted) < wanted) {
        free(thread);
        free_stack(stack);
        return refuse("can't start new thread: too many threads of all sessions are alive on this host");
    }
    thread->stack = stack;
    thread->stack_pointer = (char *)stack + STACK_BYTES;
    thread->run = run;
    thread->argument = argument;
    thread->cell = cellar_current_cell();
    thread->index = thread_new_indirect(begin, thread);
    alive++;
    glue_sleep = sleep_in_c;
    others[others_count++] = thread;
    make_ready(thread);
    *created = (pthread_t)thread;
    return 0;
}

pthread_t pthread_self(void) {
    return (pthread_t)cellar_running;
}

int pthread_detach(pthread_t joined) {
    struct thread *thread = (struct thread *)joined;
    thread->is_given_up = true;
    if (thread->stack == NULL) {
        free(thread);
    }
    return 0;
}

/* CPython joins only those that are about to end. */
int pthread_join(pthread_t joined, void **value) {
    struct thread *thread = (struct thread *)joined;
    while (thread->stack != NULL) {
        make_ready(cellar_running);
        switch_to(next_to_run());
        bury();
    }
    free(thread);
    return 0;
}

int pthread_attr_init(pthread_attr_t *attributes) {
    return 0;
}

int pthread_attr_setstacksize(pthread_attr_t *attributes, size_t size) {
    return 0;
}

int pthread_attr_destroy(pthread_attr_t *attributes) {
    return 0;
}

/* --- For the shim and the prelude --- */

int cellar_thread_was_stopped(void) {
    enum cut why = cellar_running->cut;
    cellar_running->cut = NOT_CUT;
    switch (why) {
    case NOT_CUT:
        if (cellar_running == &cellar_main_thread) {
            cellar_alarm_check(cellar_kernel_control_monotonic_clock());
        }
        return 0;
    case CUT_BY_STOP:
        return cellar_raise_if_stopped();
    case CUT_BY_DEADLOCK:
        PyErr_SetString(PyExc_RuntimeError, "deadlock: every thread waits for another one, so that none can go on");
        return 1;
    case CUT_BY_END:
        PyErr_SetNone(PyExc_SystemExit);
        return 1;
    }
    return 0;
}

/* The interpreter lock is held, and the interpreter's state is whole. */
void cellar_threads_take_turns(void) {
    uint64_t now = cellar_kernel_control_monotonic_clock();
    if (turn_began == 0) {
        turn_began = now;
    }
    if (now - turn_began < SLICE) {
        return;
    }
    turn_began = now;
    wake_due(now);
    struct thread *next = first_ready();
    if (next != NULL) {
        PyThreadState *state = PyEval_SaveThread();
        make_ready(cellar_running);
        switch_to(next);
        PyEval_RestoreThread(state);
    }
}

bool cellar_threads_call(uint64_t call, uint64_t until, kernel_completion_t *completion) {
    cellar_running->call = call;
    cellar_running->completion = completion;
    callers++;
    completion->call = 0;
    PyThreadState *state = PyEval_SaveThread();
    cellar_wait_for(completion, until);
    PyEval_RestoreThread(state);
    cellar_running->call = 0;
    return completion->call == call;
}

void cellar_threads_hold(bool hold) {
    is_held = hold;
    if (alive == 0 || cellar_kernel_control_threads(NULL) > 0) {
        return;
    }
    /* This memory was captured while they were alive, and what the component model had of them is gone. */
    lost += alive;
    alive = callers = 0;
    for (int i = 0; i < others_count; i++) {
        others[i]->progress = OVER;
    }
    bury();
    /* As in the child of a fork. */
    _PyParkingLot_AfterFork();
    PyInterpreterState_Get()->threads.count = 0;
    _PyThreadState_DeleteList(_PyThreadState_RemoveExcept(PyThreadState_Get()));
}

bool cellar_threads_are_settled(void) {
    return alive == 0 && lost == 0 && undelivered_count == 0 && cellar_main_thread.cut == NOT_CUT;
}

uint64_t cellar_threads_run(void) {
    uint64_t earliest = wake_due(cellar_kernel_control_monotonic_clock());
    struct thread *next = first_ready();
    if (next == NULL) {
        return earliest;
    }
    PyThreadState *state = PyEval_SaveThread();
    make_ready(cellar_running);
    switch_to(next);
    PyEval_RestoreThread(state);
    if (cellar_guard_is_held()) {
        /* They may have begun to watch this thread. */
        cellar_guard_hold();
    }
    earliest = wake_due(cellar_kernel_control_monotonic_clock());
    return first_ready() != NULL ? 0 : earliest;
}

kernel_list_completion_t cellar_threads_take_completions(void) {
    kernel_list_completion_t list = {undelivered, undelivered_count};
    undelivered = NULL;
    undelivered_count = undelivered_room = 0;
    return list;
}

int cellar_threads_take_lost(void) {
    int count = lost;
    lost = 0;
    return count;
}
