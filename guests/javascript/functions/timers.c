// What setTimeout and its kin are made of. The list is sorted by time; the host wakes the kernel for its head.
#include "functions.h"
#include "state.h"

// More than any program sets at once.
#define TIMER_COUNT_MAX 10000

// A function that is to be called later.
typedef struct timer {
    struct timer *next;
    uint64_t due, interval;
    uint32_t id, cell;
    bool is_waited_for;
    JSValue function, context;
} pending_timer_t;

static pending_timer_t *timers;
static uint32_t timer_count, last_id;

// The timer whose function is being called; null once it has been cleared, and then its caller releases it.
static pending_timer_t *running;

static void insert(pending_timer_t *timer) {
    pending_timer_t **at = &timers;
    while (*at != NULL && (*at)->due <= timer->due)
        at = &(*at)->next;
    timer->next = *at;
    *at = timer;
    timer_count++;
}

static void release(JSContext *ctx, pending_timer_t *timer) {
    if (timer == running) {
        running = NULL;
        return;
    }
    JS_FreeValue(ctx, timer->function);
    JS_FreeValue(ctx, timer->context);
    js_free(ctx, timer);
}

// startTimer(function, milliseconds, repeats, number): the timer's number, which is the one given if any
static JSValue start_timer(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    if (timer_count >= TIMER_COUNT_MAX)
        return JS_ThrowRangeError(ctx, "more than %d timers are set", TIMER_COUNT_MAX);
    bool repeats = JS_ToBool(ctx, argv[2]);
    double delay = 0;
    uint32_t id = 0;
    if ((!JS_IsUndefined(argv[1]) && JS_ToFloat64(ctx, &delay, argv[1])) || JS_ToUint32(ctx, &id, argv[3]))
        return JS_EXCEPTION;
    if (!(delay >= 1))
        delay = repeats ? 1 : 0; // an interval of nothing would never let go
    if (delay > 2147483647)
        delay = 1; // as browsers and Node do
    pending_timer_t *timer = js_malloc(ctx, sizeof *timer);
    if (timer == NULL)
        return JS_EXCEPTION;
    uint64_t nanoseconds = (uint64_t)(delay * 1e6);
    *timer = (pending_timer_t){
        .due = cellar_kernel_control_monotonic_clock() + nanoseconds,
        .interval = repeats ? nanoseconds : 0,
        .id = id == 0 ? ++last_id : id,
        .cell = glue_cell,
        .is_waited_for = true,
        .function = JS_DupValue(ctx, argv[0]),
        .context = JS_DupValue(ctx, cellar_context),
    };
    insert(timer);
    return JS_NewUint32(ctx, timer->id);
}

// stopTimer(number)
static JSValue stop_timer(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    uint32_t id;
    if (JS_ToUint32(ctx, &id, argv[0]))
        return JS_EXCEPTION;
    for (pending_timer_t **at = &timers; *at != NULL; at = &(*at)->next) {
        if ((*at)->id == id) {
            pending_timer_t *timer = *at;
            *at = timer->next;
            timer_count--;
            release(ctx, timer);
            break;
        }
    }
    return JS_UNDEFINED;
}

// referTo(number, whether): whether who waits for timers waits for this one
static JSValue refer_to(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    uint32_t id;
    if (JS_ToUint32(ctx, &id, argv[0]))
        return JS_EXCEPTION;
    for (pending_timer_t *timer = timers; timer != NULL; timer = timer->next) {
        if (timer->id == id)
            timer->is_waited_for = JS_ToBool(ctx, argv[1]);
    }
    return JS_UNDEFINED;
}

// hasTimers(): whether any is set that a program waits for
static JSValue has_timers(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    for (pending_timer_t *timer = timers; timer != NULL; timer = timer->next) {
        if (timer->is_waited_for)
            return JS_TRUE;
    }
    return JS_FALSE;
}

bool timers_keep(uint32_t cell, uint64_t until) {
    for (pending_timer_t *timer = timers; timer != NULL && timer->due <= until; timer = timer->next) {
        if (timer->cell == cell && timer->is_waited_for)
            return true;
    }
    return false;
}

void add_timer_functions(JSContext *ctx, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("startTimer", 4, start_timer),
        JS_CFUNC_DEF("stopTimer", 1, stop_timer),
        JS_CFUNC_DEF("referTo", 2, refer_to),
        JS_CFUNC_DEF("hasTimers", 0, has_timers),
    };
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
}

uint64_t timers_next(void) {
    return timers == NULL ? UINT64_MAX : timers->due;
}

bool timers_run_one(JSContext *ctx, uint64_t now, JSValue *result) {
    pending_timer_t *timer = timers;
    if (timer == NULL || timer->due > now)
        return false;
    timers = timer->next;
    timer_count--;
    glue_cell = timer->cell;
    if (timer->interval > 0) {
        // Back into the list before the call, so that the function can clear it; `running` keeps it alive until then.
        timer->due = now + timer->interval;
        insert(timer);
    }
    running = timer;
    enter_context(JS_DupValue(ctx, timer->context));
    *result = JS_Call(ctx, timer->function, JS_UNDEFINED, 0, NULL);
    bool cleared = running == NULL;
    running = NULL;
    if (timer->interval == 0 || cleared)
        release(ctx, timer);
    return true;
}

// Forgets the timers of a cell, or all when `is_any` is true.
static void forget(JSContext *ctx, uint32_t cell, bool is_any) {
    for (pending_timer_t **at = &timers; *at != NULL;) {
        pending_timer_t *timer = *at;
        if (!is_any && timer->cell != cell) {
            at = &timer->next;
            continue;
        }
        *at = timer->next;
        timer_count--;
        release(ctx, timer);
    }
}

void timers_forget(JSContext *ctx, uint32_t cell) {
    forget(ctx, cell, false);
}

void timers_forget_all(JSContext *ctx) {
    forget(ctx, 0, true);
}
