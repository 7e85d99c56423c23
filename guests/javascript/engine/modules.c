// ES modules: compile, connect, evaluate, free. Which modules there are and which file a name means is the prelude's.
//
// A part of engine.c, since it needs to know the inside of QuickJS, whose own resolver is not used: that one loads in
// depth, on the stack, and keeps every module for ever. A module's handle is its address, which only the prelude sees.

// Calls into modules that are on the stack: while there are any, none of them can be judged abandoned.
static uint32_t module_depth;

static JSModuleDef *module_from(JSContext *c, JSValueConst handle) {
    uint32_t address = 0;
    JS_ToUint32(c, &address, handle);
    return (JSModuleDef *)(uintptr_t)address;
}

static JSValue handle_of(JSContext *c, JSModuleDef *module) {
    return module == NULL ? JS_EXCEPTION : JS_NewUint32(c, (uint32_t)(uintptr_t)module);
}

// Called when a module first asks for its `import.meta`.
void cellar_fill_import_meta(JSContext *c, JSModuleDef *module, JSValueConst meta) {
    JSValue name = JS_AtomToString(c, module->module_name);
    JSValueConst arguments[] = {meta, name};
    JSValue result = call_hook(c, HOOK_IMPORT_META, 2, arguments);
    if (JS_IsException(result))
        drop_exception();
    JS_FreeValue(c, result);
    JS_FreeValue(c, name);
}

// What `import.meta` is in cells: one object, which the prelude makes.
JSValue cellar_cell_meta(JSContext *c) {
    JSValueConst arguments[] = {JS_UNDEFINED, JS_UNDEFINED};
    return call_hook(c, HOOK_IMPORT_META, 2, arguments);
}

