// All that the patches of QuickJS need of the guest's own header.
#pragma once
#include <stdint.h>

extern uint32_t glue_cell;

// One thread never waits for another.
static inline uint64_t cellar_kernel_control_monotonic_clock(void) {
    return 0;
}

static inline void cellar_kernel_control_sleep_until(uint32_t cell, uint64_t nanoseconds) {
}
