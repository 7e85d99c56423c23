/* The counters that clang put into a training program, for the program itself: it has no runtime of clang's. Include this
   once. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Tells clang's driver that no further library is needed. */
int __llvm_profile_runtime;

/* Where the linker put what the compiler made for the counters; see guests/build/src/profile/counts.rs. */
extern char __start___llvm_prf_data[], __stop___llvm_prf_data[];
extern char __start___llvm_prf_cnts[], __stop___llvm_prf_cnts[];
extern char __start___llvm_prf_names[], __stop___llvm_prf_names[];

/* Begins to count anew. */
static inline void counters_clear(void) {
    memset(__start___llvm_prf_cnts, 0, (size_t)(__stop___llvm_prf_cnts - __start___llvm_prf_cnts));
}

/* Writes a part of memory after its address and its length. */
static inline bool counters_put(FILE *file, const char *start, const char *end) {
    uint32_t head[] = {(uint32_t)(uintptr_t)start, (uint32_t)(end - start)};
    return fwrite(head, sizeof head, 1, file) == 1 && fwrite(start, head[1], 1, file) == 1;
}

/* Writes what was counted to the file `/counts`, where the builder looks for it. */
static inline bool counters_write(void) {
    FILE *file = fopen("/counts", "wb");
    return file != NULL && counters_put(file, __start___llvm_prf_data, __stop___llvm_prf_data) &&
           counters_put(file, __start___llvm_prf_cnts, __stop___llvm_prf_cnts) &&
           counters_put(file, __start___llvm_prf_names, __stop___llvm_prf_names) && fclose(file) == 0;
}