// compileModule(source, file): a handle. What it imports is neither looked up nor loaded.
static JSValue compile_module(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    size_t length;
    const char *file = JS_ToCString(c, argv[1]), *text = file == NULL ? NULL : JS_ToCStringLen(c, &length, argv[0]);
    JSValue result = JS_EXCEPTION;
    if (text != NULL) {
        result = JS_Eval(c, text, length, file, JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
        if (!JS_IsException(result)) {
            JSModuleDef *module = JS_VALUE_GET_PTR(result);
            JS_FreeValue(c, result);
            result = handle_of(c, module);
        }
    }
    JS_FreeCString(c, text);
    JS_FreeCString(c, file);
    return result;
}

// moduleRequests(handle): specifier, attributes (an object or undefined), and so on
static JSValue module_requests(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    JSModuleDef *module = module_from(c, argv[0]);
    JSValue list = JS_NewArray(c);
    for (int i = 0; i < module->req_module_entries_count; i++) {
        const JSReqModuleEntry *entry = &module->req_module_entries[i];
        JS_SetPropertyUint32(c, list, 2 * i, JS_AtomToString(c, entry->module_name));
        JS_SetPropertyUint32(c, list, 2 * i + 1, js_dup(entry->attributes));
    }
    return list;
}

// connectModule(handle, handles): says which modules its requests have led to, in their order
static JSValue connect_module(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    JSModuleDef *module = module_from(c, argv[0]);
    for (int i = 0; i < module->req_module_entries_count; i++) {
        JSValue handle = JS_GetPropertyUint32(c, argv[1], i);
        module->req_module_entries[i].module = module_from(c, handle);
        JS_FreeValue(c, handle);
    }
    module->resolved = true;
    return JS_UNDEFINED;
}

// Gives a made module the values of its exports: its function returns them, in the order of their names.
static int fill_made_module(JSContext *c, JSModuleDef *module) {
    JSValue values = JS_Call(c, module->private_value, JS_UNDEFINED, 0, NULL);
    if (JS_IsException(values))
        return -1;
    for (int i = 0; i < module->export_entries_count; i++)
        set_value(c, module->export_entries[i].u.local.var_ref->pvalue, JS_GetPropertyUint32(c, values, i));
    JS_FreeValue(c, values);
    return 0;
}

// makeModule(file, names, fill): a handle of a module whose exports come from a function
static JSValue make_module(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    const char *file = JS_ToCString(c, argv[0]);
    JSModuleDef *module = file == NULL ? NULL : JS_NewCModule(c, file, fill_made_module);
    JS_FreeCString(c, file);
    int64_t count;
    if (module == NULL || JS_GetLength(c, argv[1], &count) < 0)
        return JS_EXCEPTION;
    JS_SetModulePrivateValue(c, module, js_dup(argv[2]));
    for (uint32_t i = 0; i < count; i++) {
        JSValue name = JS_GetPropertyUint32(c, argv[1], i);
        const char *text = JS_ToCString(c, name);
        int failed = text == NULL ? -1 : JS_AddModuleExport(c, module, text);
        JS_FreeCString(c, text);
        JS_FreeValue(c, name);
        if (failed) {
            js_free_module_def(c, module);
            return JS_EXCEPTION;
        }
    }
    module->resolved = true;
    return handle_of(c, module);
}

// evaluateModule(handle): links and evaluates it and what it imports; a promise of the end of that
static JSValue evaluate_module(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    module_depth++;
    JSValue promise = JS_EvalFunction(c, JS_NewModuleValue(c, module_from(c, argv[0])));
    module_depth--;
    if (ending == ENDS_NOT || JS_IsException(promise))
        return promise;
    // A module was told to stop, which has become a rejection like any other: let it go on as what it was.
    JSValue reason = JS_PromiseResult(c, promise);
    JS_PromiseMarkAsHandled(c, promise);
    JS_FreeValue(c, promise);
    JS_SetUncatchableError(c, reason);
    return JS_Throw(c, reason);
}

// callCommonJs(function, this, arguments): calls it, counted like the evaluation of a module
static JSValue call_common_js(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    JSValue values[5];
    for (uint32_t i = 0; i < 5; i++)
        values[i] = JS_GetPropertyUint32(c, argv[2], i);
    module_depth++;
    JSValue result = JS_Call(c, argv[0], argv[1], 5, (JSValueConst *)values);
    module_depth--;
    for (int i = 0; i < 5; i++)
        JS_FreeValue(c, values[i]);
    return result;
}

// compileCommonJs(source, file): the function that the file's text is the body of. Positions are the file's own.
static JSValue compile_common_js(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    static const char head[] = "(function (exports, require, module, __filename, __dirname) {\n";
    size_t length;
    const char *file = JS_ToCString(c, argv[1]), *text = file == NULL ? NULL : JS_ToCStringLen(c, &length, argv[0]);
    char *whole = text == NULL ? NULL : js_malloc(c, sizeof head + length + 4);
    JSValue result = JS_EXCEPTION;
    if (whole != NULL) {
        memcpy(whole, head, sizeof head - 1);
        memcpy(whole + sizeof head - 1, text, length);
        memcpy(whole + sizeof head - 1 + length, "\n})", 4);
        // The head is line 0.
        result = JS_EvalInternal(c, c->global_obj, whole, sizeof head + length + 2, file, 0, JS_EVAL_TYPE_GLOBAL, -1);
    }
    js_free(c, whole);
    JS_FreeCString(c, text);
    JS_FreeCString(c, file);
    return result;
}

// moduleNamespace(handle)
static JSValue module_namespace(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    return JS_GetModuleNamespace(c, module_from(c, argv[0]));
}

// moduleState(handle): "new", "running" (its code is on the stack), "waiting" (for an `await`), "done", "failed"
static JSValue module_state(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    const JSModuleDef *module = module_from(c, argv[0]);
    switch ((int)module->status) {
    case JS_MODULE_STATUS_LINKING:
    case JS_MODULE_STATUS_EVALUATING:
        return JS_NewString(c, "running");
    case JS_MODULE_STATUS_EVALUATING_ASYNC:
        return JS_NewString(c, "waiting");
    case JS_MODULE_STATUS_EVALUATED:
        return JS_NewString(c, module->eval_has_exception ? "failed" : "done");
    default:
        return JS_NewString(c, "new");
    }
}

// moduleAwaits(handle): does its own code await at its top level?
static JSValue module_awaits(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    return JS_NewBool(c, module_from(c, argv[0])->has_tla);
}

// moduleDepth()
static JSValue get_module_depth(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    return JS_NewUint32(c, module_depth);
}

// Namespaces hold other modules' namespaces as addresses of modules until somebody reads them. Reads all of them, so
// that modules may go. Returns whether there was one.
static bool settle_namespaces(JSContext *c) {
    bool found = false;
    struct list_head *el;
    list_for_each(el, &c->loaded_modules) {
        const JSModuleDef *module = list_entry(el, JSModuleDef, link);
        if (!JS_IsObject(module->module_ns))
            continue;
        JSShape *shape = JS_VALUE_GET_OBJ(module->module_ns)->shape;
        const JSShapeProperty *property = get_shape_prop(shape);
        for (int i = 0; i < shape->prop_count; i++) {
            if (property[i].atom == JS_ATOM_NULL || (property[i].flags & JS_PROP_TMASK) != JS_PROP_AUTOINIT)
                continue;
            JSValue value = JS_GetProperty(c, module->module_ns, property[i].atom);
            if (JS_IsException(value))
                drop_exception();
            JS_FreeValue(c, value);
            found = true;
            shape = JS_VALUE_GET_OBJ(module->module_ns)->shape;
            property = get_shape_prop(shape);
        }
    }
    return found;
}

// freeModules(handles): true when they are gone, and no module that is left may import one of them; false when one is
// still in use: then it must be asked again later.
static JSValue free_modules(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    int64_t count;
    if (JS_GetLength(c, argv[0], &count) < 0)
        return JS_EXCEPTION;
    for (int round = 0; round < 2; round++) {
        if (round == 1) {
            while (settle_namespaces(c)) {
            }
        }
        for (uint32_t i = 0; i < count; i++) {
            JSValue handle = JS_GetPropertyUint32(c, argv[0], i);
            JSModuleDef *module = module_from(c, handle);
            JS_FreeValue(c, handle);
            if (round == 1)
                js_free_module_def(c, module);
            else if (JS_REF_COUNT(module) != 1 || module->status == JS_MODULE_STATUS_LINKING ||
                     module->status == JS_MODULE_STATUS_EVALUATING ||
                     module->status == JS_MODULE_STATUS_EVALUATING_ASYNC)
                return JS_FALSE;
        }
    }
    return JS_TRUE;
}

// `import(...)`: the prelude returns a promise of the namespace.
static void import_dynamically(JSContext *c, const char *importer, const char *specifier, JSValue token,
                               JSValueConst attributes, void *opaque) {
    JSValue names[] = {JS_NewString(c, specifier), JS_NewString(c, importer)};
    JSValueConst arguments[] = {names[0], names[1], attributes};
    JSValue promise = call_hook(c, HOOK_IMPORT, 3, arguments);
    JSValue resolve = JS_GetPropertyStr(c, token, "resolve"), reject = JS_GetPropertyStr(c, token, "reject"), result;
    if (JS_IsException(promise)) {
        JSValue error = JS_GetException(c);
        result = JS_Call(c, reject, JS_UNDEFINED, 1, (JSValueConst *)&error);
        JS_FreeValue(c, error);
    } else {
        // At once and not in a job, as QuickJS would: what then stops or fails finds who waits for it.
        result = JS_PromiseThen(c, promise, resolve, reject);
    }
    JSValue given[] = {result, promise, resolve, reject, token, names[0], names[1]};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        JS_FreeValue(c, given[i]);
}

void add_module_functions(JSContext *c, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("compileModule", 2, compile_module),
        JS_CFUNC_DEF("compileCommonJs", 2, compile_common_js),
        JS_CFUNC_DEF("moduleRequests", 1, module_requests),
        JS_CFUNC_DEF("connectModule", 2, connect_module),
        JS_CFUNC_DEF("makeModule", 3, make_module),
        JS_CFUNC_DEF("evaluateModule", 1, evaluate_module),
        JS_CFUNC_DEF("callCommonJs", 3, call_common_js),
        JS_CFUNC_DEF("moduleNamespace", 1, module_namespace),
        JS_CFUNC_DEF("moduleState", 1, module_state),
        JS_CFUNC_DEF("moduleAwaits", 1, module_awaits),
        JS_CFUNC_DEF("moduleDepth", 0, get_module_depth),
        JS_CFUNC_DEF("freeModules", 1, free_modules),
    };
    JS_SetPropertyFunctionList(c, host, functions, sizeof functions / sizeof *functions);
}
