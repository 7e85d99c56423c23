// The sources of recent cells: error records show lines of them.
#ifndef CELLAR_JAVASCRIPT_SOURCES_H
#define CELLAR_JAVASCRIPT_SOURCES_H

#include "quickjs.h"

// Keeps a cell's source, which came from malloc and ends with NUL, and lets the oldest go.
void remember_source(uint32_t cell, char *text, size_t length);

// The source of a cell, until the next one is remembered; null when it has been let go.
const char *cell_text(uint32_t cell, size_t *length);

// The same as a string; undefined when it has been let go.
JSValue cell_source(JSContext *ctx, uint32_t cell);

void forget_sources(void);

#endif
