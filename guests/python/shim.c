/* The kernel world's exports: each crosses into the prelude and back. */
#include "shim.h"

#include <stdlib.h>
#include <string.h>

#include "glue.h"
#include "prelude.h"

/* Extension modules that are linked in besides CPython's own, from the build; dotted names are allowed. */
extern struct _inittab cellar_extensions[];

/* Memory that is given back when Python runs out of it: the failure can still be told, and later cells have room to
   free what fills the memory. Each piece is as much as Python's object allocator takes at once. A piece is set aside
   again when as much remains. */
#define PIECE_BYTES ((1u << 20) + 256)
#define PIECES 4
/* So many are given back at a time. */
#define PIECES_A_TIME 2
static void *reserve[PIECES];

static void set_reserve_aside(void) {
    for (int i = 0; i < PIECES; i++) {
        void *room = reserve[i] == NULL ? malloc(2 * PIECE_BYTES) : NULL;
        if (room != NULL) {
            free(room);
            reserve[i] = malloc(PIECE_BYTES);
        } else if (reserve[i] == NULL) {
            return;
        }
    }
}

static PyObject *cell_variable;
/* The prelude's module of entry points, and those. */
static PyObject *entry;
enum entry_point {
    CONFIGURE, RESEED, SEED, START, RESUME, GO_ON, INTERRUPT, RECOVER, RESET, NOTE_VISIT, COMPLETE, IS_COMPLETE, INSPECT,
    VARIABLES, VALUE,
};
static const char *const entry_names[] = {
    "configure", "reseed", "seed", "start", "resume", "go_on", "interrupt", "recover", "reset", "note_visit", "complete",
    "is_complete", "inspect", "variables", "value",
};
static PyObject *entry_points[sizeof entry_names / sizeof *entry_names];

uint32_t cellar_current_cell(void) {
    PyObject *value = NULL;
    if (cell_variable == NULL || PyContextVar_Get(cell_variable, NULL, &value) < 0 || value == NULL) {
        /* A thread begins with an empty context. */
        return cellar_thread_cell();
    }
    uint32_t cell = (uint32_t)PyLong_AsUnsignedLong(value);
    Py_DECREF(value);
    return cell;
}

/* Gives some of the reserve back; false when there is none. */
static bool give_back(void) {
    int given = 0;
    for (int i = PIECES - 1; i >= 0 && given < PIECES_A_TIME; i--) {
        if (reserve[i] != NULL) {
            free(reserve[i]);
            reserve[i] = NULL;
            given++;
        }
    }
    return given > 0;
}

/* Python needs memory for its first frames and a small cell's code, before it could ask for the reserve. */
#define FRAMES_BYTES (256u << 10)

static void make_room_for_frames(void) {
    void *room;
    while ((room = malloc(FRAMES_BYTES)) == NULL && give_back()) {
    }
    free(room);
}

/* Comes before anything is allocated for a call of the prelude. */
static void prepare_memory(void) {
    set_reserve_aside();
    make_room_for_frames();
}

/* release_reserve() -> whether there was any left */
static PyObject *release_reserve(PyObject *module, PyObject *unused) {
    return PyBool_FromLong(give_back());
}

