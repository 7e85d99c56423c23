/* A call of the host, from Python's values to its answer. */
#ifndef CELLAR_PYTHON_REQUESTS_H
#define CELLAR_PYTHON_REQUESTS_H

#include "shim.h"

#include "kernel_calls.h"

/* Up to this many objects are borrowed for one call, besides those of its list. */
#define BORROWED_MAX 8

/* Objects whose bytes one call borrows. */
typedef struct {
    PyObject *owners[BORROWED_MAX];
    int count;
    /* The list that a list of the call was made of; see `copies`. */
    PyObject *copies;
} borrowed_t;

/* One call, ready to be made. */
typedef struct {
    enum kernel_call kind;
    union {
        struct {
            /* Pack or connector; empty for tools. */
            kernel_string_t of;
            kernel_string_t name;
            kernel_string_t arguments;
            bool refresh;
        } named;
        cellar_kernel_types_llm_request_t llm;
        cellar_kernel_types_agent_request_t agent;
        kernel_string_t prompt;
        cellar_kernel_types_http_request_t http;
        cellar_kernel_tables_conversion_t conversion;
        cellar_kernel_tables_drawing_t drawing;
        struct {
            kernel_string_t name;
            kernel_string_t path;
            kernel_list_string_t read;
            bool has_version, has_name;
            uint64_t version;
        } dataset;
        cellar_kernel_processes_process_request_t process;
        cellar_kernel_processes_transfer_request_t transfer;
        struct {
            uint64_t number;
            kernel_string_t message;
            bool keep;
            bool has_timeout;
            uint64_t timeout;
        } message;
    } request;
    borrowed_t borrowed;
    /* An array that the request points to, freed with PyMem_Free. */
    void *array;
} call_t;

/* Reads (number of the call, *arguments). Returns -1 with an exception. */
int cellar_prepare_call(call_t *call, PyObject *const *args, Py_ssize_t count);
/* Frees what a call has borrowed. */
void cellar_finish_call(call_t *call);
/* Bytes of the arguments of a call. */
size_t cellar_call_size(const call_t *call);
/* Begins a call; returns its number, or 0 when too many wait. */
uint64_t cellar_start_call(call_t *call);
/* Makes a call: suspends the thread until the answer is there, unless it is there at once. False with an exception if it was
   cut short. */
bool cellar_ask(call_t *call, cellar_kernel_types_answer_t *answer);

#endif
