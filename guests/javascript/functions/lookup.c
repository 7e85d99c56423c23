// What finding a module's file asks of the files tree. Nothing here throws for a file that is not there.
#include "functions.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

// probe(path): 1 for a file, 2 for a folder, 0 for anything else and for nothing
static JSValue probe(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    const char *path = JS_ToCString(ctx, argv[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    struct stat found;
    int kind = stat(path, &found) != 0 ? 0 : S_ISREG(found.st_mode) ? 1 : S_ISDIR(found.st_mode) ? 2 : 0;
    JS_FreeCString(ctx, path);
    return JS_NewInt32(ctx, kind);
}

// stamp(path): a text that begins with the size of a file, and changes when the file does; undefined when there is none
static JSValue stamp(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    const char *path = JS_ToCString(ctx, argv[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    struct stat found;
    bool exists = stat(path, &found) == 0 && S_ISREG(found.st_mode);
    JS_FreeCString(ctx, path);
    if (!exists)
        return JS_UNDEFINED;
    char text[96];
    snprintf(text, sizeof text, "%lld %lld.%09ld %llu", (long long)found.st_size, (long long)found.st_mtim.tv_sec,
             (long)found.st_mtim.tv_nsec, (unsigned long long)found.st_ino);
    return JS_NewString(ctx, text);
}

// linkTarget(path): where a symbolic link leads, as it says itself; undefined for anything else
static JSValue link_target(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    const char *path = JS_ToCString(ctx, argv[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    char target[4096];
    ssize_t length = readlink(path, target, sizeof target);
    JS_FreeCString(ctx, path);
    return length < 0 || length == sizeof target ? JS_UNDEFINED : JS_NewStringLen(ctx, target, (size_t)length);
}

void add_lookup_functions(JSContext *ctx, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("probe", 1, probe),
        JS_CFUNC_DEF("stamp", 1, stamp),
        JS_CFUNC_DEF("linkTarget", 1, link_target),
    };
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
}
