// Files as Node's `fs` wants them: one function for each call of the system. Each returns what the call gives, or the
// negative number of the error; the library above makes errors of those.
#include "convert.h"
#include "engine/engine.h"
#include "functions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static JSValue number(JSContext *ctx, int64_t result) {
    return JS_NewInt64(ctx, result < 0 ? -(int64_t)errno : result);
}

// Calls `function` with the path in the first argument.
static JSValue with_path(JSContext *ctx, JSValueConst value, int (*function)(const char *)) {
    const char *path = JS_ToCString(ctx, value);
    if (path == NULL)
        return JS_EXCEPTION;
    JSValue result = number(ctx, function(path));
    JS_FreeCString(ctx, path);
    return result;
}

// Calls `function` with the paths in the first two arguments.
static JSValue with_paths(JSContext *ctx, JSValueConst *argv, int (*function)(const char *, const char *)) {
    const char *first = JS_ToCString(ctx, argv[0]), *second = first == NULL ? NULL : JS_ToCString(ctx, argv[1]);
    JSValue result = second == NULL ? JS_EXCEPTION : number(ctx, function(first, second));
    JS_FreeCString(ctx, first);
    JS_FreeCString(ctx, second);
    return result;
}

// open(path, flags, mode): flags are Linux's
static JSValue open_file(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    static const struct { int linux_flag, flag; } names[] = {
        {0100, O_CREAT}, {0200, O_EXCL}, {01000, O_TRUNC}, {02000, O_APPEND}, {0200000, O_DIRECTORY}, {0400000, O_NOFOLLOW},
    };
    int32_t given;
    const char *path = JS_ToCString(ctx, argv[0]);
    if (path == NULL || JS_ToInt32(ctx, &given, argv[1])) {
        JS_FreeCString(ctx, path);
        return JS_EXCEPTION;
    }
    int flags = (given & 3) == 0 ? O_RDONLY : (given & 3) == 1 ? O_WRONLY : O_RDWR;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        flags |= given & names[i].linux_flag ? names[i].flag : 0;
    note_wait();
    JSValue result = number(ctx, open(path, flags, 0666));
    JS_FreeCString(ctx, path);
    return result;
}

// close(fd) and sync(fd)
static JSValue close_or_sync(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv, int syncs) {
    int32_t fd;
    if (JS_ToInt32(ctx, &fd, argv[0]))
        return JS_EXCEPTION;
    return number(ctx, syncs ? fsync(fd) : close(fd));
}

// read(fd, bytes, position) and write(fd, bytes, position): a position below zero is where the last call ended
static JSValue transfer(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv, int writes) {
    int32_t fd;
    int64_t position;
    size_t length;
    if (JS_ToInt32(ctx, &fd, argv[0]) || JS_ToInt64(ctx, &position, argv[2]))
        return JS_EXCEPTION;
    uint8_t *bytes = bytes_of(ctx, argv[1], &length);
    if (bytes == NULL)
        return JS_ThrowTypeError(ctx, "a typed array is needed");
    note_wait();
    if (writes)
        return number(ctx, position < 0 ? write(fd, bytes, length) : pwrite(fd, bytes, length, position));
    return number(ctx, position < 0 ? read(fd, bytes, length) : pread(fd, bytes, length, position));
}

