// Preview1's functions on descriptors.
#include "wasi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OK __WASI_ERRNO_SUCCESS
#define ALL_RIGHTS ((__wasi_rights_t)0x1fffffff)

// More than the host lets a session open.
#define FD_COUNT 1024

// Indexed by descriptor; 0 to 2 are standard input, output and error and have no file.
static wasi_file_t files[FD_COUNT] = {
    [WASI_ROOT_FD] = {.host = 3, .open = WASI_HOSTS, .type = __WASI_FILETYPE_DIRECTORY},
};

// The last batch of folder entries the host gave: a C library reads a folder a few entries at a time.
static struct {
    __wasi_fd_t fd; // 0 when there is no batch
    uint64_t first; // position of the first entry in its folder
    cellar_kernel_files_list_directory_entry_t entries;
} batch;

// Descriptors are signed here, and programs pass -1.
wasi_file_t *wasi_file(__wasi_fd_t fd) {
    return fd >= 0 && fd < FD_COUNT && files[fd].open ? &files[fd] : NULL;
}

static bool is_stdio(__wasi_fd_t fd) {
    return fd >= 0 && fd <= 2;
}

// The standard stream that a descriptor leads to, by its number or as a device; -1 for anything else.
static int standard(__wasi_fd_t fd) {
    wasi_file_t *file = wasi_file(fd);
    if (is_stdio(fd))
        return (int)fd;
    return file != NULL && file->open >= WASI_STDIN ? file->open - WASI_STDIN : -1;
}

static void drop_batch(void) {
    if (batch.fd != 0 && batch.entries.len > 0) {
        for (size_t i = 0; i < batch.entries.len; i++)
            cellar_kernel_files_directory_entry_free(&batch.entries.ptr[i]);
        free(batch.entries.ptr);
    }
    memset(&batch, 0, sizeof batch);
}

static wasi_result_t install(wasi_file_t file, __wasi_fd_t *fd) {
    for (__wasi_fd_t i = WASI_ROOT_FD + 1; i < FD_COUNT; i++) {
        if (!files[i].open) {
            files[i] = file;
            *fd = i;
            return OK;
        }
    }
    return __WASI_ERRNO_MFILE;
}

wasi_result_t wasi_install(uint32_t host, uint16_t flags, __wasi_fd_t *fd) {
    wasi_result_t result = install((wasi_file_t){.host = host, .open = WASI_HOSTS, .flags = flags}, fd);
    cellar_kernel_files_error_code_t error;
    if (result != OK)
        cellar_kernel_files_close(host, &error);
    return result;
}

wasi_result_t wasi_install_device(uint8_t device, uint16_t flags, __wasi_fd_t *fd) {
    wasi_file_t file = {.open = device, .type = __WASI_FILETYPE_CHARACTER_DEVICE, .flags = flags};
    return install(file, fd);
}

static bool is_device(const wasi_file_t *file) {
    return file->open != WASI_HOSTS;
}

// Descriptors that were made from others. While there is none, no two are of one descriptor of the host's.
static unsigned duplicates;

static bool is_shared(const wasi_file_t *file) {
    for (__wasi_fd_t i = 0; duplicates > 0 && i < FD_COUNT; i++) {
        if (&files[i] != file && files[i].open == WASI_HOSTS && files[i].host == file->host)
            return true;
    }
    return false;
}

// Gives up a descriptor's hold on the host's.
static wasi_result_t release(wasi_file_t *file) {
    bool was_device = is_device(file);
    file->open = WASI_CLOSED;
    if (was_device)
        return OK;
    if (is_shared(file)) {
        duplicates--;
        return OK;
    }
    cellar_kernel_files_error_code_t error;
    return cellar_kernel_files_close(file->host, &error) ? OK : wasi_errno(error);
}

wasi_result_t wasi_duplicate(__wasi_fd_t from, __wasi_fd_t *fd) {
    wasi_file_t *source = wasi_file(from);
    if (source == NULL)
        return is_stdio(from) ? __WASI_ERRNO_NOTSUP : __WASI_ERRNO_BADF;
    wasi_result_t result = install(*source, fd);
    if (result == OK && !is_device(source))
        duplicates++;
    return result;
}