static PyMethodDef own_methods[] = {
    {"alarm", cellar_alarm, METH_NOARGS, NULL},
    {"error_classes", cellar_error_classes, METH_NOARGS, NULL},
    {"guard", cellar_guard, METH_VARARGS, NULL},
    {"immortalize", cellar_immortalize, METH_O, NULL},
    {"mend", cellar_guard_mend, METH_NOARGS, NULL},
    {"scrypt_mix", cellar_scrypt_mix, METH_VARARGS, NULL},
    {"set_alarm", cellar_set_alarm, METH_VARARGS, NULL},
    {"set_errors", cellar_set_errors, METH_VARARGS, NULL},
    {"set_long_length", cellar_set_long_length, METH_O, NULL},
    {"set_modes", cellar_set_modes, METH_O, NULL},
    {"release_reserve", release_reserve, METH_NOARGS, NULL},
    {0},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_cellar", .m_size = -1};

PyObject *cellar_module_init(void) {
    PyObject *module = PyModule_Create(&definition);
    cell_variable = PyContextVar_New("cellar_cell", NULL);
    if (module == NULL || cell_variable == NULL || PyModule_AddFunctions(module, own_methods) < 0
        || PyModule_AddFunctions(module, cellar_bridge_methods) < 0
        || PyModule_AddFunctions(module, cellar_call_methods) < 0
        || PyModule_AddFunctions(module, cellar_output_methods) < 0
        || PyModule_AddFunctions(module, cellar_thread_methods) < 0
        || PyModule_AddObjectRef(module, "cell", cell_variable) < 0 || cellar_add_tool_class(module) < 0
        || cellar_add_call_numbers(module) < 0) {
        return NULL;
    }
    return module;
}

/* --- Start-up --- */

/* Tells the host's log of what was raised: while a guest is baked nobody reads its standard error. */
static void log_exception(void) {
    PyObject *raised = PyErr_GetRaisedException();
    PyObject *module = raised != NULL ? PyImport_ImportModule("traceback") : NULL;
    PyObject *lines = module != NULL ? PyObject_CallMethod(module, "format_exception", "O", raised) : NULL;
    for (Py_ssize_t i = 0; lines != NULL && i < PyList_GET_SIZE(lines); i++) {
        const char *line = PyUnicode_AsUTF8(PyList_GET_ITEM(lines, i));
        if (line != NULL) {
            glue_log(line);
        }
    }
}

static _Noreturn void give_up(const char *what) {
    glue_log(what);
    log_exception();
    __builtin_trap();
}

static void start_interpreter(void) {
    PyPreConfig before;
    PyPreConfig_InitIsolatedConfig(&before);
    before.utf8_mode = 1;
    if (PyStatus_Exception(Py_PreInitialize(&before))) {
        give_up("the interpreter does not pre-initialise");
    }
    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    config.install_signal_handlers = 0;
    config.write_bytecode = 0;
    config.site_import = 0;
    config.use_hash_seed = 1;
    config.hash_seed = 1;
    config.module_search_paths_set = 1;
    PyConfig_SetString(&config, &config.home, L"/usr");
    PyConfig_SetString(&config, &config.program_name, L"python3");
    PyConfig_SetString(&config, &config.executable, L"");
    PyConfig_SetString(&config, &config.stdlib_dir, L"/usr/lib/python3.13");
    PyWideStringList_Append(&config.module_search_paths, L"/usr/lib/python3.13");
    PyStatus status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (PyStatus_Exception(status)) {
        give_up(status.err_msg != NULL ? status.err_msg : "the interpreter does not start");
    }
}

/* Makes the module of a file of the prelude, which has built-in names of its own: cells cannot replace them. */
static void make_module(const char *name, PyObject *builtins) {
    PyObject *module = PyImport_AddModuleRef(name);
    if (module == NULL || PyModule_AddObjectRef(module, "__builtins__", builtins) < 0) {
        give_up(name);
    }
    Py_DECREF(module);
}

/* Makes a package that no path finder finds: its modules are part of the image. */
static PyObject *make_package(const char *name) {
    PyObject *package = PyImport_AddModuleRef(name);
    PyObject *path = PyList_New(0);
    if (package == NULL || path == NULL || PyModule_AddObject(package, "__path__", path) < 0) {
        give_up(name);
    }
    return package;
}

/* Makes a module an attribute of the package that it lies in, as an import does. */
static void add_to_package(const char *name, PyObject *module) {
    const char *dot = strrchr(name, '.');
    char package_name[64];
    snprintf(package_name, sizeof package_name, "%.*s", (int)(dot - name), name);
    PyObject *package = PyImport_AddModuleRef(package_name);
    if (package == NULL || PyObject_SetAttrString(package, dot + 1, module) < 0) {
        give_up(name);
    }
    Py_DECREF(package);
}

static PyObject *run_file(const struct cellar_prelude_file *file, const char *name, PyObject *builtins) {
    char path[80];
    snprintf(path, sizeof path, "/cellar/prelude/%s", file->path);
    make_module(name, builtins);
    PyObject *code = Py_CompileString(file->source, path, Py_file_input);
    PyObject *module = code != NULL ? PyImport_ExecCodeModuleEx(name, code, path) : NULL;
    if (module == NULL) {
        give_up(name);
    }
    Py_DECREF(code);
    return module;
}

static void import_prelude(void) {
    PyObject *package = make_package("_cellar_prelude");
    PyObject *builtins = PyDict_Copy(PyEval_GetBuiltins());
    if (builtins == NULL) {
        give_up("the prelude has no built-in names");
    }
    PyModule_AddStringConstant(package, "LIBRARY", cellar_library_digest);
    Py_DECREF(package);
    for (const struct cellar_prelude_file *file = cellar_prelude; file->name != NULL; file++) {
        char name[64];
        snprintf(name, sizeof name, "_cellar_prelude.%s", file->name);
        PyObject *module = file->source != NULL ? run_file(file, name, builtins) : make_package(name);
        add_to_package(name, module);
        Py_XSETREF(entry, module);
    }
    Py_DECREF(builtins);
}

/* Clears what calls have left on the stack, which differs from one bake to the next. The stack grows down to address 0;
   what is in use ends where the local variable lies. */
__attribute__((noinline)) static void clear_stack(void) {
    volatile char here = 0;
    const uintptr_t in_use = 1024;
    uintptr_t end = (uintptr_t)&here - in_use;
    for (volatile char *byte = (volatile char *)(uintptr_t)in_use; (uintptr_t)byte < end; byte++) {
        *byte = 0;
    }
}

/* Before the C library reads a clock in a constructor of its own. */
__attribute__((constructor(1))) static void begin_baking(void) {
    glue_baking = true;
}

void exports_kernel_init(void) {
    if (entry != NULL) {
        return;
    }
    cellar_poll_reset();
    PyImport_AppendInittab("_cellar", cellar_module_init);
    PyImport_ExtendInittab(cellar_extensions);
    start_interpreter();
    if (cellar_wrap_slots() < 0 || cellar_install_likeness() < 0) {
        give_up("the slots of CPython's types cannot be wrapped");
    }
    import_prelude();
    cellar_stream_flush();
    glue_flush();
    cellar_poll_reset();
    cellar_stream_reset();
    cellar_seal_memory();
    PyObject *renewed = PyObject_CallMethod(entry, "renew", NULL);
    if (renewed == NULL) {
        give_up("entry");
    }
    Py_DECREF(renewed);
    for (size_t i = 0; i < sizeof entry_names / sizeof *entry_names; i++) {
        if ((entry_points[i] = PyObject_GetAttrString(entry, entry_names[i])) == NULL) {
            give_up(entry_names[i]);
        }
    }
    if (cellar_guard_begin() < 0) {
        give_up("what was baked cannot be watched");
    }
    /* What was allocated before memory was sealed cannot be given back. */
    set_reserve_aside();
    clear_stack();
    cellar_visits_begin();
    glue_baking = false;
}

/* --- Entering the prelude --- */

/* Calls an entry point; steals the arguments. NULL with an exception set on failure. */
static PyObject *enter_for(bool cells, enum entry_point point, PyObject *arguments) {
    cellar_guard_enter(point == START);
    cellar_threads_hold(!cells);
    PyObject *result = arguments != NULL ? PyObject_CallObject(entry_points[point], arguments) : NULL;
    Py_XDECREF(arguments);
    cellar_poll_enable(0);
    cellar_guard_hold();
    cellar_stream_flush();
    return result;
}

/* For cells, whose threads have their turns. */
static PyObject *enter(enum entry_point point, PyObject *arguments) {
    return enter_for(true, point, arguments);
}

/* What is left to say when even the prelude failed. */
static void describe_exception(cellar_kernel_types_failure_t *failure) {
    give_back();
    PyObject *raised = PyErr_GetRaisedException();
    memset(failure, 0, sizeof *failure);
    int memory = raised != NULL && PyErr_GivenExceptionMatches(raised, PyExc_MemoryError);
    failure->kind.tag = memory ? CELLAR_KERNEL_TYPES_FAILURE_KIND_MEMORY : CELLAR_KERNEL_TYPES_FAILURE_KIND_RAISED;
    const char *name = raised != NULL ? Py_TYPE(raised)->tp_name : "SystemError";
    PyObject *text = raised != NULL ? PyObject_Str(raised) : NULL;
    failure->name = glue_copy(name, strlen(name));
    cellar_copy_text(text, &failure->message);
    failure->traceback = glue_copy(name, strlen(name));
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(raised);
}

/* Copies what an entry point returned, if it is a step. Steals the result. */
static bool copy_step(PyObject *result, kernel_step_t *step) {
    memset(step, 0, sizeof *step);
    bool ok = result != NULL && cellar_copy_step(result, step) == 0;
    Py_XDECREF(result);
    return ok;
}

/* After a failure of the prelude: puts back all that was baked, and has it end the cell with what was raised. */
static PyObject *recover(uint32_t cell) {
    give_back();
    PyObject *raised = PyErr_GetRaisedException();
    if (raised == NULL) {
        return NULL;
    }
    cellar_guard_mend(NULL, NULL);
    PyObject *result = enter(RECOVER, Py_BuildValue("(IO)", cell, raised));
    if (result == NULL) {
        PyErr_Clear();
        PyErr_SetRaisedException(raised);
    } else {
        Py_DECREF(raised);
    }
    return result;
}

/* Turns what an entry point returned into a step. `cell` is the one to blame for a failure of the prelude itself. Where the
   entry has returned meanwhile, the prelude has kept what has ended for a later one. */
static void conclude(PyObject *result, uint32_t cell, kernel_step_t *step) {
    if (cellar_visit_is_over()) {
        if (result == NULL && (result = recover(cell)) == NULL) {
            glue_log("the prelude failed after its entry had returned");
            PyErr_Clear();
        }
        Py_XDECREF(result);
        return;
    }
    if (copy_step(result, step) || copy_step(recover(cell), step)) {
        return;
    }
    cellar_kernel_types_outcome_t outcome = {.tag = CELLAR_KERNEL_TYPES_OUTCOME_FAILED};
    describe_exception(&outcome.val.failed);
    if (cell == 0) {
        glue_log("the prelude failed outside of a cell");
        cellar_kernel_types_outcome_free(&outcome);
        return;
    }
    glue_finish(cell, &outcome);
    glue_step(step, NULL);
}

static PyObject *texts_of(const kernel_list_string_t *texts) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < texts->len; i++) {
        PyObject *text = cellar_text(&texts->ptr[i]);
        if (text == NULL || PyList_Append(list, text) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(text);
    }
    return list;
}

