// Text and bytes, for the encodings that programs meet every day, and classes of values.
#include "convert.h"
#include "functions.h"

#include <stdlib.h>
#include <string.h>

// The bytes of an argument; null with a TypeError when it has none.
static const uint8_t *bytes_argument(JSContext *ctx, JSValueConst value, size_t *length) {
    const uint8_t *bytes = bytes_of(ctx, value, length);
    if (bytes == NULL)
        JS_ThrowTypeError(ctx, "an ArrayBuffer or a view of one is needed");
    return bytes;
}

// encodeText(string): UTF-8
static JSValue encode_text(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    kernel_string_t text;
    if (!text_of(ctx, argv[0], &text))
        return JS_EXCEPTION;
    JSValue bytes = JS_NewUint8ArrayCopy(ctx, text.ptr, text.len);
    text_free(ctx, &text);
    return bytes;
}

// byteLength(string): of it in UTF-8
static JSValue byte_length(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    size_t length;
    const char *text = JS_ToCStringLen(ctx, &length, argv[0]);
    if (text == NULL)
        return JS_EXCEPTION;
    JS_FreeCString(ctx, text);
    return JS_NewInt64(ctx, (int64_t)length);
}

// encodeInto(string, bytes): as many whole characters as fit; how many code units that were, and bytes
static JSValue encode_into(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    size_t room, written = 0, read = 0;
    kernel_string_t text;
    // Making a text of a value may run code, which may move or free the bytes: so the text comes first.
    if (!text_of(ctx, argv[0], &text))
        return JS_EXCEPTION;
    uint8_t *target = (uint8_t *)bytes_argument(ctx, argv[1], &room);
    if (target == NULL) {
        text_free(ctx, &text);
        return JS_EXCEPTION;
    }
    while (written < text.len) {
        uint8_t first = text.ptr[written];
        size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
        if (written + length > room)
            break;
        written += length;
        read += length == 4 ? 2 : 1;
    }
    memcpy(target, text.ptr, written);
    text_free(ctx, &text);
    JSValue pair = JS_NewArray(ctx);
    JS_SetPropertyUint32(ctx, pair, 0, JS_NewInt64(ctx, (int64_t)read));
    JS_SetPropertyUint32(ctx, pair, 1, JS_NewInt64(ctx, (int64_t)written));
    return pair;
}

// The string of a text from js_malloc, which is freed.
static JSValue text_taken(JSContext *ctx, char *text, size_t length) {
    JSValue string = JS_NewStringLen(ctx, text, length);
    js_free(ctx, text);
    return string;
}

// Text of bytes with mistakes in them: each longest beginning of a character that is not one becomes U+FFFD.
static JSValue decode_lossy(JSContext *ctx, const uint8_t *bytes, size_t length) {
    // Each mistake is at least one byte and becomes three.
    char *repaired = js_malloc(ctx, length * 3 + 1);
    if (repaired == NULL)
        return JS_EXCEPTION;
    size_t at = 0, end = 0;
    while (at < length) {
        size_t valid = utf8_valid_prefix((const char *)bytes + at, length - at);
        memcpy(repaired + end, bytes + at, valid);
        at += valid;
        end += valid;
        if (at == length)
            break;
        memcpy(repaired + end, "\xEF\xBF\xBD", 3);
        at += utf8_wrong((const char *)bytes + at, length - at);
        end += 3;
    }
    return text_taken(ctx, repaired, end);
}

// decodeText(bytes, fatal): of UTF-8; undefined when it is none and `fatal` is true
static JSValue decode_text(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    size_t length;
    const uint8_t *bytes = bytes_argument(ctx, argv[0], &length);
    if (bytes == NULL)
        return JS_EXCEPTION;
    if (utf8_valid_prefix((const char *)bytes, length) == length)
        return JS_NewStringLen(ctx, (const char *)bytes, length);
    return JS_ToBool(ctx, argv[1]) ? JS_UNDEFINED : decode_lossy(ctx, bytes, length);
}

// escapeBytes(bytes): a text that crosses the host and stands for just these bytes; see `utf8_escaped`
static JSValue escape_bytes(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    size_t length;
    const uint8_t *bytes = bytes_argument(ctx, argv[0], &length);
    char *text = bytes == NULL ? NULL : js_malloc(ctx, length * 4 + 1);
    if (text == NULL)
        return JS_EXCEPTION;
    return text_taken(ctx, text, utf8_escaped((const char *)bytes, length, text));
}

