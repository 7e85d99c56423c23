// Between JavaScript values and the types of the component ABI.
#include "convert.h"

#include <stdlib.h>
#include <string.h>

bool text_of(JSContext *ctx, JSValueConst value, kernel_string_t *text) {
    size_t length;
    const char *bytes = JS_ToCStringLen(ctx, &length, value);
    if (bytes == NULL)
        return false;
    // A string of ASCII may be lent as it lies in the heap, but then there is nothing to repair.
    utf8_repair((char *)bytes, length);
    *text = glue_view(bytes, length);
    return true;
}

bool optional_text_of(JSContext *ctx, JSValueConst value, kernel_option_string_t *text) {
    text->is_some = !JS_IsUndefined(value) && !JS_IsNull(value);
    return !text->is_some || text_of(ctx, value, &text->val);
}

void text_free(JSContext *ctx, kernel_string_t *text) {
    if (text->ptr != NULL)
        JS_FreeCString(ctx, (const char *)text->ptr);
    text->ptr = NULL;
}

// A copy of bytes that the ABI frees. False with an exception when memory is short.
static bool copy_bytes(JSContext *ctx, const uint8_t *bytes, size_t length, kernel_string_t *copy) {
    if (glue_try_copy((const char *)bytes, length, copy))
        return true;
    JS_ThrowOutOfMemory(ctx);
    return false;
}

// Copies a text, or as much of it as `room` bytes hold.
static bool copy_prefix_of(JSContext *ctx, JSValueConst value, size_t room, kernel_string_t *text) {
    kernel_string_t view;
    *text = (kernel_string_t){NULL, 0};
    if (!text_of(ctx, value, &view))
        return false;
    bool ok = copy_bytes(ctx, view.ptr, utf8_prefix((const char *)view.ptr, view.len, room), text);
    text_free(ctx, &view);
    return ok;
}

bool copy_text_of(JSContext *ctx, JSValueConst value, kernel_string_t *text) {
    return copy_prefix_of(ctx, value, SIZE_MAX, text);
}

bool copy_word_of(JSContext *ctx, JSValueConst value, kernel_string_t *text) {
    return copy_prefix_of(ctx, value, GLUE_WORD_BYTES_MAX, text);
}

bool copy_property(JSContext *ctx, JSValueConst object, const char *name, kernel_option_string_t *text) {
    *text = (kernel_option_string_t){.is_some = false};
    JSValue value = JS_GetPropertyStr(ctx, object, name);
    bool ok = !JS_IsException(value);
    if (ok && !JS_IsUndefined(value))
        ok = text->is_some = copy_word_of(ctx, value, &text->val);
    JS_FreeValue(ctx, value);
    return ok;
}

kernel_option_u32_t number_property(JSContext *ctx, JSValueConst object, const char *name) {
    kernel_option_u32_t number = {.is_some = false};
    JSValue value = JS_GetPropertyStr(ctx, object, name);
    number.is_some = JS_IsNumber(value) && JS_ToUint32(ctx, &number.val, value) == 0;
    JS_FreeValue(ctx, value);
    return number;
}

JSValue string_from(JSContext *ctx, kernel_string_t text) {
    return JS_NewStringLen(ctx, (const char *)text.ptr, text.len);
}

// The buffer's memory is malloc's own.
static void *move_bytes(JSRuntime *runtime, void *opaque, void *bytes, size_t size) {
    if (size > 0)
        return realloc(bytes, size);
    free(bytes);
    return NULL;
}

JSValue bytes_from(JSContext *ctx, uint8_t *bytes, size_t length) {
    return JS_NewUint8Array(ctx, bytes, length, move_bytes, NULL, false);
}

uint8_t *bytes_of(JSContext *ctx, JSValueConst value, size_t *length) {
    static uint8_t nothing; // what an empty buffer has instead of memory
    if (JS_IsArrayBuffer(value)) {
        uint8_t *bytes = JS_GetArrayBuffer(ctx, length, value);
        return bytes == NULL && *length == 0 ? &nothing : bytes;
    }
    if (JS_GetTypedArrayType(value) < 0)
        return NULL;
    size_t offset, per_element, whole;
    JSValue buffer = JS_GetTypedArrayBuffer(ctx, value, &offset, length, &per_element);
    if (JS_IsException(buffer)) {
        JS_FreeValue(ctx, JS_GetException(ctx));
        return NULL;
    }
    uint8_t *bytes = JS_GetArrayBuffer(ctx, &whole, buffer);
    JS_FreeValue(ctx, buffer);
    return bytes != NULL ? bytes + offset : *length == 0 ? &nothing : NULL;
}

// One representation: bytes stay bytes, anything else becomes text.
static bool mime_data_of(JSContext *ctx, JSValueConst value, cellar_kernel_types_mime_data_t *data) {
    size_t length;
    const uint8_t *bytes = bytes_of(ctx, value, &length);
    if (bytes != NULL) {
        kernel_string_t copy;
        data->tag = CELLAR_KERNEL_TYPES_MIME_DATA_BINARY;
        if (!copy_bytes(ctx, bytes, length, &copy))
            return false;
        data->val.binary = (kernel_list_u8_t){copy.ptr, copy.len};
        return true;
    }
    data->tag = CELLAR_KERNEL_TYPES_MIME_DATA_TEXT;
    return copy_text_of(ctx, value, &data->val.text);
}

bool bundle_of(JSContext *ctx, JSValueConst array, kernel_mime_bundle_t *bundle) {
    *bundle = (kernel_mime_bundle_t){NULL, 0};
    int64_t length = 0;
    if (JS_GetLength(ctx, array, &length) || length < 2)
        return false;
    bundle->ptr = calloc((size_t)length / 2, sizeof *bundle->ptr);
    if (bundle->ptr == NULL) {
        JS_ThrowOutOfMemory(ctx);
        return false;
    }
    for (uint32_t i = 0; i + 1 < length; i += 2) {
        JSValue type = JS_GetPropertyUint32(ctx, array, i), value = JS_GetPropertyUint32(ctx, array, i + 1);
        cellar_kernel_types_tuple2_string_mime_data_t *entry = &bundle->ptr[bundle->len];
        bool ok = copy_text_of(ctx, type, &entry->f0) && mime_data_of(ctx, value, &entry->f1);
        bundle->len++;
        JS_FreeValue(ctx, type);
        JS_FreeValue(ctx, value);
        if (!ok) {
            bundle_free(bundle);
            return false;
        }
    }
    return true;
}

void bundle_free(kernel_mime_bundle_t *bundle) {
    cellar_kernel_types_mime_bundle_free(bundle);
    *bundle = (kernel_mime_bundle_t){NULL, 0};
}
