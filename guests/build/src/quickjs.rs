//! Changes to QuickJS's own source, each of which must fit exactly once or the build fails.

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
            ("js_call_bound_function", 512),
            ("js_create_function", 1024),
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
        "        val = cellar_forget_lexical(ctx, prop, JS_UNINITIALIZED);\n    } else {\n        \
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
        "/* Removes a lexical declaration; returns its value, or 'fallback' when there is none. */\n\
         static JSValue cellar_forget_lexical(JSContext *ctx, JSAtom prop, JSValue fallback)\n{\n    \
         JSProperty *pr;\n    JSObject *p = JS_VALUE_GET_OBJ(ctx->global_var_obj);\n    \
         if (!find_own_property(&pr, p, prop))\n        return fallback;\n    \
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
    (
        "quickjs.c",
        "static __exception int js_parse_statement_or_decl(JSParseState *s,\n                                                  int decl_mask)\n{",
        "/* Is the code at hand the top level of a cell, outside every function? */\n\
         static bool cellar_is_cell(JSParseState *s)\n{\n    \
         JSFunctionDef *fd = s->cur_func;\n    \
         return fd->is_eval && fd->func_kind == JS_FUNC_ASYNC && !fd->module;\n}\n\n\
         /* Does an expression statement at hand give the value of the script? */\n\
         static bool cellar_gives_value(JSParseState *s)\n{\n    \
         JSFunctionDef *fd = s->cur_func;\n    \
         return !cellar_is_cell(s) || (fd->scope_level == fd->body_scope &&\n        \
         (!fd->top_break || fd->top_break->has_using));\n}\n\n\
         /* 'return' of a cell: returns {value}, as the end of the cell does. */\n\
         static __exception int cellar_parse_return(JSParseState *s)\n{\n    \
         if (next_token(s))\n        return -1;\n    \
         emit_op(s, OP_object);\n    emit_op(s, OP_dup);\n    \
         if (s->token.val != ';' && s->token.val != '}' && s->token.val != TOK_EOF && !s->got_lf) {\n        \
         if (js_parse_expr(s))\n            return -1;\n    \
         } else {\n        emit_op(s, OP_undefined);\n    }\n    \
         emit_op(s, OP_put_field);\n    emit_atom(s, JS_ATOM_value);\n    \
         emit_return(s, true);\n    return js_parse_expect_semi(s);\n}\n\n\
         static __exception int js_parse_statement_or_decl(JSParseState *s,\n                                                  int decl_mask)\n{",
    ),
];

/// Copies the C files and headers of QuickJS with [`EDITS`] and [`PADS`] applied.
pub(crate) fn copy_patched(upstream: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    for entry in fs::read_dir(upstream)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if !name.ends_with(".c") && !name.ends_with(".h") {
            continue;
        }
        let mut text = fs::read_to_string(&path).with_context(|| format!("could not read `{}`", path.display()))?;
        for (_, old, new) in EDITS.iter().filter(|(file, ..)| *file == name) {
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
