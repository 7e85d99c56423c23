// Calls of the world with arguments drawn at random: paths that lead nowhere or anywhere, numbers at which something ends,
// descriptors that may be open. What the host answers is not looked at; it must answer.
#include "probe.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define OPEN_MAX_HERE 16

static const uint64_t numbers[] = {
    0, 1, 4095, 65536, 1u << 20, INT32_MAX, UINT32_MAX, 1ull << 40, INT64_MAX, UINT64_MAX, 1700000000000000000,
};
static const char *const paths[] = {
    "", ".", "..", "/", "//", "/..", "a", "b", "c", "a/", "a/b", "a/../b", "./a/./b", "../a", "/a", "/a/b/c", "/tmp", "/tmp/a",
    "/tmp/../a", "link", "link/a", "/proc/self/mem", "\xe2\x80\xae", "con\nsole", "a\x1b[2J",
};
static const char *const texts[] = {
    "", "{}", "null", "[1, \"\\ud800\", {\"a\": {\"a\": 1}}]", "{\"path\": \"/a\"}", "{\"a\": 18446744073709551617}", "x",
};
static const char *const tools[] = {"read", "nothing", ""};
static const char *const packs[] = {"selfref", "nothing", ""};
static const char *const primitives[] = {"context.inspect", "context.remember", "fork.gather_all", "nothing", ""};

static uint64_t state;
static uint32_t opened[OPEN_MAX_HERE], opened_count;

// A number below `bound`, by xorshift.
static uint64_t draw(uint64_t bound) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % bound;
}

static uint64_t number(void) {
    return draw(3) == 0 ? numbers[draw(COUNT(numbers))] : draw(64);
}

static kernel_string_t one_of(const char *const *all, size_t count) {
    const char *text = all[draw(count)];
    return glue_view(text, strlen(text));
}

static kernel_string_t path(void) {
    static char long_path[6000];
    if (draw(24) == 0) {
        for (size_t i = 0; i < sizeof long_path; i++)
            long_path[i] = i % 7 == 6 ? '/' : 'x';
        return glue_view(long_path, draw(sizeof long_path));
    }
    return one_of(paths, COUNT(paths));
}

// The root, one that is open, or any.
static uint32_t descriptor(void) {
    switch (draw(6)) {
    case 0:
        return (uint32_t)number();
    case 1:
    case 2:
        return 3;
    default:
        return opened_count == 0 ? 3 : opened[draw(opened_count)];
    }
}

static uint64_t *maybe(uint64_t *place) {
    *place = number();
    return draw(2) == 0 ? NULL : place;
}

static void cross_files(void) {
    cellar_kernel_files_error_code_t error;
    uint32_t file = descriptor();
    kernel_string_t at = path(), to = path();
    uint64_t accessed, modified;
    switch (draw(18)) {
    case 0:
    case 1:
    case 2: {
        uint32_t new;
        if (cellar_kernel_files_open(file, &at, (cellar_kernel_files_open_flags_t)draw(256), &new, &error))
            opened[opened_count < OPEN_MAX_HERE ? opened_count++ : draw(OPEN_MAX_HERE)] = new;
        break;
    }
    case 3:
        cellar_kernel_files_close(file, &error);
        break;
    case 4: {
        kernel_list_u8_t bytes;
        if (cellar_kernel_files_read(file, number(), (uint32_t)number(), &bytes, &error))
            kernel_list_u8_free(&bytes);
        break;
    }
    case 5: {
        uint32_t written;
        kernel_list_u8_t data = {(uint8_t *)at.ptr, at.len};
        cellar_kernel_files_write(file, number(), &data, &written, &error);
        break;
    }
    case 6: {
        kernel_list_u8_t data = {(uint8_t *)at.ptr, at.len};
        kernel_tuple2_u32_u64_t appended;
        cellar_kernel_files_append(file, &data, &appended, &error);
        break;
    }
    case 7:
        cellar_kernel_files_sync(file, &error);
        break;
    case 8: {
        cellar_kernel_files_file_stat_t found;
        cellar_kernel_files_stat(file, &found, &error);
        cellar_kernel_files_stat_at(file, &at, draw(2) == 0, &found, &error);
        break;
    }
    case 9:
        cellar_kernel_files_set_size(file, number(), &error);
        break;
    case 10:
        cellar_kernel_files_set_times(file, maybe(&accessed), maybe(&modified), &error);
        cellar_kernel_files_set_times_at(file, &at, draw(2) == 0, maybe(&accessed), maybe(&modified), &error);
        break;
    case 11: {
        cellar_kernel_files_list_directory_entry_t entries;
        if (cellar_kernel_files_read_directory(file, number(), &entries, &error))
            cellar_kernel_files_list_directory_entry_free(&entries);
        break;
    }
    case 12:
        cellar_kernel_files_create_directory(file, &at, &error);
        break;
    case 13:
        if (draw(2) == 0)
            cellar_kernel_files_remove_directory(file, &at, &error);
        else
            cellar_kernel_files_remove_file(file, &at, &error);
        break;
    case 14:
        cellar_kernel_files_rename(file, &at, descriptor(), &to, &error);
        break;
    case 15:
        cellar_kernel_files_link(file, &at, descriptor(), &to, &error);
        break;
    case 16:
        cellar_kernel_files_symlink(&to, file, &at, &error);
        break;
    case 17: {
        kernel_string_t target;
        if (cellar_kernel_files_read_link(file, &at, &target, &error))
            kernel_string_free(&target);
        break;
    }
    }
}