/* --- Entries. Each is a visit: its work gets what it needs as one argument, which lies where the host came in, and is read
   before any code of cells runs. --- */

void cellar_note_visit(bool begins) {
    PyObject *result = PyObject_CallOneArg(entry_points[NOTE_VISIT], begins ? Py_True : Py_False);
    if (result == NULL) {
        log_exception();
        PyErr_Clear();
    }
    Py_XDECREF(result);
}

static void go_on(void *step) {
    conclude(enter(GO_ON, PyTuple_New(0)), 0, step);
}

/* Enters for cells, and again while what was entered for waits, until there is a step to tell. */
static void take_step(void (*work)(void *), void *argument, kernel_step_t *step) {
    prepare_memory();
    while (!cellar_visit(work, argument, true)) {
        prepare_memory();
        work = go_on;
        argument = step;
    }
}

/* Enters for no cell, until the work is done. */
static void do_now(void (*work)(void *), void *argument) {
    prepare_memory();
    cellar_visit(work, argument, false);
}

static void configure(void *argument) {
    kernel_configuration_t *configuration = argument;
    glue_configure(configuration);
    PyObject *environment = PyDict_New();
    for (size_t i = 0; environment != NULL && i < configuration->environment.len; i++) {
        PyObject *name = cellar_text(&configuration->environment.ptr[i].f0);
        PyObject *value = cellar_text(&configuration->environment.ptr[i].f1);
        if (name == NULL || value == NULL || PyDict_SetItem(environment, name, value) < 0) {
            Py_CLEAR(environment);
        }
        Py_XDECREF(name);
        Py_XDECREF(value);
    }
    PyObject *packages = texts_of(&configuration->packages), *connectors = texts_of(&configuration->connectors);
    PyObject *folder = cellar_text(&configuration->working_directory);
    unsigned long long seed = configuration->seed;
    kernel_configuration_free(configuration);
    PyObject *arguments = Py_BuildValue("(KNNNN)", seed, environment, folder, packages, connectors);
    PyObject *result = enter_for(false, CONFIGURE, arguments);
    if (result == NULL) {
        give_up("the prelude cannot be configured");
    }
    Py_DECREF(result);
}

