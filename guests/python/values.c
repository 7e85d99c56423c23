/* Values on their way between Python and the world. */
#include "shim.h"

#include <stdlib.h>
#include <string.h>

#include "glue.h"

int cellar_borrow_text(PyObject *text, kernel_string_t *out, PyObject **owner) {
    Py_ssize_t length;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &length);
    if (bytes != NULL) {
        *owner = Py_NewRef(text);
    } else {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
            return -1;
        }
        PyErr_Clear();
        *owner = PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
        if (*owner == NULL) {
            return -1;
        }
        bytes = PyBytes_AS_STRING(*owner);
        length = PyBytes_GET_SIZE(*owner);
    }
    out->ptr = (uint8_t *)bytes;
    out->len = (size_t)length;
    return 0;
}

static int copy_bytes(const void *bytes, size_t length, uint8_t **out, size_t *out_length) {
    *out = malloc(length + 1);
    *out_length = *out == NULL ? 0 : length;
    if (*out == NULL) {
        return -1;
    }
    memcpy(*out, bytes, length);
    return 0;
}

/* Copies a text, or as much of it as `room` bytes hold. */
static int copy_prefix(PyObject *text, size_t room, kernel_string_t *out) {
    PyObject *owner;
    kernel_string_t borrowed;
    out->ptr = NULL;
    out->len = 0;
    if (text == NULL || !PyUnicode_Check(text) || cellar_borrow_text(text, &borrowed, &owner) < 0) {
        PyErr_Clear();
        return -1;
    }
    size_t length = utf8_prefix((const char *)borrowed.ptr, borrowed.len, room);
    int failed = copy_bytes(borrowed.ptr, length, &out->ptr, &out->len);
    Py_DECREF(owner);
    return failed;
}

int cellar_copy_text(PyObject *text, kernel_string_t *out) {
    return copy_prefix(text, SIZE_MAX, out);
}

int cellar_copy_word(PyObject *text, kernel_string_t *out) {
    return copy_prefix(text, GLUE_WORD_BYTES_MAX, out);
}

PyObject *cellar_text(const kernel_string_t *text) {
    return PyUnicode_DecodeUTF8((const char *)text->ptr, (Py_ssize_t)text->len, "replace");
}

static int copy_mime_data(PyObject *data, cellar_kernel_types_mime_data_t *out) {
    if (PyUnicode_Check(data)) {
        out->tag = CELLAR_KERNEL_TYPES_MIME_DATA_TEXT;
        if (cellar_copy_text(data, &out->val.text) < 0) {
            PyErr_NoMemory();
            return -1;
        }
        return 0;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    out->tag = CELLAR_KERNEL_TYPES_MIME_DATA_BINARY;
    int failed = copy_bytes(view.buf, (size_t)view.len, &out->val.binary.ptr, &out->val.binary.len);
    PyBuffer_Release(&view);
    if (failed) {
        PyErr_NoMemory();
    }
    return failed;
}

int cellar_copy_bundle(PyObject *pairs, kernel_mime_bundle_t *out) {
    if (!PyList_Check(pairs)) {
        PyErr_SetString(PyExc_TypeError, "a bundle is a list");
        return -1;
    }
    Py_ssize_t count = PyList_GET_SIZE(pairs);
    out->len = 0;
    out->ptr = calloc((size_t)count + 1, sizeof *out->ptr);
    if (out->ptr == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *mime, *data;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(pairs, i), "UO", &mime, &data)
            || copy_mime_data(data, &out->ptr[i].f1) < 0) {
            kernel_mime_bundle_free(out);
            return -1;
        }
        cellar_copy_text(mime, &out->ptr[i].f0);
        out->len = (size_t)i + 1;
    }
    return 0;
}

static PyObject *http_response(const cellar_kernel_types_http_response_t *http) {
    PyObject *headers = PyList_New(0);
    for (size_t i = 0; headers != NULL && i < http->headers.len; i++) {
        const kernel_tuple2_string_string_t *pair = &http->headers.ptr[i];
        PyObject *item = Py_BuildValue("(NN)", cellar_text(&pair->f0), cellar_text(&pair->f1));
        if (item == NULL || PyList_Append(headers, item) < 0) {
            Py_CLEAR(headers);
        }
        Py_XDECREF(item);
    }
    if (headers == NULL) {
        return NULL;
    }
    return Py_BuildValue("(s(iNNy#))", "http", (int)http->status, cellar_text(&http->url), headers,
                         (const char *)http->body.ptr, (Py_ssize_t)http->body.len);
}

