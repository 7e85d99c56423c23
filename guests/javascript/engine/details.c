// What only the engine knows of a value, for showing it without running its code. Part of engine.c.

// proxyDetails(value): [target, handler] of a proxy, both null when it is revoked; undefined for anything else
static JSValue proxy_details(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    JSProxyData *proxy = JS_GetOpaque(argv[0], JS_CLASS_PROXY);
    if (proxy == NULL)
        return JS_UNDEFINED;
    JSValue pair = JS_NewArray(c);
    JS_SetPropertyUint32(c, pair, 0, proxy->is_revoked ? JS_NULL : JS_DupValue(c, proxy->target));
    JS_SetPropertyUint32(c, pair, 1, proxy->is_revoked ? JS_NULL : JS_DupValue(c, proxy->handler));
    return pair;
}

// Adds what an iterator gives for an entry; returns the new length.
static uint32_t add_entry(JSContext *c, JSValueConst list, uint32_t length, JSIteratorKindEnum kind,
                          const JSMapRecord *entry) {
    bool is_value = kind == JS_ITERATOR_KIND_VALUE;
    JS_SetPropertyUint32(c, list, length++, JS_DupValue(c, is_value ? entry->value : entry->key));
    if (kind == JS_ITERATOR_KIND_KEY_AND_VALUE)
        JS_SetPropertyUint32(c, list, length++, JS_DupValue(c, entry->value));
    return length;
}

// iteratorEntries(value): [entries, whether they are keys and values in turn] of what a Map's or Set's iterator has not
// given yet; undefined for anything else
static JSValue iterator_entries(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    bool is_set = JS_GetClassID(argv[0]) == JS_CLASS_SET_ITERATOR;
    if (!is_set && JS_GetClassID(argv[0]) != JS_CLASS_MAP_ITERATOR)
        return JS_UNDEFINED;
    const JSMapIteratorData *iterator = JS_GetOpaque(argv[0], JS_GetClassID(argv[0]));
    JSIteratorKindEnum kind = iterator->kind;
    bool is_pairs = kind == JS_ITERATOR_KIND_KEY_AND_VALUE;
    if (is_set && kind == JS_ITERATOR_KIND_VALUE)
        kind = JS_ITERATOR_KIND_KEY; // a set's values are its keys
    JSValue pair = JS_NewArray(c), list = JS_NewArray(c);
    uint32_t length = 0;
    if (!JS_IsUndefined(iterator->obj)) {
        const JSMapState *map = JS_GetOpaque(iterator->obj, is_set ? JS_CLASS_SET : JS_CLASS_MAP);
        const struct list_head *at = iterator->cur_record == NULL ? map->records.next : iterator->cur_record->link.next;
        for (; at != &map->records; at = at->next) {
            const JSMapRecord *entry = list_entry(at, JSMapRecord, link);
            if (!entry->empty)
                length = add_entry(c, list, length, kind, entry);
        }
    }
    JS_SetPropertyUint32(c, pair, 0, list);
    JS_SetPropertyUint32(c, pair, 1, JS_NewBool(c, is_pairs));
    return pair;
}

// promiseState(promise): "pending", or "fulfilled" or "rejected" and the result; undefined for anything else
static JSValue promise_state(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    static const char *const names[] = {"pending", "fulfilled", "rejected"};
    int state = JS_PromiseState(c, argv[0]);
    if (state < JS_PROMISE_PENDING || state > JS_PROMISE_REJECTED)
        return JS_UNDEFINED;
    JSValue pair = JS_NewArray(c);
    JS_SetPropertyUint32(c, pair, 0, JS_NewString(c, names[state]));
    JS_SetPropertyUint32(c, pair, 1, JS_PromiseResult(c, argv[0]));
    return pair;
}

