/* What the C files of the Python guest share. The shim is thin: it carries values across the world's border and asks
   the prelude (Python) for everything else. */
#ifndef CELLAR_PYTHON_SHIM_H
#define CELLAR_PYTHON_SHIM_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "kernel.h"

/* The `_cellar` module: what the prelude is given to work with. */
PyObject *cellar_module_init(void);

/* Cell that the running code belongs to; 0 when there is none. Never fails, leaves exceptions alone. */
uint32_t cellar_current_cell(void);

/* --- values.c: from and to Python. What goes out is allocated with malloc and freed by the bindings. --- */

/* Borrows the UTF-8 of `text`; lone surrogates become escapes, as in `\\ud800`. `*owner` must be released when the borrow ends. */
int cellar_borrow_text(PyObject *text, kernel_string_t *out, PyObject **owner);
/* A copy, for what the bindings free. Returns -1, with no exception set and an empty string, when memory is short. */
int cellar_copy_text(PyObject *text, kernel_string_t *out);
/* The same of a text that needs not be whole; see GLUE_WORD_BYTES_MAX. */
int cellar_copy_word(PyObject *text, kernel_string_t *out);
PyObject *cellar_text(const kernel_string_t *text);
/* The text, or None. */
PyObject *cellar_option_text(const kernel_option_string_t *text);
/* Appends to a list, and drops the list when that fails. Takes over `item`, which may be NULL. */
void cellar_append(PyObject **list, PyObject *item);
/* Turns a list of (mime, str | bytes) into a bundle that the caller frees with kernel_mime_bundle_free. */
int cellar_copy_bundle(PyObject *pairs, kernel_mime_bundle_t *out);
/* (tag, payload), the payload being: of "json" and "text" a str; of "http" (status, url, headers, body); of "table" (number,
   bytes, rows); of "written" the bytes; of "dataset" (name, version, artifact, rows); of "process" (status or None, [(stream,
   text)], None or (kind, message), reply or None); of "transferred" (rest or None, whether it is broken, [(pipe, text, whether
   it has ended)]); of "put" whether it was; of "taken" a str or None. */
PyObject *cellar_response(const cellar_kernel_types_response_t *response);
/* Adds the class `Tool`; see `calls.c`. */
int cellar_add_tool_class(PyObject *module);
/* Adds the numbers of calls. */
int cellar_add_call_numbers(PyObject *module);
/* (kind, message) */
PyObject *cellar_call_error(const cellar_kernel_types_call_error_t *error);
/* [(number, whether it succeeded, answer)], but for those without a number. */
PyObject *cellar_completions(const kernel_list_completion_t *completions);
/* Reads the (finished, wake_at) of the prelude. */
int cellar_copy_step(PyObject *result, kernel_step_t *step);

/* --- zones.c: local time. --- */

PyObject *cellar_set_zone(PyObject *module, PyObject *args);

/* --- stream.c: standard output and error, gathered before they go to the host. --- */

