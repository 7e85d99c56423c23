/* Calls of the host, made of Python's values. */
#include "requests.h"

#include "cellar_threads.h"
#include "glue.h"
#include "threads.h"

static int borrow(borrowed_t *borrowed, PyObject *text, kernel_string_t *out) {
    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "a bridge takes str, not %.200s", Py_TYPE(text)->tp_name);
        return -1;
    }
    if (cellar_borrow_text(text, out, &borrowed->owners[borrowed->count]) < 0) {
        return -1;
    }
    borrowed->count++;
    return 0;
}

static int borrow_option(borrowed_t *borrowed, PyObject *text, bool *is_some, kernel_string_t *out) {
    *is_some = text != Py_None;
    return *is_some ? borrow(borrowed, text, out) : 0;
}

/* A number, or None. */
static int number_option(PyObject *number, bool *is_some, uint64_t *out) {
    *is_some = number != Py_None;
    *out = *is_some ? PyLong_AsUnsignedLongLong(number) : 0;
    return PyErr_Occurred() ? -1 : 0;
}

/* The number of one of some words. */
static int word(PyObject *text, const char *const *words, size_t count, uint8_t *out) {
    for (size_t i = 0; PyUnicode_Check(text) && i < count; i++) {
        if (PyUnicode_CompareWithASCIIString(text, words[i]) == 0) {
            *out = (uint8_t)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "%R is none of the words that the host knows here", text);
    return -1;
}

#define WORD(text, words, out) word(text, words, sizeof(words) / sizeof *(words), out)

static const char *const directions[] = {
    [CELLAR_KERNEL_TABLES_DIRECTION_READ] = "read",
    [CELLAR_KERNEL_TABLES_DIRECTION_WRITE] = "write",
};
static const char *const formats[] = {
    [CELLAR_KERNEL_TABLES_FORMAT_PARQUET] = "parquet",
    [CELLAR_KERNEL_TABLES_FORMAT_FEATHER] = "feather",
};
static const char *const compressions[] = {
    [CELLAR_KERNEL_TABLES_COMPRESSION_SNAPPY] = "snappy",
    [CELLAR_KERNEL_TABLES_COMPRESSION_GZIP] = "gzip",
    [CELLAR_KERNEL_TABLES_COMPRESSION_ZSTD] = "zstd",
    [CELLAR_KERNEL_TABLES_COMPRESSION_LZ4] = "lz4",
};
static const char *const languages[] = {
    [CELLAR_KERNEL_PROCESSES_LANGUAGE_PYTHON] = "py",
    [CELLAR_KERNEL_PROCESSES_LANGUAGE_JAVASCRIPT] = "js",
};

/* Keeps what a list is made of until the call is made: texts as bytes, which lie still. */
static int copies(call_t *call, PyObject *list, size_t each, size_t *count) {
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "a call takes a list here");
        return -1;
    }
    *count = (size_t)PyList_GET_SIZE(list);
    call->array = PyMem_Calloc(*count + 1, each);
    call->borrowed.copies = PyList_New(0);
    if (call->array == NULL || call->borrowed.copies == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* Borrows a text of a list. */
static int borrow_member(call_t *call, PyObject *text, kernel_string_t *out) {
    PyObject *owner;
    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "a call takes str, not %.200s", Py_TYPE(text)->tp_name);
        return -1;
    }
    if (cellar_borrow_text(text, out, &owner) < 0) {
        return -1;
    }
    int failed = PyList_Append(call->borrowed.copies, owner);
    Py_DECREF(owner);
    return failed;
}

static int prepare_agent(call_t *call, PyObject *args) {
    PyObject *prompt, *type, *model, *context, *label, *schema;
    cellar_kernel_types_agent_request_t *agent = &call->request.agent;
    borrowed_t *borrowed = &call->borrowed;
    if (!PyArg_ParseTuple(args, "OOOOOO", &prompt, &type, &model, &context, &label, &schema)) {
        return -1;
    }
    return borrow(borrowed, prompt, &agent->prompt) || borrow(borrowed, type, &agent->agent_type)
        || borrow_option(borrowed, model, &agent->model.is_some, &agent->model.val)
        || borrow_option(borrowed, context, &agent->context.is_some, &agent->context.val)
        || borrow_option(borrowed, label, &agent->label.is_some, &agent->label.val)
        || borrow_option(borrowed, schema, &agent->schema.is_some, &agent->schema.val);
}