/* A text, and what it is. */
static PyObject *tagged(PyObject **tag, const char *name, const kernel_string_t *payload) {
    if (*tag == NULL) {
        *tag = PyUnicode_InternFromString(name);
    }
    PyObject *text = cellar_text(payload), *pair = *tag != NULL && text != NULL ? PyTuple_Pack(2, *tag, text) : NULL;
    Py_XDECREF(text);
    return pair;
}

PyObject *cellar_option_text(const kernel_option_string_t *text) {
    return text->is_some ? cellar_text(&text->val) : Py_NewRef(Py_None);
}

void cellar_append(PyObject **list, PyObject *item) {
    if (item == NULL || PyList_Append(*list, item) < 0) {
        Py_CLEAR(*list);
    }
    Py_XDECREF(item);
}

static PyObject *process_end(const cellar_kernel_types_process_end_t *end) {
    static const char *const kinds[] = {
        [CELLAR_KERNEL_TYPES_PROCESS_FAILURE_KIND_TIMEOUT] = "timeout",
        [CELLAR_KERNEL_TYPES_PROCESS_FAILURE_KIND_OUTPUT] = "output",
        [CELLAR_KERNEL_TYPES_PROCESS_FAILURE_KIND_NOT_STARTED] = "not-started",
        [CELLAR_KERNEL_TYPES_PROCESS_FAILURE_KIND_KILLED] = "killed",
    };
    PyObject *status = end->status.is_some ? PyLong_FromLong(end->status.val) : Py_NewRef(Py_None);
    PyObject *output = PyList_New(0);
    for (size_t i = 0; output != NULL && i < end->output.len; i++) {
        bool is_error = end->output.ptr[i].f0 == CELLAR_KERNEL_TYPES_STREAM_NAME_STDERR;
        cellar_append(&output, Py_BuildValue("(iN)", is_error ? 2 : 1, cellar_text(&end->output.ptr[i].f1)));
    }
    PyObject *failure = end->failure.is_some
        ? Py_BuildValue("(sN)", kinds[end->failure.val.kind], cellar_text(&end->failure.val.message))
        : Py_NewRef(Py_None);
    return Py_BuildValue("(s(NNNN))", "process", status, output, failure, cellar_option_text(&end->reply));
}

static PyObject *transferred(const cellar_kernel_types_transferred_t *done) {
    PyObject *read = PyList_New(0);
    for (size_t i = 0; read != NULL && i < done->read.len; i++) {
        const cellar_kernel_types_pipe_text_t *piece = &done->read.ptr[i];
        cellar_append(&read, Py_BuildValue("(KNO)", (unsigned long long)piece->pipe, cellar_text(&piece->text),
                                    piece->ended ? Py_True : Py_False));
    }
    return Py_BuildValue("(s(NON))", "transferred", cellar_option_text(&done->rest), done->broken ? Py_True : Py_False, read);
}

PyObject *cellar_response(const cellar_kernel_types_response_t *response) {
    static PyObject *json, *text;
    const cellar_kernel_types_lent_table_t *table = &response->val.table;
    const cellar_kernel_types_dataset_version_t *dataset = &response->val.dataset;
    switch (response->tag) {
    case CELLAR_KERNEL_TYPES_RESPONSE_JSON:
        return tagged(&json, "json", &response->val.json);
    case CELLAR_KERNEL_TYPES_RESPONSE_TEXT:
        return tagged(&text, "text", &response->val.text);
    case CELLAR_KERNEL_TYPES_RESPONSE_TABLE:
        return Py_BuildValue("(s(KKK))", "table", (unsigned long long)table->table, (unsigned long long)table->bytes,
                             (unsigned long long)table->rows);
    case CELLAR_KERNEL_TYPES_RESPONSE_WRITTEN:
        return Py_BuildValue("(sK)", "written", (unsigned long long)response->val.written);
    case CELLAR_KERNEL_TYPES_RESPONSE_DATASET:
        return Py_BuildValue("(s(NKNK))", "dataset", cellar_text(&dataset->name), (unsigned long long)dataset->version,
                             cellar_text(&dataset->artifact), (unsigned long long)dataset->rows);
    case CELLAR_KERNEL_TYPES_RESPONSE_PROCESS:
        return process_end(&response->val.process);
    case CELLAR_KERNEL_TYPES_RESPONSE_TRANSFERRED:
        return transferred(&response->val.transferred);
    case CELLAR_KERNEL_TYPES_RESPONSE_PUT:
        return Py_BuildValue("(sO)", "put", response->val.put ? Py_True : Py_False);
    case CELLAR_KERNEL_TYPES_RESPONSE_TAKEN:
        return Py_BuildValue("(sN)", "taken", cellar_option_text(&response->val.taken));
    default:
        return http_response(&response->val.http);
    }
}

