// Rejected promises that nobody handles: each fails the cell that made it. Part of shim.c.

// Rejected promises that nobody handles yet.
typedef struct {
    JSValue promise, reason;
    uint32_t cell;
} rejection_t;
static rejection_t *rejections;
static size_t rejection_count, rejection_room;

// Called when a promise is rejected that nobody handles, and again when somebody does.
static void track_rejection(JSContext *c, JSValueConst promise, JSValueConst reason, bool handled, void *opaque) {
    if (handled) {
        for (size_t i = 0; i < rejection_count; i++) {
            if (JS_VALUE_GET_TAG(rejections[i].promise) == JS_TAG_OBJECT &&
                JS_VALUE_GET_OBJ(rejections[i].promise) == JS_VALUE_GET_OBJ(promise)) {
                JS_FreeValue(ctx, rejections[i].promise);
                JS_FreeValue(ctx, rejections[i].reason);
                rejections[i] = (rejection_t){JS_UNDEFINED, JS_UNDEFINED, 0};
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
    rejections[rejection_count++] = (rejection_t){JS_DupValue(ctx, promise), JS_DupValue(ctx, reason), glue_cell};
}

static bool is_cell_promise(JSValueConst promise) {
    for (cell_t *cell = cells; cell < cells + CELL_COUNT; cell++) {
        if (cell->live && JS_IsObject(cell->promise) && JS_VALUE_GET_OBJ(cell->promise) == JS_VALUE_GET_OBJ(promise))
            return true;
    }
    return false;
}

static void report_rejections(void) {
    // Describing one runs code, which may add more; those are for the next round.
    rejection_t *list = rejections;
    size_t count = rejection_count;
    rejections = NULL;
    rejection_count = rejection_room = 0;
    for (size_t i = 0; i < count; i++) {
        bool open = JS_IsObject(list[i].promise) && !is_cell_promise(list[i].promise);
        if (open && !was_stopped(list[i].cell))
            end_uncaught(list[i].cell, list[i].reason);
        JS_FreeValue(ctx, list[i].promise);
        JS_FreeValue(ctx, list[i].reason);
    }
    free(list);
}

static void forget_rejections(void) {
    for (size_t i = 0; i < rejection_count; i++) {
        JS_FreeValue(ctx, rejections[i].promise);
        JS_FreeValue(ctx, rejections[i].reason);
    }
    rejection_count = 0;
}

// Has what was called ended well, or the promise that it returned? If not, the exception says why.
static bool is_settled_well(JSValueConst result) {
    JSPromiseStateEnum state = JS_PromiseState(ctx, result);
    if (state == JS_PROMISE_REJECTED)
        JS_Throw(ctx, JS_PromiseResult(ctx, result));
    return !JS_IsException(result) && state != JS_PROMISE_REJECTED && state != JS_PROMISE_PENDING;
}
