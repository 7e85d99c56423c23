// What each line of the probe's language does.
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STDOUT CELLAR_KERNEL_TYPES_STREAM_NAME_STDOUT
#define STDERR CELLAR_KERNEL_TYPES_STREAM_NAME_STDERR

// Rounds of a spinning loop between two questions to the host.
#define ROUNDS_PER_POLL 20000

static kernel_string_t view(const char *text) {
    return glue_view(text, strlen(text));
}

static void print_line(cellar_kernel_output_stream_name_t to, const char *text, size_t length) {
    char *line = malloc(length + 1);
    if (line == NULL)
        __builtin_trap();
    memcpy(line, text, length);
    line[length] = '\n';
    glue_write(to, line, length + 1);
    free(line);
}

static flow_t do_emit(cell_t *cell, char *text) {
    print_line(STDOUT, text, strlen(text));
    return GO_ON;
}

static flow_t do_err(cell_t *cell, char *text) {
    print_line(STDERR, text, strlen(text));
    return GO_ON;
}

static flow_t do_put(cell_t *cell, char *text) {
    glue_write(STDOUT, text, strlen(text));
    return GO_ON;
}

static flow_t do_display(cell_t *cell, char *text) {
    cellar_kernel_types_tuple2_string_mime_data_t entry = {.f0 = view("text/plain"), .f1.val.text = view(text)};
    cellar_kernel_output_display_data_t display = {.data = {&entry, 1}};
    cellar_kernel_output_display(cell->id, &display);
    return GO_ON;
}

static flow_t do_status(cell_t *cell, char *op) {
    cellar_kernel_output_tuple2_string_scalar_t fields[] = {
        {view("text"), {.tag = CELLAR_KERNEL_TYPES_SCALAR_TEXT, .val.text = view("a")}},
        {view("integer"), {.tag = CELLAR_KERNEL_TYPES_SCALAR_INTEGER, .val.integer = -1}},
        {view("number"), {.tag = CELLAR_KERNEL_TYPES_SCALAR_NUMBER, .val.number = 0.5}},
        {view("boolean"), {.tag = CELLAR_KERNEL_TYPES_SCALAR_BOOLEAN, .val.boolean = true}},
    };
    cellar_kernel_output_list_tuple2_string_scalar_t list = {fields, sizeof fields / sizeof *fields};
    kernel_string_t name = view(op);
    cellar_kernel_output_status(cell->id, &name, &list);
    return GO_ON;
}

static flow_t do_clear(cell_t *cell, char *argument) {
    cellar_kernel_output_clear(cell->id, false);
    return GO_ON;
}

// ---- Ends

static flow_t do_raise(cell_t *cell, char *text) {
    return fail_raised(cell, "ProbeError", text);
}

static flow_t do_exit(cell_t *cell, char *status) {
    cellar_kernel_types_outcome_t outcome = {.tag = CELLAR_KERNEL_TYPES_OUTCOME_EXITED};
    outcome.val.exited = atoi(status);
    glue_finish(cell->id, &outcome);
    free(cell->code);
    *cell = (cell_t){0};
    return ENDED;
}

static flow_t do_trap(cell_t *cell, char *argument) {
    __builtin_trap();
}

// Deeper and deeper on the engine's own stack: neither a tail call nor a loop.
static uint64_t deeper(volatile uint64_t *depth) {
    *depth += 1;
    return *depth == 0 ? 0 : deeper(depth) + *depth;
}

static flow_t do_recurse(cell_t *cell, char *argument) {
    volatile uint64_t depth = 0;
    return deeper(&depth) == 0 ? GO_ON : ENDED;
}

// ---- Exceptions

static jmp_buf landing;

// Leaves `depth` calls at once.
static void leap(unsigned depth) {
    volatile unsigned left = depth;
    if (left == 0)
        longjmp(landing, 1);
    leap(left - 1);
    left = 0;
}

// `longjmp` throws, and `setjmp` catches.
static flow_t do_leap(cell_t *cell, char *argument) {
    unsigned long depth = strtoul(argument, &argument, 10);
    unsigned long times = *argument == '\0' ? 1 : strtoul(argument, NULL, 10);
    for (volatile unsigned long i = 1; i <= times; i++) {
        if (setjmp(landing) == 0)
            leap((unsigned)depth);
        if (i % ROUNDS_PER_POLL == 0 && must_stop(cell))
            return ENDED;
    }
    return do_emit(cell, "landed");
}