wasi_result_t WASI(fd_close)(__wasi_fd_t fd) {
    wasi_file_t *file = wasi_file(fd);
    if (file == NULL)
        return is_stdio(fd) ? OK : __WASI_ERRNO_BADF;
    if (fd == WASI_ROOT_FD)
        return __WASI_ERRNO_PERM;
    if (batch.fd == fd)
        drop_batch();
    return release(file);
}

// zig's C library has a close() of its own that imports preview1 under a name the linker cannot bind.
int close(int fd) {
    wasi_result_t result = WASI(fd_close)((__wasi_fd_t)fd);
    errno = result == OK ? errno : result;
    return result == OK ? 0 : -1;
}

wasi_result_t WASI(fd_renumber)(__wasi_fd_t from, __wasi_fd_t to) {
    wasi_file_t *source = wasi_file(from), *target = wasi_file(to);
    if (source == NULL || target == NULL)
        return __WASI_ERRNO_BADF;
    if (from == to)
        return OK;
    if (from == WASI_ROOT_FD || to == WASI_ROOT_FD)
        return __WASI_ERRNO_PERM;
    drop_batch();
    release(target);
    *target = *source;
    source->open = WASI_CLOSED;
    return OK;
}

static wasi_result_t host_stat(const wasi_file_t *file, cellar_kernel_files_file_stat_t *stat) {
    if (is_device(file)) {
        memset(stat, 0, sizeof *stat);
        return OK;
    }
    cellar_kernel_files_error_code_t error;
    return cellar_kernel_files_stat(file->host, stat, &error) ? OK : wasi_errno(error);
}

// ---- Reading

// Reads into `vectors`, stopping at the first that is not filled. The host writes straight into each.
static wasi_result_t read_at(const wasi_file_t *file, uint64_t offset, const __wasi_iovec_t *vectors, size_t count,
                             __wasi_size_t *got) {
    *got = 0;
    for (size_t i = 0; i < count; i++) {
        __wasi_size_t wanted = vectors[i].buf_len;
        if (wanted == 0)
            continue;
        if (is_device(file)) {
            if (file->open == WASI_NULL)
                break;
            if (file->open == WASI_RANDOM)
                glue_random(vectors[i].buf, wanted);
            else
                memset(vectors[i].buf, 0, wanted);
            *got += wanted;
            continue;
        }
        kernel_list_u8_t bytes = {NULL, 0};
        cellar_kernel_files_error_code_t error;
        glue_aim(vectors[i].buf, wanted);
        bool ok = cellar_kernel_files_read(file->host, offset + *got, wanted, &bytes, &error);
        bool landed = glue_landed();
        if (!ok)
            return *got > 0 ? OK : wasi_errno(error);
        if (bytes.len > wanted || (bytes.len > 0 && !landed))
            __builtin_trap(); // the host gave more than was asked for
        *got += bytes.len;
        if (bytes.len < wanted)
            break;
    }
    return OK;
}

wasi_result_t WASI(fd_pread)(__wasi_fd_t fd, const __wasi_iovec_t *vectors, size_t count, __wasi_filesize_t offset,
                             __wasi_size_t *got) {
    wasi_file_t *file = wasi_file(fd);
    if (standard(fd) >= 0)
        return __WASI_ERRNO_SPIPE;
    return file == NULL ? __WASI_ERRNO_BADF : read_at(file, offset, vectors, count, got);
}

wasi_result_t WASI(fd_read)(__wasi_fd_t fd, const __wasi_iovec_t *vectors, size_t count, __wasi_size_t *got) {
    int stream = standard(fd);
    if (stream == 0)
        return wasi_read_stdin(vectors, count, got);
    wasi_file_t *file = wasi_file(fd);
    if (file == NULL || stream > 0)
        return __WASI_ERRNO_BADF;
    wasi_result_t result = read_at(file, file->offset, vectors, count, got);
    if (result == OK)
        file->offset += *got;
    return result;
}

