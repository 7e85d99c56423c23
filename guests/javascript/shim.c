// The JavaScript guest: owns the runtime, runs cells, and turns the event loop.
//
// QuickJS is compiled as part of this file, because a few things have no interface: its queue of jobs, its global
// lexical scope, the state of Math.random. Edits that the builder applies to it (guests/build/src/quickjs.rs) add the
// cell a job belongs to, and the rules of a cell's top level: declarations that may be repeated, `return`, and what
// counts as the cell's value. All of that is done by the parser itself; no source text is rewritten.
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Weverything"
#include "quickjs.c"
#pragma clang diagnostic pop

#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "details.c"
#include "stacks.c"

// Three quarters of the C stack; the rest is for C that runs when JavaScript has used its share up.
#define JS_STACK_BYTES (3 * 1024 * 1024)

// Cells that can be in flight at once.
#define CELL_COUNT 256

// Interrupt checks that a description may take; each stands for some 10,000 steps of bytecode.
#define POLLS_WHILE_DESCRIBING 100

// Timers that fire before the host is asked for what else has happened.
#define TIMERS_PER_TURN 64

// ---- State. All of it is in the image of the memory, so a session can be moved at any quiet moment.

static JSRuntime *runtime;
static JSContext *ctx;

// A cell that has not ended; `promise` settles when it does, to `{value}` or, when `is_bare`, to the value itself.
typedef struct {
    bool live, is_bare;
    uint32_t id;
    JSValue promise;
} cell_t;
static cell_t cells[CELL_COUNT];

// Cells that were stopped or failed before their time: what they left behind does not run any more.
static uint32_t *stopped;
static size_t stopped_count;

// Why the code that was running had to stop; looked at when an exception that cannot be caught comes out.
static enum { ENDS_NOT, ENDS_STOPPED, ENDS_EXITED } ending;
static cellar_kernel_types_stop_reason_t stop_reason;
// Questions to the host that are left out, so that a stopped cell can still be described.
static int polls_left;
static int32_t exit_status;

static kernel_configuration_t configuration;
static bool environment_read;
static uint64_t started_at;

// ---- Cells

static cell_t *find_cell(uint32_t id) {
    for (cell_t *cell = cells; cell < cells + CELL_COUNT; cell++) {
        if (cell->live && cell->id == id)
            return cell;
    }
    return NULL;
}

static bool was_stopped(uint32_t id) {
    for (size_t i = 0; i < stopped_count; i++) {
        if (stopped[i] == id)
            return true;
    }
    return false;
}

void drop_exception(void) {
    JS_FreeValue(ctx, JS_GetException(ctx));
    ending = ENDS_NOT;
}

static void release_cell(cell_t *cell) {
    JS_FreeValue(ctx, cell->promise);
    *cell = (cell_t){0};
}

// Makes what a cell left behind (timers, calls, promises) go away.
static void forget_cell(uint32_t id) {
    uint32_t *grown = realloc(stopped, (stopped_count + 1) * sizeof *grown);
    if (grown != NULL) {
        stopped = grown;
        stopped[stopped_count++] = id;
    }
    timers_forget(ctx, id);
    JSValue number = JS_NewUint32(ctx, id), result = call_hook(ctx, HOOK_FORGET, 1, (JSValueConst *)&number);
    if (JS_IsException(result))
        drop_exception();
    JS_FreeValue(ctx, result);
}

