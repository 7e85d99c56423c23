/* What CPython knows of POSIX threads, besides their lives: locks, conditions, and what each thread has of its own. */
#include "threads.h"

#include <errno.h>

/* --- Locks and conditions. Nothing switches while a mutex is held, but for the wait for a condition, which lets go of it:
   a mutex is never found held. --- */

int pthread_mutex_init(pthread_mutex_t *restrict mutex, const pthread_mutexattr_t *restrict attributes) {
    return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *mutex) {
    return 0;
}

int pthread_mutex_trylock(pthread_mutex_t *mutex) {
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    return 0;
}

int pthread_condattr_init(pthread_condattr_t *attributes) {
    return 0;
}

int pthread_condattr_setclock(pthread_condattr_t *attributes, clockid_t clock) {
    return 0;
}

int pthread_cond_init(pthread_cond_t *restrict condition, const pthread_condattr_t *restrict attributes) {
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *condition) {
    return 0;
}

/* 0 says no more than that the caller should look again. */
int pthread_cond_wait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex) {
    cellar_wait_for(condition, NEVER);
    return 0;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    cellar_wait_for(condition, (uint64_t)until->tv_sec * 1000000000u + (uint64_t)until->tv_nsec);
    return cellar_running->has_timed_out ? ETIMEDOUT : 0;
}

int pthread_cond_signal(pthread_cond_t *condition) {
    struct thread *first = NULL;
    struct thread *thread;
    for (int i = 0; (thread = cellar_thread_at(i)) != NULL; i++) {
        bool waits = thread->progress == WAITING && thread->waits_for == condition;
        if (waits && (first == NULL || thread->order < first->order)) {
            first = thread;
        }
    }
    if (first != NULL) {
        cellar_stop_waiting(first);
    }
    return 0;
}

/* --- What each thread has of its own --- */

static bool is_key_used[PTHREAD_KEYS_MAX];

int pthread_key_create(pthread_key_t *key, void (*destroy)(void *)) {
    for (pthread_key_t i = 0; i < PTHREAD_KEYS_MAX; i++) {
        if (!is_key_used[i]) {
            is_key_used[i] = true;
            *key = i;
            return 0;
        }
    }
    return EAGAIN;
}

int pthread_key_delete(pthread_key_t key) {
    is_key_used[key] = false;
    struct thread *thread;
    for (int i = 0; (thread = cellar_thread_at(i)) != NULL; i++) {
        thread->keys[key] = NULL;
    }
    return 0;
}

void *pthread_getspecific(pthread_key_t key) {
    return (void *)cellar_running->keys[key];
}

int pthread_setspecific(pthread_key_t key, const void *value) {
    cellar_running->keys[key] = value;
    return 0;
}
