// Cells from their start to their end, and why they end.
#ifndef CELLAR_JAVASCRIPT_CELLS_H
#define CELLAR_JAVASCRIPT_CELLS_H

#include "glue.h"
#include "quickjs.h"

// The number of the cell that makes the names a session begins with; its file is `<seed>`.
#define SEED_CELL UINT32_MAX

// A cell that has not ended; `promise` settles when it does, to `{value}` or, when `is_bare`, to the value itself.
// `traces_names`: the host is told what it has bound. `waits_at_line` is where it waits for what nothing can settle any more,
// or 0. One that has shown its value, and has timers that are due soon, ends when they have run: `lingers_until` is not 0 then.
typedef struct {
    bool live, is_bare, traces_names;
    uint32_t id;
    uint64_t lingers_until;
    int waits_at_line, waits_at_column;
    JSValue promise;
} cell_t;

// Enters a cell among those that are in flight.
cell_t *add_cell(uint32_t id);

// A cell in flight; null when it has ended.
cell_t *find_cell(uint32_t id);

// The first cell in flight, or the next one behind another; null when there is none.
cell_t *next_cell(cell_t *before);

// Was the cell stopped, or did it fail before its time? What it left behind does not run any more.
bool was_stopped(uint32_t id);

// Is the promise one of a cell?
bool is_cell_promise(JSValueConst promise);

// Asked by the engine now and then: must the code that runs stop?
int must_stop(JSContext *c, void *opaque);

// Ends a cell with the reason why it was stopped. `error` is what interrupted it, or undefined when it was waiting.
void end_stopped(cell_t *cell, cellar_kernel_types_stop_reason_t reason, JSValueConst error);

// An exception that nothing in the cell can see any more: of a timer, a microtask, a rejected promise.
// What the program listens for does not end it. `promise` is the one that was rejected, or undefined.
void end_uncaught(uint32_t id, JSValueConst error, JSValueConst promise);

// Ends the current cell when `result` is an exception.
void end_if_exception(JSValueConst result);

// Ends the cells whose promise has settled.
void end_settled_cells(void);

// Notes the bindings that a cell finds, so that the host can be told of what it has bound when it ends.
void trace_names(cell_t *cell, kernel_string_t source);

// Forgets all cells.
void reset_cells(void);

// ---- Rejected promises that nobody handles

// Called by the engine when a promise is rejected that nobody handles, and again when somebody does.
void track_rejection(JSContext *c, JSValueConst promise, JSValueConst reason, bool handled, void *opaque);

// Are there any to report?
bool has_rejections(void);

// Fails the cells that made them.
void report_rejections(void);

void forget_rejections(void);

// ---- Cells that wait for what nothing can settle any more: in engine.c, which sees suspended functions go

// Notes where the cell waits, if the function that went last while it waited was the cell's own.
void note_abandoned_cell(cell_t *cell);

// Forgets that function: another cell begins, whose promise may lie where that one's lay.
void forget_abandoned(void);

#endif
