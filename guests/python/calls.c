/* Calls of the host: tools, language models, agents, input and requests. */
#include "shim.h"

#include "cellar_threads.h"
#include "glue.h"
#include "threads.h"

/* What `call` and `start` take as their first argument; the prelude has the same list. */
enum bridge { TOOL, LLM, AGENT, INPUT, HTTP };

/* Up to this many texts are borrowed for one call. */
#define TEXTS_MAX 8

/* Texts that one call borrows from Python objects. */
typedef struct {
    PyObject *owners[TEXTS_MAX];
    int count;
} borrowed_t;

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

static void release(borrowed_t *borrowed) {
    while (borrowed->count > 0) {
        Py_DECREF(borrowed->owners[--borrowed->count]);
    }
}

/* One call, ready to be made. */
typedef struct {
    enum bridge bridge;
    union {
        struct {
            kernel_string_t name;
            kernel_string_t arguments;
        } tool;
        cellar_kernel_types_llm_request_t llm;
        cellar_kernel_types_agent_request_t agent;
        kernel_string_t prompt;
        cellar_kernel_types_http_request_t http;
    } request;
    borrowed_t borrowed;
} call_t;

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
    http->timeout.is_some = timeout != Py_None;
    if (http->timeout.is_some) {
        http->timeout.val = PyLong_AsUnsignedLongLong(timeout);
        if (PyErr_Occurred()) {
            return -1;
        }
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
    http->headers.ptr = PyMem_Calloc(pieces + 1, sizeof(kernel_tuple2_string_string_t));
    if (http->headers.ptr == NULL) {
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

static size_t optional_bytes(bool is_some, const kernel_string_t *text) {
    return is_some ? text->len : 0;
}

/* Bytes of the arguments of a call. */
static size_t size_of(const call_t *call) {
    const cellar_kernel_types_llm_request_t *llm = &call->request.llm;
    const cellar_kernel_types_agent_request_t *agent = &call->request.agent;
    const cellar_kernel_types_http_request_t *http = &call->request.http;
    size_t size = 0;
    switch (call->bridge) {
    case TOOL:
        return call->request.tool.name.len + call->request.tool.arguments.len;
    case LLM:
        return llm->prompt.len + llm->model.len + optional_bytes(llm->system.is_some, &llm->system.val)
            + optional_bytes(llm->schema.is_some, &llm->schema.val);
    case AGENT:
        return agent->prompt.len + agent->agent_type.len + optional_bytes(agent->model.is_some, &agent->model.val)
            + optional_bytes(agent->context.is_some, &agent->context.val)
            + optional_bytes(agent->label.is_some, &agent->label.val)
            + optional_bytes(agent->schema.is_some, &agent->schema.val);
    case INPUT:
        return call->request.prompt.len;
    case HTTP:
        for (size_t i = 0; i < http->headers.len; i++) {
            size += http->headers.ptr[i].f0.len + http->headers.ptr[i].f1.len;
        }
        return size + http->method.len + http->url.len + (http->body.is_some ? http->body.val.len : 0);
    }
    return 0;
}

static PyObject *call_error_class;

/* Raises that a call is past a limit. */
static PyObject *raise_limit(const char *message, size_t length) {
    kernel_string_t text = {(uint8_t *)message, length};
    cellar_kernel_types_call_error_t error = {CELLAR_KERNEL_TYPES_CALL_ERROR_KIND_LIMIT, text};
    PyObject *value = cellar_call_error(&error);
    if (value != NULL) {
        PyErr_SetObject(call_error_class != NULL ? call_error_class : PyExc_RuntimeError, value);
        Py_DECREF(value);
    }
    return NULL;
}

/* Raises what the host would say of a call whose arguments are too large, if they are. */
static int refuse_large(const call_t *call) {
    size_t size = size_of(call);
    if (size <= GLUE_CALL_BYTES_MAX) {
        return 0;
    }
    char message[128];
    raise_limit(message, glue_call_too_large(message, sizeof message, size));
    return -1;
}

static void finish(call_t *call) {
    if (call->bridge == HTTP) {
        PyMem_Free(call->request.http.headers.ptr);
    }
    release(&call->borrowed);
}

static int prepare_tool(call_t *call, PyObject *const *args, Py_ssize_t count) {
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "a tool takes its name and its arguments");
        return -1;
    }
    return borrow(&call->borrowed, args[0], &call->request.tool.name)
        || borrow(&call->borrowed, args[1], &call->request.tool.arguments);
}