static int prepare_llm(call_t *call, PyObject *args) {
    PyObject *prompt, *model, *system, *schema;
    cellar_kernel_types_llm_request_t *llm = &call->request.llm;
    borrowed_t *borrowed = &call->borrowed;
    if (!PyArg_ParseTuple(args, "OOOO", &prompt, &model, &system, &schema)) {
        return -1;
    }
    return borrow(borrowed, prompt, &llm->prompt) || borrow(borrowed, model, &llm->model)
        || borrow_option(borrowed, system, &llm->system.is_some, &llm->system.val)
        || borrow_option(borrowed, schema, &llm->schema.is_some, &llm->schema.val);
}

/* (method, url, header text of "name\0value\0…", body or None, nanoseconds or None): the headers as one text keep the
 * borrowing simple. */
static int prepare_http(call_t *call, PyObject *args) {
    PyObject *method, *url, *headers, *body, *timeout;
    cellar_kernel_types_http_request_t *http = &call->request.http;
    borrowed_t *borrowed = &call->borrowed;
    if (!PyArg_ParseTuple(args, "OOOOO", &method, &url, &headers, &body, &timeout)
        || borrow(borrowed, method, &http->method) || borrow(borrowed, url, &http->url)) {
        return -1;
    }
    if (number_option(timeout, &http->timeout.is_some, &http->timeout.val) < 0) {
        return -1;
    }
    kernel_string_t text;
    if (borrow(borrowed, headers, &text) < 0) {
        return -1;
    }
    size_t pieces = 0;
    for (size_t i = 0; i < text.len; i++) {
        pieces += text.ptr[i] == 0;
    }
    http->headers.len = pieces / 2;
    call->array = http->headers.ptr = PyMem_Calloc(pieces + 1, sizeof(kernel_tuple2_string_string_t));
    if (call->array == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    uint8_t *at = text.ptr;
    for (size_t i = 0; i < http->headers.len; i++) {
        kernel_tuple2_string_string_t *pair = &http->headers.ptr[i];
        pair->f0 = (kernel_string_t){at, strlen((char *)at)};
        at += pair->f0.len + 1;
        pair->f1 = (kernel_string_t){at, strlen((char *)at)};
        at += pair->f1.len + 1;
    }
    http->body.is_some = body != Py_None;
    if (http->body.is_some) {
        if (!PyBytes_Check(body)) {
            PyErr_SetString(PyExc_TypeError, "a request's body must be bytes");
            return -1;
        }
        http->body.val = (kernel_list_u8_t){(uint8_t *)PyBytes_AS_STRING(body), (size_t)PyBytes_GET_SIZE(body)};
        borrowed->owners[borrowed->count++] = Py_NewRef(body);
    }
    return 0;
}

/* (source, target, direction, format, columns or None, compression or None) */
static int prepare_conversion(call_t *call, PyObject *args) {
    PyObject *source, *target, *direction, *format, *columns, *compression;
    cellar_kernel_tables_conversion_t *conversion = &call->request.conversion;
    if (!PyArg_ParseTuple(args, "OOOOOO", &source, &target, &direction, &format, &columns, &compression)
        || borrow(&call->borrowed, source, &conversion->source) || borrow(&call->borrowed, target, &conversion->target)
        || WORD(direction, directions, &conversion->direction) || WORD(format, formats, &conversion->format)) {
        return -1;
    }
    conversion->compression.is_some = compression != Py_None;
    if (conversion->compression.is_some && WORD(compression, compressions, &conversion->compression.val)) {
        return -1;
    }
    conversion->columns.is_some = columns != Py_None;
    if (!conversion->columns.is_some) {
        return 0;
    }
    kernel_list_string_t *names = &conversion->columns.val;
    if (copies(call, columns, sizeof *names->ptr, &names->len) < 0) {
        return -1;
    }
    names->ptr = call->array;
    for (size_t i = 0; i < names->len; i++) {
        if (borrow_member(call, PyList_GET_ITEM(columns, (Py_ssize_t)i), &names->ptr[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

/* (MIME type, specification, wanted type, target) */
static int prepare_drawing(call_t *call, PyObject *args) {
    PyObject *mime_type, *specification, *wanted, *target;
    cellar_kernel_tables_drawing_t *drawing = &call->request.drawing;
    borrowed_t *borrowed = &call->borrowed;
    return !PyArg_ParseTuple(args, "OOOO", &mime_type, &specification, &wanted, &target)
        || borrow(borrowed, mime_type, &drawing->mime_type) || borrow(borrowed, specification, &drawing->specification)
        || borrow(borrowed, wanted, &drawing->wanted) || borrow(borrowed, target, &drawing->target);
}

/* (name, version or None, path) */
static int prepare_load(call_t *call, PyObject *args) {
    PyObject *name, *version, *path;
    __auto_type dataset = &call->request.dataset;
    return !PyArg_ParseTuple(args, "OOO", &name, &version, &path) || borrow(&call->borrowed, name, &dataset->name)
        || number_option(version, &dataset->has_version, &dataset->version) < 0
        || borrow(&call->borrowed, path, &dataset->path);
}

/* (name, version or None) */
static int prepare_read(call_t *call, PyObject *args) {
    PyObject *name, *version;
    __auto_type dataset = &call->request.dataset;
    return !PyArg_ParseTuple(args, "OO", &name, &version) || borrow(&call->borrowed, name, &dataset->name)
        || number_option(version, &dataset->has_version, &dataset->version) < 0;
}

/* (name or None,) */
static int prepare_list(call_t *call, PyObject *args) {
    PyObject *name;
    __auto_type dataset = &call->request.dataset;
    if (!PyArg_ParseTuple(args, "O", &name)) {
        return -1;
    }
    dataset->has_name = name != Py_None;
    return dataset->has_name ? borrow(&call->borrowed, name, &dataset->name) : 0;
}

/* (name, path, [names that the rows derive from]) */
static int prepare_publication(call_t *call, PyObject *args) {
    PyObject *name, *path, *read;
    __auto_type dataset = &call->request.dataset;
    if (!PyArg_ParseTuple(args, "OOO", &name, &path, &read) || borrow(&call->borrowed, name, &dataset->name)
        || borrow(&call->borrowed, path, &dataset->path)
        || copies(call, read, sizeof *dataset->read.ptr, &dataset->read.len) < 0) {
        return -1;
    }
    dataset->read.ptr = call->array;
    for (size_t i = 0; i < dataset->read.len; i++) {
        if (borrow_member(call, PyList_GET_ITEM(read, (Py_ssize_t)i), &dataset->read.ptr[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

/* (language, code, order, [(name, value)], timeout or None, input or None, out or None, err or None) */
static int prepare_process(call_t *call, PyObject *args) {
    PyObject *language, *code, *order, *environment, *timeout, *input, *out, *err;
    cellar_kernel_processes_process_request_t *process = &call->request.process;
    cellar_kernel_processes_process_pipes_t *pipes = &process->pipes;
    if (!PyArg_ParseTuple(args, "OOOOOOOO", &language, &code, &order, &environment, &timeout, &input, &out, &err)
        || WORD(language, languages, &process->language) || borrow(&call->borrowed, code, &process->code)
        || borrow(&call->borrowed, order, &process->order)
        || number_option(timeout, &process->timeout.is_some, &process->timeout.val) < 0
        || number_option(input, &pipes->input.is_some, &pipes->input.val) < 0
        || number_option(out, &pipes->output.is_some, &pipes->output.val) < 0
        || number_option(err, &pipes->errors.is_some, &pipes->errors.val) < 0
        || copies(call, environment, sizeof *process->environment.ptr, &process->environment.len) < 0) {
        return -1;
    }
    process->environment.ptr = call->array;
    for (size_t i = 0; i < process->environment.len; i++) {
        PyObject *name, *value;
        kernel_tuple2_string_string_t *pair = &process->environment.ptr[i];
        if (!PyArg_ParseTuple(PyList_GET_ITEM(environment, (Py_ssize_t)i), "OO", &name, &value)
            || borrow_member(call, name, &pair->f0) < 0 || borrow_member(call, value, &pair->f1) < 0) {
            return -1;
        }
    }
    return 0;
}

/* (pipe to write or None, text, [pipes to read], timeout or None) */
static int prepare_transfer(call_t *call, PyObject *args) {
    PyObject *pipe, *text, *read, *timeout;
    cellar_kernel_processes_transfer_request_t *transfer = &call->request.transfer;
    if (!PyArg_ParseTuple(args, "OOOO", &pipe, &text, &read, &timeout)
        || number_option(pipe, &transfer->write.is_some, &transfer->write.val.pipe) < 0
        || number_option(timeout, &transfer->timeout.is_some, &transfer->timeout.val) < 0
        || (transfer->write.is_some && borrow(&call->borrowed, text, &transfer->write.val.text))
        || copies(call, read, sizeof *transfer->read.ptr, &transfer->read.len) < 0) {
        return -1;
    }
    transfer->read.ptr = call->array;
    for (size_t i = 0; i < transfer->read.len; i++) {
        transfer->read.ptr[i] = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(read, (Py_ssize_t)i));
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* (box, message, timeout or None) */
static int prepare_put(call_t *call, PyObject *args) {
    PyObject *message, *timeout;
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "KOO", &number, &message, &timeout)
        || borrow(&call->borrowed, message, &call->request.message.message)) {
        return -1;
    }
    call->request.message.number = number;
    return number_option(timeout, &call->request.message.has_timeout, &call->request.message.timeout);
}

/* (box, keep, timeout or None) */
static int prepare_take(call_t *call, PyObject *args) {
    PyObject *timeout;
    unsigned long long number;
    int keep;
    if (!PyArg_ParseTuple(args, "KpO", &number, &keep, &timeout)) {
        return -1;
    }
    call->request.message.number = number;
    call->request.message.keep = keep != 0;
    return number_option(timeout, &call->request.message.has_timeout, &call->request.message.timeout);
}

static size_t optional_bytes(bool is_some, const kernel_string_t *text) {
    return is_some ? text->len : 0;
}

static size_t pairs_bytes(const kernel_tuple2_string_string_t *pairs, size_t count) {
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        size += pairs[i].f0.len + pairs[i].f1.len;
    }
    return size;
}

size_t cellar_call_size(const call_t *call) {
    const cellar_kernel_types_llm_request_t *llm = &call->request.llm;
    const cellar_kernel_types_agent_request_t *agent = &call->request.agent;
    const cellar_kernel_types_http_request_t *http = &call->request.http;
    const cellar_kernel_tables_conversion_t *conversion = &call->request.conversion;
    const cellar_kernel_tables_drawing_t *drawing = &call->request.drawing;
    const cellar_kernel_processes_process_request_t *process = &call->request.process;
    const cellar_kernel_processes_transfer_request_t *transfer = &call->request.transfer;
    size_t size = 0;
    switch (call->kind) {
    case KERNEL_TOOLS_CALL:
    case KERNEL_PRIMITIVES_CALL:
    case KERNEL_FETCHES_CALL:
        return call->request.named.of.len + call->request.named.name.len + call->request.named.arguments.len;
    case KERNEL_LLM_CALL:
        return llm->prompt.len + llm->model.len + optional_bytes(llm->system.is_some, &llm->system.val)
            + optional_bytes(llm->schema.is_some, &llm->schema.val);
    case KERNEL_AGENTS_CALL:
        return agent->prompt.len + agent->agent_type.len + optional_bytes(agent->model.is_some, &agent->model.val)
            + optional_bytes(agent->context.is_some, &agent->context.val)
            + optional_bytes(agent->label.is_some, &agent->label.val)
            + optional_bytes(agent->schema.is_some, &agent->schema.val);
    case KERNEL_INPUT_CALL:
        return call->request.prompt.len;
    case KERNEL_HTTP_CALL:
        return pairs_bytes(http->headers.ptr, http->headers.len) + http->method.len + http->url.len
            + (http->body.is_some ? http->body.val.len : 0);
    case KERNEL_TABLES_CONVERT:
        for (size_t i = 0; conversion->columns.is_some && i < conversion->columns.val.len; i++) {
            size += conversion->columns.val.ptr[i].len;
        }
        return size + conversion->source.len + conversion->target.len;
    case KERNEL_TABLES_LOAD:
    case KERNEL_TABLES_READ:
    case KERNEL_TABLES_LIST:
    case KERNEL_TABLES_PUBLISH:
        for (size_t i = 0; i < call->request.dataset.read.len; i++) {
            size += call->request.dataset.read.ptr[i].len;
        }
        return size + call->request.dataset.name.len + call->request.dataset.path.len;
    case KERNEL_TABLES_DRAW:
        return drawing->mime_type.len + drawing->specification.len + drawing->wanted.len + drawing->target.len;
    case KERNEL_PROCESSES_RUN:
        return pairs_bytes(process->environment.ptr, process->environment.len) + process->code.len + process->order.len;
    case KERNEL_PROCESSES_TRANSFER:
        return (transfer->write.is_some ? transfer->write.val.text.len : 0) + transfer->read.len * sizeof *transfer->read.ptr;
    case KERNEL_PROCESSES_PUT:
    case KERNEL_PROCESSES_TAKE:
        return call->request.message.message.len;
    }
    return 0;
}

void cellar_finish_call(call_t *call) {
    PyMem_Free(call->array);
    call->array = NULL;
    while (call->borrowed.count > 0) {
        Py_DECREF(call->borrowed.owners[--call->borrowed.count]);
    }
    Py_CLEAR(call->borrowed.copies);
}

static int prepare_tool(call_t *call, PyObject *const *args, Py_ssize_t count) {
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "a tool takes its name and its arguments");
        return -1;
    }
    return borrow(&call->borrowed, args[0], &call->request.named.name)
        || borrow(&call->borrowed, args[1], &call->request.named.arguments);
}

/* (pack, name, arguments), and of a fetch whether the source is to be asked again. */
static int prepare_named(call_t *call, PyObject *args) {
    PyObject *of, *name, *arguments;
    int refresh = 0;
    if (!PyArg_ParseTuple(args, "OOO|p", &of, &name, &arguments, &refresh)) {
        return -1;
    }
    call->request.named.refresh = refresh != 0;
    return borrow(&call->borrowed, of, &call->request.named.of) || borrow(&call->borrowed, name, &call->request.named.name)
        || borrow(&call->borrowed, arguments, &call->request.named.arguments);
}

static int prepare_input(call_t *call, PyObject *args) {
    PyObject *prompt;
    return !PyArg_ParseTuple(args, "O", &prompt) || borrow(&call->borrowed, prompt, &call->request.prompt);
}

/* The same of a call that is made less often. */
static int prepare_other(call_t *call, PyObject *const *args, Py_ssize_t count) {
    static int (*const prepares[])(call_t *, PyObject *) = {
        [KERNEL_PRIMITIVES_CALL] = prepare_named,    [KERNEL_FETCHES_CALL] = prepare_named,
        [KERNEL_LLM_CALL] = prepare_llm,             [KERNEL_AGENTS_CALL] = prepare_agent,
        [KERNEL_INPUT_CALL] = prepare_input,         [KERNEL_HTTP_CALL] = prepare_http,
        [KERNEL_TABLES_CONVERT] = prepare_conversion, [KERNEL_TABLES_LOAD] = prepare_load,
        [KERNEL_TABLES_READ] = prepare_read,         [KERNEL_TABLES_LIST] = prepare_list,
        [KERNEL_TABLES_PUBLISH] = prepare_publication, [KERNEL_TABLES_DRAW] = prepare_drawing,
        [KERNEL_PROCESSES_RUN] = prepare_process,    [KERNEL_PROCESSES_TRANSFER] = prepare_transfer,
        [KERNEL_PROCESSES_PUT] = prepare_put,        [KERNEL_PROCESSES_TAKE] = prepare_take,
    };
    size_t kind = (size_t)call->kind;
    if (kind >= sizeof prepares / sizeof *prepares || prepares[kind] == NULL) {
        PyErr_SetString(PyExc_ValueError, "no such call");
        return -1;
    }
    PyObject *rest = PyTuple_New(count);
    for (Py_ssize_t i = 0; rest != NULL && i < count; i++) {
        PyTuple_SET_ITEM(rest, i, Py_NewRef(args[i]));
    }
    int failed = rest == NULL || prepares[kind](call, rest);
    Py_XDECREF(rest);
    return failed ? -1 : 0;
}

int cellar_prepare_call(call_t *call, PyObject *const *args, Py_ssize_t count) {
    memset(call, 0, sizeof *call);
    if (count == 0) {
        PyErr_SetString(PyExc_TypeError, "no call is named");
        return -1;
    }
    call->kind = (enum kernel_call)PyLong_AsInt(args[0]);
    if (PyErr_Occurred()) {
        return -1;
    }
    bool is_tool = call->kind == KERNEL_TOOLS_CALL;
    int failed = is_tool ? prepare_tool(call, args + 1, count - 1) : prepare_other(call, args + 1, count - 1);
    if (failed) {
        cellar_finish_call(call);
        return -1;
    }
    return 0;
}

/* The timeout of a call about a box, or NULL. */
static uint64_t *timeout_of(call_t *call) {
    bool is_of_box = call->kind == KERNEL_PROCESSES_PUT || call->kind == KERNEL_PROCESSES_TAKE;
    return is_of_box && call->request.message.has_timeout ? &call->request.message.timeout : NULL;
}

/* The version of a call about a dataset, or NULL. */
static uint64_t *version_of(call_t *call) {
    bool is_of_one = call->kind == KERNEL_TABLES_LOAD || call->kind == KERNEL_TABLES_READ;
    return is_of_one && call->request.dataset.has_version ? &call->request.dataset.version : NULL;
}

uint64_t cellar_start_call(call_t *call) {
    uint32_t cell = cellar_current_cell();
    __auto_type request = &call->request;
    uint64_t *timeout = timeout_of(call), *version = version_of(call);
    switch (call->kind) {
    case KERNEL_TOOLS_CALL:
        return cellar_kernel_tools_start_call(cell, &request->named.name, &request->named.arguments);
    case KERNEL_PRIMITIVES_CALL:
        return cellar_kernel_primitives_start_call(cell, &request->named.of, &request->named.name,
                                                   &request->named.arguments);
    case KERNEL_FETCHES_CALL:
        return cellar_kernel_fetches_start_call(cell, &request->named.of, &request->named.name, &request->named.arguments,
                                                request->named.refresh);
    case KERNEL_LLM_CALL:
        return cellar_kernel_llm_start_call(cell, &request->llm);
    case KERNEL_AGENTS_CALL:
        return cellar_kernel_agents_start_call(cell, &request->agent);
    case KERNEL_INPUT_CALL:
        return cellar_kernel_input_start_call(cell, &request->prompt);
    case KERNEL_HTTP_CALL:
        return cellar_kernel_http_start_call(cell, &request->http);
    case KERNEL_TABLES_CONVERT:
        return cellar_kernel_tables_start_convert(cell, &request->conversion);
    case KERNEL_TABLES_LOAD:
        return cellar_kernel_tables_start_load(cell, &request->dataset.name, version, &request->dataset.path);
    case KERNEL_TABLES_READ:
        return cellar_kernel_tables_start_read(cell, &request->dataset.name, version);
    case KERNEL_TABLES_LIST:
        return cellar_kernel_tables_start_list(cell, request->dataset.has_name ? &request->dataset.name : NULL);
    case KERNEL_TABLES_PUBLISH:
        return cellar_kernel_tables_start_publish(cell, &request->dataset.name, &request->dataset.path,
                                                  &request->dataset.read);
    case KERNEL_TABLES_DRAW:
        return cellar_kernel_tables_start_draw(cell, &request->drawing);
    case KERNEL_PROCESSES_RUN:
        return cellar_kernel_processes_start_run(cell, &request->process);
    case KERNEL_PROCESSES_TRANSFER:
        return cellar_kernel_processes_start_transfer(cell, &request->transfer);
    case KERNEL_PROCESSES_PUT:
        return cellar_kernel_processes_start_put(cell, request->message.number, &request->message.message, timeout);
    case KERNEL_PROCESSES_TAKE:
        return cellar_kernel_processes_start_take(cell, request->message.number, request->message.keep, timeout);
    }
    return 0;
}

bool cellar_ask(call_t *call, cellar_kernel_types_answer_t *answer) {
    uint64_t number = cellar_start_call(call);
    if (number == 0) {
        answer->is_err = true;
        answer->val.err.kind = CELLAR_KERNEL_TYPES_CALL_ERROR_KIND_LIMIT;
        answer->val.err.message = glue_copy(GLUE_CALLS_FULL, strlen(GLUE_CALLS_FULL));
        return true;
    }
    if (cellar_kernel_tools_take_answer(number, answer)) {
        return true;
    }
    kernel_completion_t end = {0};
    if (!cellar_threads_call(number, NEVER, &end)) {
        cellar_kernel_tools_cancel(number);
        if (!cellar_thread_was_stopped()) {
            PyErr_SetString(PyExc_RuntimeError, "the call was cut short");
        }
        return false;
    }
    *answer = end.response;
    return true;
}
