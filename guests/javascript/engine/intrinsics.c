// The guest's own code does not run on what cells can change: which code is its own, and copies of the built-in objects
// that it sees in their place. Part of engine.c; what looks them up is in `patches/14-own-code.patch`.

static void mark_own(JSFunctionBytecode *function) {
    function->is_own = 1;
    for (int i = 0; i < function->cpool_count; i++) {
        if (JS_VALUE_GET_TAG(function->cpool[i]) == JS_TAG_FUNCTION_BYTECODE)
            mark_own(JS_VALUE_GET_PTR(function->cpool[i]));
    }
}

JSValue run_own(JSContext *c, JSValue code) {
    if (JS_VALUE_GET_TAG(code) == JS_TAG_FUNCTION_BYTECODE)
        mark_own(JS_VALUE_GET_PTR(code));
    return JS_IsException(code) ? code : JS_EvalFunction(c, code);
}

// An object with the same properties and the same prototype; NULL for lack of memory.
static JSObject *copy_of(JSObject *p) {
    JSObject *proto = p->shape->proto;
    JSValue copy = JS_NewObjectProto(ctx, proto == NULL ? JS_NULL : JS_MKPTR(JS_TAG_OBJECT, proto));
    for (int i = 0; i < p->shape->prop_count && !JS_IsException(copy); i++) {
        JSShapeProperty *shaped = &get_shape_prop(p->shape)[i];
        JSAtom name = shaped->atom;
        // What is made when it is first needed is made now.
        if (name != JS_ATOM_NULL && (shaped->flags & JS_PROP_TMASK) == JS_PROP_AUTOINIT &&
            JS_AutoInitProperty(ctx, p, name, &p->prop[i], shaped))
            break;
        shaped = &get_shape_prop(p->shape)[i];
        int type = shaped->flags & JS_PROP_TMASK, flags = shaped->flags & JS_PROP_C_W_E;
        JSProperty *from = &p->prop[i];
        if (name == JS_ATOM_NULL || (type != JS_PROP_NORMAL && type != JS_PROP_GETSET))
            continue;
        JSProperty *to = add_property(ctx, JS_VALUE_GET_OBJ(copy), name, flags | type);
        if (to == NULL)
            break;
        if (type == JS_PROP_NORMAL) {
            to->u.value = js_dup(from->u.value);
            continue;
        }
        *to = *from;
        if (to->u.getset.getter != NULL)
            js_dup(JS_MKPTR(JS_TAG_OBJECT, to->u.getset.getter));
        if (to->u.getset.setter != NULL)
            js_dup(JS_MKPTR(JS_TAG_OBJECT, to->u.getset.setter));
    }
    if (JS_IsException(copy) || JS_HasException(ctx))
        give_up(ctx, "a built-in object cannot be copied");
    return JS_VALUE_GET_OBJ(copy);
}

// Keeps an object, and those that it inherits from, as they are.
static void keep(JSObject *p) {
    int left = CELLAR_KEPT_SIZE / 2;
    for (; p != NULL && !p->is_kept && p != JS_VALUE_GET_OBJ(ctx->global_obj) && left > 0; p = p->shape->proto, left--) {
        struct cellar_kept *place = cellar_kept_place(runtime, p);
        p->is_kept = 1;
        js_dup(JS_MKPTR(JS_TAG_OBJECT, p));
        *place = (struct cellar_kept){p, copy_of(p)};
    }
}

static void forget_intrinsics(void) {
    struct cellar_kept *kept = runtime->kept;
    JSObject *global = runtime->kept_global;
    runtime->kept = NULL;
    runtime->kept_global = NULL;
    for (int i = 0; kept != NULL && i < CELLAR_KEPT_SIZE; i++) {
        if (kept[i].object == NULL)
            continue;
        kept[i].object->is_kept = 0;
        JS_FreeValue(ctx, JS_MKPTR(JS_TAG_OBJECT, kept[i].object));
        JS_FreeValue(ctx, JS_MKPTR(JS_TAG_OBJECT, kept[i].copy));
    }
    if (global != NULL)
        JS_FreeValue(ctx, JS_MKPTR(JS_TAG_OBJECT, global));
    js_free_rt(runtime, kept);
}

// Objects without a constructor that are full of functions.
static const char *const namespaces[] = {"Math", "JSON", "Reflect", "Atomics"};

static bool is_namespace(JSAtom name) {
    const char *text = JS_AtomToCString(ctx, name);
    bool found = false;
    for (size_t i = 0; text != NULL && i < sizeof namespaces / sizeof *namespaces; i++)
        found |= strcmp(text, namespaces[i]) == 0;
    JS_FreeCString(ctx, text);
    return found;
}

void keep_intrinsics(void) {
    forget_intrinsics();
    struct list_head *entry;
    list_for_each(entry, &runtime->gc_obj_list) {
        JSGCObjectHeader *header = list_entry(entry, JSGCObjectHeader, link);
        if (JS_GC_TYPE(header) == JS_GC_OBJ_TYPE_FUNCTION_BYTECODE)
            ((JSFunctionBytecode *)header)->is_own = 1;
    }
    JSObject *global = copy_of(JS_VALUE_GET_OBJ(ctx->global_obj));
    runtime->kept = js_mallocz_rt(runtime, CELLAR_KEPT_SIZE * sizeof *runtime->kept);
    if (runtime->kept == NULL)
        give_up(ctx, "no memory for built-in objects");
    for (int i = 0; i < runtime->class_count; i++) {
        if (JS_VALUE_GET_TAG(ctx->class_proto[i]) == JS_TAG_OBJECT)
            keep(JS_VALUE_GET_OBJ(ctx->class_proto[i]));
    }
    for (int i = 0; i < JS_NATIVE_ERROR_COUNT; i++)
        keep(JS_VALUE_GET_OBJ(ctx->native_error_proto[i]));
    for (int i = 0; i < global->shape->prop_count; i++) {
        JSShapeProperty *shaped = &get_shape_prop(global->shape)[i];
        if (shaped->atom == JS_ATOM_NULL || (shaped->flags & JS_PROP_TMASK) != JS_PROP_NORMAL ||
            JS_VALUE_GET_TAG(global->prop[i].u.value) != JS_TAG_OBJECT)
            continue;
        JSObject *p = JS_VALUE_GET_OBJ(global->prop[i].u.value);
        if (p->class_id == JS_CLASS_C_FUNCTION || is_namespace(shaped->atom))
            keep(p);
    }
    runtime->kept_global = global;
}