static void cross_bridges(uint32_t cell) {
    kernel_string_t name = one_of(tools, COUNT(tools)), arguments = one_of(texts, COUNT(texts));
    kernel_string_t pack = one_of(packs, COUNT(packs)), primitive = one_of(primitives, COUNT(primitives));
    cellar_kernel_types_json_t result;
    cellar_kernel_types_call_error_t error;
    switch (draw(8)) {
    case 0:
        if (cellar_kernel_tools_call(cell, &name, &arguments, &result, &error))
            kernel_string_free(&result);
        else
            cellar_kernel_types_call_error_free(&error);
        break;
    case 1:
        cellar_kernel_tools_start_call(cell, &name, &arguments);
        break;
    case 2:
        cellar_kernel_tools_cancel(number());
        break;
    case 3: {
        kernel_list_u8_t bytes;
        cellar_kernel_fetches_take(number(), (uint32_t)number(), &bytes);
        kernel_list_u8_free(&bytes);
        break;
    }
    case 4:
        cellar_kernel_input_start_call(cell, &arguments);
        break;
    case 5:
        if (cellar_kernel_primitives_call(cell, &pack, &primitive, &arguments, &result, &error))
            kernel_string_free(&result);
        else
            cellar_kernel_types_call_error_free(&error);
        break;
    case 6:
        cellar_kernel_primitives_start_call(cell, &pack, &primitive, &arguments);
        break;
    case 7:
        cellar_kernel_fetches_start_call(cell, &pack, &primitive, &arguments, draw(2));
        break;
    }
}

// What only the session itself answers about its files and tables.
static void cross_session(uint32_t cell) {
    kernel_string_t text = one_of(texts, COUNT(texts)), from = path(), to = path();
    cellar_kernel_types_call_error_t error;
    bool ok = true;
    uint64_t soon = 1, written;
    switch (draw(7)) {
    case 5: {
        cellar_kernel_types_lent_table_t table;
        ok = cellar_kernel_tables_read(cell, &text, draw(2) ? &soon : NULL, &table, &error);
        break;
    }
    case 6: {
        cellar_kernel_types_json_t json;
        ok = cellar_kernel_tables_list(cell, draw(2) ? &text : NULL, &json, &error);
        if (ok)
            kernel_string_free(&json);
        break;
    }
    case 0: {
        cellar_kernel_session_disk_usage_t usage;
        ok = cellar_kernel_session_disk(cell, &usage, &error);
        break;
    }
    case 1: {
        cellar_kernel_tables_conversion_t conversion = {
            .source = text, .target = to, .direction = (uint8_t)draw(2), .format = (uint8_t)draw(2),
        };
        ok = cellar_kernel_tables_convert(cell, &conversion, &written, &error);
        break;
    }
    case 2: {
        cellar_kernel_types_dataset_version_t dataset;
        ok = cellar_kernel_tables_load(cell, &text, draw(2) ? &soon : NULL, &to, &dataset, &error);
        if (ok)
            cellar_kernel_types_dataset_version_free(&dataset);
        break;
    }
    case 3: {
        cellar_kernel_types_dataset_version_t dataset;
        kernel_list_string_t read = {&text, draw(2)};
        ok = cellar_kernel_tables_publish(cell, &text, &from, &read, &dataset, &error);
        if (ok)
            cellar_kernel_types_dataset_version_free(&dataset);
        break;
    }
    case 4: {
        cellar_kernel_tables_drawing_t drawing = {.mime_type = text, .specification = text, .wanted = text, .target = to};
        ok = cellar_kernel_tables_draw(cell, &drawing, &written, &error);
        break;
    }
    }
    if (!ok)
        cellar_kernel_types_call_error_free(&error);
}

