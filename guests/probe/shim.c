// The probe's exports: cells, timers and completions. The commands are in commands.c.
#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cell_t cells[CELL_COUNT];
variable_t *variables;
uint64_t session_seed;

static char *duplicate(kernel_string_t text) {
    char *copy = malloc(text.len + 1);
    if (copy == NULL)
        __builtin_trap();
    if (text.len > 0)
        memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    return copy;
}

// ---- The end of a cell

static void release(cell_t *cell) {
    glue_flush();
    free(cell->code);
    *cell = (cell_t){0};
}

static void complete(cell_t *cell) {
    glue_finish(cell->id, &(cellar_kernel_types_outcome_t){.tag = CELLAR_KERNEL_TYPES_OUTCOME_COMPLETE});
    release(cell);
}

// The line at hand: it lies just before `next`, ended by a NUL.
static const char *line_at_hand(const cell_t *cell) {
    const char *start = cell->code;
    for (uint32_t i = 1; i < cell->line; i++)
        start += strlen(start) + 1;
    return cell->line == 0 ? "" : start;
}

flow_t fail(cell_t *cell, cellar_kernel_types_failure_kind_t kind, const char *name, const char *message) {
    const char *line = line_at_hand(cell);
    size_t width = utf8_count(line, strlen(line));
    char *pointer = malloc(width + 1);
    char *traceback = NULL;
    char file[32];
    snprintf(file, sizeof file, cell->id == SEED_CELL ? "<seed>" : "<cell %u>", cell->id);
    int size = asprintf(&traceback, "  %s, line %u\n    %s\n%s: %s", file, cell->line, line, name, message);
    if (pointer == NULL || size < 0)
        __builtin_trap();
    memset(pointer, '^', width);
    cellar_kernel_types_outcome_t outcome = {.tag = CELLAR_KERNEL_TYPES_OUTCOME_FAILED};
    outcome.val.failed = (cellar_kernel_types_failure_t){
        .kind = kind,
        .name = glue_copy(name, strlen(name)),
        .message = glue_copy(message, strlen(message)),
        .line = {.is_some = cell->line > 0, .val = cell->line},
        .column = {.is_some = cell->line > 0, .val = 1},
        .snippet = glue_some(line, strlen(line)),
        .pointer = glue_some(pointer, width),
        .traceback = glue_copy(traceback, (size_t)size),
    };
    free(pointer);
    free(traceback);
    glue_finish(cell->id, &outcome);
    release(cell);
    return ENDED;
}

flow_t fail_raised(cell_t *cell, const char *name, const char *message) {
    cellar_kernel_types_failure_kind_t kind = {.tag = CELLAR_KERNEL_TYPES_FAILURE_KIND_RAISED};
    return fail(cell, kind, name, message);
}

static void fail_stopped(cell_t *cell, cellar_kernel_types_stop_reason_t reason) {
    cellar_kernel_types_failure_kind_t kind = {.tag = CELLAR_KERNEL_TYPES_FAILURE_KIND_STOPPED, .val.stopped = reason};
    fail(cell, kind, "Stopped", "the cell was stopped");
}

bool must_stop(cell_t *cell) {
    cellar_kernel_control_stop_reason_t reason;
    if (!cellar_kernel_control_should_stop(cell->id, &reason))
        return false;
    fail_stopped(cell, reason);
    return true;
}

// ---- Running

// Runs lines until the cell ends or waits.
static void run(cell_t *cell) {
    glue_cell = cell->id;
    cell->wait = WAIT_NOTHING;
    while (cell->next != NULL) {
        char *line = cell->next, *end = strchr(line, '\n');
        cell->next = end == NULL ? NULL : end + 1;
        if (end != NULL)
            *end = '\0';
        cell->line++;
        char name[32] = {0};
        size_t length = strcspn(line, " ");
        if (length == 0 || *line == '#')
            continue;
        memcpy(name, line, length < sizeof name - 1 ? length : sizeof name - 1);
        char *argument = line[length] == ' ' ? line + length + 1 : line + length;
        flow_t flow = run_command(cell, name, argument);
        if (flow != GO_ON) {
            glue_cell = 0;
            return;
        }
    }
    complete(cell);
    glue_cell = 0;
}

static void report(kernel_step_t *step) {
    uint64_t earliest = UINT64_MAX;
    for (cell_t *cell = cells; cell < cells + CELL_COUNT; cell++) {
        if (cell->live && cell->wait == WAIT_TIMER && cell->wake_at < earliest)
            earliest = cell->wake_at;
        if (cell->live && cell->wait == WAIT_PAST)
            earliest = 1;
    }
    glue_step(step, earliest == UINT64_MAX ? NULL : &earliest);
}

void exports_kernel_init(void) {
}

void exports_kernel_configure(kernel_configuration_t *configuration) {
    session_seed = configuration->seed;
    glue_configure(configuration);
    kernel_configuration_free(configuration);
}

void exports_kernel_reseed(uint64_t seed) {
    session_seed = seed;
}

void exports_kernel_seed(kernel_list_tuple2_string_json_t *bindings, kernel_cell_t *cell, kernel_step_t *step) {
    for (size_t i = 0; i < bindings->len; i++)
        variable_set(duplicate(bindings->ptr[i].f0), duplicate(bindings->ptr[i].f1));
    kernel_list_tuple2_string_json_free(bindings);
    exports_kernel_start(cell, step);
}