/* The same of a bridge that is called less often. */
static int prepare_other(call_t *call, PyObject *const *args, Py_ssize_t count) {
    PyObject *rest = PyTuple_New(count), *prompt;
    for (Py_ssize_t i = 0; rest != NULL && i < count; i++) {
        PyTuple_SET_ITEM(rest, i, Py_NewRef(args[i]));
    }
    int failed = -1;
    if (rest == NULL) {
        return failed;
    }
    switch (call->bridge) {
    case LLM:
        failed = prepare_llm(call, rest);
        break;
    case AGENT:
        failed = prepare_agent(call, rest);
        break;
    case INPUT:
        failed = !PyArg_ParseTuple(rest, "O", &prompt) || borrow(&call->borrowed, prompt, &call->request.prompt);
        break;
    case HTTP:
        failed = prepare_http(call, rest);
        break;
    default:
        PyErr_SetString(PyExc_ValueError, "no such bridge");
    }
    Py_DECREF(rest);
    return failed;
}

/* Reads (bridge, *arguments). What is gathered of the output goes first, so that the order of events is kept. */
static int prepare(call_t *call, PyObject *const *args, Py_ssize_t count) {
    if (count == 0) {
        PyErr_SetString(PyExc_TypeError, "no bridge is named");
        return -1;
    }
    call->borrowed.count = 0;
    call->bridge = (enum bridge)PyLong_AsInt(args[0]);
    memset(&call->request, 0, sizeof call->request);
    int failed = call->bridge == TOOL ? prepare_tool(call, args + 1, count - 1) : prepare_other(call, args + 1, count - 1);
    if (failed || refuse_large(call) < 0) {
        finish(call);
        return -1;
    }
    cellar_stream_flush();
    return 0;
}

static PyObject *raise_call_error(cellar_kernel_types_call_error_t *error) {
    PyObject *value = cellar_call_error(error);
    cellar_kernel_types_call_error_free(error);
    if (value != NULL) {
        PyErr_SetObject(call_error_class != NULL ? call_error_class : PyExc_RuntimeError, value);
        Py_DECREF(value);
    }
    return NULL;
}

/* What a call was answered with, or its error raised. */
static PyObject *taken(cellar_kernel_types_answer_t *answer) {
    if (answer->is_err) {
        return raise_call_error(&answer->val.err);
    }
    PyObject *result = cellar_response(&answer->val.ok);
    cellar_kernel_types_response_free(&answer->val.ok);
    return result;
}

/* Begins a call; returns its number. */
static uint64_t start(call_t *call) {
    uint32_t cell = cellar_current_cell();
    switch (call->bridge) {
    case TOOL:
        return cellar_kernel_tools_start_call(cell, &call->request.tool.name, &call->request.tool.arguments);
    case LLM:
        return cellar_kernel_llm_start_call(cell, &call->request.llm);
    case AGENT:
        return cellar_kernel_agents_start_call(cell, &call->request.agent);
    case INPUT:
        return cellar_kernel_input_start_call(cell, &call->request.prompt);
    case HTTP:
        return cellar_kernel_http_start_call(cell, &call->request.http);
    }
    return 0;
}

