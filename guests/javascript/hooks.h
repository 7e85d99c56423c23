// The prelude's functions that C calls.
#ifndef CELLAR_JAVASCRIPT_HOOKS_H
#define CELLAR_JAVASCRIPT_HOOKS_H

#include "quickjs.h"

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
    HOOK_STRIP,
    HOOK_IS_COMPLETE,
    HOOK_TRACE,
    HOOK_TRACED,
    HOOK_UNCAUGHT,
    HOOK_COUNT
} hook_t;

// Takes the hooks out of the kit of the prelude. Returns the name of one that is missing, or null.
const char *take_hooks(JSContext *ctx, JSValueConst kit);

void free_hooks(JSContext *ctx);

JSValue call_hook(JSContext *ctx, hook_t hook, int argc, JSValueConst *argv);

#endif
