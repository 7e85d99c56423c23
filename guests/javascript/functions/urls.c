// Addresses, parsed as the URL standard says by the library `ada`.
#include "ada_c.h"
#include "convert.h"
#include "functions.h"

#include <string.h>

// Longest address that is parsed. The parser keeps several copies, and has no way to say that memory is short.
#define URL_BYTES_MAX (8u << 20)

// A view of a string argument that is no longer than an address may be.
static bool address_of(JSContext *ctx, JSValueConst value, kernel_string_t *text) {
    if (!text_of(ctx, value, text))
        return false;
    if (text->len <= URL_BYTES_MAX)
        return true;
    text_free(ctx, text);
    JS_ThrowRangeError(ctx, "an address of %zu bytes is longer than the %u that are parsed", text->len, URL_BYTES_MAX);
    return false;
}

// What Deno's `URL` keeps of an address: where its parts begin. Zero stands for what is not there.
static void fill_parts(ada_url url, uint32_t *parts) {
    const ada_url_components *found = ada_get_components(url);
    ada_string href = ada_get_href(url);
    // The host begins behind the `@`.
    bool credentials = found->host_start < href.length && href.data[found->host_start] == '@';
    parts[0] = found->protocol_end - 1;
    parts[1] = found->username_end;
    parts[2] = found->host_start + (credentials ? 1 : 0);
    parts[3] = found->host_end;
    parts[4] = found->port == ada_url_omitted ? 0 : found->port;
    parts[5] = found->pathname_start;
    // Without a host, the `/.` before a path that begins with `//` belongs to neither.
    if (found->host_start == found->host_end && found->port == ada_url_omitted)
        parts[2] = parts[3] = parts[5];
    parts[6] = found->search_start == ada_url_omitted ? 0 : found->search_start;
    parts[7] = found->hash_start == ada_url_omitted ? 0 : found->hash_start;
}

// The address as text, with `parts` filled in; undefined when it is not valid. Releases it.
static JSValue finish(JSContext *ctx, ada_url url, JSValueConst parts) {
    JSValue text = JS_UNDEFINED;
    if (ada_is_valid(url)) {
        size_t length;
        uint8_t *numbers = bytes_of(ctx, parts, &length);
        if (numbers != NULL && length >= 8 * sizeof(uint32_t))
            fill_parts(url, (uint32_t *)numbers);
        ada_string href = ada_get_href(url);
        text = JS_NewStringLen(ctx, href.data, href.length);
    }
    ada_free(url);
    return text;
}

// parseUrl(address, base or undefined, parts): its normal form, or undefined
static JSValue parse_url(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    kernel_string_t text, base = {NULL, 0};
    if (!address_of(ctx, argv[0], &text))
        return JS_EXCEPTION;
    bool has_base = !JS_IsUndefined(argv[1]);
    if (has_base && !address_of(ctx, argv[1], &base)) {
        text_free(ctx, &text);
        return JS_EXCEPTION;
    }
    ada_url url = has_base ? ada_parse_with_base((char *)text.ptr, text.len, (char *)base.ptr, base.len)
                           : ada_parse((char *)text.ptr, text.len);
    text_free(ctx, &text);
    text_free(ctx, &base);
    return finish(ctx, url, argv[2]);
}

static void set_search(ada_url url, const char *text, size_t length) {
    if (length == 0)
        ada_clear_search(url);
    else
        ada_set_search(url, text, length);
}

static void set_hash(ada_url url, const char *text, size_t length) {
    if (length == 0)
        ada_clear_hash(url);
    else
        ada_set_hash(url, text, length);
}

// setUrl(address, part, value, parts): its normal form with one part changed, when that may be so
static JSValue set_url(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    static const struct {
        const char *name;
        bool (*set)(ada_url, const char *, size_t);
        void (*replace)(ada_url, const char *, size_t);
    } setters[] = {
        {"hash", NULL, set_hash}, {"host", ada_set_host, NULL}, {"hostname", ada_set_hostname, NULL},
        {"password", ada_set_password, NULL}, {"pathname", ada_set_pathname, NULL}, {"port", ada_set_port, NULL},
        {"protocol", ada_set_protocol, NULL}, {"search", NULL, set_search}, {"username", ada_set_username, NULL},
    };
    const char *part = JS_ToCString(ctx, argv[1]);
    kernel_string_t text = {NULL, 0}, value = {NULL, 0};
    if (part == NULL || !address_of(ctx, argv[0], &text) || !address_of(ctx, argv[2], &value)) {
        text_free(ctx, &text);
        JS_FreeCString(ctx, part);
        return JS_EXCEPTION;
    }
    ada_url url = ada_parse((char *)text.ptr, text.len);
    for (size_t i = 0; ada_is_valid(url) && i < sizeof setters / sizeof *setters; i++) {
        if (strcmp(part, setters[i].name) != 0)
            continue;
        if (setters[i].set != NULL)
            setters[i].set(url, (char *)value.ptr, value.len);
        else
            setters[i].replace(url, (char *)value.ptr, value.len);
    }
    text_free(ctx, &text);
    text_free(ctx, &value);
    JS_FreeCString(ctx, part);
    return finish(ctx, url, argv[3]);
}

static JSValue take_owned(JSContext *ctx, ada_owned_string owned) {
    JSValue text = JS_NewStringLen(ctx, owned.data, owned.length);
    ada_free_owned_string(owned);
    return text;
}

static JSValue domain(JSContext *ctx, JSValueConst value, ada_owned_string (*convert)(const char *, size_t)) {
    kernel_string_t text;
    if (!address_of(ctx, value, &text))
        return JS_EXCEPTION;
    ada_owned_string converted = convert((char *)text.ptr, text.len);
    text_free(ctx, &text);
    return take_owned(ctx, converted);
}

// domainToAscii(text) and domainToUnicode(text)
static JSValue domain_to_ascii(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return domain(ctx, argv[0], ada_idna_to_ascii);
}

static JSValue domain_to_unicode(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    return domain(ctx, argv[0], ada_idna_to_unicode);
}

void add_url_functions(JSContext *ctx, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("parseUrl", 3, parse_url),
        JS_CFUNC_DEF("setUrl", 4, set_url),
        JS_CFUNC_DEF("domainToAscii", 1, domain_to_ascii),
        JS_CFUNC_DEF("domainToUnicode", 1, domain_to_unicode),
    };
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
}