void exports_kernel_start(kernel_cell_t *started, kernel_step_t *step) {
    cell_t *cell = cells;
    while (cell < cells + CELL_COUNT && cell->live)
        cell++;
    if (cell == cells + CELL_COUNT)
        __builtin_trap(); // the host limits cells in flight to fewer
    *cell = (cell_t){.live = true, .id = started->id, .code = duplicate(started->code)};
    cell->next = cell->code;
    kernel_cell_free(started);
    run(cell);
    report(step);
}

static void deliver(const kernel_completion_t *completion) {
    for (cell_t *cell = cells; cell < cells + CELL_COUNT; cell++) {
        if (cell->live && cell->wait == WAIT_CALL && cell->call == completion->call) {
            glue_cell = cell->id;
            if (answered(cell, &completion->response) == GO_ON)
                run(cell);
            return;
        }
    }
}

void exports_kernel_resume(kernel_list_completion_t *completions, kernel_step_t *step) {
    for (size_t i = 0; i < completions->len; i++)
        deliver(&completions->ptr[i]);
    kernel_list_completion_free(completions);
    uint64_t now = cellar_kernel_control_monotonic_clock();
    for (cell_t *cell = cells; cell < cells + CELL_COUNT; cell++) {
        if (cell->live && cell->wait == WAIT_TIMER && cell->wake_at <= now)
            run(cell);
    }
    report(step);
}

void exports_kernel_interrupt(kernel_cell_id_t id, kernel_stop_reason_t reason, kernel_step_t *step) {
    for (cell_t *cell = cells; cell < cells + CELL_COUNT; cell++) {
        if (cell->live && cell->id == id) {
            if (cell->wait == WAIT_CALL)
                cellar_kernel_tools_cancel(cell->call);
            fail_stopped(cell, reason);
        }
    }
    report(step);
}

void exports_kernel_reset(void) {
    for (cell_t *cell = cells; cell < cells + CELL_COUNT; cell++) {
        if (cell->live)
            release(cell);
    }
    variables_clear();
}

// ---- Looking in

const variable_t *variable_find(const char *name) {
    variable_t *variable = variables;
    while (variable != NULL && strcmp(variable->name, name) != 0)
        variable = variable->older;
    return variable;
}

void variable_set(char *name, char *value) {
    variable_t *fresh = malloc(sizeof *fresh);
    if (fresh == NULL || name == NULL || value == NULL)
        __builtin_trap();
    *fresh = (variable_t){.older = variables, .name = name, .value = value};
    variables = fresh;
}

void variables_clear(void) {
    while (variables != NULL) {
        variable_t *older = variables->older;
        free(variables->name);
        free(variables->value);
        free(variables);
        variables = older;
    }
}

static kernel_string_t copy_text(const char *text) {
    return glue_copy(text, strlen(text));
}

void exports_kernel_variables(kernel_list_variable_t *list) {
    haunt();
    size_t count = 0;
    for (variable_t *v = variables; v != NULL; v = v->older)
        count++;
    list->len = count;
    list->ptr = count == 0 ? NULL : malloc(count * sizeof *list->ptr);
    size_t i = 0;
    for (variable_t *v = variables; v != NULL; v = v->older) {
        list->ptr[i++] = (kernel_variable_t){
            .name = copy_text(v->name),
            .type_name = copy_text("text"),
            .size = {.is_some = true, .val = strlen(v->value)},
            .preview = copy_text(v->value),
        };
    }
}

static void one_text(kernel_mime_bundle_t *bundle, const char *text) {
    bundle->len = 1;
    bundle->ptr = malloc(sizeof *bundle->ptr);
    bundle->ptr[0].f0 = copy_text("text/plain");
    bundle->ptr[0].f1.tag = CELLAR_KERNEL_TYPES_MIME_DATA_TEXT;
    bundle->ptr[0].f1.val.text = copy_text(text);
}

bool exports_kernel_value(kernel_string_t *name, kernel_mime_bundle_t *bundle) {
    haunt();
    char *text = duplicate(*name);
    kernel_string_free(name);
    const variable_t *found = variable_find(text);
    if (found != NULL)
        one_text(bundle, found->value);
    free(text);
    return found != NULL;
}

bool exports_kernel_inspect(kernel_string_t *code, uint32_t cursor, kernel_mime_bundle_t *bundle) {
    return exports_kernel_value(code, bundle);
}

/* A line that ends with a backslash goes on; `#!` makes no cell. */
void exports_kernel_is_complete(kernel_string_t *code, kernel_completeness_t *found) {
    haunt();
    found->tag = CELLAR_KERNEL_TYPES_COMPLETENESS_COMPLETE;
    if (code->len > 0 && code->ptr[code->len - 1] == '\\') {
        found->tag = CELLAR_KERNEL_TYPES_COMPLETENESS_INCOMPLETE;
        found->val.incomplete = copy_text("  ");
    } else if (code->len >= 2 && memcmp(code->ptr, "#!", 2) == 0) {
        found->tag = CELLAR_KERNEL_TYPES_COMPLETENESS_INVALID;
    }
    kernel_string_free(code);
}

void exports_kernel_complete(kernel_string_t *code, uint32_t cursor, kernel_completion_list_t *list) {
    haunt();
    char *prefix = duplicate(*code);
    kernel_string_free(code);
    *list = (kernel_completion_list_t){.start = 0, .end = cursor};
    for (variable_t *v = variables; v != NULL; v = v->older) {
        if (strncmp(v->name, prefix, strlen(prefix)) != 0)
            continue;
        list->items.ptr = realloc(list->items.ptr, (list->items.len + 1) * sizeof *list->items.ptr);
        list->items.ptr[list->items.len++] = (cellar_kernel_types_completion_item_t){
            .text = copy_text(v->name),
            .kind = copy_text("variable"),
        };
    }
    free(prefix);
}