// unescapeText(string): the bytes that such a text stands for
static JSValue unescape_text(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    kernel_string_t text;
    if (!text_of(ctx, argv[0], &text))
        return JS_EXCEPTION;
    char *bytes = js_malloc(ctx, text.len + 1);
    JSValue array = JS_EXCEPTION;
    if (bytes != NULL) {
        array = JS_NewUint8ArrayCopy(ctx, (uint8_t *)bytes, utf8_unescaped((const char *)text.ptr, text.len, bytes));
        js_free(ctx, bytes);
    }
    text_free(ctx, &text);
    return array;
}

// decodeLatin1(bytes, mask): a character for each byte, of which only the bits in `mask` count
static JSValue decode_latin1(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    size_t length, end = 0;
    uint32_t mask;
    const uint8_t *bytes = bytes_argument(ctx, argv[0], &length);
    if (bytes == NULL || JS_ToUint32(ctx, &mask, argv[1]))
        return JS_EXCEPTION;
    char *text = js_malloc(ctx, length * 2 + 1);
    if (text == NULL)
        return JS_EXCEPTION;
    for (size_t i = 0; i < length; i++) {
        uint8_t c = bytes[i] & (uint8_t)mask;
        if (c >= 0x80) {
            text[end++] = (char)(0xC0 | c >> 6);
            c = 0x80 | (c & 0x3F);
        }
        text[end++] = (char)c;
    }
    return text_taken(ctx, text, end);
}

// encodeLatin1(string, strict): the low byte of each code unit; undefined when one is higher and `strict` is true
static JSValue encode_latin1(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    size_t length;
    const uint16_t *units = JS_ToCStringLenUTF16(ctx, &length, argv[0]);
    if (units == NULL)
        return JS_EXCEPTION;
    uint16_t all = 0;
    uint8_t *bytes = js_malloc(ctx, length + 1);
    for (size_t i = 0; bytes != NULL && i < length; i++) {
        all |= units[i];
        bytes[i] = (uint8_t)units[i];
    }
    JS_FreeCStringUTF16(ctx, units);
    if (bytes == NULL)
        return JS_EXCEPTION;
    JSValue result = JS_UNDEFINED;
    if (all < 0x100 || !JS_ToBool(ctx, argv[1]))
        result = JS_NewUint8ArrayCopy(ctx, bytes, length);
    js_free(ctx, bytes);
    return result;
}

// decodeUtf16(bytes): of little-endian UTF-16, without a last odd byte
static JSValue decode_utf16(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    size_t length;
    const uint8_t *bytes = bytes_argument(ctx, argv[0], &length);
    if (bytes == NULL)
        return JS_EXCEPTION;
    uint16_t *units = js_malloc(ctx, length + 1); // the bytes may lie at an odd address
    if (units == NULL)
        return JS_EXCEPTION;
    memcpy(units, bytes, length & ~(size_t)1);
    JSValue text = JS_NewStringUTF16(ctx, units, length / 2);
    js_free(ctx, units);
    return text;
}

// compareBytes(a, b): -1, 0 or 1
static JSValue compare_bytes(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    size_t a_length, b_length;
    const uint8_t *a = bytes_argument(ctx, argv[0], &a_length);
    const uint8_t *b = a == NULL ? NULL : bytes_argument(ctx, argv[1], &b_length);
    if (b == NULL)
        return JS_EXCEPTION;
    int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    if (order == 0)
        order = (a_length > b_length) - (a_length < b_length);
    return JS_NewInt32(ctx, (order > 0) - (order < 0));
}

// classOf(value): the name of an object's class, whatever it says of itself; undefined for what is no object
static JSValue class_of(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    if (!JS_IsObject(argv[0]))
        return JS_UNDEFINED;
    if (JS_IsProxy(argv[0]))
        return JS_NewString(ctx, "Proxy");
    JSAtom name = JS_GetClassName(JS_GetRuntime(ctx), JS_GetClassID(argv[0]));
    JSValue text = JS_AtomToString(ctx, name);
    JS_FreeAtom(ctx, name);
    return text;
}

void add_encoding_functions(JSContext *ctx, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("encodeText", 1, encode_text),
        JS_CFUNC_DEF("byteLength", 1, byte_length),
        JS_CFUNC_DEF("encodeInto", 2, encode_into),
        JS_CFUNC_DEF("decodeText", 2, decode_text),
        JS_CFUNC_DEF("escapeBytes", 1, escape_bytes),
        JS_CFUNC_DEF("unescapeText", 1, unescape_text),
        JS_CFUNC_DEF("decodeLatin1", 2, decode_latin1),
        JS_CFUNC_DEF("encodeLatin1", 2, encode_latin1),
        JS_CFUNC_DEF("decodeUtf16", 1, decode_utf16),
        JS_CFUNC_DEF("compareBytes", 2, compare_bytes),
        JS_CFUNC_DEF("classOf", 1, class_of),
    };
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
}