static void mark_landing(void) {
    (void)setjmp(landing);
}

// Throws what nothing catches: the function that would have is over.
static flow_t do_throw(cell_t *cell, char *argument) {
    mark_landing();
    longjmp(landing, 1);
}

// ---- Time

static uint64_t after_milliseconds(const char *text) {
    return cellar_kernel_control_monotonic_clock() + strtoull(text, NULL, 10) * 1000000;
}

static flow_t do_sleep(cell_t *cell, char *milliseconds) {
    cell->wait = WAIT_TIMER;
    cell->wake_at = after_milliseconds(milliseconds);
    return WAITS;
}

static flow_t do_block(cell_t *cell, char *milliseconds) {
    cellar_kernel_control_sleep_until(cell->id, after_milliseconds(milliseconds));
    return must_stop(cell) ? ENDED : GO_ON;
}

static flow_t do_spin(cell_t *cell, char *millions) {
    uint64_t rounds = *millions == '\0' ? UINT64_MAX : strtoull(millions, NULL, 10) * 1000000;
    volatile uint64_t sink = 0;
    for (uint64_t i = 1; i <= rounds; i++) {
        sink += i;
        if (i % ROUNDS_PER_POLL == 0 && must_stop(cell))
            return ENDED;
    }
    return GO_ON;
}

static flow_t do_spin_hard(cell_t *cell, char *argument) {
    for (volatile uint64_t sink = 0;;)
        sink += 1;
}

static flow_t do_flood(cell_t *cell, char *lines) {
    uint64_t count = strtoull(lines, NULL, 10);
    for (uint64_t i = 1; i <= count; i++) {
        char line[32];
        int length = snprintf(line, sizeof line, "line %llu\n", (unsigned long long)i);
        glue_write(STDOUT, line, (size_t)length);
        if (i % 64 == 0 && must_stop(cell))
            return ENDED;
    }
    return GO_ON;
}

static flow_t do_grow(cell_t *cell, char *mebibytes) {
    uint64_t wanted = exports_kernel_memory_size() + strtoull(mebibytes, NULL, 10) * 1024 * 1024;
    if (exports_kernel_memory_grow(wanted))
        return GO_ON;
    cellar_kernel_types_failure_kind_t kind = {.tag = CELLAR_KERNEL_TYPES_FAILURE_KIND_MEMORY};
    return fail(cell, kind, "MemoryError", "the host refused to grow memory");
}

// ---- Values

static flow_t do_set(cell_t *cell, char *argument) {
    char *value = strchr(argument, ' ');
    if (value == NULL)
        return fail_raised(cell, "SyntaxError", "set NAME TEXT");
    *value = '\0';
    variable_set(strdup(argument), strdup(value + 1));
    *value = ' ';
    return GO_ON;
}

static flow_t do_get(cell_t *cell, char *name) {
    const variable_t *found = variable_find(name);
    return found == NULL ? fail_raised(cell, "NameError", name) : do_emit(cell, found->value);
}

// ---- Files

static flow_t fail_with_errno(cell_t *cell) {
    return fail_raised(cell, "OSError", strerror(errno));
}

static flow_t do_read(cell_t *cell, char *path) {
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return fail_with_errno(cell);
    char chunk[4096];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;)
        glue_write_bytes(STDOUT, chunk, n);
    bool failed = ferror(file) != 0;
    fclose(file);
    return failed ? fail_with_errno(cell) : GO_ON;
}

static flow_t do_write(cell_t *cell, char *argument) {
    char *text = strchr(argument, ' ');
    if (text == NULL)
        return fail_raised(cell, "SyntaxError", "write PATH TEXT");
    *text = '\0';
    FILE *file = fopen(argument, "w");
    *text = ' ';
    if (file == NULL)
        return fail_with_errno(cell);
    bool failed = fputs(text + 1, file) < 0;
    failed = fclose(file) != 0 || failed;
    return failed ? fail_with_errno(cell) : GO_ON;
}

