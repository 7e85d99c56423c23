//! Changes to QuickJS's source that give a guest of one thread `Atomics` and growable shared buffers.

/// Replacements, as in [`super::EDITS`].
pub(super) const EDITS: &[(&str, &str, &str)] = &[
    (
        "quickjs.c",
        "!defined(EMSCRIPTEN) && !defined(__wasi__) && !__STDC_NO_ATOMICS__",
        "!defined(EMSCRIPTEN) && !__STDC_NO_ATOMICS__",
    ),
    (
        "quickjs.c",
        "typedef struct JSAtomicsWaiter {\n",
        "#if !JS_HAVE_THREADS\n#include \"one_thread.h\"\n#endif\n\ntypedef struct JSAtomicsWaiter {\n",
    ),
    // No other thread will ever notify. Waiting for a while is a way to sleep; waiting for ever is a mistake.
    (
        "quickjs.c",
        "    waiter = &waiter_s;\n    waiter->ptr = ptr;\n",
        "    if (timeout == INT64_MAX)\n        \
         return JS_ThrowTypeError(ctx, \"Atomics.wait would never end: there is no other thread; give it a timeout\");\n    \
         waiter = &waiter_s;\n    waiter->ptr = ptr;\n",
    ),
    (
        "quickjs.c",
        "    if (ret == -1) {\n        return JS_AtomToString(ctx, JS_ATOM_timed_out);",
        "    if (__js_poll_interrupts(ctx))\n        return JS_EXCEPTION;\n    \
         if (ret == -1) {\n        return JS_AtomToString(ctx, JS_ATOM_timed_out);",
    ),
    (
        "quickjs.c",
        "            if (!abuf->data)\n                goto fail;\n            memset(abuf->data, 0, sab_alloc_len);",
        "            if (!abuf->data) {\n                JS_ThrowOutOfMemory(ctx);\n                goto fail;\n            }\n            \
         memset(abuf->data, 0, sab_alloc_len);",
    ),
];
