// What a stack says beyond the functions that are being called: see stacks.h. Part of engine.c, since it looks into
// QuickJS's promises and suspended functions.
#include "cells.h"
#include "stacks.h"

// Promises that are followed from one function that awaits to the next.
#define HOPS_MAX 64

// Prototypes that are searched for an error's name.
#define PROTOTYPES_MAX 32

// Longer names and messages are cut in the first line of a stack; the properties themselves have all.
#define HEADLINE_BYTES 10000

// A property that is a plain string, found without running code; JS_UNDEFINED when there is none.
static JSValueConst plain_string(JSValueConst object, JSAtom name) {
    for (int i = 0; i < PROTOTYPES_MAX && JS_VALUE_GET_TAG(object) == JS_TAG_OBJECT; i++) {
        JSObject *p = JS_VALUE_GET_OBJ(object);
        JSProperty *property;
        if (p->class_id == JS_CLASS_PROXY)
            break;
        JSShapeProperty *shape = find_own_property(&property, p, name);
        if (shape != NULL)
            return (shape->flags & JS_PROP_TMASK) == JS_PROP_NORMAL && JS_IsString(property->u.value)
                       ? property->u.value
                       : JS_UNDEFINED;
        if (p->shape->proto == NULL)
            break;
        object = JS_MKPTR(JS_TAG_OBJECT, p->shape->proto);
    }
    return JS_UNDEFINED;
}

// As much of a text as a headline takes, so that a long one is not written out for nothing.
static JSValue head_of(JSContext *c, JSValueConst text) {
    if (JS_VALUE_GET_TAG(text) != JS_TAG_STRING || JS_VALUE_GET_STRING(text)->len <= HEADLINE_BYTES)
        return JS_DupValue(c, text);
    return js_sub_string(c, JS_VALUE_GET_STRING(text), 0, HEADLINE_BYTES);
}

// Returns false when there was nothing to put.
static bool put_string(JSContext *c, JSValueConst text, DynBuf *out) {
    if (JS_IsUndefined(text))
        return false;
    size_t length;
    JSValue head = head_of(c, text);
    const char *bytes = JS_ToCStringLen(c, &length, head);
    JS_FreeValue(c, head);
    if (bytes == NULL)
        return false;
    if (length > HEADLINE_BYTES)
        length = utf8_valid_prefix(bytes, HEADLINE_BYTES);
    dbuf_put(out, (const uint8_t *)bytes, length);
    JS_FreeCString(c, bytes);
    return length > 0;
}

static void cellar_put_headline(JSContext *c, JSValueConst error, DynBuf *out) {
    if (JS_VALUE_GET_TAG(error) != JS_TAG_OBJECT || JS_VALUE_GET_OBJ(error)->class_id != JS_CLASS_ERROR)
        return;
    if (!put_string(c, plain_string(error, JS_ATOM_name), out))
        dbuf_putstr(out, "Error");
    JSValueConst message = plain_string(error, JS_ATOM_message);
    if (!JS_IsUndefined(message) && !JS_IsEmptyString(message)) {
        dbuf_putstr(out, ": ");
        put_string(c, message, out);
    }
    dbuf_putc(out, '\n');
}

// The promise that a resolving function settles; NULL when it is none.
static JSPromiseData *settled_by(JSValueConst function) {
    if (JS_GetClassID(function) != JS_CLASS_PROMISE_RESOLVE_FUNCTION)
        return NULL;
    return JS_GetOpaque(JS_VALUE_GET_OBJ(function)->u.promise_function_data->promise, JS_CLASS_PROMISE);
}

// The promise of the evaluation that a module which awaits is a part of; NULL when nobody asked for it.
static JSPromiseData *evaluated_with(const JSModuleDef *module) {
    for (int i = 0; i < HOPS_MAX; i++) {
        if (module->cycle_root != NULL)
            module = module->cycle_root;
        if (!JS_IsUndefined(module->promise))
            return JS_GetOpaque(module->promise, JS_CLASS_PROMISE);
        if (module->async_parent_modules_count == 0)
            break;
        module = module->async_parent_modules[0];
    }
    return NULL;
}

