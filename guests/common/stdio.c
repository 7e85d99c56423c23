// Standard output and error as bytes: a C library writes what it likes, the host takes text.
//
// A character may arrive in two writes. Its beginning is held back until the rest comes, or until the cell ends; what
// can never become a character is replaced by U+FFFD.
#include "glue.h"

#include <string.h>

static const char REPLACEMENT[] = "\xEF\xBF\xBD";

// The beginning of a character on each stream, at most three bytes, and whose it is.
static struct {
    char bytes[4];
    uint8_t length;
    uint32_t cell;
} held[2];

static void write_for(uint32_t cell, cellar_kernel_output_stream_name_t to, const char *text, size_t length) {
    while (length > 0) {
        kernel_string_t piece = glue_view(text, utf8_prefix(text, length, GLUE_PIECE_BYTES));
        cellar_kernel_output_write(cell, to, &piece);
        text += piece.len;
        length -= piece.len;
    }
}

void glue_write(cellar_kernel_output_stream_name_t to, const char *text, size_t length) {
    if (held[to].length > 0)
        glue_flush();
    write_for(glue_cell, to, text, length);
}

void glue_flush(void) {
    for (int to = 0; to < 2; to++) {
        if (held[to].length > 0) {
            held[to].length = 0;
            write_for(held[to].cell, (cellar_kernel_output_stream_name_t)to, REPLACEMENT, 3);
        }
    }
}

// Completes the character that is held back with bytes from `*bytes`, or gives it up.
static void complete_held(cellar_kernel_output_stream_name_t to, const char **bytes, size_t *length) {
    while (held[to].length > 0 && *length > 0) {
        char *sequence = held[to].bytes;
        size_t n = held[to].length;
        sequence[n] = **bytes;
        if (utf8_valid_prefix(sequence, n + 1) == n + 1) {
            held[to].length = 0;
            write_for(glue_cell, to, sequence, n + 1);
        } else if (utf8_is_incomplete(sequence, n + 1)) {
            held[to].length = (uint8_t)(n + 1);
        } else {
            glue_flush(); // the byte at hand begins something new
            return;
        }
        (*bytes)++;
        (*length)--;
    }
}

void glue_write_bytes(cellar_kernel_output_stream_name_t to, const char *bytes, size_t length) {
    if (held[to].length > 0 && held[to].cell != glue_cell)
        glue_flush();
    complete_held(to, &bytes, &length);
    while (length > 0) {
        size_t valid = utf8_valid_prefix(bytes, length);
        write_for(glue_cell, to, bytes, valid);
        bytes += valid;
        length -= valid;
        if (length == 0)
            return;
        if (utf8_is_incomplete(bytes, length)) {
            memcpy(held[to].bytes, bytes, length);
            held[to].length = (uint8_t)length;
            held[to].cell = glue_cell;
            return;
        }
        write_for(glue_cell, to, REPLACEMENT, 3);
        bytes++;
        length--;
    }
}
