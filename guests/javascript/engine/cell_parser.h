// What the parser of QuickJS does differently at the top level of a cell. Included into quickjs.c, by a patch,
// just before the parser of statements.

// Asks for the cell that is compiled next to be one expression, if it begins with a brace: `{a: 1}` is an object then,
// and no block. A cell that is no such expression fails to compile, and must be compiled again without this.
static bool cellar_brace_is_object;

// Did the last cell begin with a brace while that was asked for?
static bool cellar_brace_seen;

static __exception int js_parse_with_clause(JSParseState *s, JSValue *pattributes);

// Is the code at hand the top level of a cell, outside every function?
static bool cellar_is_cell(JSParseState *s) {
    JSFunctionDef *fd = s->cur_func;
    return fd->is_eval && fd->func_kind == JS_FUNC_ASYNC && !fd->module;
}

// A cell that is one expression: leaves its value as the cell's.
static __exception int cellar_parse_object(JSParseState *s) {
    cellar_brace_seen = true;
    if (js_parse_expr(s))
        return -1;
    if (s->token.val != TOK_EOF)
        return js_parse_error(s, "expecting the end of the cell");
    emit_op(s, OP_put_loc);
    emit_u16(s, s->cur_func->eval_ret_idx);
    return 0;
}

// `return` of a cell: returns {value}, as the end of the cell does.
static __exception int cellar_parse_return(JSParseState *s) {
    if (next_token(s))
        return -1;
    emit_op(s, OP_object);
    emit_op(s, OP_dup);
    if (s->token.val != ';' && s->token.val != '}' && s->token.val != TOK_EOF && !s->got_lf) {
        if (js_parse_expr(s))
            return -1;
    } else {
        emit_op(s, OP_undefined);
    }
    emit_op(s, OP_put_field);
    emit_atom(s, JS_ATOM_value);
    emit_return(s, true);
    return js_parse_expect_semi(s);
}

// ---- import declarations
//
// `import d, {a as b} from "m"` does what `const {default: d, a: b} = await import("m")` would, where it stands; but
// what "m" does not export is an error.

#define CELLAR_IMPORTS_MAX 256

// Names of one declaration, as pairs: what is imported, JS_ATOM__star_ for the namespace, and what it is called here; and
// the module's name.
typedef struct {
    JSAtom names[2 * CELLAR_IMPORTS_MAX];
    int count;
    JSValue module;
} cellar_imports_t;

static void cellar_free_imports(JSParseState *s, cellar_imports_t *imports) {
    for (int i = 0; i < 2 * imports->count; i++)
        JS_FreeAtom(s->ctx, imports->names[i]);
    JS_FreeValue(s->ctx, imports->module);
}

// Takes over `imported`. The token at hand is the name to use here.
static __exception int cellar_add_import(JSParseState *s, cellar_imports_t *imports, JSAtom imported) {
    if (imports->count == CELLAR_IMPORTS_MAX || s->token.val != TOK_IDENT || s->token.u.ident.is_reserved ||
        s->token.u.ident.atom == JS_ATOM_eval || s->token.u.ident.atom == JS_ATOM_arguments) {
        JS_FreeAtom(s->ctx, imported);
        return imports->count == CELLAR_IMPORTS_MAX ? js_parse_error(s, "more than %d imports at once", CELLAR_IMPORTS_MAX)
                                                    : js_parse_error(s, "invalid import binding");
    }
    imports->names[2 * imports->count] = imported;
    imports->names[2 * imports->count + 1] = JS_DupAtom(s->ctx, s->token.u.ident.atom);
    imports->count++;
    return next_token(s);
}

// `{a, b as c, "d" as e}`, after its opening brace.
static __exception int cellar_parse_named_imports(JSParseState *s, cellar_imports_t *imports) {
    while (s->token.val != '}') {
        bool is_text = s->token.val == TOK_STRING;
        if (!is_text && !token_is_ident(s->token.val))
            return js_parse_error(s, "identifier or string expected");
        if (!is_text && peek_token(s, false) != TOK_IDENT) {
            JSAtom name = JS_DupAtom(s->ctx, s->token.u.ident.atom); // no `as` can follow
            if (cellar_add_import(s, imports, name))
                return -1;
        } else {
            JSAtom name = is_text ? JS_ValueToAtom(s->ctx, s->token.u.str.str)
                                  : JS_DupAtom(s->ctx, s->token.u.ident.atom);
            int failed = name == JS_ATOM_NULL || next_token(s);
            if (!failed && !token_is_pseudo_keyword(s, JS_ATOM_as))
                failed = js_parse_error(s, "expecting 'as'");
            if (failed || next_token(s)) {
                JS_FreeAtom(s->ctx, name);
                return -1;
            }
            if (cellar_add_import(s, imports, name))
                return -1;
        }
        if (s->token.val != ',')
            break;
        if (next_token(s))
            return -1;
    }
    return js_parse_expect(s, '}');
}