// The promise that is settled, one way or another, by what waits for `promise`: when that is no suspended function.
static JSPromiseData *settled_with(const JSPromiseReactionData *reaction) {
    JSPromiseData *promise = settled_by(reaction->handler);
    if (promise == NULL && JS_GetClassID(reaction->handler) == JS_CLASS_C_FUNCTION_DATA) {
        const JSCFunctionDataRecord *record = JS_GetOpaque(reaction->handler, JS_CLASS_C_FUNCTION_DATA);
        if (record->func == js_promise_all_resolve_element)
            promise = settled_by(record->data[3]);
        else if (record->func == js_async_module_execution_fulfilled)
            return evaluated_with(JS_VALUE_GET_PTR(record->data[0]));
    }
    return promise != NULL ? promise : settled_by(reaction->resolving_funcs[0]);
}

// The promise of an asynchronous function's result; NULL for any other frame.
static JSPromiseData *promise_of(JSStackFrame *frame) {
    // A frame of a function in C has no owner, and does not say so.
    if (!js_class_has_bytecode(JS_VALUE_GET_OBJ(frame->cur_func)->class_id) || frame->cur_gc_obj == NULL)
        return NULL;
    JSGCObjectHeader *owner = frame->cur_gc_obj;
    if (JS_GC_TYPE(owner) == JS_GC_OBJ_TYPE_ASYNC_FUNCTION)
        return settled_by(((JSAsyncFunctionData *)owner)->resolving_funcs[0]);
    JSObject *object = (JSObject *)owner;
    if (object->class_id != JS_CLASS_ASYNC_GENERATOR)
        return NULL;
    JSAsyncGeneratorData *generator = object->u.async_generator_data;
    if (generator == NULL || list_empty(&generator->queue))
        return NULL;
    return settled_by(list_entry(generator->queue.next, JSAsyncGeneratorRequest, link)->resolving_funcs[0]);
}

// The suspended function that goes on when the reaction runs; NULL when it is none.
static JSStackFrame *resumed_by(const JSPromiseReactionData *reaction) {
    switch (JS_GetClassID(reaction->handler)) {
    case JS_CLASS_ASYNC_FUNCTION_RESOLVE: {
        JSAsyncFunctionData *function = JS_VALUE_GET_OBJ(reaction->handler)->u.async_function_data;
        return function->is_active ? &function->func_state.frame : NULL;
    }
    case JS_CLASS_C_FUNCTION_DATA: {
        const JSCFunctionDataRecord *record = JS_GetOpaque(reaction->handler, JS_CLASS_C_FUNCTION_DATA);
        if (record->func != js_async_generator_resolve_function)
            return NULL;
        JSAsyncGeneratorData *generator = JS_GetOpaque(record->data[0], JS_CLASS_ASYNC_GENERATOR);
        return generator != NULL && generator->state == JS_ASYNC_GENERATOR_STATE_EXECUTING
                   ? &generator->func_state.frame
                   : NULL;
    }
    default:
        return NULL;
    }
}

static bool cellar_put_frame(JSContext *c, JSStackFrame *frame, const char *prefix, DynBuf *out) {
    JSObject *function = JS_VALUE_GET_OBJ(frame->cur_func);
    if (!js_class_has_bytecode(function->class_id) || frame->cur_pc == NULL)
        return false;
    JSFunctionBytecode *code = function->u.func.function_bytecode;
    const char *file = code->filename == JS_ATOM_NULL ? NULL : JS_AtomToCString(c, code->filename);
    bool is_shown = file != NULL && strncmp(file, "cellar:", 7) != 0;
    if (is_shown) {
        const char *name = get_func_name(c, frame->cur_func);
        int column, line = find_line_num(c, code, frame->cur_pc - code->byte_code_buf - 1, &column);
        if (name != NULL && name[0] != '\0' && strcmp(name, "<eval>") != 0)
            dbuf_printf(out, "    at %s%s (%s:%d:%d)\n", prefix, name, file, line, column);
        else
            dbuf_printf(out, "    at %s%s:%d:%d\n", prefix, file, line, column);
        JS_FreeCString(c, name);
    }
    JS_FreeCString(c, file);
    return is_shown;
}