// namedKeys(object, all): own keys that are no indexes, enumerable ones or all, of an object that has its properties
// in the ordinary way; undefined for any other
static JSValue named_keys(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    if (!JS_IsObject(argv[0]))
        return JS_UNDEFINED;
    JSObject *object = JS_VALUE_GET_OBJ(argv[0]);
    if (object->is_exotic && !object->fast_array && object->class_id != JS_CLASS_ARRAY)
        return JS_UNDEFINED;
    bool all = JS_ToBool(c, argv[1]);
    JSShape *shape = object->shape;
    const JSShapeProperty *property = get_shape_prop(shape);
    JSValue list = JS_NewArray(c);
    uint32_t length = 0;
    for (int i = 0; i < shape->prop_count; i++, property++) {
        if (property->atom == JS_ATOM_NULL || __JS_AtomIsTaggedInt(property->atom) ||
            JS_AtomGetKind(c, property->atom) == JS_ATOM_KIND_PRIVATE ||
            (!all && !(property->flags & JS_PROP_ENUMERABLE)))
            continue;
        JS_SetPropertyUint32(c, list, length++, JS_AtomToValue(c, property->atom));
    }
    return list;
}

#define DATA_DEPTH_MAX 64

// Whether JSON holds a value as it is: texts, finite numbers, booleans, null, and plain arrays and objects of those.
static bool holds_data(JSContext *c, JSValueConst value, int depth) {
    int tag = JS_VALUE_GET_NORM_TAG(value);
    if (tag == JS_TAG_FLOAT64)
        return isfinite(JS_VALUE_GET_FLOAT64(value));
    if (tag != JS_TAG_OBJECT)
        return tag == JS_TAG_INT || tag == JS_TAG_BOOL || tag == JS_TAG_NULL || tag == JS_TAG_STRING || tag == JS_TAG_STRING_ROPE;
    JSObject *object = JS_VALUE_GET_OBJ(value);
    if (depth == DATA_DEPTH_MAX || js_check_stack_overflow(c->rt, 256) || !json_is_plain(object))
        return false;
    if (object->class_id == JS_CLASS_ARRAY && object->fast_array) {
        JSValue length = object->prop[0].u.value;
        if (JS_VALUE_GET_TAG(length) != JS_TAG_INT || JS_VALUE_GET_INT(length) != (int)object->u.array.count)
            return false;
        for (uint32_t i = 0; i < object->u.array.count; i++) {
            if (!holds_data(c, object->u.array.u.values[i], depth + 1))
                return false;
        }
        return true;
    }
    JSObject *above = object->shape->proto;
    if (object->class_id != JS_CLASS_OBJECT || (above != NULL && above != JS_VALUE_GET_OBJ(c->class_proto[JS_CLASS_OBJECT])))
        return false;
    JSShapeProperty *property = get_shape_prop(object->shape);
    for (int i = 0; i < object->shape->prop_count; i++, property++) {
        if (property->atom == JS_ATOM_NULL || !(property->flags & JS_PROP_ENUMERABLE))
            continue;
        bool is_name = __JS_AtomIsTaggedInt(property->atom) || c->rt->atom_array[property->atom]->atom_type == JS_ATOM_TYPE_STRING;
        if (!is_name || (property->flags & JS_PROP_TMASK))
            return false;
        JSValueConst member = object->prop[i].u.value;
        if (!JS_IsUndefined(member) && !holds_data(c, member, depth + 1))
            return false;
    }
    return true;
}

// isData(value)
static JSValue is_data(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    return JS_NewBool(c, holds_data(c, argv[0], 0));
}

void add_detail_functions(JSContext *c, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("proxyDetails", 1, proxy_details),
        JS_CFUNC_DEF("iteratorEntries", 1, iterator_entries),
        JS_CFUNC_DEF("promiseState", 1, promise_state),
        JS_CFUNC_DEF("namedKeys", 2, named_keys),
        JS_CFUNC_DEF("isData", 1, is_data),
    };
    JS_SetPropertyFunctionList(c, host, functions, sizeof functions / sizeof *functions);
}
