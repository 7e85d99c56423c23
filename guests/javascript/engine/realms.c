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

// runScript(source, file, function, milliseconds): the value of its last statement, run in the scope that the function is of.
// When it has had a time, and that is over, nothing in the script can catch that, and who runs it can.
static JSValue run_script(JSContext *c, JSValueConst this_value, int argc, JSValueConst *argv) {
    JSContext *realm = JS_GetFunctionRealm(c, argv[2]);
    double milliseconds = 0;
    if (realm == NULL || (JS_IsNumber(argv[3]) && JS_ToFloat64(c, &milliseconds, argv[3])))
        return JS_EXCEPTION;
    uint64_t outer = script_deadline;
    if (milliseconds > 0) {
        uint64_t own = cellar_kernel_control_monotonic_clock() + (uint64_t)(milliseconds * 1e6);
        script_deadline = outer == 0 || own < outer ? own : outer;
    }
    JSValue result = script(c, realm, argv, 0);
    script_deadline = outer;
    bool expired = milliseconds > 0 && script_expired;
    if (milliseconds > 0)
        script_expired = false;
    if (!expired || !JS_IsException(result) || ending != ENDS_NOT)
        return result;
    drop_exception();
    char message[64];
    snprintf(message, sizeof message, "Script execution timed out after %.0fms", milliseconds);
    JSValue error = JS_NewError(c);
    JS_DefinePropertyValueStr(c, error, "message", JS_NewString(c, message), JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
    JS_DefinePropertyValueStr(c, error, "code", JS_NewString(c, "ERR_SCRIPT_EXECUTION_TIMEOUT"), JS_PROP_C_W_E);
    return JS_Throw(c, error);
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
        JS_CFUNC_DEF("runScript", 4, run_script),
        JS_CFUNC_DEF("checkScript", 2, check_script),
    };
    JS_SetPropertyFunctionList(c, host, functions, sizeof functions / sizeof *functions);
}