static double milliseconds(struct timespec time) {
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

// status(path or fd, follows links): mode, size, device, inode, links, and the times of access, modification and change
static JSValue status(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    struct stat found;
    int failed;
    if (JS_IsNumber(argv[0])) {
        int32_t fd;
        JS_ToInt32(ctx, &fd, argv[0]);
        failed = fstat(fd, &found);
    } else {
        const char *path = JS_ToCString(ctx, argv[0]);
        if (path == NULL)
            return JS_EXCEPTION;
        failed = JS_ToBool(ctx, argv[1]) ? stat(path, &found) : lstat(path, &found);
        JS_FreeCString(ctx, path);
    }
    if (failed)
        return number(ctx, -1);
    // In the numbers of Linux, which those of the C library are not.
    uint32_t mode = S_ISDIR(found.st_mode) ? 0040755 : S_ISLNK(found.st_mode) ? 0120777 : 0100644;
    double values[] = {mode, (double)found.st_size, (double)found.st_dev, (double)found.st_ino, (double)found.st_nlink,
                       milliseconds(found.st_atim), milliseconds(found.st_mtim), milliseconds(found.st_ctim)};
    JSValue list = JS_NewArray(ctx);
    for (uint32_t i = 0; i < sizeof values / sizeof *values; i++)
        JS_SetPropertyUint32(ctx, list, i, JS_NewFloat64(ctx, values[i]));
    return list;
}

// truncate(fd, length)
static JSValue truncate_file(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int32_t fd;
    int64_t length;
    if (JS_ToInt32(ctx, &fd, argv[0]) || JS_ToInt64(ctx, &length, argv[1]))
        return JS_EXCEPTION;
    return number(ctx, ftruncate(fd, length));
}

// setTimes(path, accessed, modified, follows links): in milliseconds
static JSValue set_times(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    double times[2];
    if (JS_ToFloat64(ctx, &times[0], argv[1]) || JS_ToFloat64(ctx, &times[1], argv[2]))
        return JS_EXCEPTION;
    struct timespec specs[2];
    for (int i = 0; i < 2; i++) {
        specs[i].tv_sec = (time_t)(times[i] / 1e3);
        specs[i].tv_nsec = (long)((times[i] - (double)specs[i].tv_sec * 1e3) * 1e6);
    }
    const char *path = JS_ToCString(ctx, argv[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    int flags = JS_ToBool(ctx, argv[3]) ? 0 : AT_SYMLINK_NOFOLLOW;
    JSValue result = number(ctx, utimensat(AT_FDCWD, path, specs, flags));
    JS_FreeCString(ctx, path);
    return result;
}

static int make_folder(const char *path) {
    return mkdir(path, 0777);
}

static JSValue one_path(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv, int which) {
    static int (*const functions[])(const char *) = {make_folder, rmdir, unlink};
    return with_path(ctx, argv[0], functions[which]);
}

static JSValue two_paths(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv, int which) {
    static int (*const functions[])(const char *, const char *) = {rename, link, symlink};
    return with_paths(ctx, argv, functions[which]);
}

// readLink(path)
static JSValue read_link(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    char target[4096];
    const char *path = JS_ToCString(ctx, argv[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    ssize_t length = readlink(path, target, sizeof target);
    JS_FreeCString(ctx, path);
    return length < 0 ? number(ctx, length) : JS_NewStringLen(ctx, target, (size_t)length);
}

// errorName(number): ENOENT and its like
static JSValue error_name(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    int32_t code;
    if (JS_ToInt32(ctx, &code, argv[0]))
        return JS_EXCEPTION;
    return JS_NewString(ctx, error_code(code));
}

void add_posix_functions(JSContext *ctx, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("open", 3, open_file),
        JS_CFUNC_MAGIC_DEF("close", 1, close_or_sync, 0),
        JS_CFUNC_MAGIC_DEF("sync", 1, close_or_sync, 1),
        JS_CFUNC_MAGIC_DEF("read", 3, transfer, 0),
        JS_CFUNC_MAGIC_DEF("write", 3, transfer, 1),
        JS_CFUNC_DEF("status", 2, status),
        JS_CFUNC_DEF("truncate", 2, truncate_file),
        JS_CFUNC_DEF("setTimes", 4, set_times),
        JS_CFUNC_MAGIC_DEF("makeFolder", 1, one_path, 0),
        JS_CFUNC_MAGIC_DEF("removeFolder", 1, one_path, 1),
        JS_CFUNC_MAGIC_DEF("removeFile", 1, one_path, 2),
        JS_CFUNC_MAGIC_DEF("rename", 2, two_paths, 0),
        JS_CFUNC_MAGIC_DEF("link", 2, two_paths, 1),
        JS_CFUNC_MAGIC_DEF("symlink", 2, two_paths, 2),
        JS_CFUNC_DEF("readLink", 1, read_link),
        JS_CFUNC_DEF("errorName", 1, error_name),
    };
    JSValue files = JS_NewObject(ctx);
    JS_SetPropertyFunctionList(ctx, files, functions, sizeof functions / sizeof *functions);
    JS_SetPropertyStr(ctx, host, "files", files);
}