/* Makes a call while other threads run. False with an exception if it was cut short. */
static bool call_among_threads(call_t *call, cellar_kernel_types_answer_t *answer) {
    uint64_t number = start(call);
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

/* Makes a call: suspends the guest until the answer is there, or the thread when there are others. False with an exception if
   it was cut short. */
static bool ask(call_t *call, cellar_kernel_types_answer_t *answer) {
    if (!cellar_thread_is_alone()) {
        return call_among_threads(call, answer);
    }
    uint32_t cell = cellar_current_cell();
    cellar_kernel_types_response_t response = {0};
    cellar_kernel_types_call_error_t error = {0};
    bool ok = false;
    switch (call->bridge) {
    case TOOL:
        response.tag = CELLAR_KERNEL_TYPES_RESPONSE_JSON;
        ok = cellar_kernel_tools_call(cell, &call->request.tool.name, &call->request.tool.arguments, &response.val.json,
                                      &error);
        break;
    case LLM:
        ok = cellar_kernel_llm_call(cell, &call->request.llm, &response, &error);
        break;
    case AGENT:
        ok = cellar_kernel_agents_call(cell, &call->request.agent, &response, &error);
        break;
    case INPUT:
        ok = cellar_kernel_input_call(cell, &call->request.prompt, &response, &error);
        break;
    case HTTP:
        ok = cellar_kernel_http_call(cell, &call->request.http, &response, &error);
        break;
    }
    answer->is_err = !ok;
    if (ok) {
        answer->val.ok = response;
    } else {
        answer->val.err = error;
    }
    return true;
}

/* call(bridge, *arguments) -> (tag, payload) */
static PyObject *bridge_call(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    call_t call;
    cellar_kernel_types_answer_t answer;
    if (prepare(&call, args, count) < 0) {
        return NULL;
    }
    bool is_answered = ask(&call, &answer);
    finish(&call);
    return is_answered ? taken(&answer) : NULL;
}

/* A tool, as a function: calls whose arguments and answers are simple are made without any code of the prelude. For all
   others there are the methods `_call`, which takes what the tool was called with, and `_finish` and `_fail_with`, which take
   how that ended. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *tool;
} tool_t;

static PyObject *ask_tool(PyObject *self, const kernel_string_t *name, const cellar_json_t *arguments) {
    call_t call = {.bridge = TOOL};
    call.request.tool.name = *name;
    call.request.tool.arguments = (kernel_string_t){(uint8_t *)arguments->bytes, arguments->length};
    cellar_kernel_types_answer_t answer;
    cellar_stream_flush();
    if (!ask(&call, &answer)) {
        return NULL;
    }
    PyObject *value = NULL;
    if (answer.is_err) {
        PyObject *error = cellar_call_error(&answer.val.err);
        value = error != NULL ? PyObject_CallMethod(self, "_fail_with", "(O)", error) : NULL;
        Py_XDECREF(error);
        cellar_kernel_types_call_error_free(&answer.val.err);
        return value;
    }
    if (answer.val.ok.tag == CELLAR_KERNEL_TYPES_RESPONSE_JSON) {
        value = cellar_json_value((char *)answer.val.ok.val.json.ptr, answer.val.ok.val.json.len);
    }
    PyObject *pair = value == NULL && !PyErr_Occurred() ? cellar_response(&answer.val.ok) : NULL;
    cellar_kernel_types_response_free(&answer.val.ok);
    if (pair != NULL) {
        PyObject *finish = PyObject_GetAttrString(self, "_finish");
        value = finish != NULL ? PyObject_CallObject(finish, pair) : NULL;
        Py_XDECREF(finish);
        Py_DECREF(pair);
    }
    return value;
}

static PyObject *call_tool(PyObject *self, PyObject *const *args, size_t count, PyObject *names) {
    cellar_json_t arguments;
    PyObject *tool = Py_XNewRef(((tool_t *)self)->tool), *result = NULL, *slowly = NULL, *owner = NULL;
    kernel_string_t name;
    bool is_text = tool != NULL && PyUnicode_Check(tool);
    if (PyVectorcall_NARGS(count) == 0 && is_text && cellar_json_members(&arguments, names, args)) {
        if (cellar_borrow_text(tool, &name, &owner) == 0) {
            result = ask_tool(self, &name, &arguments);
            Py_DECREF(owner);
        }
    } else if ((slowly = PyObject_GetAttrString(self, "_call")) != NULL) {
        result = PyObject_Vectorcall(slowly, args, count, names);
        Py_DECREF(slowly);
    }
    Py_XDECREF(tool);
    return result;
}

static PyObject *make_tool(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    tool_t *self = (tool_t *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = call_tool;
    }
    return (PyObject *)self;
}

static void drop_tool(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((tool_t *)self)->tool);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef tool_members[] = {
    {"_tool", Py_T_OBJECT_EX, offsetof(tool_t, tool), 0, "Name of the tool."},
    {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(tool_t, vectorcall), Py_READONLY, NULL},
    {0},
};

static PyType_Slot tool_slots[] = {
    {Py_tp_new, make_tool},
    {Py_tp_dealloc, drop_tool},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, tool_members},
    {0, NULL},
};

static PyType_Spec tool_spec = {
    .name = "_cellar.Tool",
    .basicsize = sizeof(tool_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = tool_slots,
};

int cellar_add_tool_class(PyObject *module) {
    PyObject *class = PyType_FromSpec(&tool_spec);
    return class != NULL ? PyModule_Add(module, "Tool", class) : -1;
}

/* start(bridge, *arguments) -> number of the call, whose completion comes with a later `resume`. */
static PyObject *bridge_start(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    call_t call;
    if (prepare(&call, args, count) < 0) {
        return NULL;
    }
    uint64_t number = start(&call);
    finish(&call);
    if (number == 0) {
        return raise_limit(GLUE_CALLS_FULL, strlen(GLUE_CALLS_FULL));
    }
    return PyLong_FromUnsignedLongLong(number);
}

/* take_answer(number) -> (tag, payload) if the answer of the call that was started last was there at once: no completion comes
   then. Else None. */
static PyObject *bridge_take_answer(PyObject *module, PyObject *number) {
    uint64_t call = PyLong_AsUnsignedLongLong(number);
    cellar_kernel_types_answer_t answer;
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!cellar_kernel_tools_take_answer(call, &answer)) {
        Py_RETURN_NONE;
    }
    return taken(&answer);
}

