// Strings, the current cell and steps; see glue.h.
#include "glue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wasi/libc-find-relpath.h>

uint32_t glue_cell;

kernel_string_t glue_view(const char *bytes, size_t length) {
    return (kernel_string_t){(uint8_t *)bytes, length};
}

bool glue_try_copy(const char *bytes, size_t length, kernel_string_t *copy) {
    *copy = (kernel_string_t){NULL, 0};
    if (length == 0)
        return true;
    copy->ptr = malloc(length);
    if (copy->ptr == NULL)
        return false;
    memcpy(copy->ptr, bytes, length);
    copy->len = length;
    return true;
}

kernel_string_t glue_copy(const char *bytes, size_t length) {
    kernel_string_t copy;
    if (!glue_try_copy(bytes, length, &copy))
        __builtin_trap();
    return copy;
}

kernel_option_string_t glue_some(const char *bytes, size_t length) {
    return (kernel_option_string_t){.is_some = true, .val = glue_copy(bytes, length)};
}

size_t glue_bundle_bytes(const kernel_mime_bundle_t *bundle) {
    size_t size = 0;
    for (size_t i = 0; i < bundle->len; i++) {
        const cellar_kernel_types_mime_data_t *data = &bundle->ptr[i].f1;
        bool is_text = data->tag == CELLAR_KERNEL_TYPES_MIME_DATA_TEXT;
        size += bundle->ptr[i].f0.len + (is_text ? data->val.text.len : data->val.binary.len);
    }
    return size;
}

void glue_display_left_out(size_t size) {
    char note[128];
    int length = snprintf(note, sizeof note, "a display of %zu bytes was left out; at most %zu are allowed\n", size,
                          GLUE_DISPLAY_BYTES_MAX);
    glue_write(CELLAR_KERNEL_TYPES_STREAM_NAME_STDERR, note, (size_t)length);
}

size_t glue_call_too_large(char *message, size_t room, size_t size) {
    return (size_t)snprintf(message, room, "the arguments have %zu bytes, at most %zu are allowed", size,
                            GLUE_CALL_BYTES_MAX);
}

void glue_log(const char *text) {
    kernel_string_t message = glue_view(text, utf8_valid_prefix(text, strlen(text)));
    cellar_kernel_control_log(&message);
}

// ---- Steps

typedef cellar_kernel_types_tuple2_cell_id_outcome_t finished_t;

// Grown by doubling, handed to the host whole, and then freed by the generated post-return code.
static finished_t *finished;
static size_t finished_count, finished_room;

void glue_finish(uint32_t cell, const cellar_kernel_types_outcome_t *outcome) {
    glue_flush_cell(cell);
    if (finished_count == finished_room) {
        size_t room = finished_room == 0 ? 4 : finished_room * 2;
        finished_t *grown = realloc(finished, room * sizeof *grown);
        if (grown == NULL)
            __builtin_trap(); // a cell whose end is never told would hang its session
        finished = grown;
        finished_room = room;
    }
    finished[finished_count++] = (finished_t){cell, *outcome};
}

void glue_step(kernel_step_t *step, const uint64_t *wake_at) {
    if (finished_count == 0)
        free(finished); // post-return frees a list only when it has elements
    step->finished.ptr = finished_count == 0 ? NULL : finished;
    step->finished.len = finished_count;
    finished = NULL;
    finished_count = finished_room = 0;
    step->wake_at.is_some = wake_at != NULL;
    step->wake_at.val = wake_at == NULL ? 0 : *wake_at;
}

// ---- Session

// The working directory, by the C library's name for it, whose own begins with a value: it would lie elsewhere in memory
// than what else each session writes to.
char *__wasilibc_cwd;

__attribute__((constructor)) static void begin_at_the_root(void) {
    __wasilibc_cwd = "/";
}

// Takes a text that was allocated.
static void enter_directory(char *fresh) {
    static char *directory;
    free(directory);
    __wasilibc_cwd = directory = fresh;
}

