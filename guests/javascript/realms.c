// Scripts, and global scopes of their own for them: what `node:vm` is made of.
//
// A part of engine.c, since QuickJS says to nobody outside which global scope a function belongs to.

// newRealm(): the global object of a new scope, which lives as long as anything that came out of it
static JSValue new_realm(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    JSContext *realm = JS_NewContext(runtime);
    if (realm == NULL)
        return JS_ThrowOutOfMemory(c);
    realm->random_state = c->random_state ^ (uintptr_t)realm;
    JSValue global = JS_GetGlobalObject(realm);
    JS_FreeContext(realm);
    return global;
}

static JSValue script(JSContext *c, JSContext *realm, JSValueConst *argv, int flags) {
    size_t length;
    const char *file = JS_ToCString(c, argv[1]), *text = file == NULL ? NULL : JS_ToCStringLen(c, &length, argv[0]);
    JSValue result = text == NULL ? JS_EXCEPTION : JS_Eval(realm, text, length, file, JS_EVAL_TYPE_GLOBAL | flags);
    JS_FreeCString(c, text);
    JS_FreeCString(c, file);
    return result;
}

// runScript(source, file, function): the value of its last statement, run in the scope that the function is of
static JSValue run_script(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    JSContext *realm = JS_GetFunctionRealm(c, argv[2]);
    return realm == NULL ? JS_EXCEPTION : script(c, realm, argv, 0);
}

// checkScript(source, file): throws its syntax error
static JSValue check_script(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    JSValue compiled = script(c, c, argv, JS_EVAL_FLAG_COMPILE_ONLY);
    if (JS_IsException(compiled))
        return JS_EXCEPTION;
    JS_FreeValue(c, compiled);
    return JS_UNDEFINED;
}

void add_realm_functions(JSContext *c, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("newRealm", 0, new_realm),
        JS_CFUNC_DEF("runScript", 3, run_script),
        JS_CFUNC_DEF("checkScript", 2, check_script),
    };
    JS_SetPropertyFunctionList(c, host, functions, sizeof functions / sizeof *functions);
}