static void cellar_put_awaiting(JSContext *c, JSStackFrame *outermost, DynBuf *out, int limit) {
    JSPromiseData *promise = promise_of(outermost);
    for (int hops = 0; promise != NULL && limit > 0 && hops < HOPS_MAX; hops++) {
        if (list_empty(&promise->promise_reactions[0]))
            return;
        const JSPromiseReactionData *reaction =
            list_entry(promise->promise_reactions[0].next, JSPromiseReactionData, link);
        JSStackFrame *frame = resumed_by(reaction);
        if (frame == NULL) {
            promise = settled_with(reaction);
            continue;
        }
        limit -= cellar_put_frame(c, frame, "async ", out);
        promise = promise_of(frame);
    }
}

static void cellar_forget_place(JSContext *c) {
    JS_FreeValue(c, c->error_back_trace);
    c->error_back_trace = JS_UNDEFINED;
}

static void cellar_throw_no_export(JSContext *c, JSAtom message) {
    const char *text = JS_AtomToCString(c, message);
    JS_ThrowSyntaxError(c, "%s", text == NULL ? "the module does not provide an export" : text);
    JS_FreeCString(c, text);
}

// Where the asynchronous function waits whose result a promise is, as a stack; undefined when that is not known.
JSValue waiting_place(JSValueConst promise) {
    const JSPromiseData *wanted = JS_GetOpaque(promise, JS_CLASS_PROMISE);
    struct list_head *at;
    DynBuf text;
    js_dbuf_init(ctx, &text);
    bool found = false;
    list_for_each(at, &runtime->gc_obj_list) {
        JSGCObjectHeader *header = list_entry(at, JSGCObjectHeader, link);
        if (wanted == NULL || found || JS_GC_TYPE(header) != JS_GC_OBJ_TYPE_ASYNC_FUNCTION)
            continue;
        JSAsyncFunctionData *function = (JSAsyncFunctionData *)header;
        if (function->is_active && settled_by(function->resolving_funcs[0]) == wanted)
            found = cellar_put_frame(ctx, &function->func_state.frame, "", &text);
    }
    JSValue stack = found && !dbuf_error(&text) ? JS_NewStringLen(ctx, (const char *)text.buf, text.size) : JS_UNDEFINED;
    dbuf_free(&text);
    return stack;
}

// The asynchronous function that went last while it waited: the promise of its result, and where it waited. The promise is
// compared and not looked into, since it may have gone as well.
static struct {
    const JSPromiseData *promise;
    int line, column;
} abandoned;

static void cellar_note_abandoned(JSRuntime *rt, JSAsyncFunctionData *function) {
    // While cycles are collected, what the function refers to may have gone before it.
    if (!function->is_active || rt->gc_phase == JS_GC_PHASE_REMOVE_CYCLES)
        return;
    const JSPromiseData *promise = settled_by(function->resolving_funcs[0]);
    const JSStackFrame *frame = &function->func_state.frame;
    if (promise == NULL || frame->cur_pc == NULL || !js_class_has_bytecode(JS_VALUE_GET_OBJ(frame->cur_func)->class_id))
        return;
    JSFunctionBytecode *code = JS_VALUE_GET_OBJ(frame->cur_func)->u.func.function_bytecode;
    abandoned.promise = promise;
    abandoned.line = find_line_num(ctx, code, frame->cur_pc - code->byte_code_buf - 1, &abandoned.column);
    for (cell_t *cell = next_cell(NULL); cell != NULL; cell = next_cell(cell))
        note_abandoned_cell(cell);
}

void note_abandoned_cell(cell_t *cell) {
    if (abandoned.promise != NULL && JS_GetOpaque(cell->promise, JS_CLASS_PROMISE) == abandoned.promise) {
        cell->waits_at_line = abandoned.line;
        cell->waits_at_column = abandoned.column;
    }
}

