// The rest of what the prelude asks of C: clocks, randomness, the session.
#include "convert.h"
#include "engine/engine.h"
#include "functions.h"
#include "sources.h"
#include "state.h"

#include <string.h>
#include <unistd.h>

// now(): milliseconds since the session got its kernel
static JSValue now(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return JS_NewFloat64(ctx, (double)(cellar_kernel_control_monotonic_clock() - started_at) / 1e6);
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

// exit(status): ends the cell that now runs; throws what no JavaScript can catch
static JSValue exit_now(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int32_t status;
    if (JS_ToInt32(ctx, &status, argv[0]))
        return JS_EXCEPTION;
    JS_ThrowInternalError(ctx, "exit");
    JSValue error = JS_GetException(ctx);
    JS_SetUncatchableError(ctx, error);
    ending = ENDS_EXITED;
    exit_status = status;
    return JS_Throw(ctx, error);
}

// setExitCode(status): the cell that now runs ends with this status, unless that is 0
static JSValue set_exit_code(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int32_t status;
    if (JS_ToInt32(ctx, &status, argv[0]))
        return JS_EXCEPTION;
    exit_code = (exit_code_t){.cell = glue_cell, .status = status};
    return JS_UNDEFINED;
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
    return lexical_bindings();
}

// environment(): of the session; name, value, and so on
static JSValue environment(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    environment_read = true;
    JSValue list = JS_NewArray(ctx);
    for (uint32_t i = 0; i < configuration.environment.len; i++) {
        JS_SetPropertyUint32(ctx, list, 2 * i, string_from(ctx, configuration.environment.ptr[i].f0));
        JS_SetPropertyUint32(ctx, list, 2 * i + 1, string_from(ctx, configuration.environment.ptr[i].f1));
    }
    return list;
}

// hasZone(): whether the environment of the session names a zone
static JSValue has_zone(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return JS_NewBool(ctx, names_zone());
}

// connectors(): their names
static JSValue connectors(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    JSValue list = JS_NewArray(ctx);
    for (uint32_t i = 0; i < configuration.connectors.len; i++)
        JS_SetPropertyUint32(ctx, list, i, string_from(ctx, configuration.connectors.ptr[i]));
    return list;
}

// workingDirectory()
static JSValue directory(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    extern char *__wasilibc_cwd;
    return JS_NewString(ctx, __wasilibc_cwd);
}

// changeDirectory(path): of a process, before its program runs
static JSValue change_directory(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    const char *path = JS_ToCString(ctx, argv[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    int failed = chdir(path);
    JS_FreeCString(ctx, path);
    return failed ? JS_ThrowInternalError(ctx, "there is no such folder") : JS_UNDEFINED;
}

// memoryBytes(): of linear memory
static JSValue memory_bytes(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return JS_NewInt64(ctx, (int64_t)exports_kernel_memory_size());
}

// enqueueTick(function)
static JSValue tick(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return enqueue_tick(argv[0]) ? JS_UNDEFINED : JS_EXCEPTION;
}

// context()
static JSValue get_context(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return JS_DupValue(ctx, cellar_context);
}

// setContext(value)
static JSValue set_context(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    enter_context(JS_DupValue(ctx, argv[0]));
    return JS_UNDEFINED;
}

void add_host_functions(JSContext *ctx, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("now", 0, now),
        JS_CFUNC_DEF("hasZone", 0, has_zone),
        JS_CFUNC_DEF("fillRandom", 1, fill_random),
        JS_CFUNC_DEF("exit", 1, exit_now),
        JS_CFUNC_DEF("enqueueTick", 1, tick),
        JS_CFUNC_DEF("context", 0, get_context),
        JS_CFUNC_DEF("setContext", 1, set_context),
        JS_CFUNC_DEF("setExitCode", 1, set_exit_code),
        JS_CFUNC_DEF("currentCell", 0, current_cell),
        JS_CFUNC_DEF("source", 1, source),
        JS_CFUNC_DEF("lexicals", 0, lexicals),
        JS_CFUNC_DEF("environment", 0, environment),
        JS_CFUNC_DEF("connectors", 0, connectors),
        JS_CFUNC_DEF("workingDirectory", 0, directory),
        JS_CFUNC_DEF("changeDirectory", 1, change_directory),
        JS_CFUNC_DEF("memoryBytes", 0, memory_bytes),
    };
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
}
