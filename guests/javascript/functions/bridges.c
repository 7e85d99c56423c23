// Tools, models, agents and requests: `start` returns the number of a call, `call` waits in place.
//
// Both take the name of the bridge and its request as a flat list; what each position means stands beside each case.
#include "convert.h"
#include "functions.h"
#include "hooks.h"
#include "state.h"

#include <stdlib.h>
#include <string.h>

typedef enum { BRIDGE_TOOL, BRIDGE_LLM, BRIDGE_AGENT, BRIDGE_HTTP, BRIDGE_INPUT } bridge_t;

// A request under construction, and what has to be freed after it.
typedef struct {
    kernel_string_t required[2];
    kernel_option_string_t optional[4];
    kernel_list_tuple2_string_string_t headers;
    kernel_option_list_u8_t body;
} request_t;

// Headers come as a flat array: name, value, and so on.
static bool take_headers(JSContext *ctx, JSValueConst array, kernel_list_tuple2_string_string_t *headers) {
    int64_t length = 0;
    if (JS_IsUndefined(array))
        return true;
    if (JS_GetLength(ctx, array, &length))
        return false;
    headers->ptr = calloc((size_t)length / 2 + 1, sizeof *headers->ptr);
    if (headers->ptr == NULL) {
        JS_ThrowOutOfMemory(ctx);
        return false;
    }
    for (uint32_t i = 0; i + 1 < length; i += 2) {
        JSValue name = JS_GetPropertyUint32(ctx, array, i), value = JS_GetPropertyUint32(ctx, array, i + 1);
        kernel_tuple2_string_string_t *header = &headers->ptr[headers->len++];
        bool ok = copy_text_of(ctx, name, &header->f0) && copy_text_of(ctx, value, &header->f1);
        JS_FreeValue(ctx, name);
        JS_FreeValue(ctx, value);
        if (!ok)
            return false;
    }
    return true;
}

// tool: name, arguments. llm: prompt, tier, system?, schema?. agent: prompt, type, model?, context?, label?, schema?.
// http: method, url, headers, body?. input: prompt, nothing.
static bool take_request(JSContext *ctx, bridge_t bridge, int argc, JSValueConst *argv, request_t *request) {
    *request = (request_t){0};
    for (int i = 0; i < 2; i++) {
        if (argc <= i || !text_of(ctx, argv[i], &request->required[i]))
            return false;
    }
    if (bridge == BRIDGE_HTTP) {
        size_t length;
        const uint8_t *body = argc > 3 ? bytes_of(ctx, argv[3], &length) : NULL;
        if (body != NULL) {
            kernel_string_t copy;
            if (!glue_try_copy((const char *)body, length, &copy)) {
                JS_ThrowOutOfMemory(ctx);
                return false;
            }
            request->body = (kernel_option_list_u8_t){true, {copy.ptr, copy.len}};
        }
        return argc <= 2 || take_headers(ctx, argv[2], &request->headers);
    }
    for (int i = 0; i < 4 && i + 2 < argc; i++) {
        if (!optional_text_of(ctx, argv[i + 2], &request->optional[i]))
            return false;
    }
    return true;
}

static void release_request(JSContext *ctx, request_t *request) {
    for (int i = 0; i < 2; i++)
        text_free(ctx, &request->required[i]);
    for (int i = 0; i < 4; i++) {
        if (request->optional[i].is_some)
            text_free(ctx, &request->optional[i].val);
    }
    if (request->headers.len > 0)
        kernel_list_tuple2_string_string_free(&request->headers);
    else
        free(request->headers.ptr);
    kernel_option_list_u8_free(&request->body);
}

// Bytes of a request.
static size_t size_of(const request_t *request) {
    size_t size = request->body.is_some ? request->body.val.len : 0;
    for (int i = 0; i < 2; i++)
        size += request->required[i].len;
    for (int i = 0; i < 4; i++)
        size += request->optional[i].is_some ? request->optional[i].val.len : 0;
    for (size_t i = 0; i < request->headers.len; i++)
        size += request->headers.ptr[i].f0.len + request->headers.ptr[i].f1.len;
    return size;
}

static JSValue call_error_value(JSContext *ctx, const cellar_kernel_types_call_error_t *error) {
    static const char *const kinds[] = {"failed", "denied", "unknown", "invalid", "cancelled", "limit"};
    JSValue value = JS_NewObject(ctx);
    JS_SetPropertyStr(ctx, value, "kind", JS_NewString(ctx, error->kind < 6 ? kinds[error->kind] : "failed"));
    JS_SetPropertyStr(ctx, value, "message", string_from(ctx, error->message));
    return value;
}

// Throws that a call is past a limit.
static JSValue throw_limit(JSContext *ctx, const char *message, size_t length) {
    cellar_kernel_types_call_error_t error = {CELLAR_KERNEL_TYPES_CALL_ERROR_KIND_LIMIT, glue_view(message, length)};
    return JS_Throw(ctx, call_error_value(ctx, &error));
}

