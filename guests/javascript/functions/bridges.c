// Calls of the host: `start` returns the number of what was started, `call` waits in place.
//
// Both take the number of the call, which `calls` has by its name, and its request as a flat list; what each position means
// stands above `take_request`.
#include "convert.h"
#include "functions.h"
#include "hooks.h"
#include "kernel_calls.h"
#include "state.h"

#include <stdlib.h>
#include <string.h>

// A request under construction, and what has to be freed after it.
typedef struct {
    kernel_string_t required[3];
    kernel_option_string_t optional[4];
    // Headers of a request, or the environment of a process.
    kernel_list_tuple2_string_string_t pairs;
    kernel_option_list_u8_t body;
    // Of a process: its timeout and the pipes that are its input, output and errors. Of a transfer: its timeout and the pipe
    // that is written.
    struct {
        bool is_some;
        uint64_t val;
    } numbers[4];
    cellar_kernel_processes_list_channel_t channels;
    bool refresh;
} request_t;

// Texts that each call has first.
static const uint8_t texts[] = {
    [KERNEL_TOOLS_CALL] = 2, [KERNEL_PRIMITIVES_CALL] = 3, [KERNEL_FETCHES_CALL] = 3, [KERNEL_LLM_CALL] = 2,
    [KERNEL_AGENTS_CALL] = 2, [KERNEL_INPUT_CALL] = 1, [KERNEL_HTTP_CALL] = 2, [KERNEL_PROCESSES_RUN] = 3,
    [KERNEL_TABLES_READ] = 1,
};

// Pairs come as a flat array: name, value, and so on.
static bool take_pairs(JSContext *ctx, JSValueConst array, kernel_list_tuple2_string_string_t *pairs) {
    int64_t length = 0;
    if (JS_IsUndefined(array))
        return true;
    if (JS_GetLength(ctx, array, &length))
        return false;
    pairs->ptr = calloc((size_t)length / 2 + 1, sizeof *pairs->ptr);
    if (pairs->ptr == NULL) {
        JS_ThrowOutOfMemory(ctx);
        return false;
    }
    for (uint32_t i = 0; i + 1 < length; i += 2) {
        JSValue name = JS_GetPropertyUint32(ctx, array, i), value = JS_GetPropertyUint32(ctx, array, i + 1);
        kernel_tuple2_string_string_t *pair = &pairs->ptr[pairs->len++];
        bool ok = copy_text_of(ctx, name, &pair->f0) && copy_text_of(ctx, value, &pair->f1);
        JS_FreeValue(ctx, name);
        JS_FreeValue(ctx, value);
        if (!ok)
            return false;
    }
    return true;
}

static bool take_number(JSContext *ctx, JSValueConst value, bool *is_some, uint64_t *out) {
    int64_t number = 0;
    *is_some = !JS_IsUndefined(value) && !JS_IsNull(value);
    if (*is_some && JS_ToInt64(ctx, &number, value))
        return false;
    *out = number < 0 ? 0 : (uint64_t)number;
    return true;
}

static bool take_channels(JSContext *ctx, JSValueConst array, cellar_kernel_processes_list_channel_t *channels) {
    int64_t length = 0;
    if (JS_GetLength(ctx, array, &length))
        return false;
    channels->ptr = calloc((size_t)length + 1, sizeof *channels->ptr);
    if (channels->ptr == NULL) {
        JS_ThrowOutOfMemory(ctx);
        return false;
    }
    for (uint32_t i = 0; i < length; i++) {
        JSValue value = JS_GetPropertyUint32(ctx, array, i);
        bool is_some;
        bool ok = take_number(ctx, value, &is_some, &channels->ptr[channels->len++]);
        JS_FreeValue(ctx, value);
        if (!ok)
            return false;
    }
    return true;
}

static bool take_body(JSContext *ctx, JSValueConst value, kernel_option_list_u8_t *out) {
    size_t length;
    const uint8_t *body = bytes_of(ctx, value, &length);
    if (body == NULL)
        return true;
    kernel_string_t copy;
    if (!glue_try_copy((const char *)body, length, &copy)) {
        JS_ThrowOutOfMemory(ctx);
        return false;
    }
    *out = (kernel_option_list_u8_t){true, {copy.ptr, copy.len}};
    return true;
}

