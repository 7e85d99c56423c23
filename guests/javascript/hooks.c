// The prelude's functions that C calls; see hooks.h.
#include "hooks.h"

static const char *const names[HOOK_COUNT] = {"show", "failure", "settle", "forget", "complain", "variables",
                                              "value", "complete", "inspectAt", "configure", "bind", "importModule",
                                              "fillImportMeta", "preload", "strip", "isComplete",
                                              "trace", "traced", "uncaught"};
static JSValue hooks[HOOK_COUNT];

const char *take_hooks(JSContext *ctx, JSValueConst kit) {
    for (int i = 0; i < HOOK_COUNT; i++) {
        hooks[i] = JS_GetPropertyStr(ctx, kit, names[i]);
        if (!JS_IsFunction(ctx, hooks[i]))
            return names[i];
    }
    return NULL;
}

void free_hooks(JSContext *ctx) {
    for (int i = 0; i < HOOK_COUNT; i++)
        JS_FreeValue(ctx, hooks[i]);
}

JSValue call_hook(JSContext *ctx, hook_t hook, int argc, JSValueConst *argv) {
    return JS_Call(ctx, hooks[hook], JS_UNDEFINED, argc, argv);
}
