// What code that is compiled with safepoints looks at, at the head of every loop and where functions begin, and what it
// calls when it sees that the host wants it. Code without safepoints has no use for either.
#include "glue.h"

static uint8_t safepoint;

// Read, not called, when safepoints are added to the finished guest.
__attribute__((__export_name__("cellar_safepoint"))) uint8_t *glue_safepoint(void) {
    return &safepoint;
}

uint64_t exports_kernel_safepoint(void) {
    return (uint64_t)(uintptr_t)&safepoint;
}

// Keeps the import, which nothing else in the guest calls.
__attribute__((__export_name__("cellar_give_way"))) void glue_give_way(void) {
    cellar_kernel_control_give_way();
}