void exports_kernel_configure(kernel_configuration_t *configuration) {
    do_now(configure, configuration);
}

static void reseed(void *seed) {
    PyObject *result = enter_for(false, RESEED, Py_BuildValue("(K)", (unsigned long long)*(uint64_t *)seed));
    if (result == NULL) {
        give_up("the prelude cannot be reseeded");
    }
    Py_DECREF(result);
}

void exports_kernel_reseed(uint64_t seed) {
    do_now(reseed, &seed);
}

struct beginning {
    kernel_list_tuple2_string_json_t *bindings;
    kernel_cell_t *cell;
    kernel_step_t *step;
};

static void seed(void *argument) {
    struct beginning given = *(struct beginning *)argument;
    uint32_t id = given.cell->id;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < given.bindings->len; i++) {
        kernel_tuple2_string_json_t *binding = &given.bindings->ptr[i];
        PyObject *pair = Py_BuildValue("(NN)", cellar_text(&binding->f0), cellar_text(&binding->f1));
        if (pair == NULL || PyList_Append(list, pair) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(pair);
    }
    PyObject *code = cellar_text(&given.cell->code);
    kernel_list_tuple2_string_json_free(given.bindings);
    kernel_cell_free(given.cell);
    glue_cell = id;
    conclude(enter(SEED, Py_BuildValue("(NIN)", list, id, code)), id, given.step);
}

