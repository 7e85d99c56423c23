// The rest of preview1: clocks, randomness, waiting, standard input, the end of the process, and sockets, of which
// there are none.
#include "wasi.h"

#include <stdlib.h>
#include <string.h>

#define OK __WASI_ERRNO_SUCCESS

// ---- Arguments and environment: none at the start; `glue_configure` sets the environment.

static wasi_result_t nothing(__wasi_size_t *count, __wasi_size_t *bytes) {
    *count = *bytes = 0;
    return OK;
}

wasi_result_t WASI(args_sizes_get)(__wasi_size_t *count, __wasi_size_t *bytes) {
    return nothing(count, bytes);
}

wasi_result_t WASI(args_get)(uint8_t **arguments, uint8_t *buffer) {
    return OK;
}

wasi_result_t WASI(environ_sizes_get)(__wasi_size_t *count, __wasi_size_t *bytes) {
    return nothing(count, bytes);
}

wasi_result_t WASI(environ_get)(uint8_t **environment, uint8_t *buffer) {
    return OK;
}

// ---- Clocks and randomness

// What the wall clock says while the guest is baked: an hour of June 2025. The others say 0, for they only grow.
#define BAKING_TIME 1749600000000000000u

wasi_result_t WASI(clock_time_get)(uint32_t clock, __wasi_timestamp_t precision, __wasi_timestamp_t *time) {
    if (glue_baking) {
        *time = clock == 0 ? BAKING_TIME : 0;
        return OK;
    }
    switch (clock) {
    case 0:
        *time = cellar_kernel_control_wall_clock();
        return OK;
    case 1:
        *time = cellar_kernel_control_monotonic_clock();
        return OK;
    case 2:
    case 3:
        *time = cellar_kernel_control_cpu_clock();
        return OK;
    default:
        return __WASI_ERRNO_INVAL;
    }
}

wasi_result_t WASI(clock_res_get)(uint32_t clock, __wasi_timestamp_t *resolution) {
    *resolution = 1;
    return clock <= 3 ? OK : __WASI_ERRNO_INVAL;
}

wasi_result_t WASI(random_get)(uint8_t *buffer, __wasi_size_t length) {
    glue_random(buffer, length);
    return OK;
}

// ---- Waiting

static void let_host_sleep(uint64_t until) {
    cellar_kernel_control_sleep_until(glue_cell, until);
}

void (*glue_sleep)(uint64_t until) = let_host_sleep;

// When a clock subscription is due, on the monotonic clock.
static uint64_t due(const __wasi_subscription_clock_t *clock, uint64_t now) {
    uint64_t delay = clock->timeout;
    if (clock->flags & __WASI_SUBCLOCKFLAGS_SUBSCRIPTION_CLOCK_ABSTIME) {
        uint64_t base = clock->id == 0 ? cellar_kernel_control_wall_clock() : now;
        delay = clock->timeout > base ? clock->timeout - base : 0;
    }
    return delay > UINT64_MAX - now ? UINT64_MAX : now + delay;
}

// Files are always ready, so only a wait for nothing but clocks waits. It may end early when the cell must stop; the
// interpreter notices that by itself.
wasi_result_t WASI(poll_oneoff)(const __wasi_subscription_t *subscriptions, __wasi_event_t *events,
                                __wasi_size_t count, __wasi_size_t *happened) {
    if (count == 0)
        return __WASI_ERRNO_INVAL;
    uint64_t now = cellar_kernel_control_monotonic_clock(), earliest = UINT64_MAX;
    bool ready = false;
    for (__wasi_size_t i = 0; i < count; i++) {
        if (subscriptions[i].u.tag != __WASI_EVENTTYPE_CLOCK) {
            ready = true;
        } else {
            uint64_t time = due(&subscriptions[i].u.u.clock, now);
            earliest = time < earliest ? time : earliest;
        }
    }
    if (!ready && earliest > now)
        glue_sleep(earliest);
    *happened = 0;
    for (__wasi_size_t i = 0; i < count; i++) {
        bool is_clock = subscriptions[i].u.tag == __WASI_EVENTTYPE_CLOCK;
        if (is_clock && due(&subscriptions[i].u.u.clock, now) > (ready ? now : earliest))
            continue;
        events[(*happened)++] = (__wasi_event_t){
            .userdata = subscriptions[i].userdata,
            .type = subscriptions[i].u.tag,
            .fd_readwrite.nbytes = is_clock ? 0 : 1,
        };
    }
    return OK;
}

