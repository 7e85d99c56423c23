// All that the builder's edits of QuickJS need of the guest's own header.
#pragma once
#include <stdint.h>

extern uint32_t glue_cell;
