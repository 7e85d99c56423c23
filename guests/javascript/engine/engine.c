// QuickJS, and what needs to see its inside; see engine.h.
//
// QuickJS is compiled as part of this file, because a few things have no interface: its queue of jobs, its global
// lexical scope, the state of Math.random. Patches of it (`patches/`) add the cell a job belongs to, and the rules of a
// cell's top level: declarations that may be repeated, `return`, and what counts as the cell's value. All of that is done
// by the parser itself; no source text is rewritten.
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Weverything"
#include "quickjs.c"
#pragma clang diagnostic pop

#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "functions/functions.h"
#include "hooks.h"
#include "prelude.h"
#include "reserve.h"
#include "sources.h"
#include "state.h"

// Three quarters of the C stack; the rest is for C that runs when JavaScript has used its share up.
#define JS_STACK_BYTES (3 * 1024 * 1024)

#include "details.c"
#include "intrinsics.c"
#include "lists.c"
#include "modules.c"
#include "realms.c"
#include "expressions.c"
#include "stacks.c"
#include "wording.c"

// ---- The runtime

static void *allocate_shared(void *opaque, size_t size) {
    return malloc(size);
}

static void free_shared(void *opaque, void *memory) {
    free(memory);
}

void open_engine(JSInterruptHandler *must_stop, JSHostPromiseRejectionTracker *rejected) {
    runtime = JS_NewRuntime();
    ctx = runtime == NULL ? NULL : JS_NewContext(runtime);
    if (ctx == NULL)
        __builtin_trap();
    JS_SetMaxStackSize(runtime, JS_STACK_BYTES);
    JS_SetCanBlock(runtime, true);
    JS_SetSharedArrayBufferFunctions(
        runtime, &(JSSharedArrayBufferFunctions){.sab_alloc = allocate_shared, .sab_free = free_shared});
    JS_SetInterruptHandler(runtime, must_stop, NULL);
    JS_SetHostPromiseRejectionTracker(runtime, rejected, NULL);
    JS_SetDynamicImportFunc(runtime, import_dynamically, NULL);
    init_list_head(&ticks);
    init_list_head(&frozen);
}

void close_engine(void) {
    // The runtime frees what it knows of.
    move_list(&ticks, &runtime->job_list);
    move_list(&frozen, &runtime->gc_obj_list);
    module_depth = 0;
    forget_intrinsics();
    JS_FreeContext(ctx);
    JS_FreeRuntime(runtime);
}

void seed_engine(uint64_t value) {
    ctx->random_state = value == 0 ? 1 : value; // zero is the one state that the generator never leaves
}

void note_wait(void) {
    const int steps = 100;
    if (ctx->interrupt_counter > steps)
        ctx->interrupt_counter = steps;
}

bool must_stop_soon(JSContext *c, size_t bytes) {
    return cellar_must_stop(c, bytes) != 0;
}

static JSValue evaluate_script(const char *text, size_t length, const char *file) {
    return JS_Eval(ctx, text, length, file, JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_ASYNC);
}

// Runs a text that is no JavaScript, of which the pending exception is the reason, if it is TypeScript.
static JSValue evaluate_typescript(const char *text, size_t length, const char *file) {
    JSValue error = JS_GetException(ctx);
    JSValue arguments[] = {JS_NewStringLen(ctx, text, length), JS_NewString(ctx, file), error};
    JSValue stripped = call_hook(ctx, HOOK_STRIP, 3, (JSValueConst *)arguments);
    JS_FreeValue(ctx, arguments[0]);
    JS_FreeValue(ctx, arguments[1]);
    if (JS_IsUndefined(stripped))
        return JS_Throw(ctx, error);
    JS_FreeValue(ctx, error);
    const char *script = JS_IsException(stripped) ? NULL : JS_ToCStringLen(ctx, &length, stripped);
    JS_FreeValue(ctx, stripped);
    if (script == NULL)
        return JS_EXCEPTION;
    JSValue promise = evaluate_script(script, length, file);
    JS_FreeCString(ctx, script);
    return promise;
}

// A cell that begins with a brace is an object if it can be, as in Node's REPL, and else a block.
JSValue evaluate_cell(const char *text, size_t length, const char *file) {
    cellar_brace_is_object = true;
    cellar_brace_seen = false;
    JSValue promise = evaluate_script(text, length, file);
    cellar_brace_is_object = false;
    if (cellar_brace_seen && JS_IsException(promise) && ending == ENDS_NOT) {
        drop_exception();
        promise = evaluate_script(text, length, file);
    }
    if (!JS_IsException(promise) || ending != ENDS_NOT)
        return promise;
    return evaluate_typescript(text, length, file);
}

JSValue last_place(void) {
    return JS_DupValue(ctx, ctx->error_back_trace);
}

JSValue lexical_bindings(void) {
    JSValue list = JS_NewArray(ctx);
    JSPropertyEnum *names;
    uint32_t count, length = 0;
    if (JS_GetOwnPropertyNames(ctx, &names, &count, ctx->global_var_obj, JS_GPN_STRING_MASK))
        return list;
    for (uint32_t i = 0; i < count; i++) {
        JSProperty *property;
        if (!find_own_property(&property, JS_VALUE_GET_OBJ(ctx->global_var_obj), names[i].atom) ||
            JS_IsUninitialized(property->u.value))
            continue;
        JS_SetPropertyUint32(ctx, list, length++, JS_AtomToString(ctx, names[i].atom));
        JS_SetPropertyUint32(ctx, list, length++, JS_DupValue(ctx, property->u.value));
    }
    JS_FreePropertyEnum(ctx, names, count);
    return list;
}
