// What a cell shows.
#include "convert.h"
#include "engine/engine.h"
#include "functions.h"

#include <stdlib.h>
#include <string.h>

// write(stream, text or bytes): a character may come in two writes of bytes
static JSValue write_output(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int32_t number;
    size_t length;
    kernel_string_t text;
    if (JS_ToInt32(ctx, &number, argv[0]))
        return JS_EXCEPTION;
    cellar_kernel_output_stream_name_t to =
        number == 1 ? CELLAR_KERNEL_TYPES_STREAM_NAME_STDERR : CELLAR_KERNEL_TYPES_STREAM_NAME_STDOUT;
    const uint8_t *bytes = JS_IsObject(argv[1]) ? bytes_of(ctx, argv[1], &length) : NULL;
    if (bytes != NULL) {
        glue_write_bytes(to, (const char *)bytes, length);
    } else {
        if (!text_of(ctx, argv[1], &text))
            return JS_EXCEPTION;
        glue_write(to, (const char *)text.ptr, text.len);
        text_free(ctx, &text);
    }
    note_wait();
    return JS_UNDEFINED;
}

// writeExactly(): from now on each byte that is written crosses, because programs read it
static JSValue write_exactly(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    glue_exact = true;
    return JS_UNDEFINED;
}

// display(bundle, id, update, is the value of the cell)
static JSValue display(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    cellar_kernel_output_display_data_t shown = {.update = JS_ToBool(ctx, argv[2]), .is_value = JS_ToBool(ctx, argv[3])};
    if (!optional_text_of(ctx, argv[1], &shown.display_id))
        return JS_EXCEPTION;
    bool ok = bundle_of(ctx, argv[0], &shown.data);
    if (ok) {
        size_t size = glue_bundle_bytes(&shown.data) + (shown.display_id.is_some ? shown.display_id.val.len : 0);
        if (size > GLUE_DISPLAY_BYTES_MAX)
            glue_display_left_out(size);
        else
            cellar_kernel_output_display(glue_cell, &shown);
        bundle_free(&shown.data);
        note_wait();
    }
    if (shown.display_id.is_some)
        text_free(ctx, &shown.display_id.val);
    return ok ? JS_UNDEFINED : JS_EXCEPTION;
}

// clear(wait)
static JSValue clear(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    cellar_kernel_output_clear(glue_cell, JS_ToBool(ctx, argv[0]));
    return JS_UNDEFINED;
}

// A whole number stays one; any other value that is no boolean and no number becomes text. False when an exception is
// pending.
static bool scalar_of(JSContext *ctx, JSValueConst value, cellar_kernel_types_scalar_t *scalar) {
    if (JS_IsBool(value)) {
        scalar->tag = CELLAR_KERNEL_TYPES_SCALAR_BOOLEAN;
        scalar->val.boolean = JS_ToBool(ctx, value);
        return true;
    }
    if (JS_IsNumber(value)) {
        double number;
        JS_ToFloat64(ctx, &number, value);
        bool whole = number >= -9007199254740991.0 && number <= 9007199254740991.0 && (double)(int64_t)number == number;
        scalar->tag = whole ? CELLAR_KERNEL_TYPES_SCALAR_INTEGER : CELLAR_KERNEL_TYPES_SCALAR_NUMBER;
        if (whole)
            scalar->val.integer = (int64_t)number;
        else
            scalar->val.number = number;
        return true;
    }
    scalar->tag = CELLAR_KERNEL_TYPES_SCALAR_TEXT;
    return copy_word_of(ctx, value, &scalar->val.text);
}

// status(operation, name, value, ...)
static JSValue status(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    cellar_kernel_output_tuple2_string_scalar_t fields[8] = {0};
    cellar_kernel_output_list_tuple2_string_scalar_t list = {fields, 0};
    kernel_string_t operation;
    bool ok = copy_word_of(ctx, argv[0], &operation);
    for (int i = 1; ok && i + 1 < argc && list.len < sizeof fields / sizeof *fields; i += 2) {
        cellar_kernel_output_tuple2_string_scalar_t *field = &fields[list.len++];
        ok = copy_word_of(ctx, argv[i], &field->f0) && scalar_of(ctx, argv[i + 1], &field->f1);
    }
    if (ok)
        cellar_kernel_output_status(glue_cell, &operation, &list);
    note_wait();
    kernel_string_free(&operation);
    for (size_t i = 0; i < list.len; i++)
        cellar_kernel_output_tuple2_string_scalar_free(&fields[i]);
    return ok ? JS_UNDEFINED : JS_EXCEPTION;
}

// Texts of an array, which the caller frees. False when an exception is pending.
static bool texts_of(JSContext *ctx, JSValueConst array, kernel_list_string_t *texts) {
    int64_t length = 0;
    *texts = (kernel_list_string_t){0};
    if (JS_GetLength(ctx, array, &length))
        return false;
    texts->ptr = length > 0 ? calloc((size_t)length, sizeof *texts->ptr) : NULL;
    bool ok = true;
    for (int64_t i = 0; ok && texts->ptr != NULL && i < length; i++) {
        JSValue item = JS_GetPropertyInt64(ctx, array, i);
        ok = copy_word_of(ctx, item, &texts->ptr[texts->len++]);
        JS_FreeValue(ctx, item);
    }
    return ok;
}

// bound(cell, bound, deleted, read, leftOut): arrays of names, and how many are left out
static JSValue bound(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    uint32_t cell;
    cellar_kernel_output_bound_names_t names = {0};
    if (JS_ToUint32(ctx, &cell, argv[0]) || JS_ToUint32(ctx, &names.left_out, argv[4]))
        return JS_EXCEPTION;
    bool ok = texts_of(ctx, argv[1], &names.bound) && texts_of(ctx, argv[2], &names.deleted)
        && texts_of(ctx, argv[3], &names.read);
    if (ok)
        cellar_kernel_output_bound(cell, &names);
    cellar_kernel_output_bound_names_free(&names);
    return ok ? JS_UNDEFINED : JS_EXCEPTION;
}

void add_output_functions(JSContext *ctx, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("write", 2, write_output),
        JS_CFUNC_DEF("writeExactly", 0, write_exactly),
        JS_CFUNC_DEF("display", 4, display),
        JS_CFUNC_DEF("clear", 1, clear),
        JS_CFUNC_DEF("status", 1, status),
        JS_CFUNC_DEF("bound", 5, bound),
    };
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
}
