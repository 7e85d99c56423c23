// Cells from their start to their end; see cells.h.
#include "cells.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "engine/engine.h"
#include "functions/functions.h"
#include "hooks.h"
#include "reserve.h"
#include "state.h"

// Cells that can be in flight at once.
#define CELL_COUNT 256

// Cells, counted back from the newest, of which it is known whether they were stopped. What older ones left behind has
// long run, or has lost its timers and calls when its cell was stopped.
#define REMEMBERED_COUNT 65536

// Interrupt checks that a description may take; each stands for some 10,000 steps of bytecode.
#define POLLS_WHILE_DESCRIBING 100

// The same for noting what names are bound to.
#define POLLS_WHILE_TRACING 1000

static cell_t cells[CELL_COUNT];

// A bit for each remembered cell, at its number modulo their count: was it stopped?
static uint8_t stopped[REMEMBERED_COUNT / 8];
static uint32_t newest;
static bool seed_stopped;

// Questions to the host that are left out, so that a stopped cell can still be described.
static int polls_left;

// Writes only what changes: a page that is written to is no longer shared with other kernels.
static void mark(uint32_t id, bool is_stopped) {
    uint8_t *byte = &stopped[id % REMEMBERED_COUNT / 8], bit = (uint8_t)(1u << id % 8);
    if (((*byte & bit) != 0) != is_stopped)
        *byte ^= bit;
}

cell_t *add_cell(uint32_t id) {
    cell_t *cell = cells;
    while (cell < cells + CELL_COUNT && cell->live)
        cell++;
    if (cell == cells + CELL_COUNT)
        __builtin_trap(); // the host limits cells in flight
    *cell = (cell_t){.live = true, .id = id, .promise = JS_UNDEFINED};
    if (id != SEED_CELL && id > newest) {
        // The cells that are remembered no more, in whose places the newer ones come.
        uint32_t gone = id - newest < REMEMBERED_COUNT ? id - newest : REMEMBERED_COUNT;
        for (uint32_t i = 0; i < gone; i++)
            mark(id - i, false);
        newest = id;
    }
    return cell;
}

cell_t *find_cell(uint32_t id) {
    for (cell_t *cell = cells; cell < cells + CELL_COUNT; cell++) {
        if (cell->live && cell->id == id)
            return cell;
    }
    return NULL;
}

cell_t *next_cell(cell_t *before) {
    for (cell_t *cell = before == NULL ? cells : before + 1; cell < cells + CELL_COUNT; cell++) {
        if (cell->live)
            return cell;
    }
    return NULL;
}

bool was_stopped(uint32_t id) {
    if (id == SEED_CELL)
        return seed_stopped;
    return id <= newest && newest - id < REMEMBERED_COUNT && (stopped[id % REMEMBERED_COUNT / 8] & 1u << id % 8) != 0;
}

static void note_stopped(uint32_t id) {
    if (id == SEED_CELL)
        seed_stopped = true;
    else if (id != 0 && id <= newest && newest - id < REMEMBERED_COUNT)
        mark(id, true);
}

bool is_cell_promise(JSValueConst promise) {
    for (cell_t *cell = cells; cell < cells + CELL_COUNT; cell++) {
        if (cell->live && JS_IsObject(cell->promise) && JS_VALUE_GET_PTR(cell->promise) == JS_VALUE_GET_PTR(promise))
            return true;
    }
    return false;
}

// Calls a hook that traces names. It runs no code of cells, and what fails is left out: no cell fails of it.
static void call_tracer(hook_t hook, uint32_t id, kernel_string_t source) {
    JSValue arguments[] = {JS_NewUint32(ctx, id), string_from(ctx, source)};
    polls_left = POLLS_WHILE_TRACING;
    JSValue result = call_hook(ctx, hook, 2, (JSValueConst *)arguments);
    polls_left = 0;
    JS_FreeValue(ctx, arguments[1]);
    if (JS_IsException(result))
        drop_exception();
    JS_FreeValue(ctx, result);
}

void trace_names(cell_t *cell, kernel_string_t source) {
    cell->traces_names = true;
    call_tracer(HOOK_TRACE, cell->id, source);
}

static void release_cell(cell_t *cell) {
    if (cell->traces_names)
        call_tracer(HOOK_TRACED, cell->id, (kernel_string_t){0});
    JS_FreeValue(ctx, cell->promise);
    *cell = (cell_t){0};
}

void reset_cells(void) {
    for (cell_t *cell = cells; cell < cells + CELL_COUNT; cell++) {
        cell->traces_names = false;
        if (cell->live)
            release_cell(cell);
    }
    for (uint32_t id = 0; id < REMEMBERED_COUNT; id++)
        mark(id, false);
    newest = 0;
    seed_stopped = false;
}

