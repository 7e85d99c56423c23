/* C++ code is compiled without exceptions: what throws ends the kernel, and says why. NumPy throws only where memory for
   a Fourier transform or a list runs out. */
#include <stddef.h>
#include <stdint.h>

#include "glue.h"

/* Where an exception is made; nobody ever catches it. */
static max_align_t thrown[64];

void *__cxa_allocate_exception(size_t size) {
    return size <= sizeof thrown ? thrown : NULL;
}

/* The second word of a type's description is its name, as the compiler writes it. */
_Noreturn void __cxa_throw(void *exception, void *type, void (*destroy)(void *)) {
    glue_log("a C++ exception ended the kernel:");
    glue_log(type != NULL ? ((const char **)type)[1] : "of no type");
    __builtin_trap();
}