PyObject *cellar_stream_write(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *cellar_stream_write_bytes(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *cellar_stream_write_exactly(PyObject *module, PyObject *unused);
/* Texts that stand for bytes as they cross the host, and the bytes again; see `utf8_escaped`. */
PyObject *cellar_escape_bytes(PyObject *module, PyObject *data);
PyObject *cellar_unescape_text(PyObject *module, PyObject *text);
/* Sends what is gathered. Safe at any time. */
void cellar_stream_flush(void);
/* Sends what is gathered when it has waited for too long. */
void cellar_stream_flush_if_old(uint64_t now);

/* Forgets times and old text, so that they are not baked. */
void cellar_stream_reset(void);

/* --- poll.c: stopping a cell softly. --- */

/* Says whether user code runs: only then may the poll raise. Returns what it was. */
int cellar_poll_enable(int enable);
/* (timeout, interrupted, fuel, output): the exception classes for the reasons, in the world's order. */
PyObject *cellar_poll_set_classes(PyObject *module, PyObject *classes);
/* The set of cells that have not ended. What is left over of others runs under number 0. */
PyObject *cellar_poll_set_live(PyObject *module, PyObject *live);
/* Whether the running code is the machinery around that of cells, which is neither stopped nor switched away from: what it notes it
   notes whole. */
int cellar_poll_in_machinery(void);
/* How many cells have not ended. */
size_t cellar_poll_live_count(void);

/* Stops code that runs for no cell after so many nanoseconds, as if its time were up; 0 lifts the limit. */
void cellar_poll_limit(uint64_t nanoseconds);
/* Says that the cell was told to stop in another way: it has time for its `finally` blocks. */
void cellar_poll_note_stop(void);
/* Forgets what was measured: it is not baked, and says nothing about the next cell. */
void cellar_poll_reset(void);
/* 1 with the exception set when the cell must stop, wherever the code stands. */
int cellar_raise_if_stopped(void);

/* What the poll keeps for each thread. */
struct cellar_poll_state {
    /* User code runs. */
    int enabled;
    /* The interpreter was told to raise. */
    int is_raising;
    /* When the code was last told to stop. It is told again, but first has time for its `finally` blocks. */
    uint64_t last_raise;
};

/* That of the running thread. */
extern struct cellar_poll_state cellar_poll_state;

/* --- threads.c --- */

/* The cell that has started the running thread; 0 in the main thread. */
uint32_t cellar_thread_cell(void);
/* Whether the running thread is the only one. */
bool cellar_thread_is_alone(void);
/* Gives others a turn when the running thread has had its time. */
void cellar_threads_take_turns(void);
/* Lets others run until then, or the host. The interpreter lock is not held. */
void cellar_threads_sleep(uint64_t until);
/* Lets others run until a call has ended. False when the wait was cut short. */
bool cellar_threads_call(uint64_t call, uint64_t until, kernel_completion_t *completion);
/* Gives the end of a call to the thread that waits for it, if one does. */
bool cellar_threads_deliver(kernel_completion_t *completion);
/* Wakes the threads of a cell that wait: it must stop. */
void cellar_threads_stop(uint32_t cell);
/* Wakes the main thread, if it waits: a signal is to be handled there. */
void cellar_threads_signal(void);
/* Runs the work of an entry in a thread of the guest's own, so that the host gets its turn where that waits, if the entry may
   return before. False when it has not ended: it goes on in later entries, and must not touch anything of this one. */
bool cellar_visit(void (*work)(void *), void *argument, bool may_return);
/* From here on the guest is entered by visits: it is baked. */
void cellar_visits_begin(void);
/* Called in the thread of a visit that is not the main one, as it begins and ends. */
void cellar_note_visit(bool begins);
/* Whether the entry that the running thread was made for has returned. */
bool cellar_visit_is_over(void);
/* Notes whether the entry is for no cell: then nothing runs but its own thread, which keeps the host waiting. */
void cellar_threads_hold(bool hold);

extern PyMethodDef cellar_thread_methods[];

/* --- bridge.c --- */

extern PyMethodDef cellar_bridge_methods[];
extern PyMethodDef cellar_call_methods[];

/* --- output_methods.c --- */

extern PyMethodDef cellar_output_methods[];

/* --- seal.c --- */

/* Makes what is allocated from here on lie side by side. For the end of baking. */
void cellar_seal_memory(void);

/* --- immortal.c --- */

PyObject *cellar_immortalize(PyObject *module, PyObject *objects);

/* --- guard.c: what the prelude runs on stays as it was baked. --- */

PyObject *cellar_guard(PyObject *module, PyObject *args);
PyObject *cellar_guard_mend(PyObject *module, PyObject *unused);
/* Watches what was remembered, from the end of baking on. -1 with an exception set on failure. */
int cellar_guard_begin(void);
/* Puts back what is unusable, and lays the hooks of cells aside; those of watchers end when a new cell begins. */
void cellar_guard_enter(bool is_new_cell);
/* Lays the hooks of cells aside, for the prelude to run, and takes them up again, for cells. */
void cellar_guard_hold(void);
void cellar_guard_release(void);
/* Whether they are laid aside; and makes it so, or not, for the thread that runs next. The interpreter lock need not be held. */
bool cellar_guard_is_held(void);
void cellar_guard_switch(bool hold);
/* Ends what traces and profiles code, unless it is a profiler in C. */
void cellar_guard_end_watchers(void);

/* --- slots.c --- */

/* Makes CPython count recursion, and stop loops, that it does not by itself. -1 with an exception set on failure. */
int cellar_wrap_slots(void);

/* --- alarm.c --- */

/* Makes the alarm go off when it is due. */
void cellar_alarm_check(uint64_t now);
/* The earlier of a time and of when the alarm is due. */
uint64_t cellar_alarm_before(uint64_t until);
PyObject *cellar_set_alarm(PyObject *module, PyObject *args);
PyObject *cellar_alarm(PyObject *module, PyObject *unused);

/* --- scrypt.c --- */

PyObject *cellar_scrypt_mix(PyObject *module, PyObject *args);

/* --- likeness.c: what programs can tell of the machine is as on 64-bit Linux. --- */

/* -1 with an exception set on failure. */
int cellar_install_likeness(void);
PyObject *cellar_error_classes(PyObject *module, PyObject *unused);
PyObject *cellar_set_errors(PyObject *module, PyObject *args);
PyObject *cellar_set_long_length(PyObject *module, PyObject *function);
PyObject *cellar_set_modes(PyObject *module, PyObject *dict);

/* --- binding.c: names that cells bind. --- */

/* trace_names(cell, names): notes from now on the names that code of the cell binds in the dict, and deletes. */
PyObject *cellar_trace_names(PyObject *module, PyObject *args);
/* traced_names(cell): the set of these names, and an end of it; None for a cell that is not traced. */
PyObject *cellar_traced_names(PyObject *module, PyObject *cell);
/* bound(cell, bound, deleted): tells the host, of lists of texts. */
PyObject *cellar_bound(PyObject *module, PyObject *args);

/* --- columnar.c --- */

PyObject *cellar_take(PyObject *module, PyObject *args);
PyObject *cellar_texts(PyObject *module, PyObject *args);
PyObject *cellar_fill_texts(PyObject *module, PyObject *args);
PyObject *cellar_repeated(PyObject *module, PyObject *args);
PyObject *cellar_fill_repeated(PyObject *module, PyObject *args);

/* --- plain.c --- */

#define CELLAR_JSON_BYTES_MAX 512
/* A JSON text that is simple: short, and of ASCII. */
typedef struct {
    char bytes[CELLAR_JSON_BYTES_MAX];
    size_t length;
} cellar_json_t;

/* Makes the text of an object with these members; `names` may be NULL. False if it is not simple. */
bool cellar_json_members(cellar_json_t *text, PyObject *names, PyObject *const *values);
/* What the text stands for; NULL without an exception if that is not simple. */
PyObject *cellar_json_value(const char *bytes, size_t length);
/* to_json(value) -> its JSON text, or None if it is not simple. */
PyObject *cellar_to_json(PyObject *module, PyObject *value);
/* from_json(text) -> its value, or NotImplemented if that is not simple. */
PyObject *cellar_from_json(PyObject *module, PyObject *text);

/* --- compile.c --- */

/* (source, filename) -> (body or None, expression or None): the cell's code, its last expression apart. */
PyObject *cellar_compile(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
