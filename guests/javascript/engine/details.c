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

void add_detail_functions(JSContext *c, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("proxyDetails", 1, proxy_details),
        JS_CFUNC_DEF("iteratorEntries", 1, iterator_entries),
        JS_CFUNC_DEF("promiseState", 1, promise_state),
        JS_CFUNC_DEF("namedKeys", 2, named_keys),
    };
    JS_SetPropertyFunctionList(c, host, functions, sizeof functions / sizeof *functions);
}
