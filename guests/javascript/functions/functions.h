// What the prelude may call: each function adds some, as properties of one object that only the prelude sees.
#ifndef CELLAR_JAVASCRIPT_FUNCTIONS_H
#define CELLAR_JAVASCRIPT_FUNCTIONS_H

#include "glue.h"
#include "quickjs.h"

// Minutes by which UTC is ahead of local time at `time`, in milliseconds from 1970, which is what a clock shows if `is_local`.
int cellar_zone_offset(int64_t time, bool is_local);

void add_bridge_functions(JSContext *ctx, JSValueConst host);
void add_detail_functions(JSContext *ctx, JSValueConst host);
void add_compression_functions(JSContext *ctx, JSValueConst host);
void add_digest_functions(JSContext *ctx, JSValueConst host);
void add_encoding_functions(JSContext *ctx, JSValueConst host);
void add_file_functions(JSContext *ctx, JSValueConst host);
void add_host_functions(JSContext *ctx, JSValueConst host);
void add_library_functions(JSContext *ctx, JSValueConst host);
void add_lookup_functions(JSContext *ctx, JSValueConst host);
void add_module_functions(JSContext *ctx, JSValueConst host);
void add_output_functions(JSContext *ctx, JSValueConst host);
void add_posix_functions(JSContext *ctx, JSValueConst host);
void add_realm_functions(JSContext *ctx, JSValueConst host);
void add_sqlite_functions(JSContext *ctx, JSValueConst host);
void add_timer_functions(JSContext *ctx, JSValueConst host);
void add_url_functions(JSContext *ctx, JSValueConst host);
void add_zone_functions(JSContext *ctx, JSValueConst host);

// The name of an error number; `EIO` for those that no call gives.
const char *error_code(int number);

// Hands the answer of a call to who awaits it; frees nothing.
void settle_call(JSContext *ctx, const kernel_completion_t *completion);

// ---- Timers

// When the earliest timer is due; UINT64_MAX when there is none.
uint64_t timers_next(void);

// Calls one timer that is due by `now`, for the cell that set it. Returns false when there is none; `*result` may be
// an exception.
bool timers_run_one(JSContext *ctx, uint64_t now, JSValue *result);

// Has a cell set timers that it is waited for with, and that are due by `until`?
bool timers_keep(uint32_t cell, uint64_t until);

// Forgets the timers of a cell.
void timers_forget(JSContext *ctx, uint32_t cell);

// Forgets all timers.
void timers_forget_all(JSContext *ctx);

#endif