// tools.call: name, arguments. primitives.call: pack, name, arguments. fetches.call: connector, fetch, arguments, refresh.
// llm.call: prompt, tier, system?, schema?. agents.call: prompt, type, model?, context?, label?, schema?. input.call: prompt.
// http.call: method, url, headers, body?. processes.run: language, code, order, environment, timeout?, input?, out?, err?.
// tables.read: name, version?. tables.list: name?. processes.transfer: text?, timeout?, pipe to write?, pipes to read.
static bool take_request(JSContext *ctx, int32_t call, int argc, JSValueConst *argv, request_t *request) {
    *request = (request_t){0};
    int count = call >= 0 && call < (int)(sizeof texts) ? texts[call] : 0;
    if (count == 0 && call != KERNEL_PROCESSES_TRANSFER && call != KERNEL_TABLES_LIST) {
        JS_ThrowRangeError(ctx, "no such call");
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (argc <= i || !text_of(ctx, argv[i], &request->required[i]))
            return false;
    }
    argc -= count;
    argv += count;
    switch (call) {
    case KERNEL_FETCHES_CALL:
        request->refresh = argc > 0 && JS_ToBool(ctx, argv[0]) > 0;
        return true;
    case KERNEL_TABLES_READ:
        return argc <= 0 || take_number(ctx, argv[0], &request->numbers[0].is_some, &request->numbers[0].val);
    case KERNEL_HTTP_CALL:
        return (argc <= 1 || take_body(ctx, argv[1], &request->body)) && (argc <= 0 || take_pairs(ctx, argv[0], &request->pairs));
    case KERNEL_PROCESSES_RUN:
        for (int i = 0; i < 4 && i + 1 < argc; i++) {
            if (!take_number(ctx, argv[i + 1], &request->numbers[i].is_some, &request->numbers[i].val))
                return false;
        }
        return argc <= 0 || take_pairs(ctx, argv[0], &request->pairs);
    case KERNEL_PROCESSES_TRANSFER:
        if (argc < 4) {
            JS_ThrowTypeError(ctx, "a transfer takes a text, a timeout and pipes");
            return false;
        }
        for (int i = 0; i < 2; i++) {
            if (!take_number(ctx, argv[i + 1], &request->numbers[i].is_some, &request->numbers[i].val))
                return false;
        }
        return optional_text_of(ctx, argv[0], &request->optional[0]) && take_channels(ctx, argv[3], &request->channels);
    default:
        for (int i = 0; i < 4 && i < argc; i++) {
            if (!optional_text_of(ctx, argv[i], &request->optional[i]))
                return false;
        }
        return true;
    }
}

static void release_request(JSContext *ctx, request_t *request) {
    for (int i = 0; i < 3; i++)
        text_free(ctx, &request->required[i]);
    for (int i = 0; i < 4; i++) {
        if (request->optional[i].is_some)
            text_free(ctx, &request->optional[i].val);
    }
    if (request->pairs.len > 0)
        kernel_list_tuple2_string_string_free(&request->pairs);
    else
        free(request->pairs.ptr);
    free(request->channels.ptr);
    kernel_option_list_u8_free(&request->body);
}

// Bytes of a request.
static size_t size_of(const request_t *request) {
    size_t size = request->body.is_some ? request->body.val.len : 0;
    for (int i = 0; i < 3; i++)
        size += request->required[i].len;
    for (int i = 0; i < 4; i++)
        size += request->optional[i].is_some ? request->optional[i].val.len : 0;
    for (size_t i = 0; i < request->pairs.len; i++)
        size += request->pairs.ptr[i].f0.len + request->pairs.ptr[i].f1.len;
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
static bool take_call(JSContext *ctx, int32_t call, int argc, JSValueConst *argv, request_t *request) {
    bool ok = take_request(ctx, call, argc, argv, request);
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
        .headers = r->pairs,
        .body = r->body,
    };
}

static cellar_kernel_processes_process_request_t process_request(const request_t *r) {
    bool is_python = r->required[0].len == 2 && memcmp(r->required[0].ptr, "py", 2) == 0;
    return (cellar_kernel_processes_process_request_t){
        .language = is_python ? CELLAR_KERNEL_PROCESSES_LANGUAGE_PYTHON : CELLAR_KERNEL_PROCESSES_LANGUAGE_JAVASCRIPT,
        .code = r->required[1],
        .order = r->required[2],
        .environment = r->pairs,
        .timeout = {r->numbers[0].is_some, r->numbers[0].val},
        .pipes = {
            .input = {r->numbers[1].is_some, r->numbers[1].val},
            .output = {r->numbers[2].is_some, r->numbers[2].val},
            .errors = {r->numbers[3].is_some, r->numbers[3].val},
        },
    };
}

