//! Changes to QuickJS's source that let its own loops be stopped, in time and in depth, like loops of cells.
//!
//! QuickJS counts calls and back-edges of bytecode, and asks now and then whether it must stop. Loops in C over whatever
//! says it has a length, up to 2^53, must count too, or only killing the kernel ends them.

/// Replacements, as in [`super::EDITS`].
pub(super) const EDITS: &[(&str, &str, &str)] = &[
    // A stack names the instruction before `pc`. Where a jump is stopped that is the one before the jump's target, of
    // another line perhaps; the target is where the program was.
    (
        "quickjs.c",
        " exception:\n    if (needs_backtrace(rt->current_exception)\n",
        " stopped_at_target:\n    pc++;\n exception:\n    if (needs_backtrace(rt->current_exception)\n",
    ),
    (
        "quickjs.c",
        "pc += (int32_t)get_u32(pc);\n            if (unlikely(js_poll_interrupts(ctx)))\n                goto exception;",
        "pc += (int32_t)get_u32(pc);\n            if (unlikely(js_poll_interrupts(ctx)))\n                goto stopped_at_target;",
    ),
    (
        "quickjs.c",
        "pc += (int16_t)get_u16(pc);\n            if (unlikely(js_poll_interrupts(ctx)))\n                goto exception;",
        "pc += (int16_t)get_u16(pc);\n            if (unlikely(js_poll_interrupts(ctx)))\n                goto stopped_at_target;",
    ),
    (
        "quickjs.c",
        "pc += (int8_t)pc[0];\n            if (unlikely(js_poll_interrupts(ctx)))\n                goto exception;",
        "pc += (int8_t)pc[0];\n            if (unlikely(js_poll_interrupts(ctx)))\n                goto stopped_at_target;",
    ),
    (
        "quickjs.c",
        "if (res) {\n                    pc += (int32_t)get_u32(pc - 4) - 4;\n                }\n                if (unlikely(js_poll_interrupts(ctx)))\n                    goto exception;",
        "if (res) {\n                    pc += (int32_t)get_u32(pc - 4) - 4;\n                }\n                if (unlikely(js_poll_interrupts(ctx)))\n                    goto stopped_at_target;",
    ),
    (
        "quickjs.c",
        "if (res) {\n                    pc += (int8_t)pc[-1] - 1;\n                }\n                if (unlikely(js_poll_interrupts(ctx)))\n                    goto exception;",
        "if (res) {\n                    pc += (int8_t)pc[-1] - 1;\n                }\n                if (unlikely(js_poll_interrupts(ctx)))\n                    goto stopped_at_target;",
    ),
    (
        "quickjs.c",
        "if (!res) {\n                    pc += (int32_t)get_u32(pc - 4) - 4;\n                }\n                if (unlikely(js_poll_interrupts(ctx)))\n                    goto exception;",
        "if (!res) {\n                    pc += (int32_t)get_u32(pc - 4) - 4;\n                }\n                if (unlikely(js_poll_interrupts(ctx)))\n                    goto stopped_at_target;",
    ),
    (
        "quickjs.c",
        "if (!res) {\n                    pc += (int8_t)pc[-1] - 1;\n                }\n                if (unlikely(js_poll_interrupts(ctx)))\n                    goto exception;",
        "if (!res) {\n                    pc += (int8_t)pc[-1] - 1;\n                }\n                if (unlikely(js_poll_interrupts(ctx)))\n                    goto stopped_at_target;",
    ),
    // Work on many bytes counts as many steps: one for each kilobyte takes about as long as one of bytecode.
    (
        "quickjs.c",
        "/* return -1 (exception) or true/false */\nstatic int JS_SetPrototypeInternal(",
        "/* Counts work on 'bytes'; true when it must stop, with the exception that says so. */\n\
         static inline __exception int cellar_must_stop(JSContext *ctx, size_t bytes)\n{\n    \
         ctx->interrupt_counter -= bytes >> 10;\n    return js_poll_interrupts(ctx);\n}\n\n\
         /* return -1 (exception) or true/false */\nstatic int JS_SetPrototypeInternal(",
    ),
    (
        "quickjs.c",
        "    p = js_alloc_string_rt(ctx->rt, max_len, is_wide_char);\n    if (unlikely(!p)) {\n        JS_ThrowOutOfMemory(ctx);",
        "    ctx->interrupt_counter -= max_len >> 10;\n    \
         p = js_alloc_string_rt(ctx->rt, max_len, is_wide_char);\n    if (unlikely(!p)) {\n        JS_ThrowOutOfMemory(ctx);",
    ),
    (
        "quickjs.c",
        "    abuf = js_malloc(ctx, sizeof(*abuf));\n    if (!abuf)\n        goto fail;\n    abuf->byte_length = len;",
        "    ctx->interrupt_counter -= len >> 10;\n    abuf = js_malloc(ctx, sizeof(*abuf));\n    \
         if (!abuf)\n        goto fail;\n    abuf->byte_length = len;",
    ),
    // The methods of arrays get at what they were given, element by element, through four functions.
    (
        "quickjs.c",
        "    JSValue val;\n    JSAtom prop;\n    int present;\n\n    if (likely(JS_VALUE_GET_TAG(obj)",
        "    JSValue val;\n    JSAtom prop;\n    int present;\n\n    if (js_poll_interrupts(ctx)) {\n        \
         *pval = JS_EXCEPTION;\n        return -1;\n    }\n    if (likely(JS_VALUE_GET_TAG(obj)",
    ),
    (
        "quickjs.c",
        "JSValue JS_GetPropertyInt64(JSContext *ctx, JSValueConst obj, int64_t idx)\n{\n    JSAtom prop;\n    JSValue val;\n\n",
        "JSValue JS_GetPropertyInt64(JSContext *ctx, JSValueConst obj, int64_t idx)\n{\n    JSAtom prop;\n    JSValue val;\n\n    \
         if (js_poll_interrupts(ctx))\n        return JS_EXCEPTION;\n",
    ),
    (
        "quickjs.c",
        "    if ((uint64_t)idx <= INT32_MAX) {\n        /* fast path for fast arrays */\n        return JS_SetPropertyValue(",
        "    if (js_poll_interrupts(ctx)) {\n        JS_FreeValue(ctx, val);\n        return -1;\n    }\n    \
         if ((uint64_t)idx <= INT32_MAX) {\n        /* fast path for fast arrays */\n        return JS_SetPropertyValue(",
    ),
    (
        "quickjs.c",
        "    if ((uint64_t)idx <= JS_ATOM_MAX_INT) {\n        /* fast path for fast arrays */\n        return JS_DeleteProperty(",
        "    if (js_poll_interrupts(ctx))\n        return -1;\n    \
         if ((uint64_t)idx <= JS_ATOM_MAX_INT) {\n        /* fast path for fast arrays */\n        return JS_DeleteProperty(",
    ),
    // A text that has become too long stays so: joining ends at once, and not with the last of 2^53 elements.
    (
        "quickjs.c",
        "            if (c >= 0) {\n                string_buffer_putc8(b, c);\n            } else {\n                string_buffer_concat(b, p, 0, p->len);\n            }",
        "            if (c >= 0 ? string_buffer_putc8(b, c) : string_buffer_concat(b, p, 0, p->len))\n                goto fail;",
    ),
    // Sorting without a function of the program's compares in C.
    (
        "quickjs.c",
        "        cmp = js_string_compare(ap->str, bp->str);\n    }\n    if (cmp != 0)\n        return cmp;\n    /* make sort stable",
        "        if (cellar_must_stop(ctx, min_int(ap->str->len, bp->str->len)))\n            goto exception;\n        \
         cmp = js_string_compare(ap->str, bp->str);\n    }\n    if (cmp != 0)\n        return cmp;\n    /* make sort stable",
    ),
    (
        "quickjs.c",
        "    JSValue (*getfun)(JSContext *ctx, const void *a);\n    int elt_size;\n};\n",
        "    JSValue (*getfun)(JSContext *ctx, const void *a);\n    int elt_size;\n    \
         int (*plain)(const void *a, const void *b, void *opaque);\n};\n\n\
         /* For arrays so large that sorting them takes long. */\n\
         static int cellar_TA_cmp_polling(const void *a, const void *b, void *opaque)\n{\n    \
         struct TA_sort_context *psc = opaque;\n    \
         psc->exception = psc->exception || js_poll_interrupts(psc->ctx);\n    \
         return psc->exception ? 0 : psc->plain(a, b, NULL);\n}\n",
    ),
    (
        "quickjs.c",
        "            rqsort(p->u.array.u.ptr, len, elt_size, cmpfun, &tsc);\n",
        "            tsc.plain = cmpfun;\n            \
         rqsort(p->u.array.u.ptr, len, elt_size, len > 1000000 ? cellar_TA_cmp_polling : cmpfun, &tsc);\n",
    ),
    // Looking for a long text in a long text compares all of it, at every place.
    (
        "quickjs.c",
        "static int string_indexof(JSString *p1, JSString *p2, int from)\n{",
        "/* -2 when it must stop */\nstatic int string_indexof(JSContext *ctx, JSString *p1, JSString *p2, int from)\n{",
    ),
    (
        "quickjs.c",
        "        if (!string_cmp(p1, p2, j + 1, 1, len2 - 1))\n            return j;\n",
        "        if (cellar_must_stop(ctx, len2 + (j - i)))\n            return -2;\n        \
         if (!string_cmp(p1, p2, j + 1, 1, len2 - 1))\n            return j;\n",
    ),
    (
        "quickjs.c",
        "            pos = string_indexof(sp, searchp, endOfLastMatch);\n        }\n",
        "            pos = string_indexof(ctx, sp, searchp, endOfLastMatch);\n        }\n        \
         if (pos == -2)\n            goto exception;\n",
    ),
    (
        "quickjs.c",
        "        e = string_indexof(sp, rp, q);\n        if (e < 0)\n",
        "        e = string_indexof(ctx, sp, rp, q);\n        if (e == -2)\n            goto exception;\n        if (e < 0)\n",
    ),
    (
        "quickjs.c",
        "        for (i = start;; i += inc) {\n            if (!string_cmp(p, p1, i, 0, v_len)) {",
        "        for (i = start;; i += inc) {\n            if (cellar_must_stop(ctx, v_len))\n                goto fail;\n            \
         if (!string_cmp(p, p1, i, 0, v_len)) {",
    ),
    (
        "quickjs.c",
        "        for (i = start;; i++) {\n            if (!string_cmp(p, p1, i, 0, v_len)) {",
        "        for (i = start;; i++) {\n            if (cellar_must_stop(ctx, v_len))\n                goto fail;\n            \
         if (!string_cmp(p, p1, i, 0, v_len)) {",
    ),
    // What takes long because the text is long.
    (
        "quickjs.c",
        "        T = js_sub_string(ctx, sp, p, e);\n",
        "        if (js_poll_interrupts(ctx))\n            goto exception;\n        T = js_sub_string(ctx, sp, p, e);\n",
    ),
    (
        "quickjs.c",
        "        c = string_getc(p, &i);\n        if (c == 0x3a3 && to_lower",
        "        if (js_poll_interrupts(ctx))\n            goto fail;\n        \
         c = string_getc(p, &i);\n        if (c == 0x3a3 && to_lower",
    ),
    // Objects with many properties: long texts, too.
    (
        "quickjs.c",
        "        JSAtom atom = atoms[i].atom;\n        if (flags & JS_GPN_ENUM_ONLY) {",
        "        JSAtom atom = atoms[i].atom;\n        if (js_poll_interrupts(ctx))\n            goto exception;\n        \
         if (flags & JS_GPN_ENUM_ONLY) {",
    ),
    (
        "quickjs.c",
        "        JSValue atomValue, desc;\n        JSValueConst args[2];\n\n",
        "        JSValue atomValue, desc;\n        JSValueConst args[2];\n\n        if (js_poll_interrupts(ctx))\n            \
         goto exception;\n",
    ),
    // Every token of a program, and of JSON, is a step.
    (
        "quickjs.c",
        "    bool ident_has_escape;\n    JSAtom atom;\n\n    if (js_check_stack_overflow(s->ctx->rt, 1000)) {",
        "    bool ident_has_escape;\n    JSAtom atom;\n\n    if (js_poll_interrupts(s->ctx))\n        return -1;\n    \
         if (js_check_stack_overflow(s->ctx->rt, 1000)) {",
    ),
    (
        "quickjs.c",
        "    int c;\n    JSAtom atom;\n\n    if (js_check_stack_overflow(s->ctx->rt, 1000)) {",
        "    int c;\n    JSAtom atom;\n\n    if (js_poll_interrupts(s->ctx))\n        return -1;\n    \
         if (js_check_stack_overflow(s->ctx->rt, 1000)) {",
    ),
    // The built-in iterators are asked for their next value without a call: they may wrap each other deeply, and go on
    // for long.
    (
        "quickjs.c",
        "            func = p->u.cfunc.c_function;\n            return func.iterator_next(ctx, enum_obj, argc, argv,",
        "            if (js_check_stack_overflow(ctx->rt, 0)) {\n                JS_ThrowStackOverflow(ctx);\n                \
         goto fail;\n            }\n            if (js_poll_interrupts(ctx))\n                goto fail;\n            \
         func = p->u.cfunc.c_function;\n            return func.iterator_next(ctx, enum_obj, argc, argv,",
    ),
];
