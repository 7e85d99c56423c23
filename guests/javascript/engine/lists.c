// Lists of QuickJS's own, kept apart: jobs that come before the others, and objects that need no collection. Part of
// engine.c.

static void move_list(struct list_head *from, struct list_head *to) {
    if (list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    init_list_head(from);
}

// Jobs that come before those of the runtime.
static struct list_head ticks;

static JSValue run_tick(JSContext *c, int argc, JSValueConst *argv) {
    return JS_Call(ctx, argv[0], JS_UNDEFINED, 0, NULL);
}

bool enqueue_tick(JSValueConst function) {
    if (JS_EnqueueJob(ctx, run_tick, 1, &function))
        return false;
    // It was put at the end of the other queue.
    struct list_head *entry = runtime->job_list.prev;
    list_del(entry);
    list_add_tail(entry, &ticks);
    return true;
}

bool has_jobs(void) {
    return !list_empty(&ticks) || !list_empty(&runtime->job_list);
}

bool run_job(bool (*is_dropped)(uint32_t cell), JSValue *result) {
    static bool in_jobs; // a tick that a job asks for waits until there is no job
    if (!has_jobs()) {
        in_jobs = false;
        cellar_clear_kept_objects(runtime);
        return false;
    }
    in_jobs = in_jobs ? !list_empty(&runtime->job_list) : list_empty(&ticks);
    struct list_head *queue = in_jobs ? &runtime->job_list : &ticks;
    JSJobEntry *job = list_entry(queue->next, JSJobEntry, link);
    list_del(&job->link);
    glue_cell = job->cell;
    enter_context(job->context);
    *result = is_dropped(job->cell) ? JS_UNDEFINED : job->job_func(ctx, job->argc, (JSValueConst *)job->argv);
    for (int i = 0; i < job->argc; i++)
        JS_FreeValue(ctx, job->argv[i]);
    js_free(ctx, job);
    return true;
}

// Objects that were there before the first cell. A collection need not look at them, and so does not touch the pages
// on which they lie: what they refer to counts as in use.
static struct list_head frozen;

// Bytes of the first arena of each size that a session has; the next has twice as many, until they are as large as any.
#define FIRST_ARENA_BYTES 512

// Small blocks that are free in what is baked stay so for ever: each would cost a session a page of its own. In their place
// are small arenas of all sizes, side by side.
void seal_arenas(void) {
    for (int size = 0; size < JS_ARENA_BLOCK_SIZE_COUNT; size++) {
        struct list_head *head = &runtime->arena_state.free_arena_list[size], *entry, *next;
        list_for_each_safe(entry, next, head) {
            // Alone in a list of its own, from which it may be taken again.
            init_list_head(entry);
        }
        init_list_head(head);
    }
    give_back();
    glue_seal_memory();
    keep_aside();
    for (int size = 0; size < JS_ARENA_BLOCK_SIZE_COUNT; size++) {
        runtime->arena_state.next_bytes[size] = FIRST_ARENA_BYTES;
        arena_new(runtime, size);
    }
}

// Bytes that a session may allocate before its first collection.
#define GC_BYTES (1u << 20)

void freeze(void) {
    JS_RunGC(runtime);
    move_list(&runtime->gc_obj_list, &frozen);
    JS_SetGCThreshold(runtime, runtime->malloc_state.malloc_size + GC_BYTES);
}