// Takes the request of a call, or throws: what the host would say when it is too large.
static bool take_call(JSContext *ctx, bridge_t bridge, int argc, JSValueConst *argv, request_t *request) {
    bool ok = take_request(ctx, bridge, argc, argv, request);
    if (ok && size_of(request) > GLUE_CALL_BYTES_MAX) {
        char message[128];
        size_t length = glue_call_too_large(message, sizeof message, size_of(request));
        throw_limit(ctx, message, length);
        ok = false;
    }
    if (!ok)
        release_request(ctx, request);
    return ok;
}

static cellar_kernel_types_llm_request_t llm_request(const request_t *r) {
    return (cellar_kernel_types_llm_request_t){
        .prompt = r->required[0],
        .model = r->required[1],
        .system = r->optional[0],
        .schema = {r->optional[1].is_some, r->optional[1].val},
    };
}

static cellar_kernel_types_agent_request_t agent_request(const request_t *r) {
    return (cellar_kernel_types_agent_request_t){
        .prompt = r->required[0],
        .agent_type = r->required[1],
        .model = r->optional[0],
        .context = r->optional[1],
        .label = r->optional[2],
        .schema = {r->optional[3].is_some, r->optional[3].val},
    };
}

static cellar_kernel_types_http_request_t http_request(const request_t *r) {
    return (cellar_kernel_types_http_request_t){
        .method = r->required[0],
        .url = r->required[1],
        .headers = r->headers,
        .body = r->body,
    };
}

// start(bridge, ...)
static JSValue start(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int32_t bridge;
    request_t request;
    if (JS_ToInt32(ctx, &bridge, argv[0]))
        return JS_EXCEPTION;
    if (!take_call(ctx, (bridge_t)bridge, argc - 1, argv + 1, &request))
        return JS_EXCEPTION;
    uint64_t call = 0;
    if (bridge == BRIDGE_TOOL) {
        call = cellar_kernel_tools_start_call(glue_cell, &request.required[0], &request.required[1]);
    } else if (bridge == BRIDGE_LLM) {
        cellar_kernel_types_llm_request_t llm = llm_request(&request);
        call = cellar_kernel_llm_start_call(glue_cell, &llm);
    } else if (bridge == BRIDGE_AGENT) {
        cellar_kernel_types_agent_request_t agent = agent_request(&request);
        call = cellar_kernel_agents_start_call(glue_cell, &agent);
    } else if (bridge == BRIDGE_INPUT) {
        call = cellar_kernel_input_start_call(glue_cell, &request.required[0]);
    } else {
        cellar_kernel_types_http_request_t http = http_request(&request);
        call = cellar_kernel_http_start_call(glue_cell, &http);
    }
    release_request(ctx, &request);
    if (call == 0)
        return throw_limit(ctx, GLUE_CALLS_FULL, strlen(GLUE_CALLS_FULL));
    return JS_NewInt64(ctx, (int64_t)call);
}

static JSValue response_value(JSContext *ctx, const cellar_kernel_types_response_t *response) {
    if (response->tag == CELLAR_KERNEL_TYPES_RESPONSE_TEXT)
        return string_from(ctx, response->val.text);
    if (response->tag == CELLAR_KERNEL_TYPES_RESPONSE_JSON) {
        kernel_string_t json = response->val.json;
        char *text = js_malloc(ctx, json.len + 1);
        if (text == NULL)
            return JS_EXCEPTION;
        memcpy(text, json.ptr, json.len);
        text[json.len] = '\0'; // the parser wants to see the end
        JSValue value = JS_ParseJSON(ctx, text, json.len, "<answer>");
        js_free(ctx, text);
        return value;
    }
    const cellar_kernel_types_http_response_t *http = &response->val.http;
    JSValue value = JS_NewObject(ctx), headers = JS_NewArray(ctx);
    for (uint32_t i = 0; i < http->headers.len; i++) {
        JS_SetPropertyUint32(ctx, headers, 2 * i, string_from(ctx, http->headers.ptr[i].f0));
        JS_SetPropertyUint32(ctx, headers, 2 * i + 1, string_from(ctx, http->headers.ptr[i].f1));
    }
    JS_SetPropertyStr(ctx, value, "status", JS_NewUint32(ctx, http->status));
    JS_SetPropertyStr(ctx, value, "url", string_from(ctx, http->url));
    JS_SetPropertyStr(ctx, value, "headers", headers);
    JS_SetPropertyStr(ctx, value, "body", JS_NewUint8ArrayCopy(ctx, http->body.ptr, http->body.len));
    return value;
}

