//! Changes to QuickJS's own source, each of which must fit exactly once or the build fails.

mod atomics;
mod bounded;
mod faster;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Functions of QuickJS that recurse, and the bytes each shall take on the stack.
///
/// QuickJS measures its recursion by the C stack in linear memory. These functions keep all they have in WebAssembly
/// locals, take nothing of that stack, and would exhaust the engine's own, which is a trap and not an exception. Each
/// gets an array that nothing reads, sized so that the measured stack runs out first.
const PADS: &[(&str, &[(&str, u32)])] = &[
    (
        "quickjs.c",
        &[
            ("JS_FlattenIntoArray", 512),
            ("internalize_json_property", 512),
            ("gather_available_ancestors", 256),
            ("js_async_module_execution_rejected", 256),
            ("js_call_bound_function", 512),
            ("js_create_function", 1024),
            ("js_create_module_function", 128),
            ("js_inner_module_evaluation", 128),
            ("js_inner_module_linking", 128),
            ("js_iterator_concat_next", 256),
            ("js_iterator_helper_next", 256),
            ("js_iterator_wrap_next", 256),
            ("js_json_to_str", 768),
            ("js_parse_assign_expr2", 1024),
            ("js_parse_destructuring_element", 1024),
            ("js_parse_function_decl2", 1024),
            ("js_parse_statement_or_decl", 1024),
            ("js_parse_unary", 1536),
            ("js_proxy_call", 512),
            ("js_proxy_call_constructor", 512),
            ("js_proxy_define_own_property", 512),
            ("js_proxy_delete_property", 512),
            ("js_proxy_get", 512),
            ("js_proxy_getPrototypeOf", 512),
            ("js_proxy_get_own_property", 512),
            ("js_proxy_get_own_property_names", 512),
            ("js_proxy_has", 512),
            ("js_proxy_isArray", 512),
            ("js_proxy_isExtensible", 512),
            ("js_proxy_preventExtensions", 512),
            ("js_proxy_set", 512),
            ("js_proxy_setPrototypeOf", 512),
            ("json_parse_value", 384),
        ],
    ),
    ("libregexp.c", &[("re_parse_disjunction", 1024)]),
];

/// Put in front of each patched file. The empty assembly makes the compiler believe that the array is used.
const PAD_MACRO: &str = "#include \"glue.h\"\nvoid cellar_out_of_memory(void);\n#define CELLAR_STACK_PAD(n) \\\n\
    char cellar_stack_pad[n]; __asm__ volatile(\"\" : : \"r\"(cellar_stack_pad) : \"memory\")\n";

