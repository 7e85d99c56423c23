// Access to linear memory for the host (snapshots), and lists that land where they are wanted.
//
// The host writes a list by asking `cabi_realloc` for room and copying into it. Aiming answers the next such request
// with an address of our choice: a restored page goes straight to its place, and a file is read straight into the
// caller's buffer. Aim lives in wasm globals, outside linear memory, so that restoring memory cannot change it.
#include "glue.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 65536u
#define WASM_GLOBAL __attribute__((address_space(1)))

WASM_GLOBAL extern uint32_t glue_target, glue_capacity;
WASM_GLOBAL uint32_t glue_target = 0;
// 0 when nothing is aimed at.
WASM_GLOBAL uint32_t glue_capacity = 0;

void glue_aim(void *buffer, size_t capacity) {
    uint32_t target = (uint32_t)(uintptr_t)buffer, room = (uint32_t)capacity;
    // Clang merges a narrowing into the store, and then stores to memory instead of to the global: keep them apart.
    __asm__ volatile("" : "+r"(target), "+r"(room));
    glue_target = target;
    glue_capacity = room;
}

bool glue_landed(void) {
    bool landed = glue_capacity == 0;
    glue_capacity = 0;
    return landed;
}

// Replaces the weak definition of the generated bindings. The host calls it while it lowers arguments and results, so
// it must not call the host.
__attribute__((__export_name__("cabi_realloc"))) void *cabi_realloc(void *old, size_t old_size, size_t align,
                                                                    size_t new_size) {
    (void)old_size;
    if (new_size == 0)
        return (void *)align;
    if (glue_capacity != 0 && new_size <= glue_capacity) {
        glue_capacity = 0;
        return (void *)(uintptr_t)glue_target;
    }
    void *fresh = realloc(old, new_size);
    if (fresh == NULL)
        __builtin_trap(); // the ABI has no way to refuse
    return fresh;
}

uint64_t exports_kernel_memory_size(void) {
    return (uint64_t)__builtin_wasm_memory_size(0) * PAGE_BYTES;
}

bool exports_kernel_memory_grow(uint64_t size) {
    uint64_t wanted = (size + PAGE_BYTES - 1) / PAGE_BYTES;
    uint64_t have = __builtin_wasm_memory_size(0);
    if (wanted > PAGE_BYTES)
        return false;
    return wanted <= have || __builtin_wasm_memory_grow(0, (size_t)(wanted - have)) != (size_t)-1;
}

void exports_kernel_memory_read(uint64_t offset, uint64_t length, kernel_list_u8_t *view) {
    view->ptr = (uint8_t *)(uintptr_t)offset;
    view->len = (size_t)length;
}

// The list was a view: nothing to free. Replaces the weak definition of the generated bindings.
__attribute__((__export_name__("cabi_post_memory-read"))) void
__wasm_export_exports_kernel_memory_read_post_return(uint8_t *view) {
    (void)view;
}

void exports_kernel_memory_target(uint64_t offset) {
    glue_aim((void *)(uintptr_t)offset, UINT32_MAX);
}

// The data already lies where it belongs. An empty list never came by `cabi_realloc`, so the aim is dropped here.
void exports_kernel_memory_write(kernel_list_u8_t *data) {
    (void)data;
    glue_landed();
}

bool glue_baking;

void glue_random(void *buffer, size_t length) {
    if (glue_baking) {
        memset(buffer, 0x5A, length);
        return;
    }
    uint8_t *at = buffer;
    while (length > 0) {
        uint32_t wanted = length < 65536 ? (uint32_t)length : 65536;
        kernel_list_u8_t bytes;
        glue_aim(at, wanted);
        cellar_kernel_control_random(wanted, &bytes);
        if (!glue_landed() || bytes.len != wanted)
            __builtin_trap(); // going on without the randomness that was asked for would be worse
        at += wanted;
        length -= wanted;
    }
}
