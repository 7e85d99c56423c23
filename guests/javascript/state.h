// What the C files of the JavaScript guest share: the runtime, and what is known of the code that runs.
//
// The files lie in layers, of which engine, functions and cells are folders. Each uses only what is above it in this list; no
// two need each other.
//
//   state       this
//   hooks       the prelude's functions that C calls
//   convert, sources, reserve
//               values to and from the ABI; the sources of recent cells; memory that is kept aside
//   engine      QuickJS, and what needs to see its inside: details, stacks, lists, modules, realms
//   functions   what the prelude may call: bridges, compression, digests, encodings, files, host, libraries, lookup, output, posix,
//               sqlite, timers, urls
//   prelude     the prelude's files, embedded and run
//   cells       cells from start to end; rejections
//   shim, introspection
//               the event loop, and the exports of the component
//
// Everything is in the image of the memory, so a session can be moved at any quiet moment.
#ifndef CELLAR_JAVASCRIPT_STATE_H
#define CELLAR_JAVASCRIPT_STATE_H

#include "glue.h"
#include "quickjs.h"

extern JSRuntime *runtime;
extern JSContext *ctx;

// The session's seed, environment and working directory.
extern kernel_configuration_t configuration;

// The environment has been read: when it changes, the prelude must be told.
extern bool environment_read;

// Whether the environment of the session names a zone of time.
bool names_zone(void);

// When the kernel was given to its session, on the monotonic clock.
extern uint64_t started_at;

// Why the code that was running had to stop; looked at when an exception that cannot be caught comes out.
typedef enum { ENDS_NOT, ENDS_STOPPED, ENDS_EXITED } ending_t;
extern ending_t ending;
extern cellar_kernel_types_stop_reason_t stop_reason;
extern int32_t exit_status;

// The status that a cell has set for its end and that is not 0, and which cell it was; of several the last.
typedef struct {
    uint32_t cell;
    int32_t status;
} exit_code_t;
extern exit_code_t exit_code;

// What the running code runs in the context of: jobs, promises and timers that it makes keep it. Undefined outside.
extern JSValue cellar_context;

// When a script must have ended that was given a time, on the monotonic clock, or zero; and whether it was ended for that.
extern uint64_t script_deadline;
extern bool script_expired;

// Readies the runtime for a call from the host.
JSContext *enter(void);

// Replaces the context of `AsyncLocalStorage` by another, which it takes over.
void enter_context(JSValue context);

// Forgets the pending exception, and why it came when it cannot be caught.
void drop_exception(void);

#endif
