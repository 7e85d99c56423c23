/* The C library's allocator, replaced: two-level segregated fit with boundary tags.
 *
 * The toolchain's own rounds every request up to a power of two and never joins what was freed, so that an interpreter
 * that once ran out of memory stays out of memory. This one finds a block in constant time, splits and joins, and takes
 * no page into use that nobody asked for: memory that was never handed out is known to be zero.
 *
 * There are no threads. Linear memory only grows, and only in whole pages; what others take of it lies between regions.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PAGE_BYTES 65536u
#define GRANULE 16u
/* Least growth, to ask the host less often. */
#define GROWTH_BYTES (512u * 1024u)

/* Sizes below this have a list each; above, each power of two is divided into as many lists. */
#define SMALL_BYTES 512u
#define LISTS 32u
#define LISTS_LOG2 5
#define LEVELS 24u
#define SMALL_LOG2 9

/* A block begins with its header; the payload is aligned to a granule. Sizes include the header. */
typedef struct block {
    /* Size of the block before, when that is free. */
    uint32_t before;
    /* Size, and the two flags. */
    uint32_t size;
    /* In free blocks only. */
    struct block *next;
    struct block *previous;
} block_t;

#define HEADER_BYTES 8u
#define FREE 1u
#define BEFORE_FREE 2u
#define FLAGS (FREE | BEFORE_FREE)

extern unsigned char __heap_base;

static uint32_t levels_map;
static uint32_t lists_map[LEVELS];
static block_t *lists[LEVELS][LISTS];

/* End of the region that was added last, where its sentinel lies. */
static uintptr_t region_end;
/* Nothing from here on was ever written. */
static uintptr_t untouched;

static uint32_t size_of(const block_t *block) {
    return block->size & ~FLAGS;
}

static block_t *after(block_t *block) {
    return (block_t *)((char *)block + size_of(block));
}

static void *payload(block_t *block) {
    return (char *)block + HEADER_BYTES;
}

static block_t *block_of(void *memory) {
    return (block_t *)((char *)memory - HEADER_BYTES);
}

static uint32_t log2_of(uint32_t size) {
    return 31u - (uint32_t)__builtin_clz(size);
}

/* The list that a free block of this size belongs to. */
static void list_for(uint32_t size, uint32_t *level, uint32_t *list) {
    if (size < SMALL_BYTES) {
        *level = 0;
        *list = size / GRANULE;
        return;
    }
    uint32_t top = log2_of(size);
    *level = top - SMALL_LOG2 + 1;
    *list = (size >> (top - LISTS_LOG2)) & (LISTS - 1);
}

static void insert(block_t *block) {
    uint32_t level, list;
    list_for(size_of(block), &level, &list);
    block->size |= FREE;
    block->previous = NULL;
    block->next = lists[level][list];
    if (block->next != NULL) {
        block->next->previous = block;
    }
    lists[level][list] = block;
    lists_map[level] |= 1u << list;
    levels_map |= 1u << level;
    block_t *follower = after(block);
    follower->before = size_of(block);
    follower->size |= BEFORE_FREE;
    if ((uintptr_t)block + sizeof *block > untouched) {
        untouched = (uintptr_t)block + sizeof *block;
    }
}

static void take_out(block_t *block) {
    uint32_t level, list;
    list_for(size_of(block), &level, &list);
    if (block->next != NULL) {
        block->next->previous = block->previous;
    }
    if (block->previous != NULL) {
        block->previous->next = block->next;
    } else {
        lists[level][list] = block->next;
        if (block->next == NULL) {
            lists_map[level] &= ~(1u << list);
            if (lists_map[level] == 0) {
                levels_map &= ~(1u << level);
            }
        }
    }
    block->size &= ~FREE;
    after(block)->size &= ~BEFORE_FREE;
}

/* A free block of at least this size, or NULL. Looks one list further than the size's own, where every block fits. */
static block_t *find(uint32_t size) {
    uint32_t level, list;
    uint32_t wanted = size < SMALL_BYTES ? size : size + (1u << (log2_of(size) - LISTS_LOG2)) - 1;
    if (wanted < size) {
        return NULL;
    }
    list_for(wanted, &level, &list);
    uint32_t found = lists_map[level] & (~0u << list);
    if (found == 0) {
        uint32_t higher = level + 1 < 32 ? levels_map & (~0u << (level + 1)) : 0;
        if (higher == 0) {
            return NULL;
        }
        level = (uint32_t)__builtin_ctz(higher);
        found = lists_map[level];
    }
    return lists[level][__builtin_ctz(found)];
}

