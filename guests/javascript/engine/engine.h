// What the other files ask of QuickJS that it has no interface for.
#ifndef CELLAR_JAVASCRIPT_ENGINE_H
#define CELLAR_JAVASCRIPT_ENGINE_H

#include "quickjs.h"

// Makes the runtime and its context. `must_stop` is asked now and then; `rejected` is told of promises that nobody handles.
void open_engine(JSInterruptHandler *must_stop, JSHostPromiseRejectionTracker *rejected);

// Frees the runtime and all that it knows of.
void close_engine(void);

// Sets the state of Math.random.
void seed_engine(uint64_t value);

// Notes that the host may have taken its time: whether the cell must stop is asked soon.
void note_wait(void);

// Counts work on `bytes`, and asks now and then whether the cell must stop: then an exception is pending that says so.
bool must_stop_soon(JSContext *ctx, size_t bytes);

// Starts a cell; the promise of its end.
JSValue evaluate_cell(const char *text, size_t length, const char *file);

// Where the last exception was thrown, as a stack; undefined when that is not known.
JSValue last_place(void);

// Where the cell waits whose end a promise is, as a stack; undefined when that is not known.
JSValue waiting_place(JSValueConst promise);

// Top-level `let`, `const` and `class` bindings: name, value, and so on.
JSValue lexical_bindings(void);

// Puts a function on the queue that comes before all other jobs: what `process.nextTick` asks for.
bool enqueue_tick(JSValueConst function);

bool has_jobs(void);

// Runs the first job that waits: as in Node, ticks until there is none, then jobs until there is none, and again. The job
// of a cell for which `is_dropped` is true does nothing. `*result` may be an exception, of the cell that now is current.
// Returns false when there is no job.
bool run_job(bool (*is_dropped)(uint32_t cell), JSValue *result);

// Takes all code that there is for the guest's own, and keeps the built-in objects as they are for it. Again later, it takes
// them as they are then.
void keep_intrinsics(void);

// Evaluates what was read as bytecode, which it frees, as code of the guest's own.
JSValue run_own(JSContext *ctx, JSValue code);

// Collects garbage, and takes what is left out of later collections.
void freeze(void);

// Ends the allocation of the image, so that what a session allocates lies together. For the end of baking.
void seal_arenas(void);

#endif