void forget_abandoned(void) {
    abandoned.promise = NULL;
}

// ---- What is not a function

#define CALLEE_BYTES 100

static bool in_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
           c == '#' || (c & 0x80) != 0;
}

// The source of the function that runs, and where in it that is; false when that is not known.
static bool find_place(JSContext *c, const char **start, const char **call, const char **end) {
    JSStackFrame *frame = c->rt->current_stack_frame;
    if (frame == NULL || frame->cur_pc == NULL || !js_class_has_bytecode(JS_VALUE_GET_OBJ(frame->cur_func)->class_id))
        return false;
    JSFunctionBytecode *code = JS_VALUE_GET_OBJ(frame->cur_func)->u.func.function_bytecode;
    char file[ATOM_GET_STR_BUF_SIZE];
    unsigned cell;
    size_t length = (size_t)code->source_len;
    const char *at = code->source;
    if (at == NULL && code->filename != JS_ATOM_NULL &&
        sscanf(JS_AtomGetStr(c, file, sizeof file, code->filename), "<cell %u>", &cell) == 1)
        at = cell_text(cell, &length);
    if (at == NULL)
        return false;
    int column, line = find_line_num(c, code, frame->cur_pc - code->byte_code_buf - 1, &column);
    *start = at;
    *end = at + length;
    for (int i = code->line_num; i < line && at != NULL; i++) {
        at = memchr(at, '\n', (size_t)(*end - at));
        at = at == NULL ? NULL : at + 1;
    }
    if (at == NULL)
        return false;
    at += line == code->line_num ? column - code->col_num : column - 1;
    *call = at;
    return at >= *start && at < *end;
}

// The same where a function is called by its name.
static bool find_call(JSContext *c, const char **start, const char **call, const char **end) {
    return find_place(c, start, call, end) && in_name(**call);
}

static JSValue cellar_throw_not_function(JSContext *c) {
    const char *start, *call, *end;
    if (!find_call(c, &start, &call, &end))
        return JS_ThrowTypeError(c, "not a function");
    const char *first = call, *last = call;
    while (last < end && in_name(*last))
        last++;
    const char *next = last;
    while (next < end && (*next == ' ' || *next == '?' || *next == '.'))
        next++;
    if (next == end || (*next != '(' && *next != '`') || last - first > CALLEE_BYTES)
        return JS_ThrowTypeError(c, "not a function");
    // Back over `a.b.`, and no further.
    while (first > start && first[-1] == '.') {
        const char *before = first - 1;
        if (before > start && before[-1] == '?')
            before--;
        const char *name = before;
        while (name > start && in_name(name[-1]))
            name--;
        if (name == before || last - name > CALLEE_BYTES)
            return JS_ThrowTypeError(c, "(intermediate value).%.*s is not a function", (int)(last - first), first);
        first = name;
    }
    return JS_ThrowTypeError(c, "%.*s is not a function", (int)(last - first), first);
}

// ---- What cannot be iterated over, taken apart or written as JSON

// The expression in a line of source that a loop goes over or that is taken apart into a list; its length, or 0.
static size_t iterated(const char *at, const char *end, const char **expression) {
    static const char *const before[] = {" of ", "] = ", "]="};
    const char *line = memchr(at, '\n', (size_t)(end - at));
    if (line != NULL)
        end = line;
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        size_t length = strlen(before[i]);
        const char *first = at;
        while (first + length < end && memcmp(first, before[i], length) != 0)
            first++;
        if (first + length >= end)
            continue;
        first += length;
        const char *last = first;
        while (last < end && (in_name(*last) || *last == '.'))
            last++;
        if (end - first > 2 && memcmp(first, "{}", 2) == 0)
            last = first + 2;
        if (last > first && last - first <= CALLEE_BYTES && (last == end || strchr(");,\r ", *last) != NULL)) {
            *expression = first;
            return (size_t)(last - first);
        }
    }
    return 0;
}