/* Cuts a block in use down to `size`; what is left becomes free. */
static void trim(block_t *block, uint32_t size) {
    uint32_t rest = size_of(block) - size;
    if (rest < sizeof(block_t)) {
        return;
    }
    block->size = size | (block->size & FLAGS);
    block_t *remainder = after(block);
    remainder->size = rest;
    block_t *follower = after(remainder);
    if (follower->size & FREE) {
        take_out(follower);
        remainder->size += size_of(follower);
    }
    insert(remainder);
}

/* Joins a block that is no longer used with its free neighbours. */
static void release(block_t *block) {
    block_t *follower = after(block);
    if (follower->size & FREE) {
        take_out(follower);
        block->size += size_of(follower);
    }
    if (block->size & BEFORE_FREE) {
        block_t *earlier = (block_t *)((char *)block - block->before);
        take_out(earlier);
        earlier->size += size_of(block);
        block = earlier;
    }
    insert(block);
}

/* Makes [start, end) part of the heap. It ends with a sentinel: the header of a block that is never free. */
static void add_region(uintptr_t start, uintptr_t end) {
    block_t *block;
    uintptr_t limit = end - HEADER_BYTES;
    block_t *merged = NULL;
    if (region_end != 0 && start == region_end) {
        block = (block_t *)(region_end - HEADER_BYTES);
        merged = block->size & BEFORE_FREE ? block : NULL;
    } else {
        /* Headers lie half a granule before the payload. */
        start = ((start + HEADER_BYTES + GRANULE - 1) & ~(uintptr_t)(GRANULE - 1)) - HEADER_BYTES;
        block = (block_t *)start;
        block->size = 0;
    }
    limit = ((limit + HEADER_BYTES) & ~(uintptr_t)(GRANULE - 1)) - HEADER_BYTES;
    block->size = (uint32_t)(limit - (uintptr_t)block) | (block->size & BEFORE_FREE);
    region_end = limit + HEADER_BYTES;
    block_t *sentinel = (block_t *)limit;
    sentinel->size = 0;
    release(block);
    if (merged != NULL) {
        /* The old sentinel now lies within a free block, in memory that may count as untouched. */
        memset(merged, 0, HEADER_BYTES);
    }
}

static int grow(uint32_t size) {
    if (region_end == 0) {
        /* Before anything else: what lies between the data and the end of the first pages. */
        uintptr_t start = (uintptr_t)&__heap_base, end = (uintptr_t)__builtin_wasm_memory_size(0) * PAGE_BYTES;
        untouched = start;
        if (end - start >= PAGE_BYTES) {
            add_region(start, end);
            if (find(size) != NULL) {
                return 1;
            }
        }
    }
    /* Room for the search's rounding, the header and the sentinel. */
    uint64_t least = (uint64_t)size + (size >> LISTS_LOG2) + 4 * GRANULE;
    uint64_t wanted = least < GROWTH_BYTES ? GROWTH_BYTES : least;
    for (int attempt = 0; attempt < 2; attempt++) {
        uint64_t pages = (wanted + PAGE_BYTES - 1) / PAGE_BYTES;
        size_t first = pages < PAGE_BYTES ? __builtin_wasm_memory_grow(0, (size_t)pages) : (size_t)-1;
        if (first != (size_t)-1) {
            uintptr_t start = (uintptr_t)first * PAGE_BYTES;
            /* The very last byte of a full address space is not used: its end would be 0. */
            uintptr_t end = start + (uintptr_t)pages * PAGE_BYTES;
            add_region(start, end != 0 ? end : end - GRANULE);
            return 1;
        }
        wanted = least;
    }
    return 0;
}

/* Size of the block for a request, or 0 when there is no such block. */
static uint32_t block_size(size_t size) {
    if (size > (size_t)PTRDIFF_MAX - PAGE_BYTES) {
        return 0;
    }
    uint32_t whole = ((uint32_t)size + HEADER_BYTES + GRANULE - 1) & ~(GRANULE - 1);
    return whole < sizeof(block_t) ? (uint32_t)sizeof(block_t) : whole;
}

