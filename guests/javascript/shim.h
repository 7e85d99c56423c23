// Shared by the C files of the JavaScript guest.
//
// shim.c owns the runtime, the cells and the event loop; the other files give the prelude its functions, as
// properties of one object that only the prelude sees. No file but shim.c knows the inside of QuickJS.
#ifndef CELLAR_JAVASCRIPT_SHIM_H
#define CELLAR_JAVASCRIPT_SHIM_H

#include "glue.h"
#include "quickjs.h"

// ---- convert.c

// A view of a value's text, in UTF-8 that the host accepts. False when an exception is pending.
bool text_of(JSContext *ctx, JSValueConst value, kernel_string_t *text);

// Like `text_of`; undefined and null are no text.
bool optional_text_of(JSContext *ctx, JSValueConst value, kernel_option_string_t *text);

// Releases a view. Does nothing to one that was never taken.
void text_free(JSContext *ctx, kernel_string_t *text);

// A copy of a value's text that the ABI frees.
kernel_string_t owned_text_of(JSContext *ctx, JSValueConst value);

// The text of a property, as an absent option when the property is undefined.
kernel_option_string_t owned_property(JSContext *ctx, JSValueConst object, const char *name);

// A property that is a number, as an absent option when it is not.
kernel_option_u32_t number_property(JSContext *ctx, JSValueConst object, const char *name);

// A string from the host.
JSValue string_from(JSContext *ctx, kernel_string_t text);

// An array of bytes; takes over `bytes`, which came from malloc.
JSValue bytes_from(JSContext *ctx, uint8_t *bytes, size_t length);

// The bytes of a typed array or buffer; null when the value is neither. Valid until the next call of JavaScript.
uint8_t *bytes_of(JSContext *ctx, JSValueConst value, size_t *length);

// A MIME bundle from a flat array: type, string or bytes, and so on. The caller frees it with `bundle_free`.
bool bundle_of(JSContext *ctx, JSValueConst array, kernel_mime_bundle_t *bundle);
void bundle_free(kernel_mime_bundle_t *bundle);

// ---- shim.c

// The number of the cell that makes the names a session begins with; its file is `<seed>`.
#define SEED_CELL UINT32_MAX

// Ends the cell that now runs, with an exit status: throws what no JavaScript can catch.
JSValue exit_cell(JSContext *ctx, int32_t status);

// Puts a function on the queue that comes before all other jobs: what `process.nextTick` asks for.
bool enqueue_tick(JSContext *ctx, JSValueConst function);

// Readies the runtime for a call from the host.
JSContext *enter(void);

// Notes that the host may have taken its time: whether the cell must stop is asked soon.
void note_wait(void);

// Forgets the pending exception, and why it came when it cannot be caught.
void drop_exception(void);

// Top-level `let`, `const` and `class` bindings: name, value, and so on.
JSValue lexical_bindings(JSContext *ctx);

// The environment that the session was given: name, value, and so on.
JSValue environment_list(JSContext *ctx);

// When the kernel was given to its session, on the monotonic clock.
uint64_t session_start(void);

// What the running code runs in the context of: jobs, promises and timers that it makes keep it. Undefined outside.
extern JSValue cellar_context;

// Replaces the context by another, which it takes over.
void enter_context(JSContext *ctx, JSValue context);

// ---- reserve.c

// Sets memory aside.
void keep_aside(void);

// Frees what is set aside.
void give_back(void);

// Readies memory for a cell. When it is full, what is kept aside lets the cell run that frees some.
void make_room(JSRuntime *runtime);

// Called by QuickJS when an allocation has failed.
void cellar_out_of_memory(void);

// ---- sources.c

// Keeps a cell's source, which came from malloc and ends with NUL, and lets the oldest go.
void remember_source(uint32_t cell, char *text, size_t length);

// The source of a cell, until the next one is remembered; null when it has been let go.
const char *cell_text(uint32_t cell, size_t *length);

// The same as a string; undefined when it has been let go.
JSValue cell_source(JSContext *ctx, uint32_t cell);

void forget_sources(void);

// ---- introspection.c

// Binds names to JSON values; undefined, or an exception.
JSValue bind_names(JSContext *ctx, const kernel_list_tuple2_string_json_t *bindings);

// ---- prelude.c

// The prelude's functions that C calls.
typedef enum {
    HOOK_SHOW,
    HOOK_FAILURE,
    HOOK_SETTLE,
    HOOK_FORGET,
    HOOK_COMPLAIN,
    HOOK_VARIABLES,
    HOOK_VALUE,
    HOOK_COMPLETE,
    HOOK_INSPECT,
    HOOK_CONFIGURE,
    HOOK_BIND,
    HOOK_IMPORT,
    HOOK_IMPORT_META,
    HOOK_PRELOAD,
    HOOK_COUNT
} hook_t;

// Ends a bake with the pending exception.
void give_up(JSContext *ctx, const char *where);

void load_prelude(JSContext *ctx);
void free_prelude(JSContext *ctx);
JSValue call_hook(JSContext *ctx, hook_t hook, int argc, JSValueConst *argv);

// ---- The prelude's functions

void add_output_functions(JSContext *ctx, JSValueConst host);
void add_bridge_functions(JSContext *ctx, JSValueConst host);
// The name of an error number; `EIO` for those that no call gives.
const char *error_code(int number);

void add_posix_functions(JSContext *ctx, JSValueConst host);
void add_file_functions(JSContext *ctx, JSValueConst host);
void add_encoding_functions(JSContext *ctx, JSValueConst host);
void add_url_functions(JSContext *ctx, JSValueConst host);
void add_host_functions(JSContext *ctx, JSValueConst host);
void add_detail_functions(JSContext *ctx, JSValueConst host);
void add_library_functions(JSContext *ctx, JSValueConst host);
void add_lookup_functions(JSContext *ctx, JSValueConst host);
void add_module_functions(JSContext *ctx, JSValueConst host);
void add_realm_functions(JSContext *ctx, JSValueConst host);

// Hands the answer of a call to who awaits it; frees nothing.
void settle_call(JSContext *ctx, const kernel_completion_t *completion);

// ---- timers.c

// A function that is to be called later.
typedef struct timer {
    struct timer *next;
    uint64_t due, interval;
    uint32_t id, cell;
    JSValue function, context;
} pending_timer_t;

void add_timer_functions(JSContext *ctx, JSValueConst host);

// When the earliest timer is due; UINT64_MAX when there is none.
uint64_t timers_next(void);

// Calls one timer that is due by `now`, for the cell that set it. Returns false when there is none; `*result` may be
// an exception.
bool timers_run_one(JSContext *ctx, uint64_t now, JSValue *result);

// Forgets the timers of a cell, or all when `cell` is UINT32_MAX.
void timers_forget(JSContext *ctx, uint32_t cell);

#endif
