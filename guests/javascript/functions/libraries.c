// Bundled libraries: constant data until something needs one, so that a session pays for what it uses.
#include "libraries.h"
#include "engine/engine.h"
#include "functions.h"

#include <string.h>

// library(name): the function that makes the library's exports
static JSValue library(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    const char *name = JS_ToCString(ctx, argv[0]);
    if (name == NULL)
        return JS_EXCEPTION;
    const library_t *found = libraries;
    while (found->name != NULL && strcmp(found->name, name) != 0)
        found++;
    JS_FreeCString(ctx, name);
    if (found->name == NULL)
        return JS_ThrowReferenceError(ctx, "there is no such library");
    JSValue code = JS_ReadObject(ctx, found->bytecode, found->length, JS_READ_OBJ_BYTECODE);
    return run_own(ctx, code);
}

void add_library_functions(JSContext *ctx, JSValueConst host) {
    JS_SetPropertyStr(ctx, host, "library", JS_NewCFunction(ctx, library, "library", 1));
}
