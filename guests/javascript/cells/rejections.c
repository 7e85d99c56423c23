// Rejected promises that nobody handles: each fails the cell that made it; see cells.h.
#include <stdlib.h>

#include "cells.h"
#include "state.h"

// Rejected promises that nobody handles yet.
typedef struct {
    JSValue promise, reason, context;
    uint32_t cell;
} rejection_t;
static rejection_t *rejections;
static size_t rejection_count, rejection_room;

// Called when a promise is rejected that nobody handles, and again when somebody does.
void track_rejection(JSContext *c, JSValueConst promise, JSValueConst reason, bool handled, void *opaque) {
    if (handled) {
        for (size_t i = 0; i < rejection_count; i++) {
            if (JS_VALUE_GET_TAG(rejections[i].promise) == JS_TAG_OBJECT &&
                JS_VALUE_GET_PTR(rejections[i].promise) == JS_VALUE_GET_PTR(promise)) {
                JS_FreeValue(ctx, rejections[i].promise);
                JS_FreeValue(ctx, rejections[i].reason);
                JS_FreeValue(ctx, rejections[i].context);
                rejections[i] = (rejection_t){JS_UNDEFINED, JS_UNDEFINED, JS_UNDEFINED, 0};
                return;
            }
        }
        return;
    }
    if (rejection_count == rejection_room) {
        size_t room = rejection_room == 0 ? 16 : rejection_room * 2;
        rejection_t *grown = realloc(rejections, room * sizeof *grown);
        if (grown == NULL)
            return; // memory is short, which the cell will notice by itself
        rejections = grown;
        rejection_room = room;
    }
    rejections[rejection_count++] = (rejection_t){JS_DupValue(ctx, promise), JS_DupValue(ctx, reason), JS_DupValue(ctx, cellar_context), glue_cell};
}

bool has_rejections(void) {
    return rejection_count > 0;
}

void report_rejections(void) {
    // Describing one runs code, which may add more; those are for the next round.
    rejection_t *list = rejections;
    size_t count = rejection_count;
    rejections = NULL;
    rejection_count = rejection_room = 0;
    for (size_t i = 0; i < count; i++) {
        bool open = JS_IsObject(list[i].promise) && !is_cell_promise(list[i].promise);
        enter_context(list[i].context);
        if (open && !was_stopped(list[i].cell))
            end_uncaught(list[i].cell, list[i].reason, list[i].promise);
        JS_FreeValue(ctx, list[i].promise);
        JS_FreeValue(ctx, list[i].reason);
    }
    free(list);
}

void forget_rejections(void) {
    for (size_t i = 0; i < rejection_count; i++) {
        JS_FreeValue(ctx, rejections[i].promise);
        JS_FreeValue(ctx, rejections[i].reason);
        JS_FreeValue(ctx, rejections[i].context);
    }
    rejection_count = 0;
}