static flow_t do_list(cell_t *cell, char *path) {
    DIR *folder = opendir(path);
    if (folder == NULL)
        return fail_with_errno(cell);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        do_emit(cell, entry->d_name);
    closedir(folder);
    return GO_ON;
}

// ---- Bridges

flow_t answered(cell_t *cell, const cellar_kernel_types_answer_t *answer) {
    static const char *const kinds[] = {"Failed", "Denied", "Unknown", "Invalid", "Cancelled", "Limit"};
    if (answer->is_err) {
        const cellar_kernel_types_call_error_t *error = &answer->val.err;
        char *message = NULL;
        if (asprintf(&message, "%.*s", (int)error->message.len, (const char *)error->message.ptr) < 0)
            __builtin_trap();
        flow_t flow = fail_raised(cell, error->kind < 6 ? kinds[error->kind] : "Failed", message);
        free(message);
        return flow;
    }
    const cellar_kernel_types_response_t *response = &answer->val.ok;
    if (response->tag == CELLAR_KERNEL_TYPES_RESPONSE_HTTP) {
        const cellar_kernel_types_http_response_t *http = &response->val.http;
        char status[16];
        print_line(STDOUT, status, (size_t)snprintf(status, sizeof status, "%u", http->status));
        glue_write_bytes(STDOUT, (const char *)http->body.ptr, http->body.len);
    } else if (response->tag == CELLAR_KERNEL_TYPES_RESPONSE_JSON || response->tag == CELLAR_KERNEL_TYPES_RESPONSE_TEXT) {
        print_line(STDOUT, (const char *)response->val.text.ptr, response->val.text.len);
    }
    return GO_ON;
}

static flow_t wait_for(cell_t *cell, uint64_t call) {
    cell->wait = WAIT_CALL;
    cell->call = call;
    return WAITS;
}

// Prints the answer of a call made in place, and frees it.
static flow_t in_place(cell_t *cell, cellar_kernel_types_answer_t *answer, bool ok) {
    answer->is_err = !ok;
    flow_t flow = answered(cell, answer);
    cellar_kernel_types_answer_free(answer);
    return flow;
}

static flow_t call_tool(cell_t *cell, char *argument, bool sync) {
    char *json = strchr(argument, ' ');
    if (json != NULL)
        *json = '\0';
    kernel_string_t name = view(argument), arguments = view(json == NULL ? "{}" : json + 1);
    flow_t flow;
    if (sync) {
        cellar_kernel_types_answer_t answer = {.val.ok.tag = CELLAR_KERNEL_TYPES_RESPONSE_JSON};
        cellar_kernel_types_json_t result;
        cellar_kernel_types_call_error_t error;
        bool ok = cellar_kernel_tools_call(cell->id, &name, &arguments, &result, &error);
        if (ok)
            answer.val.ok.val.json = result;
        else
            answer.val.err = error;
        flow = in_place(cell, &answer, ok);
    } else {
        flow = wait_for(cell, cellar_kernel_tools_start_call(cell->id, &name, &arguments));
    }
    if (json != NULL && flow != ENDED)
        *json = ' ';
    return flow;
}

static flow_t do_call(cell_t *cell, char *argument) {
    return call_tool(cell, argument, false);
}

static flow_t do_call_sync(cell_t *cell, char *argument) {
    return call_tool(cell, argument, true);
}

static flow_t do_primitive(cell_t *cell, char *argument) {
    char *name = strchr(argument, ' '), *json = name == NULL ? NULL : strchr(name + 1, ' ');
    if (json == NULL)
        return fail_raised(cell, "SyntaxError", "a primitive has a pack, a name and arguments");
    kernel_string_t pack = glue_view(argument, (size_t)(name - argument));
    kernel_string_t member = glue_view(name + 1, (size_t)(json - name - 1)), arguments = view(json + 1);
    return wait_for(cell, cellar_kernel_primitives_start_call(cell->id, &pack, &member, &arguments));
}

