// The JavaScript guest: turns the event loop, and answers the component's exports that run cells.
#include <stdio.h>
#include <stdlib.h>

#include "cells/cells.h"
#include "convert.h"
#include "engine/engine.h"
#include "functions/functions.h"
#include "hooks.h"
#include "prelude.h"
#include "reserve.h"
#include "sources.h"
#include "state.h"

// Timers that fire before the host is asked for what else has happened.
#define TIMERS_PER_TURN 64

// ---- The event loop

static void run_jobs(void) {
    JSValue result;
    while (run_job(was_stopped, &result)) {
        end_if_exception(result);
        JS_FreeValue(ctx, result);
    }
}

// Runs all that can run, ends what has ended, and says so.
static void turn(kernel_step_t *step) {
    int timers_left = TIMERS_PER_TURN;
    for (;;) {
        run_jobs();
        report_rejections();
        end_settled_cells();
        if (has_jobs() || has_rejections())
            continue;
        JSValue result;
        if (timers_next() == UINT64_MAX || timers_left-- == 0 ||
            !timers_run_one(ctx, cellar_kernel_control_monotonic_clock(), &result))
            break;
        end_if_exception(result);
        JS_FreeValue(ctx, result);
    }
    glue_cell = 0;
    enter_context(JS_UNDEFINED);
    uint64_t wake_at = timers_next();
    glue_step(step, wake_at == UINT64_MAX ? NULL : &wake_at);
}

static void open_runtime(void) {
    open_engine(must_stop, track_rejection);
    load_prelude(ctx);
    keep_intrinsics();
    freeze();
    keep_aside();
}

// Binds names to JSON values; undefined, or an exception.
static JSValue bind_names(const kernel_list_tuple2_string_json_t *bindings) {
    JSValue result = JS_UNDEFINED;
    for (size_t i = 0; i < bindings->len && !JS_IsException(result); i++) {
        JSValue arguments[] = {string_from(ctx, bindings->ptr[i].f0), string_from(ctx, bindings->ptr[i].f1)};
        result = call_hook(ctx, HOOK_BIND, 2, (JSValueConst *)arguments);
        JS_FreeValue(ctx, arguments[0]);
        JS_FreeValue(ctx, arguments[1]);
    }
    return result;
}

// Has what was called ended well, or the promise that it returned? If not, the exception says why.
static bool is_settled_well(JSValueConst result) {
    JSPromiseStateEnum state = JS_PromiseState(ctx, result);
    if (state == JS_PROMISE_REJECTED)
        JS_Throw(ctx, JS_PromiseResult(ctx, result));
    return !JS_IsException(result) && state != JS_PROMISE_REJECTED && state != JS_PROMISE_PENDING;
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
    keep_intrinsics();
    freeze();
    seal_arenas();
}

// Tells the prelude of the session, if that has something to tell it.
static void configure_prelude(bool is_needed) {
    if (!is_needed)
        return;
    enter();
    JSValue result = call_hook(ctx, HOOK_CONFIGURE, 0, NULL);
    if (JS_IsException(result))
        drop_exception();
    JS_FreeValue(ctx, result);
}

bool names_zone(void) {
    for (size_t i = 0; i < configuration.environment.len; i++) {
        const kernel_string_t *name = &configuration.environment.ptr[i].f0;
        if (name->len == 2 && memcmp(name->ptr, "TZ", 2) == 0)
            return true;
    }
    return false;
}

void exports_kernel_configure(kernel_configuration_t *given) {
    bool had_connectors = configuration.connectors.len > 0, had_zone = names_zone();
    kernel_configuration_free(&configuration);
    configuration = *given;
    glue_configure(&configuration);
    seed_engine(configuration.seed);
    started_at = cellar_kernel_control_monotonic_clock();
    configure_prelude(environment_read || had_connectors || configuration.connectors.len > 0 || had_zone || names_zone());
}

void exports_kernel_reseed(uint64_t value) {
    configuration.seed = value;
    seed_engine(value);
}

// Runs a cell until it ends or waits; when there are bindings, makes those first.
static void run_cell(kernel_cell_t *given, const kernel_list_tuple2_string_json_t *bindings, kernel_step_t *step) {
    enter();
    make_room(runtime);
    uint32_t id = given->id;
    size_t length = given->code.len;
    char *text = realloc(length == 0 ? NULL : given->code.ptr, length + 1);
    if (text == NULL)
        __builtin_trap(); // a cell that is never run would hang its session
    text[length] = '\0';
    cell_t *cell = add_cell(id);
    if (given->traces_names)
        trace_names(cell, given->code);
    char file[32];
    snprintf(file, sizeof file, id == SEED_CELL ? "<seed>" : "<cell %u>", id);
    glue_cell = id;
    if (id != 0)
        remember_source(id, text, length);
    forget_abandoned();
    JSValue promise = bindings == NULL ? JS_UNDEFINED : bind_names(bindings);
    if (!JS_IsException(promise))
        promise = evaluate_cell(text, length, file);
    if (id == 0)
        free(text);
    if (JS_IsException(promise) || ending != ENDS_NOT) {
        end_if_exception(JS_EXCEPTION);
        JS_FreeValue(ctx, promise);
    } else {
        cell->promise = promise;
        // A cell may wait for what nothing can settle before its promise is known.
        note_abandoned_cell(cell);
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
    timers_forget_all(ctx);
    reset_cells();
    forget_rejections();
    forget_sources();
    enter_context(JS_UNDEFINED);
    free_hooks(ctx);
    close_engine();
    open_runtime();
    seed_engine(configuration.seed);
    configure_prelude(configuration.connectors.len > 0);
}
