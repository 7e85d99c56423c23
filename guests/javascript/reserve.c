// Memory kept aside, so that running out of it can be told and later cells can free what fills it.
#include "reserve.h"

#include <stdlib.h>

// Kept aside for telling that memory is short, and for one cell that may free what fills it; and how much must be
// there before it is kept aside again.
#define ERROR_RESERVE_BYTES (64u << 10)
#define CELL_RESERVE_BYTES (1u << 20)
#define PLENTY_BYTES (4u << 20)

static void *error_reserve, *cell_reserve;

void cellar_out_of_memory(void) {
    free(error_reserve);
    error_reserve = NULL;
}

bool is_short(void) {
    return error_reserve == NULL;
}

void keep_aside(void) {
    if (error_reserve == NULL)
        error_reserve = malloc(ERROR_RESERVE_BYTES);
    if (cell_reserve == NULL)
        cell_reserve = malloc(CELL_RESERVE_BYTES);
}

// What is sealed with the rest of the image could not be freed any more.
void give_back(void) {
    free(error_reserve);
    free(cell_reserve);
    error_reserve = cell_reserve = NULL;
}

void make_room(JSRuntime *runtime) {
    if (error_reserve != NULL)
        return;
    void *volatile plenty = malloc(PLENTY_BYTES); // volatile, or the compiler takes it for granted and leaves it out
    if (plenty == NULL) {
        JS_RunGC(runtime);
        plenty = malloc(PLENTY_BYTES);
    }
    if (plenty == NULL) {
        free(cell_reserve);
        cell_reserve = NULL;
        return;
    }
    free(plenty);
    keep_aside();
}