static JSValue cellar_throw_not_iterable(JSContext *c, JSValueConst value) {
    const char *start, *call, *end, *expression;
    size_t length = find_place(c, &start, &call, &end) ? iterated(call, end, &expression) : 0;
    if (length > 0)
        return JS_ThrowTypeError(c, "%.*s is not iterable", (int)length, expression);
    if (JS_IsUndefined(value) || JS_IsNull(value)) {
        const char *word = JS_IsNull(value) ? "object null" : "undefined";
        return JS_ThrowTypeError(c, "%s is not iterable (cannot read property Symbol(Symbol.iterator))", word);
    }
    const char *kind = JS_IsFunction(c, value) ? "function"
                       : JS_IsObject(value)    ? "object"
                       : JS_IsBool(value)      ? "boolean"
                       : JS_IsNumber(value)    ? "number"
                       : JS_IsSymbol(value)    ? "symbol"
                                               : "bigint";
    if (JS_IsObject(value) || JS_IsSymbol(value))
        return JS_ThrowTypeError(c, "%s is not iterable (cannot read property Symbol(Symbol.iterator))", kind);
    const char *text = JS_ToCString(c, value);
    if (text == NULL)
        return JS_EXCEPTION;
    JS_ThrowTypeError(c, "%s %.100s is not iterable (cannot read property Symbol(Symbol.iterator))", kind, text);
    JS_FreeCString(c, text);
    return JS_EXCEPTION;
}

static JSValue cellar_throw_not_destructured(JSContext *c, JSValueConst value, const uint8_t *pc) {
    const char *word = JS_IsNull(value) ? "null" : "undefined";
    char name[ATOM_GET_STR_BUF_SIZE];
    if (*pc == OP_get_field2) {
        JS_AtomGetStr(c, name, sizeof name, get_u32(pc + 1));
        return JS_ThrowTypeError(c, "Cannot destructure property '%s' of '%s' as it is %s.", name, word, word);
    }
    return JS_ThrowTypeError(c, "Cannot destructure '%s' as it is %s.", word, word);
}

static void cellar_throw_class_called(JSContext *c, JSValueConst function) {
    const char *name = get_func_name(c, function);
    JS_ThrowTypeError(c, "Class constructor %s cannot be invoked without 'new'", name == NULL ? "" : name);
    JS_FreeCString(c, name);
}

// Longest way around a circle that is told, in objects.
#define CIRCLE_MAX 10

// Puts how an object has another: by its index or by the name of a property, found without running code.
static void put_way(JSContext *c, JSValueConst from, JSValueConst to, DynBuf *out) {
    JSObject *p = JS_VALUE_GET_OBJ(from), *wanted = JS_VALUE_GET_OBJ(to);
    if (p->class_id == JS_CLASS_ARRAY && p->fast_array) {
        for (uint32_t i = 0; i < p->u.array.count; i++) {
            if (JS_IsObject(p->u.array.u.values[i]) && JS_VALUE_GET_OBJ(p->u.array.u.values[i]) == wanted) {
                dbuf_printf(out, "index %u", i);
                return;
            }
        }
    }
    JSShapeProperty *shape = get_shape_prop(p->shape);
    for (int i = 0; p->class_id != JS_CLASS_PROXY && i < p->shape->prop_count; i++, shape++) {
        if (shape->atom == JS_ATOM_NULL || (shape->flags & JS_PROP_TMASK) != JS_PROP_NORMAL)
            continue;
        JSValueConst value = p->prop[i].u.value;
        if (JS_IsObject(value) && JS_VALUE_GET_OBJ(value) == wanted) {
            char name[ATOM_GET_STR_BUF_SIZE];
            dbuf_printf(out, "property '%s'", JS_AtomGetStr(c, name, sizeof name, shape->atom));
            return;
        }
    }
    dbuf_putstr(out, "a property");
}

