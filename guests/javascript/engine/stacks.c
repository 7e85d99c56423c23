// What a stack says beyond the functions that are being called: see stacks.h. Part of engine.c, since it looks into
// QuickJS's promises and suspended functions.
#include "cells/cells.h"
#include "stacks.h"

// Promises that are followed from one function that awaits to the next.
#define HOPS_MAX 64

// Prototypes that are searched for an error's name.
#define PROTOTYPES_MAX 32

// Longer names and messages are cut in the first line of a stack; the properties themselves have all.
#define HEADLINE_BYTES 10000

// What a line of a stack takes, as a rule.
#define FRAME_BYTES 256

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

// Properties of an object that are searched for a method.
#define METHODS_MAX 1000

static bool is_identifier(const char *name) {
    if (name[0] == '#' || (name[0] >= '0' && name[0] <= '9'))
        return false;
    while (in_name(*name))
        name++;
    return *name == '\0';
}

// The name of the class that an object was made by, found without running code; JS_UNDEFINED when there is none.
static JSValueConst name_of_class(JSValueConst object) {
    JSObject *p = JS_VALUE_GET_OBJ(object);
    for (int i = 0; i < PROTOTYPES_MAX && p != NULL && p->class_id != JS_CLASS_PROXY; i++, p = p->shape->proto) {
        JSProperty *property;
        JSShapeProperty *shape = find_own_property(&property, p, JS_ATOM_constructor);
        if (shape != NULL && (shape->flags & JS_PROP_TMASK) == JS_PROP_NORMAL && JS_IsObject(property->u.value))
            return plain_string(property->u.value, JS_ATOM_name);
    }
    return JS_UNDEFINED;
}

static bool is_class(JSObject *function) {
    JSProperty *property;
    JSShapeProperty *shape =
        function->class_id == JS_CLASS_BYTECODE_FUNCTION ? find_own_property(&property, function, JS_ATOM_prototype) : NULL;
    return shape != NULL && !(shape->flags & JS_PROP_WRITABLE);
}

// Puts the class of what a function was called on, and nothing when that is nothing or all that is global.
static bool put_receiver(JSContext *c, const JSStackFrame *frame, DynBuf *out) {
    JSContext *realm = JS_VALUE_GET_OBJ(frame->cur_func)->u.func.function_bytecode->realm;
    JSValueConst receiver = frame->this_obj;
    if (JS_IsString(receiver)) {
        dbuf_putstr(out, "String");
    } else if (JS_IsNumber(receiver)) {
        dbuf_putstr(out, "Number");
    } else if (JS_IsBool(receiver)) {
        dbuf_putstr(out, "Boolean");
    } else if (JS_IsSymbol(receiver)) {
        dbuf_putstr(out, "Symbol");
    } else if (JS_IsBigInt(receiver)) {
        dbuf_putstr(out, "BigInt");
    } else if (!JS_IsObject(receiver) || JS_VALUE_GET_OBJ(receiver) == JS_VALUE_GET_OBJ(realm->global_obj)) {
        return false;
    } else if (JS_VALUE_GET_OBJ(receiver)->class_id == JS_CLASS_PROXY) {
        dbuf_putstr(out, "Proxy");
    } else if (!is_class(JS_VALUE_GET_OBJ(receiver)) || !put_string(c, plain_string(receiver, JS_ATOM_name), out)) {
        if (!put_string(c, name_of_class(receiver), out))
            dbuf_putstr(out, "Object");
    }
    return true;
}

// What a function is called as on an object: the one property that holds it, or none; also none when that is `name`.
static JSAtom method_name(JSContext *c, JSValueConst receiver, JSValueConst function, const char *name) {
    JSAtom found = JS_ATOM_NULL;
    JSObject *p = JS_IsObject(receiver) ? JS_VALUE_GET_OBJ(receiver) : NULL;
    for (int i = 0; i < PROTOTYPES_MAX && p != NULL && p->class_id != JS_CLASS_PROXY; i++, p = p->shape->proto) {
        JSShapeProperty *shape = get_shape_prop(p->shape);
        for (int at = 0; at < p->shape->prop_count && at < METHODS_MAX; at++, shape++) {
            if (shape->atom == JS_ATOM_NULL || (shape->flags & JS_PROP_TMASK) != JS_PROP_NORMAL ||
                !JS_IsObject(p->prop[at].u.value) || JS_VALUE_GET_OBJ(p->prop[at].u.value) != JS_VALUE_GET_OBJ(function) ||
                JS_AtomGetKind(c, shape->atom) != JS_ATOM_KIND_STRING)
                continue;
            char text[ATOM_GET_STR_BUF_SIZE];
            if (strcmp(JS_AtomGetStr(c, text, sizeof text, shape->atom), name) == 0 || (found != JS_ATOM_NULL && found != shape->atom))
                return JS_ATOM_NULL;
            found = shape->atom;
        }
    }
    return found;
}