// Says where a cell was when it was stopped. `error` is what interrupted it, or undefined when it was waiting.
static void fill_place(uint32_t id, JSValueConst error, cellar_kernel_types_failure_t *failure) {
    if (!JS_IsObject(error))
        return;
    JS_SetPropertyStr(ctx, error, "name", string_from(ctx, failure->name));
    JS_SetPropertyStr(ctx, error, "message", string_from(ctx, failure->message));
    JSValue number = JS_NewUint32(ctx, id);
    JSValueConst arguments[] = {error, number};
    polls_left = POLLS_WHILE_DESCRIBING;
    JSValue record = call_hook(ctx, HOOK_FAILURE, 2, arguments);
    polls_left = 0;
    if (JS_IsException(record)) {
        drop_exception();
        return;
    }
    failure->line = number_property(ctx, record, "line");
    failure->column = number_property(ctx, record, "column");
    failure->snippet = owned_property(ctx, record, "snippet");
    failure->pointer = owned_property(ctx, record, "pointer");
    failure->traceback = owned_property(ctx, record, "traceback").val;
    JS_FreeValue(ctx, record);
}

static void end_stopped(cell_t *cell, cellar_kernel_types_stop_reason_t reason, JSValueConst error) {
    static const char *const names[] = {"CellTimeout", "CellInterrupted", "CellOutOfFuel", "CellOutputExceeded"};
    static const char *const messages[] = {"the cell ran past its time limit", "the cell was interrupted",
                                           "the cell used up its fuel", "the cell printed more than it may"};
    size_t why = reason < 4 ? reason : 1;
    cellar_kernel_types_outcome_t outcome = {.tag = CELLAR_KERNEL_TYPES_OUTCOME_FAILED};
    outcome.val.failed = (cellar_kernel_types_failure_t){
        .kind = {.tag = CELLAR_KERNEL_TYPES_FAILURE_KIND_STOPPED, .val.stopped = reason},
        .name = glue_copy(names[why], strlen(names[why])),
        .message = glue_copy(messages[why], strlen(messages[why])),
    };
    uint32_t id = cell->id;
    fill_place(id, error, &outcome.val.failed);
    glue_finish(id, &outcome);
    release_cell(cell);
    forget_cell(id);
}

// What sort of failure the prelude says an error is.
static uint8_t kind_of(JSValueConst record) {
    JSValue memory = JS_GetPropertyStr(ctx, record, "memory"), input = JS_GetPropertyStr(ctx, record, "stdin");
    uint8_t kind = JS_ToBool(ctx, memory)  ? CELLAR_KERNEL_TYPES_FAILURE_KIND_MEMORY
                   : JS_ToBool(ctx, input) ? CELLAR_KERNEL_TYPES_FAILURE_KIND_STDIN
                                           : CELLAR_KERNEL_TYPES_FAILURE_KIND_RAISED;
    JS_FreeValue(ctx, memory);
    JS_FreeValue(ctx, input);
    return kind;
}

// Ends a cell with an error. The prelude describes it; when even that fails, memory is short.
static void end_failed(cell_t *cell, JSValueConst error) {
    uint32_t id = cell->id;
    JSValue number = JS_NewUint32(ctx, id);
    // What is thrown need not be an error; then only the engine knows where that was.
    JSValue stack = JS_DupValue(ctx, ctx->error_back_trace);
    JSValueConst arguments[] = {error, number, stack};
    JSValue record = call_hook(ctx, HOOK_FAILURE, 3, arguments);
    JS_FreeValue(ctx, stack);
    if (JS_IsException(record) && ending == ENDS_STOPPED) { // looking at the error runs code: its getters
        drop_exception();
        end_stopped(cell, stop_reason, JS_UNDEFINED);
        return;
    }
    cellar_kernel_types_outcome_t outcome = {.tag = CELLAR_KERNEL_TYPES_OUTCOME_FAILED};
    cellar_kernel_types_failure_t *failure = &outcome.val.failed;
    if (JS_IsException(record)) {
        drop_exception();
        *failure = (cellar_kernel_types_failure_t){
            .kind.tag = CELLAR_KERNEL_TYPES_FAILURE_KIND_MEMORY,
            .name = glue_copy("InternalError", 13),
            .message = glue_copy("out of memory", 13),
            .traceback = glue_copy("InternalError: out of memory", 28),
        };
    } else {
        *failure = (cellar_kernel_types_failure_t){
            .kind.tag = kind_of(record),
            .name = owned_property(ctx, record, "name").val,
            .message = owned_property(ctx, record, "message").val,
            .line = number_property(ctx, record, "line"),
            .column = number_property(ctx, record, "column"),
            .snippet = owned_property(ctx, record, "snippet"),
            .pointer = owned_property(ctx, record, "pointer"),
            .traceback = owned_property(ctx, record, "traceback").val,
        };
    }
    JS_FreeValue(ctx, record);
    glue_finish(id, &outcome);
    release_cell(cell);
    forget_cell(id);
}

