/* Threads that take turns: POSIX threads for CPython, made of the component model's cooperative threads.

   One thread runs at a time, and the next is always named, either here or, when all wait, by the host: no two threads ever
   run at once, so that nothing here needs a lock. A switch happens where a thread waits for a condition, sleeps or waits
   for a call, and, for code that does none of it, at a poll when it has had its time. The order depends on nothing but
   the guest's own state and the clocks, which the host records: a replay schedules in the same way.

   What the host enters the guest for is a *visit*: it runs in a thread of the guest's own, and the thread in which the host
   came in, the door, only waits for it. When all threads wait, the door returns to the host, and the visitor is *away*: it
   goes on in a later entry, as every thread does. So a cell that sleeps or waits for a call holds up no other. The visitor
   is the main thread, or another one as long as that is away. */
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

/* Threads of programs. */
#define THREADS_MAX 64
/* Visitors that are away at a time. Where there are so many, a visitor that waits keeps the host waiting. */
#define AWAY_MAX 32
/* What of the main thread's stack is the door's. */
#define DOOR_BYTES (64 << 10)
/* Nanoseconds of a sleep that is not worth a way to the host and back. */
#define NAP 1000000
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
/* The upper end of the main stack, from the linker. */
extern char __stack_high;

struct thread cellar_main_thread = {.progress = RUNNING, .is_visitor = true};
struct thread *cellar_running = &cellar_main_thread;
/* The thread in which the host entered the guest. */
static struct thread door;
/* The visitor of this entry; NULL when it is away, and between entries. While the guest is baked there are no visits. */
static struct thread *visitor = &cellar_main_thread;
/* Whether the entry may return before it; whether it has ended. */
static bool may_go_away, has_visit_ended;
static int away_count;
/* Set where a memory was restored that was captured while threads were alive, until the interpreter has heard of it. */
static bool must_forget_lost;
/* All others, those that are over included until somebody else runs. */
static struct thread *others[THREADS_MAX + AWAY_MAX + 2];
/* Threads that are alive besides the main one, with that when it is away. */
static int others_count, alive;
static uint64_t last_order;
/* Threads that wait for a call. */
static int callers;
/* When the current thread got its turn; 0 when that has to be asked first. */
static uint64_t turn_began;
/* Set while the guest works for no cell: no thread but the visitor has a turn. */
static bool is_held;
static const char *refusal;
/* Threads that were alive in a memory that was captured. */
static int lost;
static uint64_t *spares[SPARES_MAX];
static int spares_count;
/* Ends of calls that no thread waits for: the prelude takes them when it has its turn. */
static kernel_completion_t *undelivered;
static size_t undelivered_count, undelivered_room;

bool cellar_thread_is_alone(void) {
    return alive == 0;
}

int cellar_threads_count(void) {
    return alive - away_count - (visitor != NULL && visitor != &cellar_main_thread ? 1 : 0);
}

uint32_t cellar_thread_cell(void) {
    return cellar_running->is_visitor ? 0 : glue_cell;
}

/* Whether the host can have its turn while the visitor waits. */
static bool may_leave(void) {
    return visitor != NULL && may_go_away && !is_held && !glue_baking;
}

