// The allocator of all guests: two-level segregated fit (TLSF, after Masmano and others, 2004).
//
// The C library's own rounds each request up to a power of two and never joins what was freed, so an array of 300 MiB
// needs 512, and the limit a session was given means little. This one splits to the exact size, joins neighbours at
// once, and takes bounded time. These definitions replace the library's weak ones.
//
// Memory is a few regions, of which the last can grow. A region is a row of blocks and ends with an empty one in use.
// All lengths are multiples of 16 and count the header of 8 bytes, so that what is handed out is aligned to 16.
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 16u
#define HEADER_BYTES 8u
#define PAGE_BYTES 65536u
// Lengths below this have a list each; above, each doubling is cut into LIST_COUNT lists.
#define SMALL_BYTES 256u
#define LIST_COUNT 16u
#define LEVEL_COUNT 25u
#define FREE 1u
// Blocks that are looked at in a list where not every one is long enough.
#define CLOSE_LOOKS 32
// More than this is never asked of the host at once without need.
#define GROWTH_BYTES_MAX (4u << 20)
// A guest that counts what its code does hears of allocations from here on.
#define NOTED_BYTES (64u << 10)

typedef struct block {
    struct block *before; // the block that ends where this one begins; null at the start of a region
    uint32_t length_and_free;
    // Only in a free block:
    struct block *next, *previous;
} block_t;

static block_t *lists[LEVEL_COUNT][LIST_COUNT];
static uint32_t level_bits;
static uint16_t list_bits[LEVEL_COUNT];

// The empty block at the end of the last region.
static block_t *last;

// Below this address all is in use for ever; see `glue_seal_memory`.
static uintptr_t sealed;

// Above this address nothing was ever written, so memory there is still zero.
static uintptr_t touched;

// For guests that count otherwise.
__attribute__((weak)) void glue_note_allocation(size_t bytes) {
    (void)bytes;
}

static uint32_t length_of(const block_t *block) {
    return block->length_and_free & ~FREE;
}

static bool is_free(const block_t *block) {
    return block->length_and_free & FREE;
}

static block_t *after(block_t *block) {
    return (block_t *)((uintptr_t)block + length_of(block));
}

static void *content(block_t *block) {
    return (void *)((uintptr_t)block + HEADER_BYTES);
}

static block_t *block_of(const void *pointer) {
    return (block_t *)((uintptr_t)pointer - HEADER_BYTES);
}

// ---- Free lists

typedef struct {
    uint32_t level, list;
} place_t;

// The list that holds free blocks of a length.
static place_t place_of(uint32_t length) {
    if (length < SMALL_BYTES)
        return (place_t){0, length / ALIGNMENT};
    uint32_t top = 31 - (uint32_t)__builtin_clz(length);
    return (place_t){top - 7, (length >> (top - 4)) & (LIST_COUNT - 1)};
}

static void insert(block_t *block) {
    place_t at = place_of(length_of(block));
    block->length_and_free |= FREE;
    block->previous = NULL;
    block->next = lists[at.level][at.list];
    if (block->next != NULL)
        block->next->previous = block;
    lists[at.level][at.list] = block;
    list_bits[at.level] |= (uint16_t)(1u << at.list);
    level_bits |= 1u << at.level;
}

static void take_out(block_t *block) {
    place_t at = place_of(length_of(block));
    if (block->next != NULL)
        block->next->previous = block->previous;
    if (block->previous != NULL) {
        block->previous->next = block->next;
    } else {
        lists[at.level][at.list] = block->next;
        if (block->next == NULL) {
            list_bits[at.level] &= (uint16_t)~(1u << at.list);
            if (list_bits[at.level] == 0)
                level_bits &= ~(1u << at.level);
        }
    }
    block->length_and_free &= ~FREE;
}

// A block of at least `length` from the one list that may also hold shorter ones: worth a look before memory grows.
static block_t *find_close(uint32_t length) {
    place_t at = place_of(length);
    block_t *block = lists[at.level][at.list];
    for (int i = 0; block != NULL && i < CLOSE_LOOKS; i++, block = block->next) {
        if (length_of(block) >= length) {
            take_out(block);
            return block;
        }
    }
    return NULL;
}

