// Files, through the C library. Errors carry a code, as Node's do.
#include "convert.h"
#include "engine/engine.h"
#include "functions.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Bytes that are read at once; a file's end is found by a short read.
#define CHUNK_BYTES (1u << 20)

const char *error_code(int number) {
    static const struct { int number; const char *code; } codes[] = {
        {EACCES, "EACCES"}, {EAGAIN, "EAGAIN"}, {EBADF, "EBADF"}, {EBUSY, "EBUSY"}, {EDQUOT, "EDQUOT"}, {EEXIST, "EEXIST"},
        {EFBIG, "EFBIG"}, {EILSEQ, "EILSEQ"}, {EINTR, "EINTR"}, {EINVAL, "EINVAL"}, {EISDIR, "EISDIR"},
        {ELOOP, "ELOOP"}, {EMFILE, "EMFILE"}, {EMLINK, "EMLINK"}, {ENAMETOOLONG, "ENAMETOOLONG"},
        {ENOENT, "ENOENT"}, {ENOTCAPABLE, "EACCES"}, {ENOTDIR, "ENOTDIR"}, {ENOTEMPTY, "ENOTEMPTY"},
        {ENOMEM, "ENOMEM"}, {ENOSYS, "ENOSYS"}, {ESPIPE, "ESPIPE"}, {ENOTSUP, "ENOTSUP"}, {EPERM, "EPERM"}, {ENOSPC, "ENOSPC"}, {EROFS, "EROFS"}, {EXDEV, "EXDEV"},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].number == number)
            return codes[i].code;
    }
    return "EIO";
}

// What went wrong, in words. Linux has none for a path that nobody granted.
static const char *error_words(int number) {
    return number == ENOTCAPABLE ? "Permission denied: outside of the session's folders" : strerror(number);
}