// Puts the name of an object's class, found without running code.
static void put_class_name(JSContext *c, JSValueConst object, DynBuf *out) {
    JSObject *p = JS_VALUE_GET_OBJ(object)->shape->proto;
    JSProperty *property;
    JSShapeProperty *shape = p == NULL || p->class_id == JS_CLASS_PROXY ? NULL : find_own_property(&property, p, JS_ATOM_constructor);
    JSValueConst name = JS_UNDEFINED;
    if (shape != NULL && (shape->flags & JS_PROP_TMASK) == JS_PROP_NORMAL)
        name = plain_string(property->u.value, JS_ATOM_name);
    if (!put_string(c, name, out))
        dbuf_putstr(out, "Object");
}

static void put_class(JSContext *c, JSValueConst object, DynBuf *out) {
    dbuf_putstr(out, "object with constructor '");
    put_class_name(c, object, out);
    dbuf_putc(out, '\'');
}

static void cellar_throw_circular(JSContext *c, JSValueConst stack, JSValueConst value) {
    JSObject *list = JS_VALUE_GET_OBJ(stack);
    JSValue *objects = list->u.array.u.values;
    uint32_t count = list->fast_array ? list->u.array.count : 0, first = 0;
    while (first < count && JS_VALUE_GET_PTR(objects[first]) != JS_VALUE_GET_PTR(value))
        first++;
    DynBuf text;
    js_dbuf_init(c, &text);
    dbuf_putstr(&text, "Converting circular structure to JSON");
    if (first < count) {
        dbuf_putstr(&text, "\n    --> starting at ");
        put_class(c, value, &text);
        for (uint32_t i = first; i + 1 < count; i++) {
            if (i - first >= CIRCLE_MAX) {
                dbuf_putstr(&text, "\n    |     ...");
                break;
            }
            dbuf_putstr(&text, "\n    |     ");
            put_way(c, objects[i], objects[i + 1], &text);
            dbuf_putstr(&text, " -> ");
            put_class(c, objects[i + 1], &text);
        }
        dbuf_putstr(&text, "\n    --- ");
        put_way(c, objects[count - 1], value, &text);
        dbuf_putstr(&text, " closes the circle");
    }
    dbuf_putc(&text, '\0');
    JS_ThrowTypeError(c, "%s", dbuf_error(&text) ? "Converting circular structure to JSON" : (char *)text.buf);
    dbuf_free(&text);
}

// ---- What objects and functions refuse

// Characters of a value or a name that stand in a message.
#define SHOWN_MAX 100

// Puts a value as V8 writes it in messages, without running code.
static void put_value(JSContext *c, JSValueConst value, DynBuf *out) {
    if (JS_IsFunction(c, value)) {
        dbuf_putstr(out, "function");
    } else if (JS_GetClassID(value) == JS_CLASS_ARRAY) {
        dbuf_putstr(out, "[object Array]");
    } else if (JS_GetClassID(value) == JS_CLASS_MODULE_NS) {
        dbuf_putstr(out, "[object Module]");
    } else if (JS_IsObject(value)) {
        dbuf_putstr(out, "#<");
        put_class_name(c, value, out);
        dbuf_putc(out, '>');
    } else if (JS_IsSymbol(value)) {
        JSAtom atom = JS_ValueToAtom(c, value);
        char name[ATOM_GET_STR_BUF_SIZE];
        dbuf_printf(out, "Symbol(%s)", JS_AtomGetStr(c, name, sizeof name, atom));
        JS_FreeAtom(c, atom);
    } else {
        const char *text = JS_ToCString(c, value), *quote = JS_IsString(value) ? "\"" : "";
        if (text != NULL)
            dbuf_printf(out, "%s%.*s%s", quote, SHOWN_MAX, text, quote);
        JS_FreeCString(c, text);
    }
    dbuf_putc(out, '\0');
}

// The text of what was put, or none when memory was short.
static const char *shown(DynBuf *text) {
    return dbuf_error(text) ? "" : (const char *)text->buf;
}

