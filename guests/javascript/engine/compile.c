// Compiles a script to QuickJS's bytecode: `compile NAME SCRIPT BYTECODE`.
//
// Runs on the machine that builds the guest, which bytecode does not depend on. It is made from the guest's own sources
// of QuickJS, so that both number the same things alike; what those call of the guest is left open and never called.
#include "quickjs.c"

#include <stdio.h>
#include <stdlib.h>

uint32_t glue_cell;
JSValue cellar_context;

static char *read_text(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        return NULL;
    *length = (size_t)ftell(file);
    char *text = malloc(*length + 1);
    rewind(file);
    if (text == NULL || fread(text, 1, *length, file) != *length)
        return NULL;
    text[*length] = '\0';
    fclose(file);
    return text;
}

int main(int argc, char **argv) {
    size_t length, size;
    char *text = argc == 4 ? read_text(argv[2], &length) : NULL;
    if (text == NULL) {
        fprintf(stderr, "usage: compile NAME SCRIPT BYTECODE\n");
        return 2;
    }
    char name[256];
    snprintf(name, sizeof name, "cellar:%s", argv[1]);
    JSContext *ctx = JS_NewContext(JS_NewRuntime());
    JSValue code = JS_Eval(ctx, text, length, name, JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_COMPILE_ONLY);
    if (JS_IsException(code)) {
        JSValue error = JS_GetException(ctx), stack = JS_GetPropertyStr(ctx, error, "stack");
        fprintf(stderr, "%s\n%s", JS_ToCString(ctx, error), JS_ToCString(ctx, stack));
        return 1;
    }
    uint8_t *bytes = JS_WriteObject(ctx, &size, code, JS_WRITE_OBJ_BYTECODE | JS_WRITE_OBJ_STRIP_SOURCE);
    FILE *file = fopen(argv[3], "wb");
    if (bytes == NULL || file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
        fprintf(stderr, "could not write %s\n", argv[3]);
        return 1;
    }
    return 0;
}