static void end_exited(cell_t *cell) {
    cellar_kernel_types_outcome_t outcome = {.tag = CELLAR_KERNEL_TYPES_OUTCOME_EXITED, .val.exited = exit_status};
    glue_finish(cell->id, &outcome);
    uint32_t id = cell->id;
    release_cell(cell);
    forget_cell(id);
}

// Shows the value of a cell that completed. Text and numbers take the short way.
static bool show(JSValueConst value) {
    if (JS_IsUndefined(value))
        return true;
    bool is_minus_zero = JS_TAG_IS_FLOAT64(JS_VALUE_GET_TAG(value)) && JS_VALUE_GET_FLOAT64(value) == 0;
    if (JS_IsObject(value) || JS_IsSymbol(value) || JS_IsBigInt(value) || is_minus_zero) {
        JSValue shown = call_hook(ctx, HOOK_SHOW, 1, &value);
        JS_FreeValue(ctx, shown);
        return !JS_IsException(shown);
    }
    kernel_string_t text;
    if (!text_of(ctx, value, &text))
        return false;
    cellar_kernel_types_tuple2_string_mime_data_t entry = {.f0 = glue_view("text/plain", 10), .f1.val.text = text};
    cellar_kernel_output_display_data_t display = {.data = {&entry, 1}};
    cellar_kernel_output_display(glue_cell, &display);
    text_free(ctx, &text);
    return true;
}

// Code came out with an exception that no JavaScript can catch: it was told to stop, or called exit. Returns false
// when it was an ordinary exception.
static bool end_by_force(uint32_t id) {
    if (ending == ENDS_NOT)
        return false;
    bool exited = ending == ENDS_EXITED;
    JSValue error = JS_GetException(ctx);
    ending = ENDS_NOT;
    cell_t *cell = find_cell(id);
    if (cell == NULL)
        forget_cell(id);
    else if (exited)
        end_exited(cell);
    else
        end_stopped(cell, stop_reason, error);
    JS_FreeValue(ctx, error);
    return true;
}

// An exception that nothing in the cell can see any more: of a timer, a microtask, a rejected promise.
static void end_uncaught(uint32_t id, JSValueConst error) {
    cell_t *cell = find_cell(id);
    glue_cell = id;
    if (cell != NULL) {
        end_failed(cell, error);
        return;
    }
    JSValue result = call_hook(ctx, HOOK_COMPLAIN, 1, &error);
    if (JS_IsException(result))
        drop_exception();
    JS_FreeValue(ctx, result);
}

static void end_if_exception(JSValueConst result) {
    uint32_t id = glue_cell;
    if (!JS_IsException(result) || end_by_force(id))
        return;
    JSValue error = JS_GetException(ctx);
    end_uncaught(id, error);
    JS_FreeValue(ctx, error);
}