// call(bridge, ...): throws a plain object with `kind` and `message`, which the prelude makes an error of.
static JSValue call(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int32_t bridge;
    request_t request;
    if (JS_ToInt32(ctx, &bridge, argv[0]))
        return JS_EXCEPTION;
    if (!take_call(ctx, (bridge_t)bridge, argc - 1, argv + 1, &request))
        return JS_EXCEPTION;
    cellar_kernel_types_response_t response = {.tag = CELLAR_KERNEL_TYPES_RESPONSE_JSON};
    cellar_kernel_types_call_error_t error;
    bool ok;
    if (bridge == BRIDGE_TOOL) {
        ok = cellar_kernel_tools_call(glue_cell, &request.required[0], &request.required[1], &response.val.json, &error);
    } else if (bridge == BRIDGE_LLM) {
        cellar_kernel_types_llm_request_t llm = llm_request(&request);
        ok = cellar_kernel_llm_call(glue_cell, &llm, &response, &error);
    } else if (bridge == BRIDGE_AGENT) {
        cellar_kernel_types_agent_request_t agent = agent_request(&request);
        ok = cellar_kernel_agents_call(glue_cell, &agent, &response, &error);
    } else if (bridge == BRIDGE_INPUT) {
        ok = cellar_kernel_input_call(glue_cell, &request.required[0], &response, &error);
    } else {
        cellar_kernel_types_http_request_t http = http_request(&request);
        ok = cellar_kernel_http_call(glue_cell, &http, &response, &error);
    }
    release_request(ctx, &request);
    if (!ok) {
        JSValue thrown = call_error_value(ctx, &error);
        cellar_kernel_types_call_error_free(&error);
        return JS_Throw(ctx, thrown);
    }
    JSValue value = response_value(ctx, &response);
    cellar_kernel_types_response_free(&response);
    return value;
}

static JSValue answer_value(JSContext *ctx, const cellar_kernel_types_answer_t *answer) {
    return answer->is_err ? call_error_value(ctx, &answer->val.err) : response_value(ctx, &answer->val.ok);
}

// takeAnswer(call): that of the call that was started last, if it was there at once, else undefined. Throws as `call` does.
static JSValue take_answer(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int64_t number;
    if (JS_ToInt64(ctx, &number, argv[0]))
        return JS_EXCEPTION;
    cellar_kernel_types_answer_t answered;
    if (!cellar_kernel_tools_take_answer((uint64_t)number, &answered))
        return JS_UNDEFINED;
    JSValue value = answer_value(ctx, &answered);
    bool failed = answered.is_err && !JS_IsException(value);
    cellar_kernel_types_answer_free(&answered);
    return failed ? JS_Throw(ctx, value) : value;
}

// cancel(call)
static JSValue cancel(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int64_t number;
    if (JS_ToInt64(ctx, &number, argv[0]))
        return JS_EXCEPTION;
    cellar_kernel_tools_cancel((uint64_t)number);
    return JS_UNDEFINED;
}

// tools(): name, description, schema or undefined, and so on
static JSValue granted_tools(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    cellar_kernel_tools_list_tool_t tools;
    cellar_kernel_tools_granted(&tools);
    JSValue list = JS_NewArray(ctx);
    for (uint32_t i = 0; i < tools.len; i++) {
        const cellar_kernel_tools_tool_t *tool = &tools.ptr[i];
        JS_SetPropertyUint32(ctx, list, 3 * i, string_from(ctx, tool->name));
        JS_SetPropertyUint32(ctx, list, 3 * i + 1, string_from(ctx, tool->description));
        JS_SetPropertyUint32(ctx, list, 3 * i + 2,
                             tool->schema.is_some ? string_from(ctx, tool->schema.val) : JS_UNDEFINED);
    }
    cellar_kernel_tools_list_tool_free(&tools);
    return list;
}

// take(table, length): the next bytes of a table that the host lends
static JSValue take(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int64_t table;
    uint32_t length;
    if (JS_ToInt64(ctx, &table, argv[0]) || JS_ToUint32(ctx, &length, argv[1]))
        return JS_EXCEPTION;
    kernel_list_u8_t piece;
    cellar_kernel_tools_take((uint64_t)table, length, &piece);
    JSValue bytes = JS_NewUint8ArrayCopy(ctx, piece.ptr, piece.len);
    kernel_list_u8_free(&piece);
    return bytes;
}

void settle_call(JSContext *ctx, const kernel_completion_t *completion) {
    bool ok = !completion->response.is_err;
    JSValue value = answer_value(ctx, &completion->response);
    if (JS_IsException(value)) {
        value = JS_GetException(ctx);
        ok = false;
    }
    JSValue number = JS_NewInt64(ctx, (int64_t)completion->call);
    JSValueConst arguments[] = {number, JS_NewBool(ctx, ok), value};
    JSValue result = call_hook(ctx, HOOK_SETTLE, 3, arguments);
    if (JS_IsException(result))
        drop_exception();
    JS_FreeValue(ctx, result);
    JS_FreeValue(ctx, value);
    JS_FreeValue(ctx, number);
}

void add_bridge_functions(JSContext *ctx, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("start", 1, start),
        JS_CFUNC_DEF("call", 1, call),
        JS_CFUNC_DEF("takeAnswer", 1, take_answer),
        JS_CFUNC_DEF("cancel", 1, cancel),
        JS_CFUNC_DEF("tools", 0, granted_tools),
        JS_CFUNC_DEF("take", 2, take),
    };
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
}