// A free block of at least `length`, taken out of its list; null when there is none.
static block_t *find(uint32_t length) {
    // Any block will do of the lists whose shortest is this long.
    uint32_t wanted = length;
    if (length >= SMALL_BYTES && __builtin_add_overflow(wanted, (1u << (27 - __builtin_clz(length))) - 1, &wanted))
        return find_close(length);
    place_t at = place_of(wanted);
    uint32_t here = list_bits[at.level] & (0xFFFFu << at.list);
    if (here == 0) {
        uint32_t above = at.level + 1 < 32 ? level_bits & (0xFFFFFFFFu << (at.level + 1)) : 0;
        if (above == 0)
            return find_close(length);
        at.level = (uint32_t)__builtin_ctz(above);
        here = list_bits[at.level];
    }
    block_t *block = lists[at.level][__builtin_ctz(here)];
    take_out(block);
    return block;
}

// ---- Blocks

static void set_length(block_t *block, uint32_t length) {
    block->length_and_free = length | (block->length_and_free & FREE);
    after(block)->before = block;
}

// Makes one block of two neighbours. The header between them goes, so that untouched memory is zero throughout.
static void join(block_t *block, block_t *next) {
    uint32_t length = length_of(block) + length_of(next);
    memset(next, 0, sizeof *next);
    set_length(block, length);
}

// Puts a block that is in no list back, joined with its free neighbours.
static void release(block_t *block) {
    block_t *next = after(block), *before = block->before;
    if (is_free(next)) {
        take_out(next);
        join(block, next);
    }
    if (before != NULL && is_free(before)) {
        take_out(before);
        join(before, block);
        block = before;
    }
    insert(block);
}

// Cuts a block in use to `length`; the rest becomes free.
static void cut(block_t *block, uint32_t length) {
    uint32_t rest = length_of(block) - length;
    if (rest < ALIGNMENT)
        return;
    set_length(block, length);
    block_t *tail = after(block);
    tail->length_and_free = rest;
    set_length(tail, rest);
    release(tail);
}

// ---- Regions

// Makes a region of the bytes from `start` to `end`, both at page or section boundaries.
static void add_region(uintptr_t start, uintptr_t end) {
    uintptr_t first = ((start + HEADER_BYTES + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1)) - HEADER_BYTES;
    block_t *block = (block_t *)first;
    uintptr_t close = ((end - first) & ~(uintptr_t)(ALIGNMENT - 1)) + first - ALIGNMENT;
    *block = (block_t){.before = NULL, .length_and_free = (uint32_t)(close - first)};
    last = (block_t *)close;
    last->length_and_free = 0;
    last->before = block;
    insert(block);
}

// Joins pages that came right behind the last region to it.
static void extend_region(uint32_t bytes) {
    block_t *block = last;
    block_t *before = block->before;
    block->length_and_free = bytes;
    last = after(block);
    last->length_and_free = 0;
    last->before = block;
    block->before = before;
    release(block);
}

// Makes the free block at the end of memory at least `length` long. False when the host refuses.
static bool grow(uint32_t length) {
    extern unsigned char __heap_base;
    if (last == NULL) {
        touched = (uintptr_t)&__heap_base;
        add_region(touched, (uintptr_t)__builtin_wasm_memory_size(0) * PAGE_BYTES);
    }
    block_t *tail = last->before;
    uint32_t have = tail != NULL && is_free(tail) ? length_of(tail) : 0;
    if (have >= length)
        return true;
    uint64_t need = (uint64_t)length - have;
    uint64_t size = (uint64_t)__builtin_wasm_memory_size(0) * PAGE_BYTES;
    uint64_t spare = size / 8 < GROWTH_BYTES_MAX ? size / 8 : GROWTH_BYTES_MAX;
    for (int attempt = 0; attempt < 3; attempt++) {
        // First with something to spare, then just what is needed.
        uint64_t wanted = attempt == 0 && spare > need ? spare : need;
        size_t pages = (size_t)((wanted + PAGE_BYTES - 1) / PAGE_BYTES);
        size_t old = __builtin_wasm_memory_grow(0, pages);
        if (old == SIZE_MAX)
            continue;
        uintptr_t start = (uintptr_t)old * PAGE_BYTES;
        // Somebody else may have grown memory in between: then the region cannot go on, and all of it is needed.
        if (start > (uintptr_t)last && start - (uintptr_t)last <= 2 * ALIGNMENT) {
            extend_region((uint32_t)pages * PAGE_BYTES);
        } else {
            add_region(start, start + pages * PAGE_BYTES);
            need = (uint64_t)length + 4 * ALIGNMENT;
        }
        if (length_of(last->before) >= length)
            return true;
    }
    return false;
}

