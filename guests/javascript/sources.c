// The sources of recent cells: error records show lines of them.
#include "sources.h"

#include <stdlib.h>

#define SOURCE_COUNT 512
#define SOURCE_BYTES (4u << 20)

// A ring of sources, oldest first from `source_next`.
static struct {
    uint32_t cell;
    char *text;
    size_t length;
} sources[SOURCE_COUNT];
static size_t source_next, source_bytes;

void remember_source(uint32_t cell, char *text, size_t length) {
    size_t oldest = source_next;
    while (source_bytes + length > SOURCE_BYTES || sources[source_next].text != NULL) {
        if (sources[oldest].text != NULL) {
            source_bytes -= sources[oldest].length;
            free(sources[oldest].text);
            sources[oldest].text = NULL;
        }
        oldest = (oldest + 1) % SOURCE_COUNT;
        if (oldest == source_next)
            break;
    }
    sources[source_next].cell = cell;
    sources[source_next].text = text;
    sources[source_next].length = length;
    source_bytes += length;
    source_next = (source_next + 1) % SOURCE_COUNT;
}

const char *cell_text(uint32_t cell, size_t *length) {
    for (size_t i = 0; i < SOURCE_COUNT; i++) {
        if (sources[i].text != NULL && sources[i].cell == cell) {
            *length = sources[i].length;
            return sources[i].text;
        }
    }
    return NULL;
}

JSValue cell_source(JSContext *ctx, uint32_t cell) {
    size_t length;
    const char *text = cell_text(cell, &length);
    return text == NULL ? JS_UNDEFINED : JS_NewStringLen(ctx, text, length);
}

void forget_sources(void) {
    for (size_t i = 0; i < SOURCE_COUNT; i++) {
        free(sources[i].text);
        sources[i].text = NULL;
    }
    source_bytes = 0;
}
