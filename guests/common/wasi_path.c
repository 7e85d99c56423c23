// Preview1's functions on paths.
#include "wasi.h"

#include <string.h>

#define OK __WASI_ERRNO_SUCCESS

// The host's descriptor of a folder and the view of a path below it.
typedef struct {
    uint32_t folder;
    kernel_string_t path;
} place_t;

static wasi_result_t place(__wasi_fd_t fd, const uint8_t *path, __wasi_size_t length, place_t *found) {
    wasi_file_t *file = wasi_file(fd);
    if (file == NULL)
        return __WASI_ERRNO_BADF;
    if (file->open != WASI_HOSTS)
        return __WASI_ERRNO_NOTDIR;
    found->folder = file->host;
    return wasi_path(path, length, &found->path);
}

// The device that a path below the root means; `WASI_CLOSED` when it is none.
static uint8_t device(__wasi_fd_t fd, const uint8_t *path, __wasi_size_t length) {
    static const struct {
        const char *path;
        uint8_t device;
    } devices[] = {
        {"dev/null", WASI_NULL},     {"dev/zero", WASI_ZERO},     {"dev/urandom", WASI_RANDOM},
        {"dev/random", WASI_RANDOM}, {"dev/stdin", WASI_STDIN},   {"dev/stdout", WASI_STDOUT},
        {"dev/stderr", WASI_STDERR}, {"dev/fd/0", WASI_STDIN},    {"dev/fd/1", WASI_STDOUT},
        {"dev/fd/2", WASI_STDERR},
    };
    for (size_t i = 0; fd == WASI_ROOT_FD && i < sizeof devices / sizeof *devices; i++) {
        if (length == strlen(devices[i].path) && memcmp(path, devices[i].path, length) == 0)
            return devices[i].device;
    }
    return WASI_CLOSED;
}

// What an error comes to for a path that is looked for: outside of the session's folders there is nothing. Only what
// would be made there is refused.
static wasi_result_t absent_errno(cellar_kernel_files_error_code_t error) {
    return error == CELLAR_KERNEL_FILES_ERROR_CODE_NOT_CAPABLE ? __WASI_ERRNO_NOENT : wasi_errno(error);
}

static cellar_kernel_files_open_flags_t open_flags(__wasi_lookupflags_t lookup, __wasi_oflags_t how,
                                                   __wasi_rights_t rights, __wasi_fdflags_t flags) {
    cellar_kernel_files_open_flags_t open = 0;
    if (lookup & __WASI_LOOKUPFLAGS_SYMLINK_FOLLOW)
        open |= CELLAR_KERNEL_FILES_OPEN_FLAGS_FOLLOW_SYMLINKS;
    if (how & __WASI_OFLAGS_CREAT)
        open |= CELLAR_KERNEL_FILES_OPEN_FLAGS_CREATE;
    if (how & __WASI_OFLAGS_DIRECTORY)
        open |= CELLAR_KERNEL_FILES_OPEN_FLAGS_DIRECTORY;
    if (how & __WASI_OFLAGS_EXCL)
        open |= CELLAR_KERNEL_FILES_OPEN_FLAGS_EXCLUSIVE;
    if (how & __WASI_OFLAGS_TRUNC)
        open |= CELLAR_KERNEL_FILES_OPEN_FLAGS_TRUNCATE;
    if (rights & __WASI_RIGHTS_FD_READ)
        open |= CELLAR_KERNEL_FILES_OPEN_FLAGS_READ;
    if (rights & __WASI_RIGHTS_FD_WRITE)
        open |= CELLAR_KERNEL_FILES_OPEN_FLAGS_WRITE;
    if (flags & __WASI_FDFLAGS_APPEND)
        open |= CELLAR_KERNEL_FILES_OPEN_FLAGS_APPEND;
    return open;
}

wasi_result_t WASI(path_open)(__wasi_fd_t fd, __wasi_lookupflags_t lookup, const uint8_t *path, __wasi_size_t length,
                              __wasi_oflags_t how, __wasi_rights_t rights, __wasi_rights_t inheriting,
                              __wasi_fdflags_t flags, __wasi_fd_t *opened) {
    uint8_t asked = device(fd, path, length);
    if (asked != WASI_CLOSED) {
        bool refused = how & (__WASI_OFLAGS_DIRECTORY | __WASI_OFLAGS_EXCL);
        if (refused)
            return how & __WASI_OFLAGS_EXCL ? __WASI_ERRNO_EXIST : __WASI_ERRNO_NOTDIR;
        return wasi_install_device(asked, flags, opened);
    }
    place_t at;
    wasi_result_t result = place(fd, path, length, &at);
    if (result != OK)
        return result;
    uint32_t host;
    cellar_kernel_files_error_code_t error;
    if (!cellar_kernel_files_open(at.folder, &at.path, open_flags(lookup, how, rights, flags), &host, &error))
        return how & __WASI_OFLAGS_CREAT ? wasi_errno(error) : absent_errno(error);
    return wasi_install(host, flags, opened);
}