static cellar_kernel_processes_transfer_request_t transfer_request(const request_t *r) {
    return (cellar_kernel_processes_transfer_request_t){
        .write = {r->numbers[1].is_some, {.pipe = r->numbers[1].val, .text = r->optional[0].val}},
        .read = r->channels,
        .timeout = {r->numbers[0].is_some, r->numbers[0].val},
    };
}

// The version that a call about a dataset names, or NULL.
static uint64_t *version_of(request_t *r) {
    return r->numbers[0].is_some ? &r->numbers[0].val : NULL;
}

// Begins a call; its number, or 0.
static uint64_t start_request(int32_t call, request_t *r) {
    switch (call) {
    case KERNEL_TOOLS_CALL:
        return cellar_kernel_tools_start_call(glue_cell, &r->required[0], &r->required[1]);
    case KERNEL_PRIMITIVES_CALL:
        return cellar_kernel_primitives_start_call(glue_cell, &r->required[0], &r->required[1], &r->required[2]);
    case KERNEL_FETCHES_CALL:
        return cellar_kernel_fetches_start_call(glue_cell, &r->required[0], &r->required[1], &r->required[2], r->refresh);
    case KERNEL_LLM_CALL: {
        cellar_kernel_types_llm_request_t llm = llm_request(r);
        return cellar_kernel_llm_start_call(glue_cell, &llm);
    }
    case KERNEL_AGENTS_CALL: {
        cellar_kernel_types_agent_request_t agent = agent_request(r);
        return cellar_kernel_agents_start_call(glue_cell, &agent);
    }
    case KERNEL_INPUT_CALL:
        return cellar_kernel_input_start_call(glue_cell, &r->required[0]);
    case KERNEL_HTTP_CALL: {
        cellar_kernel_types_http_request_t http = http_request(r);
        return cellar_kernel_http_start_call(glue_cell, &http);
    }
    case KERNEL_PROCESSES_RUN: {
        cellar_kernel_processes_process_request_t process = process_request(r);
        return cellar_kernel_processes_start_run(glue_cell, &process);
    }
    case KERNEL_TABLES_READ:
        return cellar_kernel_tables_start_read(glue_cell, &r->required[0], version_of(r));
    case KERNEL_TABLES_LIST:
        return cellar_kernel_tables_start_list(glue_cell, r->optional[0].is_some ? &r->optional[0].val : NULL);
    default: {
        cellar_kernel_processes_transfer_request_t transfer = transfer_request(r);
        return cellar_kernel_processes_start_transfer(glue_cell, &transfer);
    }
    }
}

// Makes a call in place.
static bool call_request(int32_t call, request_t *r, cellar_kernel_types_response_t *response,
                         cellar_kernel_types_call_error_t *error) {
    switch (call) {
    case KERNEL_TOOLS_CALL:
        response->tag = CELLAR_KERNEL_TYPES_RESPONSE_JSON;
        return cellar_kernel_tools_call(glue_cell, &r->required[0], &r->required[1], &response->val.json, error);
    case KERNEL_PRIMITIVES_CALL:
        response->tag = CELLAR_KERNEL_TYPES_RESPONSE_JSON;
        return cellar_kernel_primitives_call(glue_cell, &r->required[0], &r->required[1], &r->required[2],
                                             &response->val.json, error);
    case KERNEL_FETCHES_CALL:
        response->tag = CELLAR_KERNEL_TYPES_RESPONSE_TABLE;
        return cellar_kernel_fetches_call(glue_cell, &r->required[0], &r->required[1], &r->required[2], r->refresh,
                                          &response->val.table, error);
    case KERNEL_LLM_CALL: {
        cellar_kernel_types_llm_request_t llm = llm_request(r);
        return cellar_kernel_llm_call(glue_cell, &llm, response, error);
    }
    case KERNEL_AGENTS_CALL: {
        cellar_kernel_types_agent_request_t agent = agent_request(r);
        return cellar_kernel_agents_call(glue_cell, &agent, response, error);
    }
    case KERNEL_INPUT_CALL:
        return cellar_kernel_input_call(glue_cell, &r->required[0], response, error);
    case KERNEL_HTTP_CALL: {
        cellar_kernel_types_http_request_t http = http_request(r);
        return cellar_kernel_http_call(glue_cell, &http, response, error);
    }
    case KERNEL_PROCESSES_RUN: {
        cellar_kernel_processes_process_request_t process = process_request(r);
        response->tag = CELLAR_KERNEL_TYPES_RESPONSE_PROCESS;
        return cellar_kernel_processes_run(glue_cell, &process, &response->val.process, error);
    }
    case KERNEL_TABLES_READ:
        response->tag = CELLAR_KERNEL_TYPES_RESPONSE_TABLE;
        return cellar_kernel_tables_read(glue_cell, &r->required[0], version_of(r), &response->val.table, error);
    case KERNEL_TABLES_LIST:
        response->tag = CELLAR_KERNEL_TYPES_RESPONSE_JSON;
        return cellar_kernel_tables_list(glue_cell, r->optional[0].is_some ? &r->optional[0].val : NULL,
                                         &response->val.json, error);
    default: {
        cellar_kernel_processes_transfer_request_t transfer = transfer_request(r);
        response->tag = CELLAR_KERNEL_TYPES_RESPONSE_TRANSFERRED;
        return cellar_kernel_processes_transfer(glue_cell, &transfer, &response->val.transferred, error);
    }
    }
}