int must_stop(JSContext *c, void *opaque) {
    if (script_deadline != 0 && cellar_kernel_control_monotonic_clock() >= script_deadline) {
        script_expired = true;
        return 1;
    }
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

// ---- Endings

// Makes what a cell left behind (timers, calls, promises) go away.
static void forget_cell(uint32_t id) {
    note_stopped(id);
    timers_forget(ctx, id);
    JSValue number = JS_NewUint32(ctx, id), result = call_hook(ctx, HOOK_FORGET, 1, (JSValueConst *)&number);
    if (JS_IsException(result))
        drop_exception();
    JS_FreeValue(ctx, result);
}

// Fills in where a failure was, from a record of the prelude's. False when an exception is pending.
static bool fill_place(JSValueConst record, cellar_kernel_types_failure_t *failure) {
    kernel_option_string_t traceback = {.is_some = false};
    failure->line = number_property(ctx, record, "line");
    failure->column = number_property(ctx, record, "column");
    bool ok = copy_property(ctx, record, "snippet", &failure->snippet) &&
              copy_property(ctx, record, "pointer", &failure->pointer) &&
              copy_property(ctx, record, "traceback", &traceback);
    failure->traceback = traceback.val;
    return ok;
}

// Says where a cell was when it was stopped. `error` is what interrupted it, or undefined when it was waiting.
static void describe_stop(uint32_t id, JSValueConst error, cellar_kernel_types_failure_t *failure) {
    if (!JS_IsObject(error))
        return;
    JS_SetPropertyStr(ctx, error, "name", string_from(ctx, failure->name));
    JS_SetPropertyStr(ctx, error, "message", string_from(ctx, failure->message));
    JSValue number = JS_NewUint32(ctx, id);
    JSValueConst arguments[] = {error, number};
    polls_left = POLLS_WHILE_DESCRIBING;
    JSValue record = call_hook(ctx, HOOK_FAILURE, 2, arguments);
    polls_left = 0;
    if (JS_IsException(record) || !fill_place(record, failure))
        drop_exception();
    JS_FreeValue(ctx, record);
}

// An error that stands where a cell waits; undefined when that is not known.
static JSValue error_where_it_waits(const cell_t *cell) {
    JSValue stack = waiting_place(cell->promise);
    if (!JS_IsString(stack) && cell->waits_at_line > 0) {
        char file[24] = "<seed>", text[80];
        if (cell->id != SEED_CELL)
            snprintf(file, sizeof file, "<cell %u>", (unsigned)cell->id);
        snprintf(text, sizeof text, "    at %s:%d:%d\n", file, cell->waits_at_line, cell->waits_at_column);
        stack = JS_NewString(ctx, text);
    }
    if (!JS_IsString(stack))
        return JS_UNDEFINED;
    JSValue error = JS_NewError(ctx);
    JS_DefinePropertyValueStr(ctx, error, "stack", stack, JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
    return error;
}

void end_stopped(cell_t *cell, cellar_kernel_types_stop_reason_t reason, JSValueConst error) {
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
    JSValue place = JS_IsUndefined(error) ? error_where_it_waits(cell) : JS_DupValue(ctx, error);
    describe_stop(id, place, &outcome.val.failed);
    JS_FreeValue(ctx, place);
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

// What the prelude says of an error. False when an exception is pending.
static bool fill_failure(JSValueConst record, cellar_kernel_types_failure_t *failure) {
    kernel_option_string_t name = {.is_some = false}, message = {.is_some = false};
    failure->kind.tag = kind_of(record);
    bool ok = copy_property(ctx, record, "name", &name) && copy_property(ctx, record, "message", &message) &&
              fill_place(record, failure);
    failure->name = name.val;
    failure->message = message.val;
    return ok;
}

// Ends a cell with an error. The prelude describes it; when even that fails, memory is short.
static void end_failed(cell_t *cell, JSValueConst error) {
    uint32_t id = cell->id;
    JSValue number = JS_NewUint32(ctx, id);
    // What is thrown need not be an error; then only the engine knows where that was.
    JSValue stack = last_place();
    // Where there was no room to make the error for a lack of memory, null was thrown. Now there is some.
    JSValue made = JS_UNDEFINED;
    if (JS_IsNull(error) && is_short()) {
        JS_ThrowOutOfMemory(ctx);
        made = JS_GetException(ctx);
        error = made;
    }
    JSValueConst arguments[] = {error, number, stack};
    JSValue record = call_hook(ctx, HOOK_FAILURE, 3, arguments);
    JS_FreeValue(ctx, stack);
    JS_FreeValue(ctx, made);
    if (JS_IsException(record) && ending == ENDS_STOPPED) { // looking at the error runs code: its getters
        drop_exception();
        end_stopped(cell, stop_reason, JS_UNDEFINED);
        return;
    }
    cellar_kernel_types_outcome_t outcome = {.tag = CELLAR_KERNEL_TYPES_OUTCOME_FAILED};
    if (JS_IsException(record) || !fill_failure(record, &outcome.val.failed)) {
        drop_exception();
        cellar_kernel_types_outcome_free(&outcome);
        give_back(); // there must be room to say so
        outcome.val.failed = (cellar_kernel_types_failure_t){
            .kind.tag = CELLAR_KERNEL_TYPES_FAILURE_KIND_MEMORY,
            .name = glue_copy("InternalError", 13),
            .message = glue_copy("out of memory", 13),
            .traceback = glue_copy("InternalError: out of memory", 28),
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
    cellar_kernel_output_display_data_t display = {.data = {&entry, 1}, .is_value = true};
    if (text.len > GLUE_DISPLAY_BYTES_MAX)
        glue_display_left_out(text.len);
    else
        cellar_kernel_output_display(glue_cell, &display);
    text_free(ctx, &text);
    return true;
}

// The latest value of a cell that was shown.
static JSValue latest = JS_UNDEFINED;

// Puts the value under `_`, as Node's prompt does, unless a cell has put something of its own there.
static void remember(JSValueConst value) {
    if (JS_IsUndefined(value))
        return;
    JSValue global = JS_GetGlobalObject(ctx);
    JSAtom name = JS_NewAtom(ctx, "_");
    JSPropertyDescriptor found;
    int there = JS_GetOwnProperty(ctx, &found, global, name);
    bool is_ours = there == 0;
    if (there > 0) {
        is_ours = !(found.flags & JS_PROP_GETSET) && JS_IsSameValue(ctx, found.value, latest);
        JS_FreeValue(ctx, found.getter);
        JS_FreeValue(ctx, found.setter);
        JS_FreeValue(ctx, found.value);
    }
    if (is_ours) {
        JS_FreeValue(ctx, latest);
        latest = JS_DupValue(ctx, value);
        int flags = JS_PROP_CONFIGURABLE | JS_PROP_WRITABLE;
        if (JS_DefinePropertyValue(ctx, global, name, JS_DupValue(ctx, value), flags) < 0)
            drop_exception();
    } else if (there < 0) {
        drop_exception();
    }
    JS_FreeAtom(ctx, name);
    JS_FreeValue(ctx, global);
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
void end_uncaught(uint32_t id, JSValueConst error, JSValueConst promise) {
    cell_t *cell = find_cell(id);
    glue_cell = id;
    JSValueConst arguments[] = {error, promise};
    JSValue taken = call_hook(ctx, HOOK_UNCAUGHT, 2, arguments);
    if (JS_IsException(taken)) {
        // What listened has failed: that ends the cell.
        if (end_by_force(id))
            return;
        JSValue other = JS_GetException(ctx);
        if (cell != NULL)
            end_failed(cell, other);
        JS_FreeValue(ctx, other);
        return;
    }
    bool is_taken = JS_ToBool(ctx, taken);
    JS_FreeValue(ctx, taken);
    if (is_taken)
        return;
    if (cell != NULL) {
        end_failed(cell, error);
        return;
    }
    JSValue result = call_hook(ctx, HOOK_COMPLAIN, 1, &error);
    if (JS_IsException(result))
        drop_exception();
    JS_FreeValue(ctx, result);
}

void end_if_exception(JSValueConst result) {
    uint32_t id = glue_cell;
    if (!JS_IsException(result) || end_by_force(id))
        return;
    JSValue error = JS_GetException(ctx);
    end_uncaught(id, error, JS_UNDEFINED);
    JS_FreeValue(ctx, error);
}

// How long a cell that has come to its value goes on for timers of its own that nothing awaits, in nanoseconds. What is set
// for later, or for ever, goes on without it.
#define LINGERS_NANOSECONDS 2000000000u

// Ends a cell that has shown its value, unless timers of its own are due soon.
static void end_shown(cell_t *cell) {
    if (cell->lingers_until == 0)
        cell->lingers_until = cellar_kernel_control_monotonic_clock() + LINGERS_NANOSECONDS;
    if (timers_keep(cell->id, cell->lingers_until))
        return;
    cellar_kernel_types_outcome_t outcome = {.tag = CELLAR_KERNEL_TYPES_OUTCOME_COMPLETE};
    if (exit_code.cell == cell->id && exit_code.status != 0) {
        outcome.tag = CELLAR_KERNEL_TYPES_OUTCOME_EXITED;
        outcome.val.exited = exit_code.status;
    }
    glue_finish(cell->id, &outcome);
    release_cell(cell);
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
    if (shown)
        remember(value);
    JS_FreeValue(ctx, value);
    if (!shown && end_by_force(id))
        return;
    if (!shown) {
        JSValue error = JS_GetException(ctx);
        end_failed(cell, error);
        JS_FreeValue(ctx, error);
        return;
    }
    end_shown(cell);
}

void end_settled_cells(void) {
    for (cell_t *cell = cells; cell < cells + CELL_COUNT; cell++) {
        if (cell->live && cell->lingers_until != 0)
            end_shown(cell);
        while (cell->live && cell->lingers_until == 0 && JS_PromiseState(ctx, cell->promise) != JS_PROMISE_PENDING)
            end_settled(cell);
    }
}
