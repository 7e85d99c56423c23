// Runs programs.js in QuickJS and writes how often each piece of QuickJS ran to the file `/counts`.
//
// The builder compiles this for WebAssembly with clang's counters, and reads them to compile the guest. QuickJS is a part
// of this file as it is of the guest's. What its patches call of the guest does nothing here: errors have no stacks.
#include "quickjs.c"

#include <stdio.h>

#include "counters.h"

uint32_t glue_cell;
JSValue cellar_context = JS_UNDEFINED;

void cellar_out_of_memory(void) {
}

void cellar_fill_import_meta(JSContext *ctx, JSModuleDef *m, JSValueConst meta) {
}

JSValue cellar_cell_meta(JSContext *ctx) {
    return JS_UNDEFINED;
}

int cellar_zone_offset(int64_t time, bool is_local) {
    return 0;
}

const char *cellar_zone_name(int64_t time) {
    return "Coordinated Universal Time";
}

static void cellar_put_headline(JSContext *ctx, JSValueConst error, DynBuf *out) {
}

static bool cellar_put_frame(JSContext *ctx, JSStackFrame *frame, const char *prefix, DynBuf *out) {
    return false;
}

static void cellar_put_awaiting(JSContext *ctx, JSStackFrame *outermost, DynBuf *out, int limit) {
}

static void cellar_throw_no_export(JSContext *ctx, JSAtom message) {
}

static JSValue cellar_throw_not_function(JSContext *ctx) {
    return JS_ThrowTypeError(ctx, "not a function");
}

static JSValue cellar_throw_not_iterable(JSContext *ctx, JSValueConst value) {
    return JS_ThrowTypeError(ctx, "not iterable");
}

static JSValue cellar_throw_not_destructured(JSContext *ctx, JSValueConst value, const uint8_t *pc) {
    return JS_ThrowTypeError(ctx, "cannot be destructured");
}

static void cellar_throw_class_called(JSContext *ctx, JSValueConst function) {
    JS_ThrowTypeError(ctx, "called without new");
}

static int cellar_refuse(JSContext *ctx, int flags, cellar_refusal_t refusal, JSValueConst object, JSAtom name) {
    return false;
}

static JSValue cellar_throw_value(JSContext *ctx, const char *before, JSValueConst value, const char *after) {
    return JS_EXCEPTION;
}

static JSValue cellar_throw_not_constructor(JSContext *ctx, JSValueConst value) {
    return JS_EXCEPTION;
}

static JSValue cellar_throw_called_without_new(JSContext *ctx, JSValueConst function) {
    return JS_EXCEPTION;
}

static void cellar_throw_other_brand(JSContext *ctx, JSValueConst method) {
    JS_ThrowTypeError(ctx, "other brand");
}

static JSValue cellar_throw_multiple(JSContext *ctx, const char *what, int class_id, int size) {
    return JS_ThrowRangeError(ctx, "no multiple");
}

static void cellar_throw_not_in(JSContext *ctx, JSValueConst name, JSValueConst value) {
}

static void cellar_throw_circular(JSContext *ctx, JSValueConst stack, JSValueConst value) {
    JS_ThrowTypeError(ctx, "circular");
}

static void cellar_note_abandoned(JSRuntime *rt, JSAsyncFunctionData *function) {
}

static void cellar_forget_place(JSContext *ctx) {
}

static const char programs[] = {
#embed "programs.js"
    , 0};

int main(void) {
    JSContext *ctx = JS_NewContext(JS_NewRuntime()), *other;
    JSValue done = JS_Eval(ctx, programs, sizeof programs - 1, "programs.js", JS_EVAL_TYPE_GLOBAL);
    while (JS_ExecutePendingJob(JS_GetRuntime(ctx), &other) > 0)
        ;
    if (JS_IsException(done) || JS_PromiseState(ctx, done) != JS_PROMISE_FULFILLED) {
        JSValue error = JS_IsException(done) ? JS_GetException(ctx) : JS_PromiseResult(ctx, done);
        fprintf(stderr, "programs.js failed: %s\n", JS_ToCString(ctx, error));
        return 1;
    }
    return counters_write() ? 0 : 1;
}