/// Replacements: file, what it says, what it shall say, and why.
///
/// What the shim needs and no embedding interface offers: which cell a job belongs to, and the rules of a cell's top
/// level. A cell is the only code that is evaluated as an async script, so those rules touch nothing else.
const EDITS: &[(&str, &str, &str)] = &[
    // A job runs for the cell that was running when it was made ...
    (
        "quickjs.c",
        "    JSJobFunc *job_func;\n    int argc;",
        "    JSJobFunc *job_func;\n    uint32_t cell;\n    int argc;",
    ),
    ("quickjs.c", "    e->job_func = job_func;\n", "    e->job_func = job_func;\n    e->cell = glue_cell;\n"),
    // ... except that what waits for a promise belongs to the cell that began to wait, whoever settles the promise.
    (
        "quickjs.c",
        "    JSValue resolving_funcs[2];\n    JSValue handler;\n} JSPromiseReactionData;",
        "    JSValue resolving_funcs[2];\n    JSValue handler;\n    uint32_t cell;\n} JSPromiseReactionData;",
    ),
    (
        "quickjs.c",
        "        rd->handler = js_dup(handler);\n",
        "        rd->handler = js_dup(handler);\n        rd->cell = glue_cell;\n",
    ),
    (
        "quickjs.c",
        "        args[4] = value;\n        JS_EnqueueJob(ctx, promise_reaction_job, 5, args);\n",
        "        args[4] = value;\n        uint32_t settler = glue_cell;\n        glue_cell = rd->cell;\n        \
         JS_EnqueueJob(ctx, promise_reaction_job, 5, args);\n        glue_cell = settler;\n",
    ),
    // The context of `AsyncLocalStorage` follows in the same way: jobs have that of the code that made them, and what
    // waits for a promise that of the code that began to wait.
    (
        "quickjs.c",
        "typedef struct JSJobEntry {\n",
        "/* What code runs in the context of: a value of the prelude's, undefined for none. */\n\
         extern JSValue cellar_context;\n\ntypedef struct JSJobEntry {\n",
    ),
    ("quickjs.c", "    uint32_t cell;\n    int argc;", "    uint32_t cell;\n    JSValue context;\n    int argc;"),
    ("quickjs.c", "    e->cell = glue_cell;\n", "    e->cell = glue_cell;\n    e->context = js_dup(cellar_context);\n"),
    (
        "quickjs.c",
        "            JS_FreeValueRT(rt, e->argv[i]);\n        js_free_rt(rt, e);",
        "            JS_FreeValueRT(rt, e->argv[i]);\n        JS_FreeValueRT(rt, e->context);\n        js_free_rt(rt, e);",
    ),
    (
        "quickjs.c",
        "    uint32_t cell;\n} JSPromiseReactionData;",
        "    uint32_t cell;\n    JSValue context;\n} JSPromiseReactionData;",
    ),
    (
        "quickjs.c",
        "        rd->cell = glue_cell;\n",
        "        rd->cell = glue_cell;\n        rd->context = js_dup(cellar_context);\n",
    ),
    (
        "quickjs.c",
        "    JS_FreeValueRT(rt, rd->handler);\n    js_free_rt(rt, rd);",
        "    JS_FreeValueRT(rt, rd->handler);\n    JS_FreeValueRT(rt, rd->context);\n    js_free_rt(rt, rd);",
    ),
    (
        "quickjs.c",
        "            JS_MarkValue(rt, rd->handler, mark_func);\n        }",
        "            JS_MarkValue(rt, rd->handler, mark_func);\n            \
         JS_MarkValue(rt, rd->context, mark_func);\n        }",
    ),
    (
        "quickjs.c",
        "        glue_cell = rd->cell;\n",
        "        glue_cell = rd->cell;\n        JSValue outer = cellar_context;\n        cellar_context = rd->context;\n",
    ),
    ("quickjs.c", "        glue_cell = settler;\n", "        glue_cell = settler;\n        cellar_context = outer;\n"),
    // `let`, `const`, `class`, `var` and `function` may declare again what an earlier cell declared. The old value
    // stays until the new one is there, so a cell that fails on the way loses nothing.
    (
        "quickjs.c",
        "        if (prs && !(prs->flags & JS_PROP_CONFIGURABLE))\n            goto fail_redeclaration;",
        "        if (prs && !(prs->flags & (JS_PROP_CONFIGURABLE | JS_PROP_WRITABLE)))\n            goto fail_redeclaration;",
    ),
    (
        "quickjs.c",
        "    /* check if there already is a lexical declaration */\n    p = JS_VALUE_GET_OBJ(ctx->global_var_obj);\n    \
         prs = find_own_property1(p, prop);\n    if (prs) {\n    fail_redeclaration:",
        "    if (0) {\n    fail_redeclaration:",
    ),
    (
        "quickjs.c",
        "        val = JS_UNINITIALIZED;\n    } else {\n        p = JS_VALUE_GET_OBJ(ctx->global_obj);",
        "        val = cellar_forget_lexical(ctx, prop, cellar_global_value(ctx, prop));\n    } else {\n        \
         JS_FreeValue(ctx, cellar_forget_lexical(ctx, prop, JS_UNDEFINED));\n        \
         p = JS_VALUE_GET_OBJ(ctx->global_obj);",
    ),
    (
        "quickjs.c",
        "    JSObject *p;\n    JSShapeProperty *prs;\n    int flags;\n\n    p = JS_VALUE_GET_OBJ(ctx->global_obj);",
        "    JSObject *p;\n    JSShapeProperty *prs;\n    int flags;\n\n    \
         JS_FreeValue(ctx, cellar_forget_lexical(ctx, prop, JS_UNDEFINED));\n    \
         p = JS_VALUE_GET_OBJ(ctx->global_obj);",
    ),
    (
        "quickjs.c",
        "/* def_flags is (0, DEFINE_GLOBAL_LEX_VAR) |",
        "/* The value of a plain global variable. */\n\
         static JSValue cellar_global_value(JSContext *ctx, JSAtom prop)\n{\n    JSProperty *pr;\n    \
         JSShapeProperty *prs = find_own_property(&pr, JS_VALUE_GET_OBJ(ctx->global_obj), prop);\n    \
         return prs && (prs->flags & JS_PROP_TMASK) == JS_PROP_NORMAL ? js_dup(pr->u.value) : JS_UNINITIALIZED;\n}\n\n\
         /* Removes a lexical declaration; returns its value, or 'fallback' when there is none. */\n\
         static JSValue cellar_forget_lexical(JSContext *ctx, JSAtom prop, JSValue fallback)\n{\n    \
         JSProperty *pr;\n    JSObject *p = JS_VALUE_GET_OBJ(ctx->global_var_obj);\n    \
         if (!find_own_property(&pr, p, prop))\n        return fallback;\n    \
         JS_FreeValue(ctx, fallback);\n    \
         JSValue value = js_dup(pr->u.value);\n    delete_property(ctx, p, prop);\n    return value;\n}\n\n\
         /* def_flags is (0, DEFINE_GLOBAL_LEX_VAR) |",
    ),
    // Memory that was kept aside goes to making the error.
    (
        "quickjs.c",
        "        rt->in_out_of_memory = true;\n",
        "        rt->in_out_of_memory = true;\n        cellar_out_of_memory();\n",
    ),
    // A program may catch that memory is short or a string too long; only being told to stop cannot be caught.
    (
        "quickjs.c",
        "js_set_uncatchable_error(val, true);                        \\",
        "js_set_uncatchable_error(val, false); \\",
    ),
    (
        "quickjs.c",
        "js_set_uncatchable_error(ctx->rt->current_exception, true); \\",
        "js_set_uncatchable_error(ctx->rt->current_exception, false); \\",
    ),
    ("quickjs.c", "        js_set_uncatchable_error(obj, true);\n", "        js_set_uncatchable_error(obj, false);\n"),
    // A cell may `return`. Its value is the cell's.
    (
        "quickjs.c",
        "        if (s->cur_func->is_eval) {\n            js_parse_error(s, \"return not in a function\");",
        "        if (cellar_is_cell(s)) {\n            if (cellar_parse_return(s))\n                goto fail;\n            \
         break;\n        }\n        if (s->cur_func->is_eval) {\n            \
         js_parse_error(s, \"return not in a function\");",
    ),
    // A cell's value is that of its last statement, when that is an expression: not what a loop happened to compute.
    (
        "quickjs.c",
        "        if (s->cur_func->eval_ret_idx >= 0) {\n            /* store the expression value so that it can be returned",
        "        if (s->cur_func->eval_ret_idx >= 0 && cellar_gives_value(s)) {\n            \
         /* store the expression value so that it can be returned",
    ),
    (
        "quickjs.c",
        "    JSFunctionDef *fd = s->cur_func;\n    int tok;\n\n    if (s->token.val == TOK_FUNCTION ||",
        "    JSFunctionDef *fd = s->cur_func;\n    int tok;\n\n    if (cellar_is_cell(s) && s->token.val != ';')\n        \
         set_eval_ret_undefined(s);\n    if (s->token.val == TOK_FUNCTION ||",
    ),
    // What the edits above and below call.
    (
        "quickjs.c",
        "static __exception int js_parse_statement_or_decl(JSParseState *s,\n                                                  int decl_mask)\n{",
        "#include \"cell_parser.h\"\n\n\
         static __exception int js_parse_statement_or_decl(JSParseState *s,\n                                                  int decl_mask)\n{",
    ),
    // A cell may have import declarations.
    (
        "quickjs.c",
        "    } else if (s->token.val == TOK_IMPORT && fd->module &&\n",
        "    } else if (s->token.val == TOK_IMPORT && cellar_is_cell(s) &&\n               \
         (tok = peek_token(s, false)) != '(' && tok != '.') {\n        \
         if (cellar_parse_import(s))\n            return -1;\n    \
         } else if (s->token.val == TOK_IMPORT && fd->module &&\n",
    ),
    (
        "quickjs.c",
        "#define JS_THROW_ERROR_ITERATOR_THROW 4\n",
        "#define JS_THROW_ERROR_ITERATOR_THROW 4\n#define CELLAR_THROW_NO_EXPORT 5\n",
    ),
    (
        "quickjs.c",
        "                if (type == JS_THROW_ERROR_ITERATOR_THROW)\n",
        "                if (type == CELLAR_THROW_NO_EXPORT)\n                    \
         cellar_throw_no_export(ctx, atom);\n                else\n                \
         if (type == JS_THROW_ERROR_ITERATOR_THROW)\n",
    ),
    (
        "quickjs.c",
        "/* Note: it is important that no exception is returned by this function */\nstatic bool can_add_backtrace(",
        "#include \"stacks.h\"\n\n/* Note: it is important that no exception is returned by this function */\nstatic bool can_add_backtrace(",
    ),
    // The prelude decides what a module imports, when all that it imports is there.
    (
        "quickjs.c",
        "        m->func_obj = fun_obj;\n        if (js_resolve_module(ctx, m) < 0)\n            goto fail1;\n",
        "        m->func_obj = fun_obj;\n",
    ),
    (
        "quickjs.c",
        "            return JS_EXCEPTION;\n        m->meta_obj = obj;\n",
        "            return JS_EXCEPTION;\n        m->meta_obj = obj;\n        \
         cellar_fill_import_meta(ctx, m, obj);\n",
    ),
    (
        "quickjs.c",
        "JSValue JS_GetImportMeta(JSContext *ctx, JSModuleDef *m)\n{",
        "void cellar_fill_import_meta(JSContext *ctx, JSModuleDef *m, JSValueConst meta);\n\n\
         JSValue JS_GetImportMeta(JSContext *ctx, JSModuleDef *m)\n{",
    ),
    // A cell that begins with a brace may be an object.
    (
        "quickjs.c",
        "    while (s->token.val != TOK_EOF) {\n        if (js_parse_source_element(s))",
        "    if (s->token.val == '{' && cellar_brace_is_object && cellar_is_cell(s) && cellar_parse_object(s))\n        \
         return -1;\n    while (s->token.val != TOK_EOF) {\n        if (js_parse_source_element(s))",
    ),
    // An error of a call is where the function is named, one of `new` where the `new` is, and one of a property where
    // that is named; not where the last argument is.
    (
        "quickjs.c",
        "    int import_line_num, import_col_num;\n    bool accept_lparen",
        "    int import_line_num, import_col_num, callee_line_num = s->token.line_num, callee_col_num = s->token.col_num;\n    \
         bool accept_lparen",
    ),
    (
        "quickjs.c",
        "                /* new operator on an object */\n                emit_op(s, OP_dup);\n",
        "                /* new operator on an object */\n                \
         emit_source_loc_at(s, callee_line_num, callee_col_num);\n                emit_op(s, OP_dup);\n",
    ),
    (
        "quickjs.c",
        "            parse_func_call2:\n                emit_source_loc(s);\n",
        "            parse_func_call2:\n                emit_source_loc_at(s, callee_line_num, callee_col_num);\n",
    ),
    (
        "quickjs.c",
        "                /* apply function call */\n                switch(opcode) {",
        "                /* apply function call */\n                \
         emit_source_loc_at(s, callee_line_num, callee_col_num);\n                switch(opcode) {",
    ),
    (
        "quickjs.c",
        "            emit_func_call:\n                switch(opcode) {",
        "            emit_func_call:\n                \
         emit_source_loc_at(s, callee_line_num, callee_col_num);\n                switch(opcode) {",
    ),
    (
        "quickjs.c",
        "                    emit_op(s, OP_get_field);\n                    emit_atom(s, s->token.u.ident.atom);\n                }\n            }\n",
        "                    callee_line_num = s->token.line_num;\n                    \
         callee_col_num = s->token.col_num;\n                    \
         emit_source_loc(s);\n                    \
         emit_op(s, OP_get_field);\n                    emit_atom(s, s->token.u.ident.atom);\n                }\n            }\n",
    ),
    // The column of every token is counted alike.
    (
        "quickjs.c",
        "    s->token.col_num = max_int(1, s->mark - s->eol);\n",
        "    s->token.col_num = (int)(s->token.ptr - s->token.line_start) + 1;\n",
    ),
    // What is unexpected is named, as other engines do.
    (
        "quickjs.c",
        "        return js_parse_error(s, \"expecting '%c'\", ';');\n",
        "        return js_parse_expect(s, ';');\n",
    ),
    (
        "quickjs.c",
        "        return js_parse_error(s, \"unexpected token in expression: '%.*s'\",\n                              (int)(s->buf_ptr - s->token.ptr), s->token.ptr);\n",
        "        return js_parse_expect(s, 0);\n",
    ),
    // A stack shows the program's functions, and neither the engine's nor the prelude's.
    (
        "quickjs.c",
        "        if (has_prepare) {\n            js_new_callsite_data(ctx, &csd[i], sf);\n        } else {",
        "        if (!has_prepare) {\n            i -= !cellar_put_frame(ctx, sf, \"\", &dbuf);\n        \
         } else if (has_prepare) {\n            js_new_callsite_data(ctx, &csd[i], sf);\n        } else {",
    ),
    // The constructors of an error's class are no part of its stack.
    (
        "quickjs.c",
        "    for (sf = sf_start; sf != NULL && i < stack_trace_limit; sf = sf->prev_frame) {\n        if (backtrace_flags & JS_BACKTRACE_FLAG_SKIP_FIRST_LEVEL) {",
        "    if (!has_filter_func && JS_IsObject(filter_func)) {\n        \
         for (sf = sf_start; sf != NULL && !js_same_value(ctx, sf->cur_func, filter_func); sf = sf->prev_frame)\n            \
         continue;\n        sf_start = sf != NULL ? sf : sf_start;\n    }\n    \
         for (sf = sf_start; sf != NULL && i < stack_trace_limit; sf = sf->prev_frame) {\n        \
         if (backtrace_flags & JS_BACKTRACE_FLAG_SKIP_FIRST_LEVEL) {",
    ),
    (
        "quickjs.c",
        "    build_backtrace(ctx, obj, JS_UNDEFINED, NULL, 0, 0, JS_BACKTRACE_FLAG_SKIP_FIRST_LEVEL);\n    return obj;",
        "    build_backtrace(ctx, obj, new_target, NULL, 0, 0, JS_BACKTRACE_FLAG_SKIP_FIRST_LEVEL);\n    return obj;",
    ),
    // Where the last exception was thrown, or came out of a promise, is known for any value.
    (
        "quickjs.c",
        "        CASE(OP_throw):\n            JS_Throw(ctx, *--sp);\n",
        "        CASE(OP_throw):\n            cellar_forget_place(ctx);\n            JS_Throw(ctx, *--sp);\n",
    ),
    (
        "quickjs.c",
        "    s->func_state.throw_flag = is_reject;\n    if (is_reject) {\n",
        "    s->func_state.throw_flag = is_reject;\n    if (is_reject) {\n        cellar_forget_place(ctx);\n",
    ),
    // Messages that tell as much as those of other engines, in their words, which programs look for.
    (
        "quickjs.c",
        "static JSValue JS_ThrowTypeErrorNotAFunction(JSContext *ctx)\n{\n    return JS_ThrowTypeError(ctx, \"not a function\");",
        "static JSValue JS_ThrowTypeErrorNotAFunction(JSContext *ctx)\n{\n    return cellar_throw_not_function(ctx);",
    ),
    (
        "quickjs.c",
        "            return JS_ThrowTypeErrorAtom(ctx, \"cannot read property '%s' of null\", prop);",
        "            return JS_ThrowTypeErrorAtom(ctx, \"Cannot read properties of null (reading '%s')\", prop);",
    ),
    (
        "quickjs.c",
        "            return JS_ThrowTypeErrorAtom(ctx, \"cannot read property '%s' of undefined\", prop);",
        "            return JS_ThrowTypeErrorAtom(ctx, \"Cannot read properties of undefined (reading '%s')\", prop);",
    ),
    (
        "quickjs.c",
        "            JS_ThrowTypeErrorAtom(ctx, \"cannot read property '%s' of null\", atom);",
        "            JS_ThrowTypeErrorAtom(ctx, \"Cannot read properties of null (reading '%s')\", atom);",
    ),
    (
        "quickjs.c",
        "            JS_ThrowTypeErrorAtom(ctx, \"cannot read property '%s' of undefined\", atom);",
        "            JS_ThrowTypeErrorAtom(ctx, \"Cannot read properties of undefined (reading '%s')\", atom);",
    ),
    ("quickjs.c", "\"cannot set property '%s' of null\"", "\"Cannot set properties of null (setting '%s')\""),
    ("quickjs.c", "\"cannot set property '%s' of undefined\"", "\"Cannot set properties of undefined (setting '%s')\""),
    ("quickjs.c", "\"%s is not initialized\"", "\"Cannot access '%s' before initialization\""),
    (
        "quickjs.c",
        "                if (type == JS_THROW_VAR_RO)\n                    JS_ThrowTypeErrorReadOnly(ctx, JS_PROP_THROW, atom);",
        "                if (type == JS_THROW_VAR_RO)\n                    \
         JS_ThrowTypeError(ctx, \"Assignment to constant variable.\");",
    ),
    (
        "quickjs.c",
        "        if (unlikely(!(prs->flags & JS_PROP_WRITABLE))) {\n            return JS_ThrowTypeErrorReadOnly(ctx, JS_PROP_THROW, prop);",
        "        if (unlikely(!(prs->flags & JS_PROP_WRITABLE))) {\n            \
         JS_ThrowTypeError(ctx, \"Assignment to constant variable.\");\n            return -1;",
    ),
    (
        "quickjs.c",
        "                JS_FreeValue(ctx, val);\n                return JS_ThrowTypeErrorReadOnly(ctx, JS_PROP_THROW, prop);",
        "                JS_FreeValue(ctx, val);\n                \
         JS_ThrowTypeError(ctx, \"Assignment to constant variable.\");\n                return -1;",
    ),
    ("quickjs.c", "\"'%s' is read-only\"", "\"Cannot assign to read only property '%s' of object\""),
    // A stack begins with the error's name and message, and goes on with the functions that await the one that runs.
    (
        "quickjs.c",
        "        js_dbuf_init(ctx, &dbuf);\n        if (stack_trace_limit == 0)\n            goto done;\n        if (filename) {",
        "        js_dbuf_init(ctx, &dbuf);\n        cellar_put_headline(ctx, error_val, &dbuf);\n        \
         if (stack_trace_limit == 0)\n            goto done;\n        if (filename) {",
    ),
    (
        "quickjs.c",
        "        /* stop backtrace if JS_EVAL_FLAG_BACKTRACE_BARRIER was used */\n        if (backtrace_barrier)\n            break;\n    }\n done:",
        "        /* stop backtrace if JS_EVAL_FLAG_BACKTRACE_BARRIER was used */\n        if (backtrace_barrier)\n            break;\n        \
         if (!has_prepare && !sf->prev_frame)\n            \
         cellar_put_awaiting(ctx, sf, &dbuf, stack_trace_limit - i);\n    }\n done:",
    ),
    (
        "quickjs.c",
        "            stack = JS_NewStringLen(ctx, (char *)dbuf.buf, dbuf.size);\n        dbuf_free(&dbuf);\n    }\n\n    if (JS_IsUndefined(ctx->error_back_trace))",
        "            stack = JS_NewStringLen(ctx, (char *)dbuf.buf, dbuf.size - (dbuf.size > 0));\n        \
         dbuf_free(&dbuf);\n    }\n\n    if (JS_IsUndefined(ctx->error_back_trace))",
    ),
];

