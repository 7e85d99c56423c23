/* Calls of the host, as functions of `_cellar`. */
#include "glue.h"
#include "requests.h"

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
    size_t size = cellar_call_size(call);
    if (size <= GLUE_CALL_BYTES_MAX) {
        return 0;
    }
    char message[128];
    raise_limit(message, glue_call_too_large(message, sizeof message, size));
    return -1;
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

/* Prepares a call, and refuses one that is too large. What is gathered of the output goes first, so that the order of events
   is kept. */
static int prepare(call_t *call, PyObject *const *args, Py_ssize_t count) {
    if (cellar_prepare_call(call, args, count) < 0) {
        return -1;
    }
    if (refuse_large(call) < 0) {
        cellar_finish_call(call);
        return -1;
    }
    cellar_stream_flush();
    return 0;
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

/* call(number, *arguments) -> (tag, payload); `requests.c` says which arguments each call has. */
static PyObject *bridge_call(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    call_t call;
    cellar_kernel_types_answer_t answer;
    if (prepare(&call, args, count) < 0) {
        return NULL;
    }
    bool is_answered = cellar_ask(&call, &answer);
    cellar_finish_call(&call);
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
    call_t call = {.kind = KERNEL_TOOLS_CALL};
    call.request.named.name = *name;
    call.request.named.arguments = (kernel_string_t){(uint8_t *)arguments->bytes, arguments->length};
    cellar_kernel_types_answer_t answer;
    cellar_stream_flush();
    if (!cellar_ask(&call, &answer)) {
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

/* start(number, *arguments) -> number of what was started, whose completion comes with a later `resume`. */
static PyObject *bridge_start(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    call_t call;
    if (prepare(&call, args, count) < 0) {
        return NULL;
    }
    uint64_t number = cellar_start_call(&call);
    cellar_finish_call(&call);
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
        cellar_append(&list, Py_BuildValue("(NNN)", cellar_text(&tool->name), cellar_text(&tool->description),
                                           tool->schema.is_some ? cellar_text(&tool->schema.val) : Py_NewRef(Py_None)));
    }
    cellar_kernel_tools_list_tool_free(&tools);
    return list;
}

static PyObject *json_or_none(const cellar_kernel_primitives_option_json_t *json) {
    return json->is_some ? cellar_text(&json->val) : Py_NewRef(Py_None);
}

/* primitives() -> [(pack, version or None, description, [(name, description, schema or None, result's or None)])] */
static PyObject *bridge_primitives(PyObject *module, PyObject *unused) {
    cellar_kernel_primitives_list_pack_t packs;
    cellar_kernel_primitives_granted(&packs);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < packs.len; i++) {
        cellar_kernel_primitives_pack_t *pack = &packs.ptr[i];
        PyObject *members = PyList_New(0);
        for (size_t j = 0; members != NULL && j < pack->primitives.len; j++) {
            cellar_kernel_primitives_primitive_t *each = &pack->primitives.ptr[j];
            cellar_append(&members, Py_BuildValue("(NNNN)", cellar_text(&each->name), cellar_text(&each->description),
                                                  json_or_none(&each->schema),
                                                  json_or_none(&each->result_schema)));
        }
        cellar_append(&list, members == NULL ? NULL
                                      : Py_BuildValue("(NNNN)", cellar_text(&pack->name), cellar_option_text(&pack->version),
                                                      cellar_text(&pack->description), members));
    }
    cellar_kernel_primitives_list_pack_free(&packs);
    return list;
}

/* fetches() -> [(connector, description, [(name, description, schema, [(column, type)])])] */
static PyObject *bridge_fetches(PyObject *module, PyObject *unused) {
    cellar_kernel_fetches_list_connector_t connectors;
    cellar_kernel_fetches_granted(&connectors);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < connectors.len; i++) {
        cellar_kernel_fetches_connector_t *connector = &connectors.ptr[i];
        PyObject *members = PyList_New(0);
        for (size_t j = 0; members != NULL && j < connector->fetches.len; j++) {
            cellar_kernel_fetches_fetch_t *each = &connector->fetches.ptr[j];
            PyObject *columns = PyList_New(0);
            for (size_t k = 0; columns != NULL && k < each->columns.len; k++) {
                cellar_kernel_fetches_column_t *column = &each->columns.ptr[k];
                cellar_append(&columns, Py_BuildValue("(NN)", cellar_text(&column->name), cellar_text(&column->type_name)));
            }
            cellar_append(&members, columns == NULL ? NULL
                                             : Py_BuildValue("(NNNN)", cellar_text(&each->name),
                                                             cellar_text(&each->description),
                                                             cellar_text(&each->schema), columns));
        }
        cellar_append(&list, members == NULL ? NULL
                                      : Py_BuildValue("(NNN)", cellar_text(&connector->name),
                                                      cellar_text(&connector->description), members));
    }
    cellar_kernel_fetches_list_connector_free(&connectors);
    return list;
}

/* --- Calls that are answered at once --- */

/* None, or the error of a call raised. */
static PyObject *done(bool ok, cellar_kernel_types_call_error_t *error) {
    return ok ? Py_NewRef(Py_None) : raise_call_error(error);
}

/* disk() -> (total, used), in bytes */
static PyObject *bridge_disk(PyObject *module, PyObject *unused) {
    cellar_kernel_session_disk_usage_t usage;
    cellar_kernel_types_call_error_t error;
    cellar_stream_flush();
    if (!cellar_kernel_session_disk(cellar_current_cell(), &usage, &error)) {
        return raise_call_error(&error);
    }
    return Py_BuildValue("(KK)", (unsigned long long)usage.total, (unsigned long long)usage.used);
}

