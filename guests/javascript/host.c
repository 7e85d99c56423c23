// The rest of what the prelude asks of C: clocks, randomness, the session.
#include "shim.h"

#include <string.h>

// now(): milliseconds since the session got its kernel
static JSValue now(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return JS_NewFloat64(ctx, (double)(cellar_kernel_control_monotonic_clock() - session_start()) / 1e6);
}

// fillRandom(bytes)
static JSValue fill_random(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    size_t length;
    uint8_t *bytes = bytes_of(ctx, argv[0], &length);
    if (bytes == NULL)
        return JS_ThrowTypeError(ctx, "a typed array is needed");
    glue_random(bytes, length);
    return JS_UNDEFINED;
}

// exit(status)
static JSValue exit_now(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int32_t status;
    if (JS_ToInt32(ctx, &status, argv[0]))
        return JS_EXCEPTION;
    return exit_cell(ctx, status);
}

// currentCell(): the number of the cell that runs
static JSValue current_cell(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return JS_NewUint32(ctx, glue_cell);
}

// source(cell)
static JSValue source(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    uint32_t cell;
    return JS_ToUint32(ctx, &cell, argv[0]) ? JS_EXCEPTION : cell_source(ctx, cell);
}

// lexicals()
static JSValue lexicals(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return lexical_bindings(ctx);
}

// environment()
static JSValue environment(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return environment_list(ctx);
}

// workingDirectory()
static JSValue directory(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    extern char *__wasilibc_cwd;
    return JS_NewString(ctx, __wasilibc_cwd);
}

// memoryBytes(): of linear memory
static JSValue memory_bytes(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return JS_NewInt64(ctx, (int64_t)exports_kernel_memory_size());
}

// enqueueTick(function)
static JSValue tick(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return enqueue_tick(ctx, argv[0]) ? JS_UNDEFINED : JS_EXCEPTION;
}

// context()
static JSValue get_context(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return JS_DupValue(ctx, cellar_context);
}

// setContext(value)
static JSValue set_context(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    enter_context(ctx, JS_DupValue(ctx, argv[0]));
    return JS_UNDEFINED;
}

void add_host_functions(JSContext *ctx, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("now", 0, now),
        JS_CFUNC_DEF("fillRandom", 1, fill_random),
        JS_CFUNC_DEF("exit", 1, exit_now),
        JS_CFUNC_DEF("enqueueTick", 1, tick),
        JS_CFUNC_DEF("context", 0, get_context),
        JS_CFUNC_DEF("setContext", 1, set_context),
        JS_CFUNC_DEF("currentCell", 0, current_cell),
        JS_CFUNC_DEF("source", 1, source),
        JS_CFUNC_DEF("lexicals", 0, lexicals),
        JS_CFUNC_DEF("environment", 0, environment),
        JS_CFUNC_DEF("workingDirectory", 0, directory),
        JS_CFUNC_DEF("memoryBytes", 0, memory_bytes),
    };
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
}