void exports_kernel_seed(kernel_list_tuple2_string_json_t *bindings, kernel_cell_t *cell, kernel_step_t *step) {
    struct beginning given = {bindings, cell, step};
    take_step(seed, &given, step);
}

static void start(void *argument) {
    struct beginning given = *(struct beginning *)argument;
    uint32_t id = given.cell->id;
    PyObject *code = cellar_text(&given.cell->code), *traces = given.cell->traces_names ? Py_True : Py_False;
    kernel_cell_free(given.cell);
    glue_cell = id;
    cellar_poll_reset();
    conclude(enter(START, Py_BuildValue("(INO)", id, code, traces)), id, given.step);
}

void exports_kernel_start(kernel_cell_t *cell, kernel_step_t *step) {
    struct beginning given = {NULL, cell, step};
    take_step(start, &given, step);
}

struct delivery {
    kernel_list_completion_t *completions;
    kernel_step_t *step;
};

static void resume(void *argument) {
    struct delivery given = *(struct delivery *)argument;
    for (size_t i = 0; i < given.completions->len; i++) {
        cellar_threads_deliver(&given.completions->ptr[i]);
    }
    PyObject *list = cellar_completions(given.completions);
    kernel_list_completion_free(given.completions);
    conclude(enter(RESUME, list != NULL ? Py_BuildValue("(N)", list) : NULL), 0, given.step);
}

void exports_kernel_resume(kernel_list_completion_t *completions, kernel_step_t *step) {
    struct delivery given = {completions, step};
    take_step(resume, &given, step);
}

struct interruption {
    kernel_cell_id_t cell;
    kernel_stop_reason_t reason;
    kernel_step_t *step;
};

static void interrupt(void *argument) {
    struct interruption given = *(struct interruption *)argument;
    conclude(enter(INTERRUPT, Py_BuildValue("(Ii)", given.cell, (int)given.reason)), given.cell, given.step);
}

void exports_kernel_interrupt(kernel_cell_id_t cell, kernel_stop_reason_t reason, kernel_step_t *step) {
    struct interruption given = {cell, reason, step};
    take_step(interrupt, &given, step);
}

static void reset(void *unused) {
    PyObject *result = enter(RESET, PyTuple_New(0));
    if (result == NULL) {
        give_up("the prelude cannot be reset");
    }
    Py_DECREF(result);
}

void exports_kernel_reset(void) {
    do_now(reset, NULL);
}

/* --- For editors --- */

/* An exception here is no one's concern: the answer is just empty. */
static PyObject *ask(enum entry_point point, PyObject *arguments) {
    PyObject *result = enter_for(false, point, arguments);
    if (result == NULL) {
        PyErr_Clear();
        give_back();
    }
    return result;
}

struct question {
    kernel_string_t *text;
    uint32_t cursor;
    void *answer;
    bool has_answer;
};

static void complete(void *argument) {
    struct question *question = argument;
    kernel_completion_list_t *out = question->answer;
    memset(out, 0, sizeof *out);
    out->start = out->end = question->cursor;
    PyObject *result = ask(COMPLETE, Py_BuildValue("(NI)", cellar_text(question->text), question->cursor));
    kernel_string_free(question->text);
    PyObject *items;
    if (result != NULL && PyArg_ParseTuple(result, "IIO!", &out->start, &out->end, &PyList_Type, &items)) {
        size_t count = (size_t)PyList_GET_SIZE(items);
        out->items.ptr = count > 0 ? calloc(count, sizeof *out->items.ptr) : NULL;
        out->items.len = out->items.ptr != NULL ? count : 0;
        for (size_t i = 0; i < out->items.len; i++) {
            PyObject *pair = PyList_GET_ITEM(items, i);
            cellar_copy_text(PyTuple_GetItem(pair, 0), &out->items.ptr[i].text);
            cellar_copy_text(PyTuple_GetItem(pair, 1), &out->items.ptr[i].kind);
        }
    }
    PyErr_Clear();
    Py_XDECREF(result);
}