// ---- Writing

static wasi_result_t write_at(wasi_file_t *file, uint64_t *offset, bool append, const __wasi_ciovec_t *vectors,
                              size_t count, __wasi_size_t *put) {
    *put = 0;
    size_t i = 0, sent = 0;
    while (i < count) {
        size_t left = vectors[i].buf_len - sent;
        kernel_list_u8_t data = {(uint8_t *)vectors[i].buf + sent, left < GLUE_PIECE_BYTES ? left : GLUE_PIECE_BYTES};
        if (data.len == 0) {
            i++;
            sent = 0;
            continue;
        }
        cellar_kernel_files_error_code_t error;
        uint32_t written = 0;
        bool ok;
        if (is_device(file)) {
            // What is written to a device is gone.
            written = data.len;
            ok = true;
        } else if (append) {
            kernel_tuple2_u32_u64_t appended;
            ok = cellar_kernel_files_append(file->host, &data, &appended, &error);
            if (ok) {
                written = appended.f0;
                *offset = appended.f1;
            }
        } else {
            ok = cellar_kernel_files_write(file->host, *offset, &data, &written, &error);
            if (ok)
                *offset += written;
        }
        if (!ok)
            return *put > 0 ? OK : wasi_errno(error);
        *put += written;
        sent += written;
        if (written < data.len)
            break;
    }
    return OK;
}

wasi_result_t WASI(fd_pwrite)(__wasi_fd_t fd, const __wasi_ciovec_t *vectors, size_t count, __wasi_filesize_t offset,
                              __wasi_size_t *put) {
    wasi_file_t *file = wasi_file(fd);
    if (standard(fd) >= 0)
        return __WASI_ERRNO_SPIPE;
    return file == NULL ? __WASI_ERRNO_BADF : write_at(file, &offset, false, vectors, count, put);
}

wasi_result_t WASI(fd_write)(__wasi_fd_t fd, const __wasi_ciovec_t *vectors, size_t count, __wasi_size_t *put) {
    int stream = standard(fd);
    if (stream > 0) {
        *put = 0;
        for (size_t i = 0; i < count; i++) {
            glue_write_bytes(stream == 1 ? CELLAR_KERNEL_TYPES_STREAM_NAME_STDOUT : CELLAR_KERNEL_TYPES_STREAM_NAME_STDERR,
                             (const char *)vectors[i].buf, vectors[i].buf_len);
            *put += vectors[i].buf_len;
        }
        return OK;
    }
    wasi_file_t *file = wasi_file(fd);
    if (file == NULL || stream == 0)
        return __WASI_ERRNO_BADF;
    return write_at(file, &file->offset, file->flags & __WASI_FDFLAGS_APPEND, vectors, count, put);
}

// ---- Positions and sizes

wasi_result_t WASI(fd_seek)(__wasi_fd_t fd, __wasi_filedelta_t delta, uint8_t whence, __wasi_filesize_t *position) {
    wasi_file_t *file = wasi_file(fd);
    if (standard(fd) >= 0)
        return __WASI_ERRNO_SPIPE;
    if (file == NULL)
        return __WASI_ERRNO_BADF;
    uint64_t base = 0;
    if (whence == __WASI_WHENCE_CUR) {
        base = file->offset;
    } else if (whence == __WASI_WHENCE_END) {
        cellar_kernel_files_file_stat_t stat;
        wasi_result_t result = host_stat(file, &stat);
        if (result != OK)
            return result;
        base = stat.size;
    } else if (whence != __WASI_WHENCE_SET) {
        return __WASI_ERRNO_INVAL;
    }
    int64_t target;
    if (__builtin_add_overflow((int64_t)base, delta, &target) || target < 0)
        return __WASI_ERRNO_INVAL;
    *position = file->offset = is_device(file) ? 0 : (uint64_t)target;
    return OK;
}

wasi_result_t WASI(fd_tell)(__wasi_fd_t fd, __wasi_filesize_t *position) {
    return WASI(fd_seek)(fd, 0, __WASI_WHENCE_CUR, position);
}