// What stands between `import` and `from`.
static __exception int cellar_parse_import_clause(JSParseState *s, cellar_imports_t *imports) {
    if (s->token.val == TOK_IDENT) {
        if (cellar_add_import(s, imports, JS_DupAtom(s->ctx, JS_ATOM_default)))
            return -1;
        if (s->token.val != ',')
            return 0;
        if (next_token(s))
            return -1;
    }
    if (s->token.val == '*') {
        if (next_token(s))
            return -1;
        if (!token_is_pseudo_keyword(s, JS_ATOM_as))
            return js_parse_error(s, "expecting 'as'");
        if (next_token(s))
            return -1;
        return cellar_add_import(s, imports, JS_DupAtom(s->ctx, JS_ATOM__star_));
    }
    if (js_parse_expect(s, '{'))
        return -1;
    return cellar_parse_named_imports(s, imports);
}

// The module's name and attributes; leaves the two arguments of import() on the stack.
static __exception int cellar_parse_import_source(JSParseState *s, cellar_imports_t *imports) {
    JSContext *ctx = s->ctx;
    if (s->token.val != TOK_STRING)
        return js_parse_error(s, "module specifier expected");
    imports->module = JS_DupValue(ctx, s->token.u.str.str);
    if (emit_push_const(s, s->token.u.str.str, 1) || next_token(s))
        return -1;
    JSValue attributes;
    if (js_parse_with_clause(s, &attributes)) {
        JS_FreeValue(ctx, attributes);
        return -1;
    }
    if (JS_IsUndefined(attributes)) {
        emit_op(s, OP_undefined);
        return 0;
    }
    JSValue options = JS_NewObject(ctx);
    int failed = JS_IsException(options) || JS_SetPropertyStr(ctx, options, "with", attributes) < 0 ||
                 emit_push_const(s, options, 0);
    JS_FreeValue(ctx, options);
    return failed ? -1 : 0;
}

// The message that a module does not export a name, which is made when the declaration is compiled.
static JSAtom cellar_no_export_message(JSContext *ctx, JSValueConst module, JSAtom name) {
    const char *from = JS_ToCString(ctx, module), *wanted = from == NULL ? NULL : JS_AtomToCString(ctx, name);
    JSAtom message = JS_ATOM_NULL;
    DynBuf text;
    js_dbuf_init(ctx, &text);
    if (wanted != NULL) {
        dbuf_putstr(&text, "The requested module '");
        dbuf_putstr(&text, from);
        dbuf_putstr(&text, "' does not provide an export named '");
        dbuf_putstr(&text, wanted);
        dbuf_putstr(&text, "'");
        if (dbuf_error(&text))
            JS_ThrowOutOfMemory(ctx);
        else
            message = JS_NewAtomLen(ctx, (const char *)text.buf, text.size);
    }
    dbuf_free(&text);
    JS_FreeCString(ctx, wanted);
    JS_FreeCString(ctx, from);
    return message;
}

// Gives each name its value, from the namespace on the stack.
static __exception int cellar_emit_bindings(JSParseState *s, cellar_imports_t *imports) {
    for (int i = 0; i < imports->count; i++) {
        JSAtom imported = imports->names[2 * i], local = imports->names[2 * i + 1];
        if (js_define_var(s, local, TOK_CONST))
            return -1;
        emit_op(s, OP_dup);
        if (imported != JS_ATOM__star_) {
            emit_op(s, OP_dup);
            emit_op(s, OP_push_atom_value);
            emit_atom(s, imported);
            emit_op(s, OP_swap);
            emit_op(s, OP_in);
            int exported = emit_goto(s, OP_if_true, -1);
            JSAtom message = cellar_no_export_message(s->ctx, imports->module, imported);
            if (message == JS_ATOM_NULL)
                return -1;
            emit_op(s, OP_throw_error);
            emit_atom(s, message);
            JS_FreeAtom(s->ctx, message);
            emit_u8(s, CELLAR_THROW_NO_EXPORT);
            emit_label(s, exported);
            emit_op(s, OP_get_field);
            emit_atom(s, imported);
        }
        emit_op(s, OP_scope_put_var_init);
        emit_atom(s, local);
        emit_u16(s, s->cur_func->scope_level);
    }
    emit_op(s, OP_drop);
    return 0;
}

static __exception int cellar_parse_import(JSParseState *s) {
    int line = s->token.line_num, column = s->token.col_num;
    cellar_imports_t imports;
    imports.count = 0;
    imports.module = JS_UNDEFINED;
    int failed = next_token(s);
    if (!failed && s->token.val != TOK_STRING) {
        failed = cellar_parse_import_clause(s, &imports);
        if (!failed && !token_is_pseudo_keyword(s, JS_ATOM_from))
            failed = js_parse_error(s, "expecting 'from'");
        if (!failed)
            failed = next_token(s);
    }
    if (!failed)
        failed = cellar_parse_import_source(s, &imports);
    if (!failed) {
        emit_source_loc_at(s, line, column);
        emit_op(s, OP_import);
        emit_op(s, OP_await);
        s->cur_func->has_await = true;
        failed = cellar_emit_bindings(s, &imports);
    }
    cellar_free_imports(s, &imports);
    if (failed)
        return -1;
    return js_parse_expect_semi(s);
}