// The value or the error of a cell whose promise has settled.
static void end_settled(cell_t *cell) {
    uint32_t id = cell->id;
    glue_cell = id;
    JSValue result = JS_PromiseResult(ctx, cell->promise);
    if (JS_PromiseState(ctx, cell->promise) == JS_PROMISE_REJECTED) {
        end_failed(cell, result);
        JS_FreeValue(ctx, result);
        return;
    }
    JSValue value = cell->is_bare ? JS_DupValue(ctx, result) : JS_GetPropertyStr(ctx, result, "value");
    JS_FreeValue(ctx, result);
    if (JS_IsPromise(value)) {
        // As from an async function: a cell whose value is a promise ends when the promise does.
        JS_FreeValue(ctx, cell->promise);
        JS_PromiseMarkAsHandled(ctx, value);
        cell->promise = value;
        cell->is_bare = true;
        return;
    }
    bool shown = show(value);
    JS_FreeValue(ctx, value);
    if (!shown && end_by_force(id))
        return;
    if (!shown) {
        JSValue error = JS_GetException(ctx);
        end_failed(cell, error);
        JS_FreeValue(ctx, error);
        return;
    }
    glue_finish(id, &(cellar_kernel_types_outcome_t){.tag = CELLAR_KERNEL_TYPES_OUTCOME_COMPLETE});
    release_cell(cell);
}

#include "rejections.c"

#include "lists.c"

// ---- The event loop

static void run_job(JSJobEntry *job) {
    list_del(&job->link);
    JSValue result = JS_UNDEFINED;
    glue_cell = job->cell;
    enter_context(ctx, job->context);
    if (!was_stopped(job->cell))
        result = job->job_func(ctx, job->argc, (JSValueConst *)job->argv);
    end_if_exception(result);
    for (int i = 0; i < job->argc; i++)
        JS_FreeValue(ctx, job->argv[i]);
    JS_FreeValue(ctx, result);
    js_free(ctx, job);
}

static bool run_first(struct list_head *jobs) {
    if (list_empty(jobs))
        return false;
    run_job(list_entry(jobs->next, JSJobEntry, link));
    return true;
}

// As in Node: ticks until there is none, then jobs until there is none, and again.
static void run_jobs(void) {
    do {
        while (run_first(&ticks)) {
        }
        while (run_first(&runtime->job_list)) {
        }
    } while (!list_empty(&ticks));
}

// Runs all that can run, ends what has ended, and says so.
static void turn(kernel_step_t *step) {
    int timers_left = TIMERS_PER_TURN;
    for (;;) {
        run_jobs();
        if (rejection_count > 0)
            report_rejections();
        for (cell_t *cell = cells; cell < cells + CELL_COUNT; cell++) {
            while (cell->live && JS_PromiseState(ctx, cell->promise) != JS_PROMISE_PENDING)
                end_settled(cell);
        }
        if (!list_empty(&runtime->job_list) || !list_empty(&ticks) || rejection_count > 0)
            continue;
        JSValue result;
        if (timers_next() == UINT64_MAX || timers_left-- == 0 ||
            !timers_run_one(ctx, cellar_kernel_control_monotonic_clock(), &result))
            break;
        end_if_exception(result);
        JS_FreeValue(ctx, result);
    }
    glue_cell = 0;
    enter_context(ctx, JS_UNDEFINED);
    uint64_t wake_at = timers_next();
    glue_step(step, wake_at == UINT64_MAX ? NULL : &wake_at);
}

static int must_stop(JSContext *c, void *opaque) {
    if (polls_left > 0) {
        polls_left--;
        return 0;
    }
    // What a cell left behind runs on nobody's account.
    uint32_t id = glue_cell != 0 && find_cell(glue_cell) == NULL ? 0 : glue_cell;
    if (!cellar_kernel_control_should_stop(id, &stop_reason))
        return 0;
    ending = ENDS_STOPPED;
    return 1;
}

JSValue exit_cell(JSContext *c, int32_t status) {
    ending = ENDS_EXITED;
    exit_status = status;
    JS_ThrowInternalError(ctx, "exit");
    JS_SetUncatchableError(ctx, runtime->current_exception);
    return JS_EXCEPTION;
}

// ---- What the prelude asks of the shim