wasi_result_t WASI(path_filestat_get)(__wasi_fd_t fd, __wasi_lookupflags_t lookup, const uint8_t *path,
                                      __wasi_size_t length, __wasi_filestat_t *stat) {
    if (device(fd, path, length) != WASI_CLOSED) {
        *stat = (__wasi_filestat_t){.filetype = __WASI_FILETYPE_CHARACTER_DEVICE, .nlink = 1};
        return OK;
    }
    place_t at;
    wasi_result_t result = place(fd, path, length, &at);
    if (result != OK)
        return result;
    cellar_kernel_files_file_stat_t found;
    cellar_kernel_files_error_code_t error;
    bool follow = lookup & __WASI_LOOKUPFLAGS_SYMLINK_FOLLOW;
    if (!cellar_kernel_files_stat_at(at.folder, &at.path, follow, &found, &error))
        return absent_errno(error);
    wasi_stat(&found, stat);
    return OK;
}

wasi_result_t WASI(path_filestat_set_times)(__wasi_fd_t fd, __wasi_lookupflags_t lookup, const uint8_t *path,
                                            __wasi_size_t length, __wasi_timestamp_t accessed,
                                            __wasi_timestamp_t modified, __wasi_fstflags_t flags) {
    place_t at;
    wasi_result_t result = place(fd, path, length, &at);
    if (result != OK)
        return result;
    uint64_t times[2], *chosen[2];
    wasi_times(accessed, modified, flags, times, chosen);
    cellar_kernel_files_error_code_t error;
    bool follow = lookup & __WASI_LOOKUPFLAGS_SYMLINK_FOLLOW;
    bool ok = cellar_kernel_files_set_times_at(at.folder, &at.path, follow, chosen[0], chosen[1], &error);
    return ok ? OK : absent_errno(error);
}

// The three functions that take one path and give nothing back.
typedef bool (*path_action_t)(uint32_t, kernel_string_t *, cellar_kernel_files_error_code_t *);

static wasi_result_t act(path_action_t action, __wasi_fd_t fd, const uint8_t *path, __wasi_size_t length) {
    place_t at;
    wasi_result_t result = place(fd, path, length, &at);
    if (result != OK)
        return result;
    cellar_kernel_files_error_code_t error;
    if (action(at.folder, &at.path, &error))
        return OK;
    return action == cellar_kernel_files_create_directory ? wasi_errno(error) : absent_errno(error);
}

wasi_result_t WASI(path_create_directory)(__wasi_fd_t fd, const uint8_t *path, __wasi_size_t length) {
    return act(cellar_kernel_files_create_directory, fd, path, length);
}

wasi_result_t WASI(path_remove_directory)(__wasi_fd_t fd, const uint8_t *path, __wasi_size_t length) {
    return act(cellar_kernel_files_remove_directory, fd, path, length);
}

wasi_result_t WASI(path_unlink_file)(__wasi_fd_t fd, const uint8_t *path, __wasi_size_t length) {
    return act(cellar_kernel_files_remove_file, fd, path, length);
}

// The two functions that take two paths.
typedef bool (*pair_action_t)(uint32_t, kernel_string_t *, uint32_t, kernel_string_t *,
                              cellar_kernel_files_error_code_t *);

static wasi_result_t act_on_pair(pair_action_t action, __wasi_fd_t fd, const uint8_t *path, __wasi_size_t length,
                                 __wasi_fd_t new_fd, const uint8_t *new_path, __wasi_size_t new_length) {
    place_t from, to;
    wasi_result_t result = place(fd, path, length, &from);
    if (result == OK)
        result = place(new_fd, new_path, new_length, &to);
    if (result != OK)
        return result;
    cellar_kernel_files_error_code_t error;
    return action(from.folder, &from.path, to.folder, &to.path, &error) ? OK : wasi_errno(error);
}

wasi_result_t WASI(path_rename)(__wasi_fd_t fd, const uint8_t *path, __wasi_size_t length, __wasi_fd_t new_fd,
                                const uint8_t *new_path, __wasi_size_t new_length) {
    return act_on_pair(cellar_kernel_files_rename, fd, path, length, new_fd, new_path, new_length);
}

wasi_result_t WASI(path_link)(__wasi_fd_t fd, __wasi_lookupflags_t lookup, const uint8_t *path, __wasi_size_t length,
                              __wasi_fd_t new_fd, const uint8_t *new_path, __wasi_size_t new_length) {
    return act_on_pair(cellar_kernel_files_link, fd, path, length, new_fd, new_path, new_length);
}

wasi_result_t WASI(path_symlink)(const uint8_t *target, __wasi_size_t target_length, __wasi_fd_t fd,
                                 const uint8_t *path, __wasi_size_t length) {
    place_t at;
    kernel_string_t text;
    wasi_result_t result = place(fd, path, length, &at);
    if (result == OK)
        result = wasi_path(target, target_length, &text);
    if (result != OK)
        return result;
    cellar_kernel_files_error_code_t error;
    return cellar_kernel_files_symlink(&text, at.folder, &at.path, &error) ? OK : wasi_errno(error);
}

wasi_result_t WASI(path_readlink)(__wasi_fd_t fd, const uint8_t *path, __wasi_size_t length, uint8_t *buffer,
                                  __wasi_size_t room, __wasi_size_t *used) {
    place_t at;
    wasi_result_t result = place(fd, path, length, &at);
    if (result != OK)
        return result;
    kernel_string_t target;
    cellar_kernel_files_error_code_t error;
    if (!cellar_kernel_files_read_link(at.folder, &at.path, &target, &error))
        return absent_errno(error);
    *used = target.len < room ? target.len : room;
    memcpy(buffer, target.ptr, *used);
    kernel_string_free(&target);
    return OK;
}
