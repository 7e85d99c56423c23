// Memory kept aside, so that running out of it can be told and later cells can free what fills it.
#ifndef CELLAR_JAVASCRIPT_RESERVE_H
#define CELLAR_JAVASCRIPT_RESERVE_H

#include "quickjs.h"

// Sets memory aside.
void keep_aside(void);

// Frees what is set aside.
void give_back(void);

// Readies memory for a cell. When it is full, what is kept aside lets the cell run that frees some.
void make_room(JSRuntime *runtime);

// True from an allocation that has failed until there is room again.
bool is_short(void);

// Called by QuickJS when an allocation has failed.
void cellar_out_of_memory(void);

#endif