wasi_result_t WASI(fd_sync)(__wasi_fd_t fd) {
    wasi_file_t *file = wasi_file(fd);
    if (file == NULL)
        return is_stdio(fd) ? OK : __WASI_ERRNO_BADF;
    if (is_device(file))
        return OK;
    cellar_kernel_files_error_code_t error;
    return cellar_kernel_files_sync(file->host, &error) ? OK : wasi_errno(error);
}

wasi_result_t WASI(fd_datasync)(__wasi_fd_t fd) {
    return WASI(fd_sync)(fd);
}

wasi_result_t WASI(fd_advise)(__wasi_fd_t fd, __wasi_filesize_t offset, __wasi_filesize_t length, uint8_t advice) {
    return wasi_file(fd) == NULL ? __WASI_ERRNO_BADF : OK;
}

wasi_result_t WASI(fd_filestat_set_size)(__wasi_fd_t fd, __wasi_filesize_t size) {
    wasi_file_t *file = wasi_file(fd);
    if (file == NULL)
        return is_stdio(fd) ? __WASI_ERRNO_INVAL : __WASI_ERRNO_BADF;
    if (is_device(file))
        return __WASI_ERRNO_INVAL;
    cellar_kernel_files_error_code_t error;
    return cellar_kernel_files_set_size(file->host, size, &error) ? OK : wasi_errno(error);
}

wasi_result_t WASI(fd_allocate)(__wasi_fd_t fd, __wasi_filesize_t offset, __wasi_filesize_t length) {
    wasi_file_t *file = wasi_file(fd);
    if (file == NULL)
        return __WASI_ERRNO_BADF;
    uint64_t end;
    if (length == 0 || __builtin_add_overflow(offset, length, &end))
        return __WASI_ERRNO_INVAL;
    cellar_kernel_files_file_stat_t stat;
    wasi_result_t result = host_stat(file, &stat);
    return result != OK || stat.size >= end ? result : WASI(fd_filestat_set_size)(fd, end);
}

// ---- What a descriptor is

wasi_result_t WASI(fd_fdstat_get)(__wasi_fd_t fd, __wasi_fdstat_t *stat) {
    wasi_file_t *file = wasi_file(fd);
    if (file == NULL && !is_stdio(fd))
        return __WASI_ERRNO_BADF;
    *stat = (__wasi_fdstat_t){.fs_rights_base = ALL_RIGHTS, .fs_rights_inheriting = ALL_RIGHTS};
    if (file == NULL) {
        // With the right to seek, the C library takes it for a pipe: no terminal is watching.
        stat->fs_filetype = __WASI_FILETYPE_CHARACTER_DEVICE;
        return OK;
    }
    if (file->type == __WASI_FILETYPE_UNKNOWN) {
        cellar_kernel_files_file_stat_t found;
        wasi_result_t result = host_stat(file, &found);
        if (result != OK)
            return result;
        file->type = wasi_filetype(found.file_type);
    }
    stat->fs_filetype = file->type;
    stat->fs_flags = file->flags;
    return OK;
}

wasi_result_t WASI(fd_fdstat_set_flags)(__wasi_fd_t fd, __wasi_fdflags_t flags) {
    wasi_file_t *file = wasi_file(fd);
    if (file == NULL)
        return is_stdio(fd) ? OK : __WASI_ERRNO_BADF;
    file->flags = flags;
    return OK;
}

wasi_result_t WASI(fd_fdstat_set_rights)(__wasi_fd_t fd, __wasi_rights_t base, __wasi_rights_t inheriting) {
    return is_stdio(fd) || wasi_file(fd) != NULL ? OK : __WASI_ERRNO_BADF;
}