/* Has the host keep room for the threads that are alive, and for the visitor of an entry while another one is away. */
static bool keep_room(int more_alive, int more_away) {
    int away = away_count + more_away;
    uint32_t wanted = (uint32_t)(alive + more_alive + (away > 0 ? 1 : 0));
    return cellar_kernel_control_threads(&wanted) >= wanted;
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
        bool waits = thread->progress == WAITING && thread->until != NEVER && (!is_held || thread == visitor);
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

/* The thread that has been ready for longest, but for one; NULL when none is. */
static struct thread *first_ready_but(const struct thread *excluded) {
    struct thread *first = NULL;
    for (int i = 0; i <= others_count; i++) {
        struct thread *thread = cellar_thread_at(i);
        bool may_run = thread->progress == READY && thread != excluded && (!is_held || thread == visitor);
        if (may_run && (first == NULL || thread->order < first->order)) {
            first = thread;
        }
    }
    return first;
}

static struct thread *first_ready(void) {
    return first_ready_but(NULL);
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

/* All wait, and the guest is not left: the host waits within it, in the name of the visitor's cell. */
static void let_host_wait(uint64_t until) {
    uint32_t cell = visitor != NULL ? visitor->cell : 0;
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

/* Makes those ready whose time has come, for a signal too; returns when the next one's comes. */
static uint64_t wake_all(uint64_t now) {
    uint64_t earliest = wake_due(now);
    if (may_be_signalled()) {
        earliest = cellar_alarm_before(earliest);
        if (earliest <= now) {
            cellar_stop_waiting(&cellar_main_thread);
        }
    }
    return earliest;
}

/* Has the host go on while the visitor waits, unless there is no room for what that takes. */
static bool leave(void) {
    bool is_main = visitor == &cellar_main_thread;
    if (!may_leave() || away_count == AWAY_MAX || !keep_room(is_main, 1)) {
        return false;
    }
    visitor->is_away = true;
    away_count++;
    alive += is_main;
    visitor = NULL;
    has_visit_ended = false;
    return true;
}

static struct thread *next_to_run(void) {
    for (;;) {
        uint64_t earliest = wake_all(cellar_kernel_control_monotonic_clock());
        struct thread *next = first_ready();
        if (next != NULL) {
            return next;
        }
        if (leave()) {
            return &door;
        }
        bool awaits_call = is_held && visitor != NULL ? visitor->call != 0 : callers > 0;
        if (earliest == NEVER && !awaits_call) {
            cellar_cut_short(visitor != NULL ? visitor : &cellar_main_thread, CUT_BY_DEADLOCK);
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

void cellar_threads_sleep(uint64_t until) {
    bool is_alone = alive == 0;
    if (is_alone && (!may_leave() || until < cellar_kernel_control_monotonic_clock() + NAP)) {
        cellar_kernel_control_sleep_until(glue_cell, until);
    } else {
        cellar_wait_for(&cellar_main_thread, until);
    }
}

/* --- A thread's life --- */

/* Notes that the running thread has ended, and gives the next one its turn. */
static void end(void) {
    struct thread *me = cellar_running;
    check_guard(me);
    bool is_main = me == &cellar_main_thread;
    me->progress = is_main ? IDLE : OVER;
    alive -= !is_main || me->is_away;
    away_count -= me->is_away;
    if (!is_main || me->is_away) {
        keep_room(0, 0);
    }
    me->is_away = false;
    has_visit_ended = me == visitor;
    if (has_visit_ended) {
        visitor = NULL;
    }
    struct thread *next = has_visit_ended ? &door : next_to_run();
    cellar_running = next;
    thread_resume_later(next->index);
}

static __attribute__((noinline)) void live(void) {
    cellar_running->run(cellar_running->argument);
    end();
}

/* Sets its stack first: it must have no frame of its own. */
static void begin(void *argument) {
    set_stack_pointer(((struct thread *)argument)->stack_pointer);
    _Py_tss_tstate = ((struct thread *)argument)->has_released ? NULL : ((struct thread *)argument)->state;
    glue_cell = ((struct thread *)argument)->cell;
    cellar_poll_state = (struct cellar_poll_state){.enabled = !((struct thread *)argument)->is_visitor};
    cellar_guard_switch(((struct thread *)argument)->is_visitor);
    set_limits(argument);
    cellar_running->progress = RUNNING;
    turn_began = 0;
    bury();
    live();
}

/* Makes a thread with a stack of its own; NULL when there is no memory for it. */
static struct thread *make_thread(void) {
    struct thread *thread = calloc(1, sizeof *thread);
    uint64_t *stack = new_stack();
    if (thread == NULL || stack == NULL) {
        free(thread);
        free(stack);
        return NULL;
    }
    thread->stack = stack;
    thread->stack_pointer = (char *)stack + STACK_BYTES;
    return thread;
}

static void add_thread(struct thread *thread) {
    thread->index = thread_new_indirect(begin, thread);
    alive++;
    others[others_count++] = thread;
}

/* --- Visits --- */

/* The work of the entry at hand. */
struct work {
    void (*run)(void *);
    void *argument;
};

/* Makes the interpreter forget the threads that were lost, as in the child of a fork. */
static void forget_lost(void) {
    if (must_forget_lost) {
        must_forget_lost = false;
        bury();
        _PyParkingLot_AfterFork();
        PyInterpreterState_Get()->threads.count = 0;
        _PyThreadState_DeleteList(_PyThreadState_RemoveExcept(PyThreadState_Get()));
    }
}

/* Makes the interpreter's state of the main thread anew: its frames were lost with the stacks of a captured memory. */
static void renew_main_state(void) {
    PyInterpreterState *interpreter = PyInterpreterState_Main();
    PyThreadState *state = PyThreadState_New(interpreter);
    if (state == NULL) {
        __builtin_trap(); /* `prepare_memory` has left room for it */
    }
    PyEval_RestoreThread(state);
    _PyRuntime.main_tstate = state;
}

static void *visit_as_main(void *argument) {
    struct work work = *(struct work *)argument;
    struct thread *me = &cellar_main_thread;
    if (me->state == NULL) {
        renew_main_state();
    } else if (me->has_released) {
        PyEval_RestoreThread(me->state);
    }
    me->has_released = false;
    forget_lost();
    work.run(work.argument);
    me->state = _Py_tss_tstate;
    if (me->is_away) {
        /* Another visitor is in the middle of its work. */
        me->has_released = true;
        PyEval_SaveThread();
    }
    return NULL;
}

static void *visit_instead(void *argument) {
    struct work work = *(struct work *)argument;
    PyThreadState *state = PyThreadState_New(PyInterpreterState_Main());
    if (state == NULL) {
        __builtin_trap(); /* `prepare_memory` has left room for it */
    }
    PyEval_RestoreThread(state);
    state->c_recursion_remaining = cellar_thread_depth;
    cellar_running->tasks = PyDict_New();
    cellar_note_visit(true);
    work.run(work.argument);
    cellar_note_visit(false);
    Py_CLEAR(cellar_running->tasks);
    PyThreadState_Clear(state);
    PyThreadState_DeleteCurrent();
    return NULL;
}

PyObject *cellar_current_tasks(void) {
    return cellar_running->tasks;
}

bool cellar_visit_is_over(void) {
    return cellar_running->is_away;
}

/* Notes the threads that were alive in a memory that was captured: what the component model had of them is gone. */
static void note_lost(void) {
    if (alive == 0 || cellar_kernel_control_threads(NULL) > 0) {
        return;
    }
    lost += alive;
    alive = callers = away_count = 0;
    for (int i = 0; i < others_count; i++) {
        others[i]->progress = OVER;
    }
    must_forget_lost = true;
    if (cellar_main_thread.is_away) {
        cellar_main_thread = (struct thread){.progress = IDLE, .is_visitor = true};
    }
}

bool cellar_visit(void (*run)(void *), void *argument, bool may_return) {
    may_go_away = may_return;
    struct work work = {run, argument};
    note_lost();
    bool is_main = !cellar_main_thread.is_away;
    struct thread *thread = is_main ? &cellar_main_thread : make_thread();
    if (thread == NULL) {
        __builtin_trap(); /* `prepare_memory` has left room for it */
    }
    thread->run = is_main ? visit_as_main : visit_instead;
    thread->argument = &work;
    thread->is_visitor = true;
    thread->cell = glue_cell;
    if (is_main) {
        thread->stack_pointer = &__stack_high - DOOR_BYTES;
        thread->index = thread_new_indirect(begin, thread);
    } else {
        thread->is_given_up = true;
        add_thread(thread);
    }
    visitor = cellar_running = thread;
    glue_sleep = cellar_threads_sleep;
    door.index = thread_index();
    door.stack_pointer = stack_pointer();
    thread_suspend_then_resume(thread->index);
    set_stack_pointer(door.stack_pointer);
    return has_visit_ended;
}

void cellar_visits_begin(void) {
    cellar_main_thread.state = _Py_tss_tstate;
    cellar_main_thread.progress = IDLE;
    visitor = NULL;
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
    if (is_held || glue_baking) {
        return refuse("can't start new thread: no cell runs that it could belong to");
    }
    if (cellar_threads_count() == THREADS_MAX) {
        return refuse("can't start new thread: at most " TEXT(THREADS_MAX) " threads can be alive at once in this sandbox; "
                      "join some first, or hand the work to ThreadPoolExecutor(max_workers=...)");
    }
    struct thread *thread = make_thread();
    if (thread == NULL) {
        return refuse("can't start new thread: there is no memory for its stack");
    }
    if (!keep_room(1, 0)) {
        free_stack(thread->stack);
        free(thread);
        return refuse("can't start new thread: too many threads of all sessions are alive on this host");
    }
    thread->run = run;
    thread->argument = argument;
    thread->cell = cellar_current_cell();
    add_thread(thread);
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

int cellar_lock_is_hopeless(int64_t timeout) {
    bool others_may = alive > 0 || (may_leave() && cellar_poll_live_count() > 1);
    return !others_may && (timeout < 0 || !may_leave());
}

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
    if (now - turn_began < SLICE || cellar_poll_in_machinery()) {
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
}

bool cellar_threads_are_settled(void) {
    return alive == 0 && lost == 0 && undelivered_count == 0 && cellar_main_thread.cut == NOT_CUT;
}

bool cellar_threads_cut_deadlock(void) {
    bool any = false;
    struct thread *thread;
    if (callers > 0 || first_due() != NULL || first_ready() != NULL || cellar_alarm_before(NEVER) != NEVER) {
        return false;
    }
    for (int i = 0; (thread = cellar_thread_at(i)) != NULL; i++) {
        if (thread->is_away && thread->progress == WAITING) {
            cellar_cut_short(thread, CUT_BY_DEADLOCK);
            any = true;
        }
    }
    return any;
}

uint64_t cellar_threads_run(void) {
    /* One that is away is run by the visitor, which has its turn when this one has not. */
    uint64_t earliest = wake_all(cellar_kernel_control_monotonic_clock());
    struct thread *next = first_ready_but(visitor);
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
    earliest = wake_all(cellar_kernel_control_monotonic_clock());
    return first_ready_but(visitor) != NULL ? 0 : earliest;
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