// In the place of the C library's, which comes with the name above.
char *getcwd(char *buffer, size_t room) {
    if (buffer == NULL)
        return strdup(__wasilibc_cwd);
    if (room <= strlen(__wasilibc_cwd)) {
        errno = room == 0 ? EINVAL : ERANGE;
        return NULL;
    }
    return strcpy(buffer, __wasilibc_cwd);
}

static char *c_string(kernel_string_t string) {
    char *copy = malloc(string.len + 1);
    if (copy == NULL)
        return NULL;
    if (string.len > 0)
        memcpy(copy, string.ptr, string.len);
    copy[string.len] = '\0';
    return copy;
}

// A path from the root; it stays until the next one is made.
static const char *absolute(const char *path) {
    static char *made;
    static size_t room;
    if (path[0] == '/')
        return path;
    if (strcmp(path, ".") == 0 || strcmp(path, "./") == 0)
        return __wasilibc_cwd;
    if (path[0] == '.' && path[1] == '/')
        path += 2;
    size_t folder = strlen(__wasilibc_cwd), length = folder + strlen(path) + 2;
    if (length > room) {
        char *larger = realloc(made, length);
        if (larger == NULL)
            return NULL;
        made = larger;
        room = length;
    }
    snprintf(made, length, "%s%s%s", __wasilibc_cwd, __wasilibc_cwd[folder - 1] == '/' ? "" : "/", path);
    return made;
}

// These two stand in the place of the C library's, which takes an empty path, and none, for the working directory.
int __wasilibc_find_relpath_alloc(const char *path, const char **prefix, char **relative, size_t *room, int can_grow) {
    if (path == NULL || path[0] == '\0') {
        errno = path == NULL ? EFAULT : ENOENT;
        return -1;
    }
    const char *whole = absolute(path), *below;
    if (whole == NULL) {
        errno = ENOMEM;
        return -1;
    }
    int folder = __wasilibc_find_abspath(whole, prefix, &below);
    if (folder < 0)
        return -1;
    size_t length = strlen(below) + 1;
    if (length > *room) {
        char *larger = can_grow ? realloc(*relative, length) : NULL;
        if (larger == NULL) {
            errno = can_grow ? ENOMEM : ERANGE;
            return -1;
        }
        *relative = larger;
        *room = length;
    }
    memcpy(*relative, below, length);
    return folder;
}

int chdir(const char *path) {
    static char *relative;
    static size_t room;
    const char *prefix;
    struct stat found;
    int folder = __wasilibc_find_relpath_alloc(path, &prefix, &relative, &room, 1);
    if (folder < 0 || fstatat(folder, relative, &found, 0) != 0)
        return -1;
    if (!S_ISDIR(found.st_mode)) {
        errno = ENOTDIR;
        return -1;
    }
    const char *below = strcmp(relative, ".") == 0 ? "" : relative;
    size_t length = strlen(prefix) + strlen(below) + 3;
    char *fresh = malloc(length);
    if (fresh == NULL) {
        errno = ENOMEM;
        return -1;
    }
    snprintf(fresh, length, "/%s%s%s", prefix, prefix[0] != '\0' && below[0] != '\0' ? "/" : "", below);
    enter_directory(fresh);
    return 0;
}

void glue_configure(const kernel_configuration_t *configuration) {
    // Not chdir(): the host has vouched for the folder, and asking it again would cost a call at every start.
    char *fresh = c_string(configuration->working_directory);
    if (fresh != NULL)
        enter_directory(fresh);
    // What is empty already is not written to.
    if (environ != NULL && environ[0] != NULL)
        clearenv();
    for (size_t i = 0; i < configuration->environment.len; i++) {
        char *name = c_string(configuration->environment.ptr[i].f0);
        char *value = c_string(configuration->environment.ptr[i].f1);
        if (name != NULL && value != NULL)
            setenv(name, value, 1);
        free(name);
        free(value);
    }
}