/* What `malloc` is. The compiler knows that name, and would make `calloc` out of a `malloc` and a `memset`. */
static void *allocate(size_t size) {
    uint32_t whole = block_size(size);
    block_t *block = whole != 0 ? find(whole) : NULL;
    if (block == NULL && whole != 0 && grow(whole)) {
        block = find(whole);
    }
    if (block == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    take_out(block);
    trim(block, whole);
    if ((uintptr_t)after(block) > untouched) {
        untouched = (uintptr_t)after(block);
    }
    return payload(block);
}

void *malloc(size_t size) {
    return allocate(size);
}

void free(void *memory) {
    if (memory != NULL) {
        release(block_of(memory));
    }
}

void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    uintptr_t fresh = untouched;
    char *memory = allocate(bytes);
    if (memory == NULL) {
        return NULL;
    }
    /* A first region sets the mark while it is made; then nothing is known. The links of the free block are dirty. */
    uintptr_t start = (uintptr_t)memory, links = start + sizeof(block_t) - HEADER_BYTES;
    uintptr_t dirty_end = fresh == 0 ? start + bytes : fresh > links ? fresh : links;
    memset(memory, 0, dirty_end - start < bytes ? dirty_end - start : bytes);
    return memory;
}

/* Makes a block at least `whole` long where it lies. */
static int extend(block_t *block, uint32_t whole) {
    block_t *follower = after(block);
    if (follower->size & FREE && size_of(block) + size_of(follower) >= whole) {
        take_out(follower);
        block->size += size_of(follower);
        trim(block, whole);
        if ((uintptr_t)after(block) > untouched) {
            untouched = (uintptr_t)after(block);
        }
        return 1;
    }
    return 0;
}

void *realloc(void *memory, size_t size) {
    if (memory == NULL) {
        return malloc(size);
    }
    block_t *block = block_of(memory);
    uint32_t whole = block_size(size);
    if (whole == 0) {
        errno = ENOMEM;
        return NULL;
    }
    uint32_t have = size_of(block);
    if (whole <= have) {
        trim(block, whole);
        return memory;
    }
    if (extend(block, whole)) {
        return memory;
    }
    /* The last block of all grows with the memory, and need not be copied. */
    block_t *follower = after(block);
    uintptr_t end = (uintptr_t)follower + (follower->size & FREE ? size_of(follower) : 0);
    if (end == region_end - HEADER_BYTES && grow(whole - have) && extend(block, whole)) {
        return memory;
    }
    void *fresh = malloc(size);
    if (fresh != NULL) {
        memcpy(fresh, memory, have - HEADER_BYTES);
        free(memory);
    }
    return fresh;
}

void *aligned_alloc(size_t alignment, size_t size) {
    if (alignment <= GRANULE) {
        return malloc(size);
    }
    if ((alignment & (alignment - 1)) != 0 || size > SIZE_MAX / 2 || alignment > SIZE_MAX / 4) {
        errno = EINVAL;
        return NULL;
    }
    char *memory = malloc(size + alignment + sizeof(block_t));
    if (memory == NULL) {
        return NULL;
    }
    block_t *block = block_of(memory);
    uintptr_t start = (uintptr_t)memory;
    uintptr_t aligned = (start + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (aligned != start) {
        if (aligned - start < sizeof(block_t)) {
            aligned += alignment;
        }
        /* The part before the aligned address becomes a free block of its own. */
        uint32_t front = (uint32_t)(aligned - start);
        block_t *rest = (block_t *)((char *)block + front);
        rest->size = size_of(block) - front;
        block->size = front | (block->size & BEFORE_FREE);
        release(block);
        block = rest;
    }
    trim(block, block_size(size));
    return payload(block);
}

void *memalign(size_t alignment, size_t size) {
    return aligned_alloc(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0) {
        return EINVAL;
    }
    void *memory = aligned_alloc(alignment, size);
    if (memory == NULL) {
        return ENOMEM;
    }
    *out = memory;
    return 0;
}

size_t malloc_usable_size(void *memory) {
    return memory != NULL ? size_of(block_of(memory)) - HEADER_BYTES : 0;
}