// Defines `do_<name>` and `do_<name>_sync` for a bridge whose request is made from one text.
#define BRIDGE(name, interface, request)                                                                               \
    static flow_t do_##name(cell_t *cell, char *text) {                                                                \
        return wait_for(cell, cellar_kernel_##interface##_start_call(cell->id, request));                              \
    }                                                                                                                  \
    static flow_t do_##name##_sync(cell_t *cell, char *text) {                                                         \
        cellar_kernel_types_answer_t answer;                                                       \
        cellar_kernel_types_response_t response;                                                                       \
        cellar_kernel_types_call_error_t error;                                                                        \
        bool ok = cellar_kernel_##interface##_call(cell->id, request, &response, &error);                              \
        if (ok)                                                                                                        \
            answer.val.ok = response;                                                                                  \
        else                                                                                                           \
            answer.val.err = error;                                                                                    \
        return in_place(cell, &answer, ok);                                                                            \
    }

BRIDGE(llm, llm, (&(cellar_kernel_types_llm_request_t){.prompt = view(text), .model = view("default")}))
BRIDGE(agent, agents, (&(cellar_kernel_types_agent_request_t){.prompt = view(text), .agent_type = view("task")}))
BRIDGE(input, input, (&(kernel_string_t){(uint8_t *)text, strlen(text)}))
BRIDGE(http, http, (&(cellar_kernel_types_http_request_t){.method = view("GET"), .url = view(text)}))

static flow_t do_tools(cell_t *cell, char *argument) {
    cellar_kernel_tools_list_tool_t tools;
    cellar_kernel_tools_granted(&tools);
    for (size_t i = 0; i < tools.len; i++)
        print_line(STDOUT, (const char *)tools.ptr[i].name.ptr, tools.ptr[i].name.len);
    cellar_kernel_tools_list_tool_free(&tools);
    return GO_ON;
}

// ---- The session

static flow_t do_env(cell_t *cell, char *name) {
    const char *value = getenv(name);
    return do_emit(cell, (char *)(value == NULL ? "(unset)" : value));
}

static flow_t do_cwd(cell_t *cell, char *argument) {
    char path[4096];
    return getcwd(path, sizeof path) == NULL ? fail_with_errno(cell) : do_emit(cell, path);
}

static flow_t print_number(cell_t *cell, uint64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    return do_emit(cell, text);
}

static flow_t do_seed(cell_t *cell, char *argument) {
    return print_number(cell, session_seed);
}

static flow_t do_clock(cell_t *cell, char *argument) {
    return print_number(cell, cellar_kernel_control_monotonic_clock());
}

static flow_t do_random(cell_t *cell, char *count) {
    uint8_t bytes[32];
    char text[sizeof bytes * 2 + 1] = {0};
    size_t n = strtoul(count, NULL, 10);
    n = n < sizeof bytes ? n : sizeof bytes;
    glue_random(bytes, n);
    for (size_t i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return do_emit(cell, text);
}

static flow_t do_haunt(cell_t *cell, char *how) {
    strncpy(haunting, how, sizeof haunting - 1);
    return GO_ON;
}

// ---- The table

static const struct {
    const char *name;
    flow_t (*run)(cell_t *, char *);
} commands[] = {
    {"emit", do_emit},           {"err", do_err},         {"put", do_put},
    {"display", do_display},     {"status", do_status},   {"clear", do_clear},
    {"raise", do_raise},         {"exit", do_exit},       {"trap", do_trap},
    {"recurse", do_recurse},     {"leap", do_leap},       {"throw", do_throw},
    {"sleep", do_sleep},         {"block", do_block},
    {"spin", do_spin},           {"spin-hard", do_spin_hard}, {"flood", do_flood},
    {"grow", do_grow},           {"set", do_set},         {"get", do_get},
    {"read", do_read},           {"write", do_write},     {"list", do_list},
    {"call", do_call},           {"call-sync", do_call_sync}, {"llm", do_llm},
    {"llm-sync", do_llm_sync},   {"agent", do_agent},     {"agent-sync", do_agent_sync},
    {"input", do_input},         {"input-sync", do_input_sync}, {"http", do_http},
    {"http-sync", do_http_sync}, {"primitive", do_primitive}, {"tools", do_tools},     {"env", do_env},
    {"cwd", do_cwd},             {"seed", do_seed},       {"clock", do_clock},
    {"random", do_random},       {"lie", lie},           {"haunt", do_haunt},
    {"cross", cross},            {"hold", hold},
};

flow_t run_command(cell_t *cell, const char *name, char *argument) {
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].run(cell, argument);
    }
    return fail_raised(cell, "SyntaxError", "no such command");
}
