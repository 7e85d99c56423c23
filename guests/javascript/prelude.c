// The JavaScript half of the guest: embedded here, run once while the guest is baked.
#include "functions/functions.h"
#include "glue.h"
#include "hooks.h"
#include "prelude.h"

#include <stdio.h>
#include <string.h>

// In the order in which they run: later files use what earlier ones put into the kit.
static const char *const prelude_names[] = {"inspect", "errors", "output", "libraries", "bridges", "connectors", "helpers", "timers",
                                            "process", "web", "node", "resolve", "modules", "commonjs",
                                            "introspection", "additions"};
static const char prelude_inspect[] = {
#embed "prelude/inspect.js" suffix(, 0)
};
static const char prelude_errors[] = {
#embed "prelude/errors.js" suffix(, 0)
};
static const char prelude_libraries[] = {
#embed "prelude/libraries.js" suffix(, 0)
};
static const char prelude_output[] = {
#embed "prelude/output.js" suffix(, 0)
};
static const char prelude_bridges[] = {
#embed "prelude/bridges.js" suffix(, 0)
};
static const char prelude_connectors[] = {
#embed "prelude/connectors.js" suffix(, 0)
};
static const char prelude_helpers[] = {
#embed "prelude/helpers.js" suffix(, 0)
};
static const char prelude_timers[] = {
#embed "prelude/timers.js" suffix(, 0)
};
static const char prelude_process[] = {
#embed "prelude/process.js" suffix(, 0)
};
static const char prelude_web[] = {
#embed "prelude/web.js" suffix(, 0)
};
static const char prelude_node[] = {
#embed "prelude/node.js" suffix(, 0)
};
static const char prelude_resolve[] = {
#embed "prelude/resolve.js" suffix(, 0)
};
static const char prelude_modules[] = {
#embed "prelude/modules.js" suffix(, 0)
};
static const char prelude_commonjs[] = {
#embed "prelude/commonjs.js" suffix(, 0)
};
static const char prelude_introspection[] = {
#embed "prelude/introspection.js" suffix(, 0)
};
// The image's own.
static const char prelude_additions[] = {
#embed ADDITIONS suffix(, 0)
};
static const char *const prelude_texts[] = {prelude_inspect, prelude_errors,  prelude_output,  prelude_libraries,
                                            prelude_bridges, prelude_connectors, prelude_helpers, prelude_timers,  prelude_process,
                                            prelude_web,     prelude_node,    prelude_resolve, prelude_modules,
                                            prelude_commonjs, prelude_introspection, prelude_additions};

void give_up(JSContext *ctx, const char *where) {
    JSValue error = JS_GetException(ctx), stack = JS_GetPropertyStr(ctx, error, "stack");
    const char *message = JS_ToCString(ctx, error), *frames = JS_ToCString(ctx, stack);
    char text[1024];
    snprintf(text, sizeof text, "prelude `%s`: %s\n%s", where, message, frames);
    glue_log(text);
    __builtin_trap();
}

// Each file is a function of the host object and of the kit that the files share.
void load_prelude(JSContext *ctx) {
    JSValue host = JS_NewObject(ctx), kit = JS_NewObject(ctx);
    add_output_functions(ctx, host);
    add_bridge_functions(ctx, host);
    add_file_functions(ctx, host);
    add_posix_functions(ctx, host);
    add_host_functions(ctx, host);
    add_compression_functions(ctx, host);
    add_detail_functions(ctx, host);
    add_digest_functions(ctx, host);
    add_encoding_functions(ctx, host);
    add_url_functions(ctx, host);
    add_library_functions(ctx, host);
    add_lookup_functions(ctx, host);
    add_module_functions(ctx, host);
    add_realm_functions(ctx, host);
    add_sqlite_functions(ctx, host);
    add_timer_functions(ctx, host);
    add_zone_functions(ctx, host);
    for (size_t i = 0; i < sizeof prelude_texts / sizeof *prelude_texts; i++) {
        char name[64];
        snprintf(name, sizeof name, "cellar:%s", prelude_names[i]);
        JSValue function = JS_Eval(ctx, prelude_texts[i], strlen(prelude_texts[i]), name, JS_EVAL_TYPE_GLOBAL);
        JSValueConst arguments[] = {host, kit};
        JSValue result = JS_IsException(function) ? function : JS_Call(ctx, function, JS_UNDEFINED, 2, arguments);
        if (JS_IsException(result))
            give_up(ctx, prelude_names[i]);
        JS_FreeValue(ctx, result);
        JS_FreeValue(ctx, function);
    }
    const char *missing = take_hooks(ctx, kit);
    if (missing != NULL)
        give_up(ctx, missing);
    JS_FreeValue(ctx, host);
    JS_FreeValue(ctx, kit);
}