wasi_result_t WASI(sched_yield)(void) {
    return OK;
}

_Noreturn void WASI(proc_exit)(uint32_t code) {
    glue_log("the guest called exit()");
    __builtin_trap();
}

// ---- Standard input

// What came and was not read yet.
static struct {
    kernel_string_t text;
    size_t used;
} line;

static wasi_result_t next_line(void) {
    kernel_string_t prompt = glue_view("", 0);
    cellar_kernel_input_response_t answer;
    cellar_kernel_input_call_error_t error;
    if (!cellar_kernel_input_call(glue_cell, &prompt, &answer, &error)) {
        bool denied = error.kind == CELLAR_KERNEL_TYPES_CALL_ERROR_KIND_DENIED;
        // The host says so when there are no more lines.
        bool ended = error.kind == CELLAR_KERNEL_TYPES_CALL_ERROR_KIND_FAILED;
        cellar_kernel_types_call_error_free(&error);
        return ended ? OK : denied ? __WASI_ERRNO_NOTCAPABLE : __WASI_ERRNO_IO;
    }
    if (answer.tag != CELLAR_KERNEL_TYPES_RESPONSE_TEXT) {
        cellar_kernel_types_response_free(&answer);
        return __WASI_ERRNO_IO;
    }
    kernel_string_t text = answer.val.text;
    uint8_t *whole = realloc(text.len > 0 ? text.ptr : NULL, text.len + 1);
    if (whole == NULL) {
        cellar_kernel_types_response_free(&answer);
        return __WASI_ERRNO_NOMEM;
    }
    whole[text.len] = '\n';
    line.text = (kernel_string_t){whole, text.len + 1};
    line.used = 0;
    return OK;
}

wasi_result_t wasi_read_stdin(const __wasi_iovec_t *vectors, size_t count, __wasi_size_t *got) {
    *got = 0;
    if (line.text.ptr == NULL) {
        wasi_result_t result = next_line();
        if (result != OK || line.text.ptr == NULL)
            return result;
    }
    for (size_t i = 0; i < count && line.used < line.text.len; i++) {
        size_t left = line.text.len - line.used;
        size_t n = vectors[i].buf_len < left ? vectors[i].buf_len : left;
        memcpy(vectors[i].buf, line.text.ptr + line.used, n);
        line.used += n;
        *got += n;
    }
    if (line.used == line.text.len) {
        free(line.text.ptr);
        line.text.ptr = NULL;
    }
    return OK;
}

// ---- Sockets

wasi_result_t WASI(sock_accept)(__wasi_fd_t fd, __wasi_fdflags_t flags, __wasi_fd_t *accepted) {
    return __WASI_ERRNO_NOTSUP;
}

wasi_result_t WASI(sock_recv)(__wasi_fd_t fd, const __wasi_iovec_t *vectors, size_t count, __wasi_riflags_t flags,
                              __wasi_size_t *got, __wasi_roflags_t *out) {
    return __WASI_ERRNO_NOTSUP;
}

wasi_result_t WASI(sock_send)(__wasi_fd_t fd, const __wasi_ciovec_t *vectors, size_t count, __wasi_siflags_t flags,
                              __wasi_size_t *put) {
    return __WASI_ERRNO_NOTSUP;
}

wasi_result_t WASI(sock_shutdown)(__wasi_fd_t fd, __wasi_sdflags_t how) {
    return __WASI_ERRNO_NOTSUP;
}
