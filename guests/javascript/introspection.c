// Exports that look into a session: variables, values, completions, hovers. The prelude
// finds the answers.
#include <stdlib.h>

#include "convert.h"
#include "hooks.h"
#include "state.h"

// Calls a hook with a text and a number; an exception is an answer of undefined.
static JSValue ask(JSContext *ctx, hook_t hook, kernel_string_t *text, uint32_t number) {
    JSValue arguments[] = {text == NULL ? JS_UNDEFINED : string_from(ctx, *text), JS_NewUint32(ctx, number)};
    JSValue answer = call_hook(ctx, hook, 2, (JSValueConst *)arguments);
    JS_FreeValue(ctx, arguments[0]);
    if (JS_IsException(answer)) {
        drop_exception();
        answer = JS_UNDEFINED;
    }
    if (text != NULL)
        kernel_string_free(text);
    return answer;
}

static bool ask_for_bundle(hook_t hook, kernel_string_t *text, uint32_t number, kernel_mime_bundle_t *bundle) {
    JSContext *ctx = enter();
    JSValue answer = ask(ctx, hook, text, number);
    bool found = JS_IsArray(answer) && bundle_of(ctx, answer, bundle);
    if (found && glue_bundle_bytes(bundle) > GLUE_DISPLAY_BYTES_MAX) {
        bundle_free(bundle);
        found = false;
    }
    JS_FreeValue(ctx, answer);
    return found;
}

bool exports_kernel_inspect(kernel_string_t *code, uint32_t cursor, kernel_mime_bundle_t *bundle) {
    return ask_for_bundle(HOOK_INSPECT, code, cursor, bundle);
}

bool exports_kernel_value(kernel_string_t *name, kernel_mime_bundle_t *bundle) {
    return ask_for_bundle(HOOK_VALUE, name, 0, bundle);
}

// Elements of an answer that is an array, 0 for any other.
static uint32_t answer_length(JSContext *ctx, JSValueConst answer) {
    int64_t length = 0;
    return JS_IsArray(answer) && JS_GetLength(ctx, answer, &length) == 0 ? (uint32_t)length : 0;
}

// The text of a property of an answer. Empty when memory is short: a look at a session must not end its kernel.
static kernel_string_t property_text(JSContext *ctx, JSValueConst entry, const char *name) {
    kernel_option_string_t text;
    if (!copy_property(ctx, entry, name, &text))
        drop_exception();
    return text.val;
}

void exports_kernel_variables(kernel_list_variable_t *list) {
    JSContext *ctx = enter();
    JSValue answer = ask(ctx, HOOK_VARIABLES, NULL, 0);
    uint32_t length = answer_length(ctx, answer);
    *list = (kernel_list_variable_t){length == 0 ? NULL : calloc(length, sizeof *list->ptr), 0};
    for (uint32_t i = 0; i < length && list->ptr != NULL; i++) {
        JSValue entry = JS_GetPropertyUint32(ctx, answer, i);
        kernel_option_u32_t size = number_property(ctx, entry, "size");
        list->ptr[list->len++] = (kernel_variable_t){
            .name = property_text(ctx, entry, "name"),
            .type_name = property_text(ctx, entry, "type"),
            .size = {size.is_some, size.val},
            .preview = property_text(ctx, entry, "preview"),
        };
        JS_FreeValue(ctx, entry);
    }
    JS_FreeValue(ctx, answer);
}

void exports_kernel_complete(kernel_string_t *code, uint32_t cursor, kernel_completion_list_t *list) {
    JSContext *ctx = enter();
    JSValue answer = ask(ctx, HOOK_COMPLETE, code, cursor);
    JSValue items = JS_IsObject(answer) ? JS_GetPropertyStr(ctx, answer, "items") : JS_UNDEFINED;
    uint32_t length = answer_length(ctx, items);
    *list = (kernel_completion_list_t){.start = cursor, .end = cursor};
    if (JS_IsObject(answer))
        list->start = number_property(ctx, answer, "start").val;
    list->items.ptr = length == 0 ? NULL : calloc(length, sizeof *list->items.ptr);
    for (uint32_t i = 0; i < length && list->items.ptr != NULL; i++) {
        JSValue entry = JS_GetPropertyUint32(ctx, items, i);
        list->items.ptr[list->items.len++] = (cellar_kernel_types_completion_item_t){
            .text = property_text(ctx, entry, "text"),
            .kind = property_text(ctx, entry, "kind"),
        };
        JS_FreeValue(ctx, entry);
    }
    JS_FreeValue(ctx, items);
    JS_FreeValue(ctx, answer);
}

void exports_kernel_is_complete(kernel_string_t *code, kernel_completeness_t *found) {
    JSContext *ctx = enter();
    JSValue answer = ask(ctx, HOOK_IS_COMPLETE, code, 0);
    found->tag = CELLAR_KERNEL_TYPES_COMPLETENESS_COMPLETE;
    if (JS_IsObject(answer)) {
        found->tag = (uint8_t)number_property(ctx, answer, "tag").val;
        if (found->tag == CELLAR_KERNEL_TYPES_COMPLETENESS_INCOMPLETE)
            found->val.incomplete = property_text(ctx, answer, "indent");
    }
    JS_FreeValue(ctx, answer);
}
