// Conversions between the kernel world's file types and preview1's.
#include "wasi.h"

wasi_result_t wasi_errno(cellar_kernel_files_error_code_t code) {
    static const uint8_t errnos[] = {
        [CELLAR_KERNEL_FILES_ERROR_CODE_ACCESS] = __WASI_ERRNO_ACCES,
        [CELLAR_KERNEL_FILES_ERROR_CODE_BAD_DESCRIPTOR] = __WASI_ERRNO_BADF,
        [CELLAR_KERNEL_FILES_ERROR_CODE_BUSY] = __WASI_ERRNO_BUSY,
        [CELLAR_KERNEL_FILES_ERROR_CODE_EXISTS] = __WASI_ERRNO_EXIST,
        [CELLAR_KERNEL_FILES_ERROR_CODE_FILE_TOO_LARGE] = __WASI_ERRNO_FBIG,
        [CELLAR_KERNEL_FILES_ERROR_CODE_INTERRUPTED] = __WASI_ERRNO_INTR,
        [CELLAR_KERNEL_FILES_ERROR_CODE_INVALID] = __WASI_ERRNO_INVAL,
        [CELLAR_KERNEL_FILES_ERROR_CODE_IO] = __WASI_ERRNO_IO,
        [CELLAR_KERNEL_FILES_ERROR_CODE_IS_DIRECTORY] = __WASI_ERRNO_ISDIR,
        [CELLAR_KERNEL_FILES_ERROR_CODE_LOOP] = __WASI_ERRNO_LOOP,
        [CELLAR_KERNEL_FILES_ERROR_CODE_NAME_TOO_LONG] = __WASI_ERRNO_NAMETOOLONG,
        [CELLAR_KERNEL_FILES_ERROR_CODE_NOT_CAPABLE] = __WASI_ERRNO_NOTCAPABLE,
        [CELLAR_KERNEL_FILES_ERROR_CODE_NOT_DIRECTORY] = __WASI_ERRNO_NOTDIR,
        [CELLAR_KERNEL_FILES_ERROR_CODE_NOT_EMPTY] = __WASI_ERRNO_NOTEMPTY,
        [CELLAR_KERNEL_FILES_ERROR_CODE_NOT_FOUND] = __WASI_ERRNO_NOENT,
        [CELLAR_KERNEL_FILES_ERROR_CODE_NOT_PERMITTED] = __WASI_ERRNO_PERM,
        [CELLAR_KERNEL_FILES_ERROR_CODE_NOT_SUPPORTED] = __WASI_ERRNO_NOTSUP,
        [CELLAR_KERNEL_FILES_ERROR_CODE_QUOTA] = __WASI_ERRNO_DQUOT,
        [CELLAR_KERNEL_FILES_ERROR_CODE_READ_ONLY] = __WASI_ERRNO_ROFS,
        [CELLAR_KERNEL_FILES_ERROR_CODE_TOO_MANY_LINKS] = __WASI_ERRNO_MLINK,
        [CELLAR_KERNEL_FILES_ERROR_CODE_TOO_MANY_OPEN] = __WASI_ERRNO_MFILE,
        [CELLAR_KERNEL_FILES_ERROR_CODE_CROSS_DEVICE] = __WASI_ERRNO_XDEV,
    };
    return code < sizeof errnos ? errnos[code] : __WASI_ERRNO_IO;
}

wasi_result_t wasi_path(const uint8_t *path, __wasi_size_t length, kernel_string_t *view) {
    if (length > GLUE_PATH_BYTES_MAX)
        return __WASI_ERRNO_NAMETOOLONG;
    if (utf8_valid_prefix((const char *)path, length) != length)
        return __WASI_ERRNO_ILSEQ;
    *view = glue_view((const char *)path, length);
    return __WASI_ERRNO_SUCCESS;
}

__wasi_filetype_t wasi_filetype(cellar_kernel_files_file_type_t type) {
    switch (type) {
    case CELLAR_KERNEL_FILES_FILE_TYPE_DIRECTORY:
        return __WASI_FILETYPE_DIRECTORY;
    case CELLAR_KERNEL_FILES_FILE_TYPE_REGULAR_FILE:
        return __WASI_FILETYPE_REGULAR_FILE;
    case CELLAR_KERNEL_FILES_FILE_TYPE_SYMBOLIC_LINK:
        return __WASI_FILETYPE_SYMBOLIC_LINK;
    default:
        return __WASI_FILETYPE_UNKNOWN;
    }
}

void wasi_stat(const cellar_kernel_files_file_stat_t *from, __wasi_filestat_t *to) {
    *to = (__wasi_filestat_t){
        .dev = from->device,
        .ino = from->inode,
        .filetype = wasi_filetype(from->file_type),
        .nlink = from->links,
        .size = from->size,
        .atim = from->accessed,
        .mtim = from->modified,
        .ctim = from->changed,
    };
}

void wasi_times(__wasi_timestamp_t accessed, __wasi_timestamp_t modified, __wasi_fstflags_t flags,
                uint64_t times[2], uint64_t *chosen[2]) {
    uint64_t now = cellar_kernel_control_wall_clock();
    times[0] = flags & __WASI_FSTFLAGS_ATIM_NOW ? now : accessed;
    times[1] = flags & __WASI_FSTFLAGS_MTIM_NOW ? now : modified;
    chosen[0] = flags & (__WASI_FSTFLAGS_ATIM | __WASI_FSTFLAGS_ATIM_NOW) ? &times[0] : NULL;
    chosen[1] = flags & (__WASI_FSTFLAGS_MTIM | __WASI_FSTFLAGS_MTIM_NOW) ? &times[1] : NULL;
}
