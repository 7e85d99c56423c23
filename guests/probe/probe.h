// The probe's cells and commands.
#ifndef CELLAR_PROBE_H
#define CELLAR_PROBE_H

#include "glue.h"

// Cells that can be in flight at once.
#define CELL_COUNT 128

// The number of the cell that makes the names a session begins with; its file is `<seed>`.
#define SEED_CELL UINT32_MAX

// What a cell waits for.
typedef enum { WAIT_NOTHING, WAIT_TIMER, WAIT_CALL, WAIT_FOREVER, WAIT_PAST } wait_t;

// A cell that has not ended.
typedef struct {
    bool live;
    uint32_t id;
    // The code, with a NUL at the end of each line that was run.
    char *code;
    // The next line, and the number of the line at hand, from 1.
    char *next;
    uint32_t line;
    wait_t wait;
    uint64_t wake_at, call;
} cell_t;

// What a command did with its cell.
typedef enum { GO_ON, WAITS, ENDED } flow_t;

// Runs one command. `argument` is the rest of the line.
flow_t run_command(cell_t *cell, const char *name, char *argument);

// Breaks a rule of the kernel world.
flow_t lie(cell_t *cell, char *what);

// Makes `N SEED` calls of the kernel world with arguments drawn at random.
flow_t cross(cell_t *cell, char *argument);

// Opens a file, makes it if need be, and keeps it open.
flow_t hold(cell_t *cell, char *path);

// How the answers to a host that looks into the session go wrong; empty when they do not.
extern char haunting[16];

// Does that.
void haunt(void);

// Prints what a bridge answered, or ends the cell.
flow_t answered(cell_t *cell, const cellar_kernel_types_answer_t *answer);

// Ends a cell with a failure that points at the line at hand.
flow_t fail(cell_t *cell, cellar_kernel_types_failure_kind_t kind, const char *name, const char *message);

// Ends a cell that raised.
flow_t fail_raised(cell_t *cell, const char *name, const char *message);

// Ends the cell when the host says so.
bool must_stop(cell_t *cell);

// Values kept by `set`, newest first.
typedef struct variable {
    struct variable *older;
    char *name, *value;
} variable_t;

extern variable_t *variables;
extern uint64_t session_seed;

// The value of a name, or null.
const variable_t *variable_find(const char *name);

// Binds a name; takes over both texts.
void variable_set(char *name, char *value);

// Forgets all values.
void variables_clear(void);

#endif
