/* Descriptors of files that C libraries have twice, which WASI does not know of. */
#include <errno.h>

#include "wasi.h"

int dup(int descriptor) {
    __wasi_fd_t fd;
    wasi_result_t error = wasi_duplicate((__wasi_fd_t)descriptor, &fd);
    if (error != 0) {
        errno = error;
        return -1;
    }
    return (int)fd;
}
