// Shared by the files that define WASI preview1 on top of the kernel world.
//
// The C library calls these functions as imports of the module `wasi_snapshot_preview1`; the linker binds the imports
// to the definitions here, so that the finished guest imports nothing but the kernel world.
#ifndef CELLAR_WASI_H
#define CELLAR_WASI_H

#include <wasi/api.h>

#include "glue.h"

// Name under which the C library refers to a preview1 function.
#define WASI(name) __imported_wasi_snapshot_preview1_##name

// What every function returns: an errno, widened as the ABI wants it.
typedef int32_t wasi_result_t;

// What a descriptor is open on: nothing, a file or folder of the host's, or one of the devices that programs ask for by
// their paths, which are the guest's own. The last three are the standard streams.
enum { WASI_CLOSED, WASI_HOSTS, WASI_NULL, WASI_ZERO, WASI_RANDOM, WASI_STDIN, WASI_STDOUT, WASI_STDERR };

// An open descriptor of the guest. The host's descriptors are positional; offset and flags are ours.
typedef struct {
    uint64_t offset;
    uint32_t host;
    uint8_t open;
    // `__WASI_FILETYPE_UNKNOWN` until someone asks.
    uint8_t type;
    uint16_t flags;
} wasi_file_t;

// The root folder, which is open in every guest and never closed.
#define WASI_ROOT_FD 3

// The entry of an open file or folder; null for anything else.
wasi_file_t *wasi_file(__wasi_fd_t fd);

// Gives the host's descriptor a number of the guest's; closes it when there is none left.
wasi_result_t wasi_install(uint32_t host, uint16_t flags, __wasi_fd_t *fd);

// The same for a device.
wasi_result_t wasi_install_device(uint8_t device, uint16_t flags, __wasi_fd_t *fd);

// Makes another descriptor of an open file, whose place in the file begins where the first one's is, and is its own.
wasi_result_t wasi_duplicate(__wasi_fd_t from, __wasi_fd_t *fd);

// The errno for an error of the host's.
wasi_result_t wasi_errno(cellar_kernel_files_error_code_t code);

// Makes `view` a view of a path. Fails with EILSEQ when the bytes are not UTF-8.
wasi_result_t wasi_path(const uint8_t *path, __wasi_size_t length, kernel_string_t *view);

// Converts what the host knows of a file.
void wasi_stat(const cellar_kernel_files_file_stat_t *from, __wasi_filestat_t *to);

// The type of a file as preview1 numbers it.
__wasi_filetype_t wasi_filetype(cellar_kernel_files_file_type_t type);

// The times to set, as options, from flags that may say "now".
void wasi_times(__wasi_timestamp_t accessed, __wasi_timestamp_t modified, __wasi_fstflags_t flags,
                uint64_t times[2], uint64_t *chosen[2]);

// Reads from standard input, which is whoever watches the run.
wasi_result_t wasi_read_stdin(const __wasi_iovec_t *vectors, size_t count, __wasi_size_t *got);

#endif
