// A guest that breaks the rules. The host must survive each of these, and its other sessions must not notice.
#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Ends a cell that never was.
static flow_t unknown_cell(cell_t *cell) {
    glue_finish(999999, &(cellar_kernel_types_outcome_t){.tag = CELLAR_KERNEL_TYPES_OUTCOME_COMPLETE});
    return GO_ON;
}

// Ends this cell twice.
static flow_t finish_twice(cell_t *cell) {
    glue_finish(cell->id, &(cellar_kernel_types_outcome_t){.tag = CELLAR_KERNEL_TYPES_OUTCOME_COMPLETE});
    return GO_ON;
}

// Ends a million cells.
static flow_t huge_list(cell_t *cell) {
    for (uint32_t i = 0; i < 1000000; i++)
        glue_finish(1000000 + i, &(cellar_kernel_types_outcome_t){.tag = CELLAR_KERNEL_TYPES_OUTCOME_COMPLETE});
    return GO_ON;
}

// Starts a million calls and waits for none.
static flow_t million_calls(cell_t *cell) {
    kernel_string_t name = glue_view("nothing", 7), arguments = glue_view("{}", 2);
    for (uint32_t i = 0; i < 1000000; i++)
        cellar_kernel_tools_start_call(cell->id, &name, &arguments);
    return GO_ON;
}

// Reads from a descriptor that was never opened.
static flow_t bad_descriptor(cell_t *cell) {
    kernel_list_u8_t bytes;
    cellar_kernel_files_error_code_t error;
    if (cellar_kernel_files_read(987654, 0, 16, &bytes, &error))
        return fail_raised(cell, "Lied", "the host read from nothing");
    char text[32];
    int length = snprintf(text, sizeof text, "error %u\n", error);
    glue_write(CELLAR_KERNEL_TYPES_STREAM_NAME_STDOUT, text, (size_t)length);
    return GO_ON;
}

// Wants to be resumed at once, for ever.
static flow_t wake_in_the_past(cell_t *cell) {
    cell->wait = WAIT_PAST;
    return WAITS;
}

// Waits for something that nobody will bring.
static flow_t wait_for_nothing(cell_t *cell) {
    cell->wait = WAIT_FOREVER;
    return WAITS;
}

// Writes bytes that are no text.
static flow_t bad_text(cell_t *cell) {
    glue_write(CELLAR_KERNEL_TYPES_STREAM_NAME_STDOUT, "\xff\xfe", 2);
    return GO_ON;
}

// Writes a text that lies outside its memory.
static flow_t text_out_of_bounds(cell_t *cell) {
    glue_write(CELLAR_KERNEL_TYPES_STREAM_NAME_STDOUT, (const char *)0xfffffff0, 1024);
    return GO_ON;
}

// Writes 256 MiB at once, all of it memory it has.
static flow_t huge_text(cell_t *cell) {
    size_t size = 256u << 20;
    char *text = calloc(1, size);
    if (text == NULL)
        return fail_raised(cell, "MemoryError", "no memory for the lie");
    memset(text, 'x', size);
    // Past the glue, which would cut it into pieces.
    kernel_string_t whole = glue_view(text, size);
    cellar_kernel_output_write(glue_cell, CELLAR_KERNEL_TYPES_STREAM_NAME_STDOUT, &whole);
    free(text);
    return GO_ON;
}

// Asks for more randomness than one may.
static flow_t huge_random(cell_t *cell) {
    kernel_list_u8_t bytes;
    cellar_kernel_control_random(UINT32_MAX, &bytes);
    kernel_list_u8_free(&bytes);
    return GO_ON;
}

// Prints in the name of another cell.
static flow_t other_cell(cell_t *cell) {
    glue_cell = cell->id + 1;
    glue_write(CELLAR_KERNEL_TYPES_STREAM_NAME_STDOUT, "forged\n", 7);
    glue_cell = cell->id;
    return GO_ON;
}

// ---- When the host looks into the session

char haunting[16];

static bool told_to_stop(uint32_t cell) {
    cellar_kernel_control_stop_reason_t reason;
    return cellar_kernel_control_should_stop(cell, &reason);
}

// A value that loops for ever: until it is told to stop, or in the name of a cell that may, or deaf to it all.
static void loop(uint32_t cell) {
    for (volatile uint64_t sink = 0;; sink += 1) {
        if (sink % 20000 == 0 && told_to_stop(cell))
            return;
    }
}

static void loop_deaf(void) {
    for (volatile uint64_t sink = 0;;)
        sink += 1;
}

// A value that prints and calls when it is looked at.
static void chatter(void) {
    kernel_string_t name = glue_view("nothing", 7), arguments = glue_view("{}", 2);
    glue_write(CELLAR_KERNEL_TYPES_STREAM_NAME_STDOUT, "unasked\n", 8);
    cellar_kernel_tools_start_call(0, &name, &arguments);
    cellar_kernel_types_json_t result;
    cellar_kernel_types_call_error_t error;
    if (cellar_kernel_tools_call(0, &name, &arguments, &result, &error))
        __builtin_trap();
    cellar_kernel_types_call_error_free(&error);
}

// A hundred thousand names.
static void crowd(void) {
    for (uint32_t i = 0; i < 100000; i++)
        variable_set(strdup("n"), strdup("v"));
}

// One name whose value is long.
static void long_value(void) {
    size_t size = 20u << 20;
    char *value = malloc(size + 1);
    if (value == NULL)
        __builtin_trap();
    memset(value, 'x', size);
    value[size] = '\0';
    variable_set(strdup("long"), value);
}

void haunt(void) {
    if (strcmp(haunting, "loop") == 0)
        loop(0);
    else if (strncmp(haunting, "loop ", 5) == 0)
        loop((uint32_t)strtoul(haunting + 5, NULL, 10));
    else if (strcmp(haunting, "loop-deaf") == 0)
        loop_deaf();
    else if (strcmp(haunting, "chatter") == 0)
        chatter();
    else if (strcmp(haunting, "crowd") == 0)
        crowd();
    else if (strcmp(haunting, "long") == 0)
        long_value();
    else if (strcmp(haunting, "trap") == 0)
        __builtin_trap();
}

static const struct {
    const char *name;
    flow_t (*tell)(cell_t *);
} lies[] = {
    {"unknown-cell", unknown_cell},
    {"finish-twice", finish_twice},
    {"huge-list", huge_list},
    {"million-calls", million_calls},
    {"bad-descriptor", bad_descriptor},
    {"wake-in-the-past", wake_in_the_past},
    {"wait-for-nothing", wait_for_nothing},
    {"bad-text", bad_text},
    {"text-out-of-bounds", text_out_of_bounds},
    {"huge-text", huge_text},
    {"huge-random", huge_random},
    {"other-cell", other_cell},
};

flow_t lie(cell_t *cell, char *what) {
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        if (strcmp(lies[i].name, what) == 0)
            return lies[i].tell(cell);
    }
    return fail_raised(cell, "SyntaxError", "no such lie");
}