static JSValue cellar_throw_value(JSContext *c, const char *before, JSValueConst value, const char *after) {
    DynBuf text;
    js_dbuf_init(c, &text);
    put_value(c, value, &text);
    JS_ThrowTypeError(c, "%s%.*s%s", before, SHOWN_MAX, shown(&text), after);
    dbuf_free(&text);
    return JS_EXCEPTION;
}

static int cellar_refuse(JSContext *c, int flags, cellar_refusal_t refusal, JSValueConst object, JSAtom atom) {
    if (!(flags & JS_PROP_THROW) && !((flags & JS_PROP_THROW_STRICT) && is_strict_mode(c)))
        return false;
    char buffer[ATOM_GET_STR_BUF_SIZE];
    const char *name = JS_AtomGetStr(c, buffer, sizeof buffer, atom);
    DynBuf text;
    js_dbuf_init(c, &text);
    put_value(c, object, &text);
    const char *whose = shown(&text);
    switch (refusal) {
    case CELLAR_READ_ONLY:
        JS_ThrowTypeError(c, "Cannot assign to read only property '%.*s' of object '%.*s'", SHOWN_MAX, name, SHOWN_MAX, whose);
        break;
    case CELLAR_NO_SETTER:
        JS_ThrowTypeError(c, "Cannot set property %.*s of %.*s which has only a getter", SHOWN_MAX, name, SHOWN_MAX, whose);
        break;
    case CELLAR_NOT_ADDED:
        JS_ThrowTypeError(c, "Cannot add property %.*s, object is not extensible", SHOWN_MAX, name);
        break;
    case CELLAR_NOT_DEFINED:
        JS_ThrowTypeError(c, "Cannot define property %.*s, object is not extensible", SHOWN_MAX, name);
        break;
    case CELLAR_NOT_REDEFINED:
        JS_ThrowTypeError(c, "Cannot redefine property: %.*s", SHOWN_MAX, name);
        break;
    case CELLAR_NOT_DELETED:
        JS_ThrowTypeError(c, "Cannot delete property '%.*s' of %.*s", SHOWN_MAX, name, SHOWN_MAX, whose);
        break;
    }
    dbuf_free(&text);
    return -1;
}

static JSValue cellar_throw_not_constructor(JSContext *c, JSValueConst value) {
    const char *start, *call, *end;
    if (find_place(c, &start, &call, &end) && end - call > 4 && memcmp(call, "new ", 4) == 0) {
        const char *first = call + 4, *last = first;
        while (last < end && (in_name(*last) || *last == '.'))
            last++;
        if (last > first && last - first <= CALLEE_BYTES)
            return JS_ThrowTypeError(c, "%.*s is not a constructor", (int)(last - first), first);
        return JS_ThrowTypeError(c, "(intermediate value) is not a constructor");
    }
    return cellar_throw_value(c, "", value, " is not a constructor");
}

static JSValue cellar_throw_called_without_new(JSContext *c, JSValueConst function) {
    const char *name = get_func_name(c, function);
    const char *shown_name = name == NULL ? "" : name;
    if (strcmp(shown_name, "Promise") == 0)
        JS_ThrowTypeError(c, "Promise constructor cannot be invoked without 'new'");
    else
        JS_ThrowTypeError(c, "Constructor %.*s requires 'new'", SHOWN_MAX, shown_name);
    JS_FreeCString(c, name);
    return JS_EXCEPTION;
}

static void cellar_throw_not_in(JSContext *c, JSValueConst name, JSValueConst value) {
    DynBuf texts[2];
    JSValueConst values[2] = {name, value};
    for (int i = 0; i < 2; i++) {
        js_dbuf_init(c, &texts[i]);
        if (JS_IsString(values[i])) {
            put_string(c, values[i], &texts[i]);
            dbuf_putc(&texts[i], '\0');
        } else {
            put_value(c, values[i], &texts[i]);
        }
    }
    JS_ThrowTypeError(c, "Cannot use 'in' operator to search for '%.*s' in %.*s", SHOWN_MAX, shown(&texts[0]), SHOWN_MAX, shown(&texts[1]));
    for (int i = 0; i < 2; i++)
        dbuf_free(&texts[i]);
}
