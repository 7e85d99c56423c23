// Between JavaScript values and the types of the component ABI.
#ifndef CELLAR_JAVASCRIPT_CONVERT_H
#define CELLAR_JAVASCRIPT_CONVERT_H

#include "glue.h"
#include "quickjs.h"

// A view of a value's text, in UTF-8 that the host accepts. False when an exception is pending.
bool text_of(JSContext *ctx, JSValueConst value, kernel_string_t *text);

// Like `text_of`; undefined and null are no text.
bool optional_text_of(JSContext *ctx, JSValueConst value, kernel_option_string_t *text);

// Releases a view. Does nothing to one that was never taken.
void text_free(JSContext *ctx, kernel_string_t *text);

// A copy of a value's text that the ABI frees. False when an exception is pending, such as that memory is short.
bool copy_text_of(JSContext *ctx, JSValueConst value, kernel_string_t *text);

// The same of a text that needs not be whole; see GLUE_WORD_BYTES_MAX.
bool copy_word_of(JSContext *ctx, JSValueConst value, kernel_string_t *text);

// Copies the text of a property; an undefined property is no text. False when an exception is pending.
bool copy_property(JSContext *ctx, JSValueConst object, const char *name, kernel_option_string_t *text);

// A property that is a number, as an absent option when it is not.
kernel_option_u32_t number_property(JSContext *ctx, JSValueConst object, const char *name);

// A string from the host.
JSValue string_from(JSContext *ctx, kernel_string_t text);

// An array of bytes; takes over `bytes`, which came from malloc.
JSValue bytes_from(JSContext *ctx, uint8_t *bytes, size_t length);

// The bytes of a typed array or buffer; null when the value is neither. Valid until the next call of JavaScript.
uint8_t *bytes_of(JSContext *ctx, JSValueConst value, size_t *length);

// A MIME bundle from a flat array: type, string or bytes, and so on. The caller frees it with `bundle_free`.
bool bundle_of(JSContext *ctx, JSValueConst array, kernel_mime_bundle_t *bundle);
void bundle_free(kernel_mime_bundle_t *bundle);

#endif