JSValue lexical_bindings(JSContext *c) {
    JSValue list = JS_NewArray(ctx);
    JSPropertyEnum *names;
    uint32_t count, length = 0;
    if (JS_GetOwnPropertyNames(ctx, &names, &count, ctx->global_var_obj, JS_GPN_STRING_MASK))
        return list;
    for (uint32_t i = 0; i < count; i++) {
        JSProperty *property;
        if (!find_own_property(&property, JS_VALUE_GET_OBJ(ctx->global_var_obj), names[i].atom) ||
            JS_IsUninitialized(property->u.value))
            continue;
        JS_SetPropertyUint32(ctx, list, length++, JS_AtomToString(ctx, names[i].atom));
        JS_SetPropertyUint32(ctx, list, length++, JS_DupValue(ctx, property->u.value));
    }
    JS_FreePropertyEnum(ctx, names, count);
    return list;
}

JSValue environment_list(JSContext *c) {
    environment_read = true;
    JSValue list = JS_NewArray(ctx);
    for (uint32_t i = 0; i < configuration.environment.len; i++) {
        JS_SetPropertyUint32(ctx, list, 2 * i, string_from(ctx, configuration.environment.ptr[i].f0));
        JS_SetPropertyUint32(ctx, list, 2 * i + 1, string_from(ctx, configuration.environment.ptr[i].f1));
    }
    return list;
}

uint64_t session_start(void) {
    return started_at;
}

JSValue cellar_context = JS_UNDEFINED;

void enter_context(JSContext *c, JSValue context) {
    JSValue left = cellar_context;
    cellar_context = context;
    JS_FreeValue(c, left);
}

// ---- The runtime

#include "modules.c"

#include "realms.c"

static void *allocate_shared(void *opaque, size_t size) {
    return malloc(size);
}

static void free_shared(void *opaque, void *memory) {
    free(memory);
}

static void open_runtime(void) {
    runtime = JS_NewRuntime();
    ctx = runtime == NULL ? NULL : JS_NewContext(runtime);
    if (ctx == NULL)
        __builtin_trap();
    JS_SetMaxStackSize(runtime, JS_STACK_BYTES);
    JS_SetCanBlock(runtime, true);
    JS_SetSharedArrayBufferFunctions(
        runtime, &(JSSharedArrayBufferFunctions){.sab_alloc = allocate_shared, .sab_free = free_shared});
    JS_SetInterruptHandler(runtime, must_stop, NULL);
    JS_SetHostPromiseRejectionTracker(runtime, track_rejection, NULL);
    JS_SetDynamicImportFunc(runtime, import_dynamically, NULL);
    init_list_head(&ticks);
    init_list_head(&frozen);
    load_prelude(ctx);
    freeze();
    keep_aside();
}

static void seed(uint64_t value) {
    ctx->random_state = value == 0 ? 1 : value; // zero is the one state that the generator never leaves
}

JSContext *enter(void) {
    JS_UpdateStackTop(runtime);
    return ctx;
}

void note_wait(void) {
    const int steps = 100;
    if (ctx->interrupt_counter > steps)
        ctx->interrupt_counter = steps;
}

// Starts a cell. One that begins with a brace is an object if it can be, as in Node's REPL, and else a block.
static JSValue evaluate(const char *text, size_t length, const char *file) {
    cellar_brace_is_object = true;
    cellar_brace_seen = false;
    JSValue promise = JS_Eval(ctx, text, length, file, JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_ASYNC);
    cellar_brace_is_object = false;
    if (!cellar_brace_seen || !JS_IsException(promise) || ending != ENDS_NOT)
        return promise;
    drop_exception();
    return JS_Eval(ctx, text, length, file, JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_ASYNC);
}

// ---- Exports

void exports_kernel_init(void) {
    open_runtime();
    // Once, while the guest is baked: a session that is reset loads libraries when it needs them.
    JSValue result = call_hook(ctx, HOOK_PRELOAD, 0, NULL);
    run_jobs();
    if (!is_settled_well(result))
        give_up(ctx, "preload");
    JS_FreeValue(ctx, result);
    freeze();
    seal_arenas();
}