// The length of a block for `size` bytes; 0 when that is too much.
static uint32_t length_for(size_t size) {
    if (size > UINT32_MAX - PAGE_BYTES)
        return 0;
    uint32_t length = ((uint32_t)size + HEADER_BYTES + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    return length < ALIGNMENT ? ALIGNMENT : length;
}

static block_t *allocate(size_t size) {
    uint32_t length = length_for(size);
    if (length >= NOTED_BYTES)
        glue_note_allocation(length);
    block_t *block = length == 0 ? NULL : find(length);
    if (block == NULL && length != 0 && grow(length)) {
        block = last->before;
        take_out(block);
    }
    if (block == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    cut(block, length);
    return block;
}

static void mark_touched(block_t *block) {
    uintptr_t end = (uintptr_t)after(block);
    if (end > touched)
        touched = end;
}

// ---- The C library's functions

void *malloc(size_t size) {
    block_t *block = allocate(size);
    if (block == NULL)
        return NULL;
    mark_touched(block);
    return content(block);
}

void free(void *pointer) {
    // Nothing is written where it was sealed.
    if ((uintptr_t)pointer < sealed || pointer == NULL)
        return;
    block_t *block = block_of(pointer);
    if (is_free(block))
        __builtin_trap(); // freed twice
    release(block);
}

void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    block_t *block = allocate(bytes);
    if (block == NULL)
        return NULL;
    // Untouched memory is zero but for the links of its list: large arrays of zeros cost no page until they are used.
    uintptr_t start = (uintptr_t)content(block);
    size_t dirty = touched > start ? touched - start : 0;
    dirty = dirty < sizeof(block_t) ? sizeof(block_t) : dirty;
    memset(content(block), 0, dirty < bytes ? dirty : bytes);
    mark_touched(block);
    return content(block);
}

// Is a block the last of memory, or followed by nothing but that?
static bool is_at_end(block_t *block) {
    return block == last || (is_free(block) && after(block) == last);
}

void *realloc(void *pointer, size_t size) {
    if (pointer == NULL)
        return malloc(size);
    block_t *block = block_of(pointer), *next = after(block);
    uint32_t length = length_for(size), have = length_of(block);
    if (length == 0) {
        errno = ENOMEM;
        return NULL;
    }
    if ((uintptr_t)pointer < sealed && length <= have)
        return pointer;
    if (length > have && is_at_end(next) && grow(length - have))
        next = after(block); // at the end of memory: growing beats copying
    if (length > have && is_free(next) && length_of(next) >= length - have) {
        take_out(next);
        join(block, next);
        have = length_of(block);
    }
    if (length <= have) {
        cut(block, length);
        mark_touched(block);
        return pointer;
    }
    void *moved = malloc(size);
    if (moved == NULL)
        return NULL;
    memcpy(moved, pointer, have - HEADER_BYTES);
    free(pointer);
    return moved;
}

void *reallocarray(void *pointer, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(pointer, bytes);
}

void *memalign(size_t alignment, size_t size) {
    if (alignment <= ALIGNMENT)
        return malloc(size);
    if ((alignment & (alignment - 1)) != 0 || size > UINT32_MAX / 2 || alignment > UINT32_MAX / 4) {
        errno = EINVAL;
        return NULL;
    }
    block_t *block = allocate(size + alignment + ALIGNMENT);
    if (block == NULL)
        return NULL;
    mark_touched(block);
    uintptr_t start = (uintptr_t)content(block);
    uintptr_t aligned = (start + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (aligned != start) {
        // What lies before becomes a free block of its own.
        uint32_t gap = (uint32_t)(aligned - start), rest = length_of(block) - gap;
        set_length(block, gap);
        block_t *kept = after(block);
        kept->length_and_free = rest;
        set_length(kept, rest);
        release(block);
        block = kept;
    }
    cut(block, length_for(size));
    return content(block);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

int posix_memalign(void **result, size_t alignment, size_t size) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0)
        return EINVAL;
    void *pointer = memalign(alignment, size);
    if (pointer == NULL)
        return ENOMEM;
    *result = pointer;
    return 0;
}

uintptr_t glue_seal_memory(void) {
    const uint32_t room = 1u << 20;
    if (!grow(room))
        return 0;
    block_t *end = last->before;
    for (uint32_t level = 0; level < LEVEL_COUNT; level++) {
        for (uint32_t list = 0; list < LIST_COUNT; list++) {
            while (lists[level][list] != NULL)
                take_out(lists[level][list]);
        }
    }
    release(end);
    sealed = (uintptr_t)end;
    return sealed;
}

void *valloc(size_t size) {
    return memalign(PAGE_BYTES, size);
}

size_t malloc_usable_size(void *pointer) {
    return pointer == NULL ? 0 : length_of(block_of(pointer)) - HEADER_BYTES;
}
