// Local time: the spans of the zone that the prelude has set. See patches/28-zones.patch for who asks.
#include <string.h>

#include "functions.h"

// Zones of the database have some 1,200 spans until 2500.
#define SPANS_MAX 2048
#define NAMES_MAX 64

// Ends in milliseconds from 1970, the last of which is never reached; minutes east of UTC; and numbers of names.
static double ends[SPANS_MAX];
static int16_t offsets[SPANS_MAX];
static uint8_t name_of[SPANS_MAX];
static char names[NAMES_MAX][64] = {"Coordinated Universal Time"};
// One span without an end is UTC, as there is before anything is set.
static uint32_t count = 1;

static uint32_t span_at(int64_t time, bool is_local) {
    uint32_t span = 0;
    // What a clock shows twice is the first of it; what it skips is shown by the offset before.
    while (span + 1 < count && (double)time - (is_local ? offsets[span] * 60000.0 : 0) >= ends[span])
        span++;
    return span;
}

int cellar_zone_offset(int64_t time, bool is_local) {
    if (count == 1)
        return -offsets[0];
    uint32_t span = span_at(time, is_local);
    // A time that clocks skip is taken by the offset before.
    bool is_skipped = is_local && span > 0 && (double)time - offsets[span] * 60000.0 < ends[span - 1];
    return -offsets[is_skipped ? span - 1 : span];
}

const char *cellar_zone_name(int64_t time) {
    return names[name_of[span_at(time, false)]];
}

// setZone(ends, offsets, numbers of names, names): arrays, the first three of the same length; false when there is too much
static JSValue set_zone(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int64_t length, known;
    if (JS_GetLength(ctx, argv[0], &length) || JS_GetLength(ctx, argv[3], &known))
        return JS_EXCEPTION;
    if (length < 1 || length > SPANS_MAX || known < 1 || known > NAMES_MAX)
        return JS_FALSE;
    count = 1;
    offsets[0] = name_of[0] = 0;
    for (uint32_t i = 0; i < (uint32_t)known; i++) {
        JSValue value = JS_GetPropertyUint32(ctx, argv[3], i);
        const char *name = JS_ToCString(ctx, value);
        JS_FreeValue(ctx, value);
        if (name == NULL)
            return JS_EXCEPTION;
        snprintf(names[i], sizeof names[i], "%s", name);
        JS_FreeCString(ctx, name);
    }
    for (uint32_t i = 0; i < (uint32_t)length; i++) {
        double numbers[3];
        for (int part = 0; part < 3; part++) {
            JSValue value = JS_GetPropertyUint32(ctx, argv[part], i);
            int failed = JS_ToFloat64(ctx, &numbers[part], value);
            JS_FreeValue(ctx, value);
            if (failed)
                return JS_EXCEPTION;
        }
        ends[i] = numbers[0];
        offsets[i] = numbers[1] > -1440 && numbers[1] < 1440 ? (int16_t)numbers[1] : 0;
        name_of[i] = numbers[2] >= 0 && numbers[2] < known ? (uint8_t)numbers[2] : 0;
    }
    count = (uint32_t)length;
    return JS_TRUE;
}

void add_zone_functions(JSContext *ctx, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {JS_CFUNC_DEF("setZone", 4, set_zone)};
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
}