void exports_kernel_configure(kernel_configuration_t *given) {
    kernel_configuration_free(&configuration);
    configuration = *given;
    glue_configure(&configuration);
    seed(configuration.seed);
    started_at = cellar_kernel_control_monotonic_clock();
    if (environment_read) {
        enter();
        JSValue result = call_hook(ctx, HOOK_CONFIGURE, 0, NULL);
        if (JS_IsException(result))
            drop_exception();
        JS_FreeValue(ctx, result);
    }
}

void exports_kernel_reseed(uint64_t value) {
    configuration.seed = value;
    seed(value);
}

// Runs a cell until it ends or waits; when there are bindings, makes those first.
static void run_cell(kernel_cell_t *given, const kernel_list_tuple2_string_json_t *bindings, kernel_step_t *step) {
    enter();
    make_room(runtime);
    uint32_t id = given->id;
    size_t length = given->code.len;
    char *text = realloc(length == 0 ? NULL : given->code.ptr, length + 1);
    cell_t *cell = cells;
    while (cell < cells + CELL_COUNT && cell->live)
        cell++;
    if (text == NULL || cell == cells + CELL_COUNT)
        __builtin_trap(); // the host limits cells in flight, and gave us this memory
    text[length] = '\0';
    *cell = (cell_t){.live = true, .id = id, .promise = JS_UNDEFINED};
    char file[32];
    snprintf(file, sizeof file, id == SEED_CELL ? "<seed>" : "<cell %u>", id);
    glue_cell = id;
    if (id != 0)
        remember_source(id, text, length);
    JSValue promise = bindings == NULL ? JS_UNDEFINED : bind_names(ctx, bindings);
    if (!JS_IsException(promise))
        promise = evaluate(text, length, file);
    if (id == 0)
        free(text);
    if (JS_IsException(promise) || ending != ENDS_NOT) {
        end_if_exception(JS_EXCEPTION);
        JS_FreeValue(ctx, promise);
    } else {
        cell->promise = promise;
    }
    turn(step);
}

void exports_kernel_start(kernel_cell_t *cell, kernel_step_t *step) {
    run_cell(cell, NULL, step);
}

void exports_kernel_seed(kernel_list_tuple2_string_json_t *bindings, kernel_cell_t *cell, kernel_step_t *step) {
    run_cell(cell, bindings, step);
    kernel_list_tuple2_string_json_free(bindings);
}

void exports_kernel_resume(kernel_list_completion_t *completions, kernel_step_t *step) {
    enter();
    for (size_t i = 0; i < completions->len; i++)
        settle_call(ctx, &completions->ptr[i]);
    kernel_list_completion_free(completions);
    turn(step);
}

void exports_kernel_interrupt(kernel_cell_id_t id, kernel_stop_reason_t reason, kernel_step_t *step) {
    enter();
    cell_t *cell = find_cell(id);
    if (cell != NULL)
        end_stopped(cell, reason, JS_UNDEFINED);
    turn(step);
}

void exports_kernel_reset(void) {
    timers_forget(ctx, UINT32_MAX);
    for (cell_t *cell = cells; cell < cells + CELL_COUNT; cell++) {
        if (cell->live)
            release_cell(cell);
    }
    forget_rejections();
    forget_sources();
    enter_context(ctx, JS_UNDEFINED);
    free_prelude(ctx);
    // The runtime frees what it knows of.
    move_list(&ticks, &runtime->job_list);
    move_list(&frozen, &runtime->gc_obj_list);
    free(stopped);
    stopped = NULL;
    stopped_count = module_depth = 0;
    JS_FreeContext(ctx);
    JS_FreeRuntime(runtime);
    open_runtime();
    seed(configuration.seed);
}