// start(call, ...)
static JSValue start(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int32_t call;
    request_t request;
    if (JS_ToInt32(ctx, &call, argv[0]) || !take_call(ctx, call, argc - 1, argv + 1, &request))
        return JS_EXCEPTION;
    uint64_t number = start_request(call, &request);
    release_request(ctx, &request);
    if (number == 0)
        return throw_limit(ctx, GLUE_CALLS_FULL, strlen(GLUE_CALLS_FULL));
    return JS_NewInt64(ctx, (int64_t)number);
}

static JSValue option_string(JSContext *ctx, const kernel_option_string_t *text) {
    return text->is_some ? string_from(ctx, text->val) : JS_NULL;
}

// {status, output: [[stream, text]], failure: {kind, message} or null}
static JSValue process_value(JSContext *ctx, const cellar_kernel_types_process_end_t *end) {
    static const char *const kinds[] = {
        [CELLAR_KERNEL_TYPES_PROCESS_FAILURE_KIND_TIMEOUT] = "timeout",
        [CELLAR_KERNEL_TYPES_PROCESS_FAILURE_KIND_OUTPUT] = "output",
        [CELLAR_KERNEL_TYPES_PROCESS_FAILURE_KIND_NOT_STARTED] = "not-started",
        [CELLAR_KERNEL_TYPES_PROCESS_FAILURE_KIND_KILLED] = "killed",
    };
    JSValue value = JS_NewObject(ctx), output = JS_NewArray(ctx), failure = JS_NULL;
    for (uint32_t i = 0; i < end->output.len; i++) {
        JSValue piece = JS_NewArray(ctx);
        bool is_error = end->output.ptr[i].f0 == CELLAR_KERNEL_TYPES_STREAM_NAME_STDERR;
        JS_SetPropertyUint32(ctx, piece, 0, JS_NewInt32(ctx, is_error ? 2 : 1));
        JS_SetPropertyUint32(ctx, piece, 1, string_from(ctx, end->output.ptr[i].f1));
        JS_SetPropertyUint32(ctx, output, i, piece);
    }
    if (end->failure.is_some) {
        failure = JS_NewObject(ctx);
        JS_SetPropertyStr(ctx, failure, "kind", JS_NewString(ctx, kinds[end->failure.val.kind]));
        JS_SetPropertyStr(ctx, failure, "message", string_from(ctx, end->failure.val.message));
    }
    JS_SetPropertyStr(ctx, value, "status", end->status.is_some ? JS_NewInt32(ctx, end->status.val) : JS_NULL);
    JS_SetPropertyStr(ctx, value, "output", output);
    JS_SetPropertyStr(ctx, value, "failure", failure);
    return value;
}

// {rest, broken, read: [[pipe, text, ended]]}
static JSValue transferred_value(JSContext *ctx, const cellar_kernel_types_transferred_t *done) {
    JSValue value = JS_NewObject(ctx), read = JS_NewArray(ctx);
    for (uint32_t i = 0; i < done->read.len; i++) {
        JSValue piece = JS_NewArray(ctx);
        JS_SetPropertyUint32(ctx, piece, 0, JS_NewInt64(ctx, (int64_t)done->read.ptr[i].pipe));
        JS_SetPropertyUint32(ctx, piece, 1, string_from(ctx, done->read.ptr[i].text));
        JS_SetPropertyUint32(ctx, piece, 2, JS_NewBool(ctx, done->read.ptr[i].ended));
        JS_SetPropertyUint32(ctx, read, i, piece);
    }
    JS_SetPropertyStr(ctx, value, "rest", option_string(ctx, &done->rest));
    JS_SetPropertyStr(ctx, value, "broken", JS_NewBool(ctx, done->broken));
    JS_SetPropertyStr(ctx, value, "read", read);
    return value;
}