/// Copies the C files and headers of QuickJS with all edits and [`PADS`] applied.
pub(crate) fn copy_patched(upstream: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    for entry in fs::read_dir(upstream)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if !name.ends_with(".c") && !name.ends_with(".h") {
            continue;
        }
        let mut text = fs::read_to_string(&path).with_context(|| format!("could not read `{}`", path.display()))?;
        let edits = [EDITS, atomics::EDITS, bounded::EDITS, faster::EDITS].into_iter().flatten();
        for (_, old, new) in edits.filter(|(file, ..)| *file == name) {
            let found = text.matches(old).count();
            ensure!(found == 1, "QuickJS's `{name}` has this {found} times, not once; check the edits:\n{old}");
            text = text.replace(old, new);
        }
        if let Some((_, functions)) = PADS.iter().find(|(file, _)| *file == name) {
            for (function, bytes) in *functions {
                text = with_pad(&text, function, *bytes)?;
            }
            text.insert_str(0, PAD_MACRO);
        }
        fs::write(target.join(name), text)?;
    }
    Ok(())
}

/// Adds a pad at the start of a function's body.
///
/// # Errors
/// When the function is not defined exactly once: then QuickJS has changed, and the pads must be looked at again.
fn with_pad(text: &str, function: &str, bytes: u32) -> Result<String> {
    let call = format!("{function}(");
    let bodies: Vec<usize> = text
        .match_indices(&call)
        .filter(|(at, _)| {
            let line = &text[text[..*at].rfind('\n').map_or(0, |end| end + 1)..*at];
            line.starts_with("static ") && line.ends_with([' ', '*'])
        })
        .filter_map(|(at, _)| {
            let end = at + text[at..].find(['{', ';'])?;
            text[end..].starts_with("{\n").then_some(end + 2)
        })
        .collect();
    ensure!(bodies.len() == 1, "QuickJS defines `{function}` {} times, not once: check the stack pads", bodies.len());
    let (head, tail) = text.split_at(bodies[0]);
    Ok(format!("{head}    CELLAR_STACK_PAD({bytes});\n{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "static int f(int a,\n             int b);\n\nstatic int f(int a,\n             int b)\n{\n    return f(b, a);\n}\n";

    #[test]
    fn a_pad_goes_into_the_definition_and_not_the_declaration() {
        let padded = with_pad(SOURCE, "f", 64).unwrap();
        assert_eq!(padded, SOURCE.replace("{\n", "{\n    CELLAR_STACK_PAD(64);\n"));
    }

    #[test]
    fn a_function_that_is_gone_or_doubled_is_an_error() {
        assert!(with_pad(SOURCE, "g", 64).is_err());
        assert!(with_pad(&SOURCE.repeat(2), "f", 64).is_err());
    }
}
