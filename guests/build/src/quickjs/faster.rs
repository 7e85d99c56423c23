//! Changes to QuickJS's source that make it faster as WebAssembly, and mean the same.

/// Replacements, as in [`super::EDITS`].
pub(super) const EDITS: &[(&str, &str, &str)] = &[
    // A computed `goto` becomes a table of indices into the table of jumps: two lookups for each bytecode.
    ("quickjs.c", "#define DIRECT_DISPATCH  1\n", "#define DIRECT_DISPATCH  0\n"),
    // The compiler must not see through `pc` from one bytecode to the next, or it keeps `pc + 1` in a variable of its own,
    // which each of them stores too.
    (
        "quickjs.c",
        "#define SWITCH(pc)      DUMP_BYTECODE_OR_DONT(pc) switch (opcode = *pc++)",
        "#define SWITCH(pc)      __asm__ volatile(\"\" : \"+r\"(pc)); switch (opcode = *pc++)",
    ),
    // A case without code would be a jump of the table straight to the head of the loop, for which the next `pc` would
    // have to be ready before every jump.
    (
        "quickjs.c",
        "        CASE(OP_nop):\n            BREAK;",
        "        CASE(OP_nop):\n            __asm__ volatile(\"\");\n            BREAK;",
    ),
    // A generator that is thrown into enters where every function does, not the middle of the loop, so that what a frame
    // consists of does not change within the loop. The loop that never repeats keeps the compiler from undoing this.
    (
        "quickjs.c",
        "    size_t alloca_size;\n\n#ifdef ENABLE_DUMPS // JS_DUMP_BYTECODE_STEP\n#define DUMP",
        "    size_t alloca_size;\n    int thrown = 0;\n\n#ifdef ENABLE_DUMPS // JS_DUMP_BYTECODE_STEP\n#define DUMP",
    ),
    (
        "quickjs.c",
        "            if (s->throw_flag)\n                goto exception;\n            else\n                goto restart;",
        "            thrown = s->throw_flag;\n            goto enter;",
    ),
    (
        "quickjs.c",
        " restart:\n    for(;;) {\n        int call_argc;",
        " enter:\n    do __asm__ volatile(\"\" : \"+r\"(thrown)); while (unlikely(thrown > 1));\n    \
         if (unlikely(thrown))\n        goto exception;\n restart:\n    for(;;) {\n        int call_argc;",
    ),
    // Freeing a value is mostly counting down, which shall be inlined everywhere. By the profile the compiler would put the
    // rest in there too, and then inline neither.
    (
        "quickjs.c",
        "static void js_free_value_rt(JSRuntime *rt, JSValue v)\n{",
        "static __attribute__((noinline)) void js_free_value_rt(JSRuntime *rt, JSValue v)\n{",
    ),
    (
        "quickjs.c",
        "static void *js_arena_malloc(JSRuntime *rt, size_t size)\n{",
        "static inline __attribute__((always_inline)) void *js_arena_malloc(JSRuntime *rt, size_t size)\n{",
    ),
    // The C library's `strtod` computes with 128 bits, in software. Whole numbers are integers from the start.
    (
        "quickjs.c",
        "    s->token.u.num.val = js_float64(strtod((const char *)p_start, NULL));",
        "    JSATODTempMem atod_mem;\n    \
         s->token.u.num.val = js_number(js_atod((const char *)p_start, NULL, 10, 0, &atod_mem));",
    ),
    // Keys of a `Map` that are numbers differ in the high bits of a double, and objects lie at multiples of eight, while
    // the table takes the low bits, to which a product carries nothing from above: most keys would share few lists. The
    // mixer is the finaliser of MurmurHash3 (`fmix32`, Austin Appleby): every bit of a key moves every bit of the hash.
    (
        "quickjs.c",
        "static uint32_t map_hash_key(JSContext *ctx, JSValueConst key)\n{",
        "static inline uint32_t cellar_mix(uint32_t h)\n{\n    h = (h ^ h >> 16) * 0x85ebca6b;\n    \
         h = (h ^ h >> 13) * 0xc2b2ae35;\n    return h ^ h >> 16;\n}\n\n\
         static uint32_t map_hash_key(JSContext *ctx, JSValueConst key)\n{",
    ),
    ("quickjs.c", "h = (uintptr_t)JS_VALUE_GET_PTR(key) * 3163;", "h = cellar_mix((uintptr_t)JS_VALUE_GET_PTR(key));"),
    ("quickjs.c", "h = (u.u32[0] ^ u.u32[1]) * 3163;", "h = cellar_mix(u.u32[0] ^ u.u32[1]);"),
    // The first arenas that a session makes are small, and lie together on few pages (see `seal_arenas` in the shim).
    (
        "quickjs.c",
        "    struct list_head free_arena_list[JS_ARENA_BLOCK_SIZE_COUNT];\n",
        "    struct list_head free_arena_list[JS_ARENA_BLOCK_SIZE_COUNT];\n    \
         uint16_t next_bytes[JS_ARENA_BLOCK_SIZE_COUNT]; /* of the arena that is made next */\n",
    ),
    (
        "quickjs.c",
        "        init_list_head(&s->free_arena_list[i]);\n    }\n}\n\nstatic inline void *arena_get_block(",
        "        init_list_head(&s->free_arena_list[i]);\n        s->next_bytes[i] = JS_ARENA_SIZE;\n    }\n}\n\n\
         static inline void *arena_get_block(",
    ),
    (
        "quickjs.c",
        "    n_blocks = (JS_ARENA_SIZE - sizeof(JSArena)) / block_size;\n",
        "    uint16_t *next_bytes = &rt->arena_state.next_bytes[block_size_idx];\n    \
         n_blocks = (*next_bytes - sizeof(JSArena)) / block_size;\n    \
         if (n_blocks == 0)\n        n_blocks = 1;\n    \
         if (*next_bytes < JS_ARENA_SIZE)\n        *next_bytes *= 2;\n",
    ),
    // The last arena of a size with room in it is kept when it is empty: what allocates and frees one value at a time would
    // make a new one, and the list of all its blocks, each time.
    (
        "quickjs.c",
        "static void js_arena_free(JSRuntime *rt, void *ptr)\n{",
        "static inline __attribute__((always_inline)) int cellar_keeps_arena(const JSArena *ar)\n{\n    \
         return ar->n_used_blocks != 0 || ar->free_link.prev == ar->free_link.next;\n}\n\n\
         static void js_arena_free(JSRuntime *rt, void *ptr)\n{",
    ),
    (
        "quickjs.c",
        "        if (unlikely(ar->n_used_blocks == 0)) {",
        "        if (unlikely(cellar_keeps_arena(ar) == 0)) {",
    ),
];