// What the functions of timers are called as, which are no properties of theirs; `class` is that of a timer, or another.
static const char *timers_name(const uint8_t *class, size_t length) {
    static const char *const timers[][2] = {{"Timeout", "_onTimeout"}, {"Immediate", "_onImmediate"}};
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++)
        if (length == strlen(timers[i][0]) && memcmp(class, timers[i][0], length) == 0)
            return timers[i][1];
    return NULL;
}

// Puts how a function was called, in V8's words: `new Name`, `Class.name`, `Class.name [as other]` or `name`. Returns false
// when there is nothing to say.
static bool put_call(JSContext *c, const JSStackFrame *frame, DynBuf *out) {
    const char *name = get_func_name(c, frame->cur_func);
    const char *own = name == NULL || strcmp(name, "<eval>") == 0 ? "" : name;
    bool is_said = true;
    size_t before = out->size;
    if (strcmp(own, "<class_fields_init>") == 0) {
        dbuf_putstr(out, "<instance_members_initializer>");
    } else if (frame->is_constructor) {
        dbuf_printf(out, "new %s", own[0] == '\0' ? "<anonymous>" : own);
    } else if (name != own && name != NULL) {
        is_said = false;
    } else if ((own[0] == '\0' || is_identifier(own)) && put_receiver(c, frame, out)) {
        char text[ATOM_GET_STR_BUF_SIZE];
        JSAtom method = method_name(c, frame->this_obj, frame->cur_func, own);
        const char *called = method == JS_ATOM_NULL ? timers_name(out->buf + before, out->size - before)
                                                    : JS_AtomGetStr(c, text, sizeof text, method);
        if (own[0] == '\0')
            dbuf_printf(out, ".%s", called == NULL ? "<anonymous>" : called);
        else if (called == NULL)
            dbuf_printf(out, ".%s", own);
        else
            dbuf_printf(out, ".%s [as %s]", own, called);
    } else {
        dbuf_putstr(out, own);
        is_said = own[0] != '\0';
    }
    JS_FreeCString(c, name);
    return is_said;
}

// Written without formats, which take longer than all else here: programs that throw in a loop wait for this.
static void put_place(DynBuf *out, const char *file, int line, int column) {
    char number[16];
    dbuf_putstr(out, file);
    dbuf_putc(out, ':');
    dbuf_put(out, (const uint8_t *)number, i32toa(number, line));
    dbuf_putc(out, ':');
    dbuf_put(out, (const uint8_t *)number, i32toa(number, column));
}

static bool cellar_put_frame(JSContext *c, JSStackFrame *frame, const char *prefix, DynBuf *out) {
    JSObject *function = JS_VALUE_GET_OBJ(frame->cur_func);
    if (!js_class_has_bytecode(function->class_id) || frame->cur_pc == NULL)
        return false;
    JSFunctionBytecode *code = function->u.func.function_bytecode;
    const char *file = code->filename == JS_ATOM_NULL ? NULL : JS_AtomToCString(c, code->filename);
    bool is_shown = file != NULL && strncmp(file, "cellar:", 7) != 0;
    if (is_shown) {
        int column, line = find_line_num(c, code, frame->cur_pc - code->byte_code_buf - 1, &column);
        // Once in the place of several times; what does not fit is found out below.
        (void)dbuf_claim(out, FRAME_BYTES);
        dbuf_putstr(out, "    at ");
        dbuf_putstr(out, prefix);
        bool has_call = put_call(c, frame, out);
        if (has_call)
            dbuf_putstr(out, " (");
        put_place(out, file, line, column);
        dbuf_putstr(out, has_call ? ")\n" : "\n");
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