PyObject *cellar_call_error(const cellar_kernel_types_call_error_t *error) {
    static const char *const kinds[] = {"failed", "denied", "unknown", "invalid", "cancelled", "limit"};
    const char *kind = error->kind < 6 ? kinds[error->kind] : kinds[0];
    return Py_BuildValue("(sN)", kind, cellar_text(&error->message));
}

static void copy_option_text(PyObject *text, kernel_option_string_t *out) {
    out->is_some = text != Py_None;
    if (out->is_some) {
        cellar_copy_word(text, &out->val);
    }
}

static void copy_option_number(PyObject *number, kernel_option_u32_t *out) {
    out->is_some = number != Py_None;
    if (out->is_some) {
        out->val = (uint32_t)PyLong_AsUnsignedLong(number);
    }
}

/* (kind, reason, name, message, line, column, snippet, pointer, traceback) */
static int copy_failure(PyObject *record, cellar_kernel_types_failure_t *out) {
    int kind, reason;
    PyObject *name, *message, *line, *column, *snippet, *pointer, *traceback;
    if (!PyArg_ParseTuple(record, "iiUUOOOOU", &kind, &reason, &name, &message, &line, &column, &snippet, &pointer,
                          &traceback)) {
        return -1;
    }
    out->kind.tag = (uint8_t)kind;
    out->kind.val.stopped = (uint8_t)reason;
    cellar_copy_word(name, &out->name);
    cellar_copy_word(message, &out->message);
    copy_option_number(line, &out->line);
    copy_option_number(column, &out->column);
    copy_option_text(snippet, &out->snippet);
    copy_option_text(pointer, &out->pointer);
    cellar_copy_word(traceback, &out->traceback);
    return PyErr_Occurred() ? -1 : 0;
}

static int copy_outcome(PyObject *outcome, cellar_kernel_types_outcome_t *out) {
    if (outcome == Py_None) {
        out->tag = CELLAR_KERNEL_TYPES_OUTCOME_COMPLETE;
        return 0;
    }
    if (PyLong_Check(outcome)) {
        out->tag = CELLAR_KERNEL_TYPES_OUTCOME_EXITED;
        out->val.exited = (int32_t)PyLong_AsLong(outcome);
        return PyErr_Occurred() ? -1 : 0;
    }
    out->tag = CELLAR_KERNEL_TYPES_OUTCOME_FAILED;
    return copy_failure(outcome, &out->val.failed);
}

int cellar_copy_step(PyObject *result, kernel_step_t *step) {
    PyObject *finished, *wake_at;
    if (!PyArg_ParseTuple(result, "O!O", &PyList_Type, &finished, &wake_at)) {
        return -1;
    }
    Py_ssize_t count = PyList_GET_SIZE(finished);
    step->finished.len = 0;
    step->finished.ptr = count > 0 ? calloc((size_t)count, sizeof *step->finished.ptr) : NULL;
    if (count > 0 && step->finished.ptr == NULL) {
        __builtin_trap(); /* a cell whose end is never told would hang its session */
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *outcome;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(finished, i), "IO", &step->finished.ptr[i].f0, &outcome)
            || copy_outcome(outcome, &step->finished.ptr[i].f1) < 0) {
            return -1;
        }
        glue_flush_cell(step->finished.ptr[i].f0);
        step->finished.len = (size_t)i + 1;
    }
    step->wake_at.is_some = wake_at != Py_None;
    step->wake_at.val = step->wake_at.is_some ? PyLong_AsUnsignedLongLong(wake_at) : 0;
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *cellar_completions(const kernel_list_completion_t *completions) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < completions->len; i++) {
        const kernel_completion_t *completion = &completions->ptr[i];
        if (completion->call == 0) {
            continue;
        }
        PyObject *answer = completion->response.is_err ? cellar_call_error(&completion->response.val.err)
                                                       : cellar_response(&completion->response.val.ok);
        PyObject *item = answer != NULL ? Py_BuildValue("(KON)", (unsigned long long)completion->call,
                                                        completion->response.is_err ? Py_False : Py_True, answer)
                                        : NULL;
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}