// Throws what Node throws: `ENOENT: No such file or directory, open 'a.txt'`.
static JSValue throw_errno(JSContext *ctx, const char *operation, const char *path) {
    int number = errno;
    JSValue error = JS_NewError(ctx);
    char message[512];
    int length = snprintf(message, sizeof message, "%s: %s, %s '%.300s'", error_code(number), error_words(number), operation, path);
    size_t end = length < (int)sizeof message ? (size_t)length : sizeof message - 1;
    JS_DefinePropertyValueStr(ctx, error, "message", JS_NewStringLen(ctx, message, utf8_valid_prefix(message, end)),
                              JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
    JS_DefinePropertyValueStr(ctx, error, "code", JS_NewString(ctx, error_code(number)), JS_PROP_C_W_E);
    JS_DefinePropertyValueStr(ctx, error, "path", JS_NewString(ctx, path), JS_PROP_C_W_E);
    JS_DefinePropertyValueStr(ctx, error, "syscall", JS_NewString(ctx, operation), JS_PROP_C_W_E);
    return JS_Throw(ctx, error);
}

// Reads to the end into memory from malloc. False with errno set.
static bool read_all(int fd, uint8_t **bytes, size_t *length) {
    size_t room = 0;
    *bytes = NULL;
    *length = 0;
    for (;;) {
        if (room == *length) {
            size_t grown = *length + CHUNK_BYTES / 16 + *length / 2;
            struct stat stat;
            if (room == 0 && fstat(fd, &stat) == 0 && stat.st_size > 0)
                grown = (size_t)stat.st_size + 1; // one more, so that the end shows as a short read
            uint8_t *moved = realloc(*bytes, grown);
            if (moved == NULL) {
                errno = ENOMEM;
                return false;
            }
            *bytes = moved;
            room = grown;
        }
        size_t wanted = room - *length < CHUNK_BYTES ? room - *length : CHUNK_BYTES;
        ssize_t got = read(fd, *bytes + *length, wanted);
        if (got < 0)
            return false;
        *length += (size_t)got;
        if (got == 0)
            return true;
    }
}

// readFile(path): bytes
static JSValue read_file(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    const char *path = JS_ToCString(ctx, argv[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    note_wait();
    int fd = open(path, O_RDONLY);
    uint8_t *bytes = NULL;
    size_t length = 0;
    JSValue result;
    if (fd >= 0 && read_all(fd, &bytes, &length)) {
        result = bytes_from(ctx, bytes, length);
    } else {
        result = errno == ENOMEM ? JS_ThrowOutOfMemory(ctx) : throw_errno(ctx, fd < 0 ? "open" : "read", path);
        free(bytes);
    }
    if (fd >= 0)
        close(fd);
    JS_FreeCString(ctx, path);
    return result;
}

// Makes the folders that lead to a file. What cannot be made is found out by opening the file.
static void make_parents(const char *path) {
    char *folder = strdup(path);
    for (char *slash = folder; folder != NULL && (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        mkdir(folder, 0777);
        *slash = '/';
    }
    free(folder);
}

// writeFile(path, text or bytes, append): number of bytes. Folders on the way are made.
static JSValue write_file(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    size_t length;
    kernel_string_t text = {NULL, 0};
    // Making a text of a value may run code, which may move or free the bytes: so the path comes first.
    const char *path = JS_ToCString(ctx, argv[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    const uint8_t *bytes = bytes_of(ctx, argv[1], &length);
    if (bytes == NULL) {
        if (!text_of(ctx, argv[1], &text)) {
            JS_FreeCString(ctx, path);
            return JS_EXCEPTION;
        }
        bytes = text.ptr;
        length = text.len;
    }
    int flags = O_WRONLY | O_CREAT | (JS_ToBool(ctx, argv[2]) ? O_APPEND : O_TRUNC);
    int fd = open(path, flags, 0666);
    if (fd < 0 && errno == ENOENT) {
        make_parents(path);
        fd = open(path, flags, 0666);
    }
    JSValue result = JS_NewInt64(ctx, (int64_t)length);
    size_t written = 0;
    while (fd >= 0 && written < length) {
        ssize_t n = write(fd, bytes + written, length - written);
        if (n <= 0)
            break;
        written += (size_t)n;
    }
    if (fd < 0 || written < length)
        result = throw_errno(ctx, fd < 0 ? "open" : "write", path);
    if (fd >= 0)
        close(fd);
    note_wait();
    JS_FreeCString(ctx, path);
    text_free(ctx, &text);
    return result;
}

static const char *type_name(mode_t mode) {
    return S_ISDIR(mode) ? "directory" : S_ISREG(mode) ? "file" : S_ISLNK(mode) ? "symlink" : "other";
}

static double milliseconds(struct timespec time) {
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

// stat(path): {type, size, modified}; the type of a symbolic link is that of its target
static JSValue stat_file(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    const char *path = JS_ToCString(ctx, argv[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    struct stat found;
    JSValue result;
    if (stat(path, &found) == 0) {
        result = JS_NewObject(ctx);
        JS_SetPropertyStr(ctx, result, "type", JS_NewString(ctx, type_name(found.st_mode)));
        JS_SetPropertyStr(ctx, result, "size", JS_NewInt64(ctx, found.st_size));
        JS_SetPropertyStr(ctx, result, "modified", JS_NewFloat64(ctx, milliseconds(found.st_mtim)));
    } else {
        result = throw_errno(ctx, "stat", path);
    }
    JS_FreeCString(ctx, path);
    return result;
}

// list(path): name, type, and so on, in no order
static JSValue list_folder(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    const char *path = JS_ToCString(ctx, argv[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    DIR *folder = opendir(path);
    if (folder == NULL) {
        JSValue thrown = throw_errno(ctx, "scandir", path);
        JS_FreeCString(ctx, path);
        return thrown;
    }
    JSValue list = JS_NewArray(ctx);
    uint32_t count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *type = entry->d_type == DT_DIR ? "directory" : entry->d_type == DT_LNK ? "symlink" : "file";
        JS_SetPropertyUint32(ctx, list, count++, JS_NewString(ctx, entry->d_name));
        JS_SetPropertyUint32(ctx, list, count++, JS_NewString(ctx, type));
    }
    closedir(folder);
    JS_FreeCString(ctx, path);
    return list;
}

void add_file_functions(JSContext *ctx, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("readFile", 1, read_file),
        JS_CFUNC_DEF("writeFile", 3, write_file),
        JS_CFUNC_DEF("stat", 1, stat_file),
        JS_CFUNC_DEF("list", 1, list_folder),
    };
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
}