wasi_result_t WASI(fd_filestat_get)(__wasi_fd_t fd, __wasi_filestat_t *stat) {
    wasi_file_t *file = wasi_file(fd);
    if (file == NULL || is_device(file)) {
        *stat = (__wasi_filestat_t){.filetype = __WASI_FILETYPE_CHARACTER_DEVICE, .nlink = 1, .ino = fd};
        return file != NULL || is_stdio(fd) ? OK : __WASI_ERRNO_BADF;
    }
    cellar_kernel_files_file_stat_t found;
    wasi_result_t result = host_stat(file, &found);
    if (result == OK)
        wasi_stat(&found, stat);
    return result;
}

wasi_result_t WASI(fd_filestat_set_times)(__wasi_fd_t fd, __wasi_timestamp_t accessed, __wasi_timestamp_t modified,
                                          __wasi_fstflags_t flags) {
    wasi_file_t *file = wasi_file(fd);
    if (file == NULL)
        return __WASI_ERRNO_BADF;
    if (is_device(file))
        return OK;
    uint64_t times[2], *chosen[2];
    wasi_times(accessed, modified, flags, times, chosen);
    cellar_kernel_files_error_code_t error;
    return cellar_kernel_files_set_times(file->host, chosen[0], chosen[1], &error) ? OK : wasi_errno(error);
}

// The root is the only folder a guest starts with.
wasi_result_t WASI(fd_prestat_get)(__wasi_fd_t fd, __wasi_prestat_t *prestat) {
    if (fd != WASI_ROOT_FD)
        return __WASI_ERRNO_BADF;
    *prestat = (__wasi_prestat_t){.tag = __WASI_PREOPENTYPE_DIR, .u.dir.pr_name_len = 1};
    return OK;
}

wasi_result_t WASI(fd_prestat_dir_name)(__wasi_fd_t fd, uint8_t *path, __wasi_size_t length) {
    if (fd != WASI_ROOT_FD || length < 1)
        return fd != WASI_ROOT_FD ? __WASI_ERRNO_BADF : __WASI_ERRNO_NAMETOOLONG;
    path[0] = '/';
    return OK;
}

// ---- Folders

// Makes the batch hold the entry at `position`, or nothing when the folder ends there.
static wasi_result_t load_batch(__wasi_fd_t fd, const wasi_file_t *file, uint64_t position) {
    bool held = batch.fd == fd && position >= batch.first && position - batch.first < batch.entries.len;
    if (held && position > 0) // position 0 is a rewind, which must see what has changed
        return OK;
    drop_batch();
    cellar_kernel_files_error_code_t error;
    if (!cellar_kernel_files_read_directory(file->host, position, &batch.entries, &error)) {
        memset(&batch, 0, sizeof batch);
        return wasi_errno(error);
    }
    batch.fd = fd;
    batch.first = position;
    return OK;
}

// Copies as much as fits, and says how much that was.
static size_t put(uint8_t *buffer, size_t room, const void *data, size_t length) {
    size_t n = length < room ? length : room;
    memcpy(buffer, data, n);
    return n;
}

wasi_result_t WASI(fd_readdir)(__wasi_fd_t fd, uint8_t *buffer, __wasi_size_t room, __wasi_dircookie_t cookie,
                               __wasi_size_t *used) {
    wasi_file_t *file = wasi_file(fd);
    *used = 0;
    if (file == NULL)
        return __WASI_ERRNO_BADF;
    if (is_device(file))
        return __WASI_ERRNO_NOTDIR;
    // A buffer that is not full says that the folder has ended, so go on until either is true.
    while (*used < room) {
        wasi_result_t result = load_batch(fd, file, cookie);
        if (result != OK)
            return result;
        if (batch.entries.len == 0)
            return OK;
        for (size_t i = cookie - batch.first; i < batch.entries.len && *used < room; i++) {
            const cellar_kernel_files_directory_entry_t *entry = &batch.entries.ptr[i];
            __wasi_dirent_t head = {
                .d_next = ++cookie,
                .d_ino = entry->inode,
                .d_namlen = entry->name.len,
                .d_type = wasi_filetype(entry->file_type),
            };
            *used += put(buffer + *used, room - *used, &head, sizeof head);
            *used += put(buffer + *used, room - *used, entry->name.ptr, entry->name.len);
        }
    }
    return OK;
}