// What only the session itself answers about processes. Nothing here waits for long.
static void cross_processes(uint32_t cell) {
    kernel_string_t text = one_of(texts, COUNT(texts));
    cellar_kernel_types_call_error_t error;
    bool ok = true;
    uint64_t soon = 1;
    switch (draw(6)) {
    case 0: {
        cellar_kernel_processes_list_channel_t pipes;
        ok = cellar_kernel_processes_make_pipes(cell, (uint32_t)draw(4), &pipes, &error);
        if (ok)
            cellar_kernel_processes_list_channel_free(&pipes);
        break;
    }
    case 1: {
        uint64_t capacity = number(), box;
        ok = cellar_kernel_processes_make_box(cell, draw(2) ? &capacity : NULL, &box, &error);
        break;
    }
    case 2: {
        uint64_t channels[] = {number(), number()};
        cellar_kernel_processes_transfer_request_t request = {
            .write = {draw(2), {.pipe = number(), .text = text}}, .read = {channels, draw(3)}, .timeout = {true, soon},
        };
        cellar_kernel_types_transferred_t done;
        ok = cellar_kernel_processes_transfer(cell, &request, &done, &error);
        if (ok)
            cellar_kernel_types_transferred_free(&done);
        break;
    }
    case 3: {
        bool is_put;
        ok = cellar_kernel_processes_put(cell, number(), &text, &soon, &is_put, &error);
        break;
    }
    case 4: {
        kernel_option_string_t taken;
        ok = cellar_kernel_processes_take(cell, number(), draw(2), &soon, &taken, &error);
        if (ok)
            kernel_option_string_free(&taken);
        break;
    }
    case 5: {
        uint64_t channel = number();
        cellar_kernel_processes_list_channel_t channels = {&channel, draw(2)};
        ok = cellar_kernel_processes_close(cell, number(), (uint8_t)draw(2), &error)
            && cellar_kernel_processes_forget(cell, &channels, &error);
        break;
    }
    }
    if (!ok)
        cellar_kernel_types_call_error_free(&error);
}

static void cross_output(uint32_t cell) {
    kernel_string_t text = one_of(texts, COUNT(texts)), name = path();
    switch (draw(5)) {
    case 0:
        cellar_kernel_output_write(cell, (cellar_kernel_output_stream_name_t)draw(2), &text);
        break;
    case 1: {
        static const char *const types[] = {
            "text/plain", "application/json", "image/png", "text/html", "application/vnd.cellar.table", "application/vnd.vega.v5+json",
        };
        cellar_kernel_types_tuple2_string_mime_data_t entry = {.f0 = one_of(types, COUNT(types)), .f1.val.text = text};
        cellar_kernel_output_display_data_t display = {.data = {&entry, draw(2)}, .update = draw(2), .is_value = draw(2)};
        display.display_id.is_some = draw(2);
        display.display_id.val = name;
        cellar_kernel_output_display(cell, &display);
        break;
    }
    case 2:
        cellar_kernel_output_clear(cell, draw(2));
        break;
    case 3: {
        cellar_kernel_output_list_tuple2_string_scalar_t none = {NULL, 0};
        cellar_kernel_output_status(cell, &name, &none);
        break;
    }
    case 4: {
        cellar_kernel_output_bound_names_t bound = {{&name, 1}, {&text, draw(2)}, {&name, draw(2)}, (uint32_t)draw(3)};
        cellar_kernel_output_bound(cell, &bound);
        break;
    }
    }
}

static void cross_control(uint32_t cell) {
    cellar_kernel_control_stop_reason_t reason;
    uint32_t wanted = (uint32_t)draw(4);
    switch (draw(4)) {
    case 0:
        cellar_kernel_control_should_stop(cell, &reason);
        break;
    case 1:
        // A time that has passed.
        cellar_kernel_control_sleep_until(cell, draw(1000));
        break;
    case 2: {
        kernel_list_u8_t bytes;
        cellar_kernel_control_random((uint32_t)draw(65536), &bytes);
        kernel_list_u8_free(&bytes);
        break;
    }
    case 3:
        cellar_kernel_control_threads(draw(2) == 0 ? NULL : &wanted);
        break;
    }
}

flow_t cross(cell_t *cell, char *argument) {
    char *rest;
    uint64_t count = strtoull(argument, &rest, 10);
    state = strtoull(rest, NULL, 10) * 2654435761u + 88172645463325252u;
    for (opened_count = 0; count > 0; count--) {
        // Mostly in its own name.
        uint32_t named = draw(16) == 0 ? (uint32_t)number() : cell->id;
        switch (draw(9)) {
        case 0:
            cross_bridges(named);
            break;
        case 3:
            cross_session(named);
            break;
        case 1:
            cross_output(named);
            break;
        case 2:
            cross_control(named);
            break;
        case 4:
            cross_processes(named);
            break;
        default:
            cross_files();
        }
        if (count % 64 == 0 && must_stop(cell))
            return ENDED;
    }
    return GO_ON;
}

// Opens a file, and never closes it.
flow_t hold(cell_t *cell, char *path) {
    uint32_t file;
    kernel_string_t name = glue_view(path, strlen(path));
    cellar_kernel_files_error_code_t error;
    const cellar_kernel_files_open_flags_t how = CELLAR_KERNEL_FILES_OPEN_FLAGS_CREATE | CELLAR_KERNEL_FILES_OPEN_FLAGS_READ
        | CELLAR_KERNEL_FILES_OPEN_FLAGS_WRITE;
    return cellar_kernel_files_open(3, &name, how, &file, &error) ? GO_ON : fail_raised(cell, "OSError", "it was not opened");
}