void exports_kernel_complete(kernel_string_t *code, uint32_t cursor, kernel_completion_list_t *out) {
    struct question question = {code, cursor, out, false};
    do_now(complete, &question);
}

static void is_complete(void *argument) {
    struct question *question = argument;
    kernel_completeness_t *out = question->answer;
    out->tag = CELLAR_KERNEL_TYPES_COMPLETENESS_COMPLETE;
    PyObject *result = ask(IS_COMPLETE, Py_BuildValue("(N)", cellar_text(question->text)));
    kernel_string_free(question->text);
    int tag;
    PyObject *indent;
    if (result != NULL && PyArg_ParseTuple(result, "iU", &tag, &indent)) {
        out->tag = (uint8_t)tag;
        if (tag == CELLAR_KERNEL_TYPES_COMPLETENESS_INCOMPLETE)
            cellar_copy_text(indent, &out->val.incomplete);
    }
    PyErr_Clear();
    Py_XDECREF(result);
}

void exports_kernel_is_complete(kernel_string_t *code, kernel_completeness_t *out) {
    struct question question = {code, 0, out, false};
    do_now(is_complete, &question);
}

/* A bundle or None. */
static bool copy_optional_bundle(PyObject *result, kernel_mime_bundle_t *out) {
    bool some = result != NULL && result != Py_None && cellar_copy_bundle(result, out) == 0;
    if (some && glue_bundle_bytes(out) > GLUE_DISPLAY_BYTES_MAX) {
        kernel_mime_bundle_free(out);
        some = false;
    }
    PyErr_Clear();
    Py_XDECREF(result);
    return some;
}

static void inspect(void *argument) {
    struct question *question = argument;
    PyObject *arguments = Py_BuildValue("(NI)", cellar_text(question->text), question->cursor);
    kernel_string_free(question->text);
    question->has_answer = copy_optional_bundle(ask(INSPECT, arguments), question->answer);
}

bool exports_kernel_inspect(kernel_string_t *code, uint32_t cursor, kernel_mime_bundle_t *out) {
    struct question question = {code, cursor, out, false};
    do_now(inspect, &question);
    return question.has_answer;
}

static void variables(void *argument) {
    kernel_list_variable_t *out = argument;
    memset(out, 0, sizeof *out);
    PyObject *result = ask(VARIABLES, PyTuple_New(0));
    size_t count = result != NULL && PyList_Check(result) ? (size_t)PyList_GET_SIZE(result) : 0;
    out->ptr = count > 0 ? calloc(count, sizeof *out->ptr) : NULL;
    out->len = out->ptr != NULL ? count : 0;
    for (size_t i = 0; i < out->len; i++) {
        PyObject *name, *type, *size, *preview;
        if (PyArg_ParseTuple(PyList_GET_ITEM(result, (Py_ssize_t)i), "UUOU", &name, &type, &size, &preview)) {
            cellar_copy_text(name, &out->ptr[i].name);
            cellar_copy_text(type, &out->ptr[i].type_name);
            out->ptr[i].size.is_some = size != Py_None;
            out->ptr[i].size.val = size != Py_None ? PyLong_AsUnsignedLongLong(size) : 0;
            cellar_copy_text(preview, &out->ptr[i].preview);
        }
        PyErr_Clear();
    }
    Py_XDECREF(result);
}

void exports_kernel_variables(kernel_list_variable_t *out) {
    do_now(variables, out);
}

static void value(void *argument) {
    struct question *question = argument;
    PyObject *arguments = Py_BuildValue("(N)", cellar_text(question->text));
    kernel_string_free(question->text);
    question->has_answer = copy_optional_bundle(ask(VALUE, arguments), question->answer);
}

bool exports_kernel_value(kernel_string_t *name, kernel_mime_bundle_t *out) {
    struct question question = {name, 0, out, false};
    do_now(value, &question);
    return question.has_answer;
}