// {table, bytes, rows}
static JSValue table_value(JSContext *ctx, const cellar_kernel_types_lent_table_t *table) {
    JSValue value = JS_NewObject(ctx);
    JS_SetPropertyStr(ctx, value, "table", JS_NewInt64(ctx, (int64_t)table->table));
    JS_SetPropertyStr(ctx, value, "bytes", JS_NewInt64(ctx, (int64_t)table->bytes));
    JS_SetPropertyStr(ctx, value, "rows", JS_NewInt64(ctx, (int64_t)table->rows));
    return value;
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
    if (response->tag == CELLAR_KERNEL_TYPES_RESPONSE_TABLE)
        return table_value(ctx, &response->val.table);
    if (response->tag == CELLAR_KERNEL_TYPES_RESPONSE_PROCESS)
        return process_value(ctx, &response->val.process);
    if (response->tag == CELLAR_KERNEL_TYPES_RESPONSE_TRANSFERRED)
        return transferred_value(ctx, &response->val.transferred);
    // No other call is made here.
    if (response->tag != CELLAR_KERNEL_TYPES_RESPONSE_HTTP)
        return JS_NULL;
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

// Throws a plain object with `kind` and `message`, which the prelude makes an error of.
static JSValue throw_call_error(JSContext *ctx, cellar_kernel_types_call_error_t *error) {
    JSValue thrown = call_error_value(ctx, error);
    cellar_kernel_types_call_error_free(error);
    return JS_Throw(ctx, thrown);
}

// call(call, ...)
static JSValue call(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int32_t number;
    request_t request;
    if (JS_ToInt32(ctx, &number, argv[0]) || !take_call(ctx, number, argc - 1, argv + 1, &request))
        return JS_EXCEPTION;
    cellar_kernel_types_response_t response = {0};
    cellar_kernel_types_call_error_t error;
    bool ok = call_request(number, &request, &response, &error);
    release_request(ctx, &request);
    if (!ok)
        return throw_call_error(ctx, &error);
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
    cellar_kernel_fetches_take((uint64_t)table, length, &piece);
    JSValue bytes = JS_NewUint8ArrayCopy(ctx, piece.ptr, piece.len);
    kernel_list_u8_free(&piece);
    return bytes;
}

static JSValue json_or_undefined(JSContext *ctx, const cellar_kernel_primitives_option_json_t *json) {
    return json->is_some ? string_from(ctx, json->val) : JS_UNDEFINED;
}

// primitives(): [{name, version, description, primitives: [{name, description, schema, result}]}], absent ones undefined
static JSValue granted_primitives(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    cellar_kernel_primitives_list_pack_t packs;
    cellar_kernel_primitives_granted(&packs);
    JSValue list = JS_NewArray(ctx);
    for (uint32_t i = 0; i < packs.len; i++) {
        const cellar_kernel_primitives_pack_t *pack = &packs.ptr[i];
        JSValue value = JS_NewObject(ctx), members = JS_NewArray(ctx);
        for (uint32_t j = 0; j < pack->primitives.len; j++) {
            const cellar_kernel_primitives_primitive_t *each = &pack->primitives.ptr[j];
            JSValue member = JS_NewObject(ctx);
            JS_SetPropertyStr(ctx, member, "name", string_from(ctx, each->name));
            JS_SetPropertyStr(ctx, member, "description", string_from(ctx, each->description));
            JS_SetPropertyStr(ctx, member, "schema", json_or_undefined(ctx, &each->schema));
            JS_SetPropertyStr(ctx, member, "result", json_or_undefined(ctx, &each->result_schema));
            JS_SetPropertyUint32(ctx, members, j, member);
        }
        JS_SetPropertyStr(ctx, value, "name", string_from(ctx, pack->name));
        JS_SetPropertyStr(ctx, value, "version", option_string(ctx, &pack->version));
        JS_SetPropertyStr(ctx, value, "description", string_from(ctx, pack->description));
        JS_SetPropertyStr(ctx, value, "primitives", members);
        JS_SetPropertyUint32(ctx, list, i, value);
    }
    cellar_kernel_primitives_list_pack_free(&packs);
    return list;
}

// fetches(): [{name, description, fetches: [{name, description, schema, columns: [[name, type]]}]}]
static JSValue granted_fetches(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    cellar_kernel_fetches_list_connector_t connectors;
    cellar_kernel_fetches_granted(&connectors);
    JSValue list = JS_NewArray(ctx);
    for (uint32_t i = 0; i < connectors.len; i++) {
        const cellar_kernel_fetches_connector_t *connector = &connectors.ptr[i];
        JSValue value = JS_NewObject(ctx), members = JS_NewArray(ctx);
        for (uint32_t j = 0; j < connector->fetches.len; j++) {
            const cellar_kernel_fetches_fetch_t *each = &connector->fetches.ptr[j];
            JSValue member = JS_NewObject(ctx), columns = JS_NewArray(ctx);
            for (uint32_t k = 0; k < each->columns.len; k++) {
                JSValue column = JS_NewArray(ctx);
                JS_SetPropertyUint32(ctx, column, 0, string_from(ctx, each->columns.ptr[k].name));
                JS_SetPropertyUint32(ctx, column, 1, string_from(ctx, each->columns.ptr[k].type_name));
                JS_SetPropertyUint32(ctx, columns, k, column);
            }
            JS_SetPropertyStr(ctx, member, "name", string_from(ctx, each->name));
            JS_SetPropertyStr(ctx, member, "description", string_from(ctx, each->description));
            JS_SetPropertyStr(ctx, member, "schema", string_from(ctx, each->schema));
            JS_SetPropertyStr(ctx, member, "columns", columns);
            JS_SetPropertyUint32(ctx, members, j, member);
        }
        JS_SetPropertyStr(ctx, value, "name", string_from(ctx, connector->name));
        JS_SetPropertyStr(ctx, value, "description", string_from(ctx, connector->description));
        JS_SetPropertyStr(ctx, value, "fetches", members);
        JS_SetPropertyUint32(ctx, list, i, value);
    }
    cellar_kernel_fetches_list_connector_free(&connectors);
    return list;
}

// processOrder()
static JSValue process_order(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    kernel_string_t order;
    cellar_kernel_types_call_error_t error;
    if (!cellar_kernel_processes_order(glue_cell, &order, &error))
        return throw_call_error(ctx, &error);
    JSValue value = string_from(ctx, order);
    kernel_string_free(&order);
    return value;
}

// makePipes(count): their numbers
static JSValue make_pipes(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    uint32_t count;
    cellar_kernel_processes_list_channel_t pipes;
    cellar_kernel_types_call_error_t error;
    if (JS_ToUint32(ctx, &count, argv[0]))
        return JS_EXCEPTION;
    if (!cellar_kernel_processes_make_pipes(glue_cell, count, &pipes, &error))
        return throw_call_error(ctx, &error);
    JSValue list = JS_NewArray(ctx);
    for (uint32_t i = 0; i < pipes.len; i++)
        JS_SetPropertyUint32(ctx, list, i, JS_NewInt64(ctx, (int64_t)pipes.ptr[i]));
    cellar_kernel_processes_list_channel_free(&pipes);
    return list;
}

// closePipe(number, whether it is the end that reads)
static JSValue close_pipe(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int64_t pipe;
    cellar_kernel_types_call_error_t error;
    if (JS_ToInt64(ctx, &pipe, argv[0]))
        return JS_EXCEPTION;
    cellar_kernel_processes_pipe_end_t end = JS_ToBool(ctx, argv[1]) > 0 ? CELLAR_KERNEL_PROCESSES_PIPE_END_READING
                                                                        : CELLAR_KERNEL_PROCESSES_PIPE_END_WRITING;
    if (!cellar_kernel_processes_close(glue_cell, (uint64_t)pipe, end, &error))
        return throw_call_error(ctx, &error);
    return JS_UNDEFINED;
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
        JS_CFUNC_DEF("primitives", 0, granted_primitives),
        JS_CFUNC_DEF("fetches", 0, granted_fetches),
        JS_CFUNC_DEF("processOrder", 0, process_order),
        JS_CFUNC_DEF("makePipes", 1, make_pipes),
        JS_CFUNC_DEF("closePipe", 2, close_pipe),
    };
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
    JSValue calls = JS_NewObject(ctx);
#define ADD(name) JS_SetPropertyStr(ctx, calls, #name, JS_NewInt32(ctx, KERNEL_##name));
    KERNEL_CALLS(ADD)
#undef ADD
    JS_SetPropertyStr(ctx, host, "calls", calls);
}
