// What QuickJS's `Atomics` asks of threads, where there is one; part of QuickJS.

#define JS_ONCE_INIT 0
typedef int js_once_t, js_mutex_t, js_cond_t;

static inline void js_once(js_once_t *guard, void (*callback)(void)) {
}

static inline void js_mutex_init(js_mutex_t *mutex) {
}

static inline void js_mutex_lock(js_mutex_t *mutex) {
}

static inline void js_mutex_unlock(js_mutex_t *mutex) {
}

static inline void js_cond_init(js_cond_t *condition) {
}

static inline void js_cond_destroy(js_cond_t *condition) {
}

static inline void js_cond_signal(js_cond_t *condition) {
}

static inline void js_cond_wait(js_cond_t *condition, js_mutex_t *mutex) {
}

// Sleeps until the time is over or the cell must stop: nobody can signal.
static inline int js_cond_timedwait(js_cond_t *condition, js_mutex_t *mutex, uint64_t nanoseconds) {
    uint64_t now = cellar_kernel_control_monotonic_clock();
    cellar_kernel_control_sleep_until(glue_cell, nanoseconds > UINT64_MAX - now ? UINT64_MAX : now + nanoseconds);
    return -1;
}