/* process_order() -> str */
static PyObject *bridge_process_order(PyObject *module, PyObject *unused) {
    kernel_string_t order;
    cellar_kernel_types_call_error_t error;
    cellar_stream_flush();
    if (!cellar_kernel_processes_order(cellar_current_cell(), &order, &error)) {
        return raise_call_error(&error);
    }
    PyObject *text = cellar_text(&order);
    kernel_string_free(&order);
    return text;
}

/* process_reply(text) */
static PyObject *bridge_process_reply(PyObject *module, PyObject *text) {
    kernel_string_t reply;
    PyObject *owner;
    cellar_kernel_types_call_error_t error;
    if (!PyUnicode_Check(text)) {
        return PyErr_Format(PyExc_TypeError, "a reply is str, not %.200s", Py_TYPE(text)->tp_name);
    }
    if (cellar_borrow_text(text, &reply, &owner) < 0) {
        return NULL;
    }
    if (reply.len > GLUE_CALL_BYTES_MAX) {
        char message[128];
        Py_DECREF(owner);
        return raise_limit(message, glue_call_too_large(message, sizeof message, reply.len));
    }
    cellar_stream_flush();
    bool ok = cellar_kernel_processes_reply(cellar_current_cell(), &reply, &error);
    Py_DECREF(owner);
    return done(ok, &error);
}

/* make_pipes(count) -> [number] */
static PyObject *bridge_make_pipes(PyObject *module, PyObject *count) {
    unsigned long wanted = PyLong_AsUnsignedLong(count);
    cellar_kernel_processes_list_channel_t pipes;
    cellar_kernel_types_call_error_t error;
    if (PyErr_Occurred()) {
        return NULL;
    }
    cellar_stream_flush();
    if (!cellar_kernel_processes_make_pipes(cellar_current_cell(), (uint32_t)wanted, &pipes, &error)) {
        return raise_call_error(&error);
    }
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < pipes.len; i++) {
        cellar_append(&list, PyLong_FromUnsignedLongLong(pipes.ptr[i]));
    }
    cellar_kernel_processes_list_channel_free(&pipes);
    return list;
}

/* make_box(capacity or None) -> number */
static PyObject *bridge_make_box(PyObject *module, PyObject *capacity) {
    uint64_t room = capacity == Py_None ? 0 : PyLong_AsUnsignedLongLong(capacity), number;
    cellar_kernel_types_call_error_t error;
    if (PyErr_Occurred()) {
        return NULL;
    }
    cellar_stream_flush();
    uint64_t *bound = capacity == Py_None ? NULL : &room;
    if (!cellar_kernel_processes_make_box(cellar_current_cell(), bound, &number, &error)) {
        return raise_call_error(&error);
    }
    return PyLong_FromUnsignedLongLong(number);
}

/* close_pipe(number, whether it is the end that reads) */
static PyObject *bridge_close_pipe(PyObject *module, PyObject *args) {
    unsigned long long pipe;
    int reading;
    cellar_kernel_types_call_error_t error;
    if (!PyArg_ParseTuple(args, "Kp", &pipe, &reading)) {
        return NULL;
    }
    cellar_stream_flush();
    cellar_kernel_processes_pipe_end_t end =
        reading ? CELLAR_KERNEL_PROCESSES_PIPE_END_READING : CELLAR_KERNEL_PROCESSES_PIPE_END_WRITING;
    return done(cellar_kernel_processes_close(cellar_current_cell(), pipe, end, &error), &error);
}

/* count_messages(box) -> int */
static PyObject *bridge_count_messages(PyObject *module, PyObject *number) {
    uint64_t box = PyLong_AsUnsignedLongLong(number), count;
    cellar_kernel_types_call_error_t error;
    if (PyErr_Occurred()) {
        return NULL;
    }
    cellar_stream_flush();
    if (!cellar_kernel_processes_count(cellar_current_cell(), box, &count, &error)) {
        return raise_call_error(&error);
    }
    return PyLong_FromUnsignedLongLong(count);
}

/* forget_channel(number) */
static PyObject *bridge_forget_channel(PyObject *module, PyObject *number) {
    uint64_t channel = PyLong_AsUnsignedLongLong(number);
    cellar_kernel_processes_list_channel_t channels = {&channel, 1};
    cellar_kernel_types_call_error_t error;
    if (PyErr_Occurred()) {
        return NULL;
    }
    cellar_stream_flush();
    return done(cellar_kernel_processes_forget(cellar_current_cell(), &channels, &error), &error);
}

/* Adds the numbers of calls, by the names that they have in the generated list. */
int cellar_add_call_numbers(PyObject *module) {
#define ADD(name)                                                                                                      \
    if (PyModule_AddIntConstant(module, #name, KERNEL_##name) < 0) {                                                   \
        return -1;                                                                                                     \
    }
    KERNEL_CALLS(ADD)
#undef ADD
    return 0;
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
    {"primitives", bridge_primitives, METH_NOARGS, NULL},
    {"fetches", bridge_fetches, METH_NOARGS, NULL},
    {"disk", bridge_disk, METH_NOARGS, NULL},
    {"process_order", bridge_process_order, METH_NOARGS, NULL},
    {"process_reply", bridge_process_reply, METH_O, NULL},
    {"make_pipes", bridge_make_pipes, METH_O, NULL},
    {"make_box", bridge_make_box, METH_O, NULL},
    {"close_pipe", bridge_close_pipe, METH_VARARGS, NULL},
    {"count_messages", bridge_count_messages, METH_O, NULL},
    {"forget_channel", bridge_forget_channel, METH_O, NULL},
    {"set_error_class", bridge_set_error_class, METH_O, NULL},
    {0},
};