static PyObject *bridge_cancel(PyObject *module, PyObject *number) {
    uint64_t call = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) {
        return NULL;
    }
    cellar_kernel_tools_cancel(call);
    Py_RETURN_NONE;
}

/* granted() -> [(name, description, schema or None)] */
static PyObject *bridge_granted(PyObject *module, PyObject *unused) {
    cellar_kernel_tools_list_tool_t tools;
    cellar_kernel_tools_granted(&tools);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < tools.len; i++) {
        cellar_kernel_tools_tool_t *tool = &tools.ptr[i];
        PyObject *schema = tool->schema.is_some ? cellar_text(&tool->schema.val) : Py_NewRef(Py_None);
        PyObject *item = Py_BuildValue("(NNN)", cellar_text(&tool->name), cellar_text(&tool->description), schema);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    cellar_kernel_tools_list_tool_free(&tools);
    return list;
}

static PyObject *bridge_set_error_class(PyObject *module, PyObject *class) {
    Py_XSETREF(call_error_class, Py_NewRef(class));
    Py_RETURN_NONE;
}

PyMethodDef cellar_call_methods[] = {
    {"call", (PyCFunction)(void (*)(void))bridge_call, METH_FASTCALL, NULL},
    {"start", (PyCFunction)(void (*)(void))bridge_start, METH_FASTCALL, NULL},
    {"take_answer", bridge_take_answer, METH_O, NULL},
    {"to_json", cellar_to_json, METH_O, NULL},
    {"from_json", cellar_from_json, METH_O, NULL},
    {"cancel", bridge_cancel, METH_O, NULL},
    {"granted", bridge_granted, METH_NOARGS, NULL},
    {"set_error_class", bridge_set_error_class, METH_O, NULL},
    {0},
};
