// Standard output and error as bytes: a program writes what it likes, the host takes text.
//
// A character may arrive in two writes. Its beginning is held back until the rest comes, or until the cell ends; what
// can never become a character is replaced by U+FFFD. The output of a process is read by programs, which must find each
// byte in it: there nothing is held back, and bytes that are no text cross as characters; see `utf8_escaped`.
#include "glue.h"

#include <string.h>

static const char REPLACEMENT[] = "\xEF\xBF\xBD";

bool glue_exact;

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

bool glue_holds(cellar_kernel_output_stream_name_t to) {
    return held[to].length > 0;
}

size_t glue_plain_prefix(cellar_kernel_output_stream_name_t to, const char *bytes, size_t length) {
    if (glue_holds(to))
        return 0;
    size_t valid = utf8_valid_prefix(bytes, length);
    return glue_exact ? utf8_before_escapes(bytes, valid) : valid;
}

void glue_write(cellar_kernel_output_stream_name_t to, const char *text, size_t length) {
    if (glue_exact) {
        glue_write_bytes(to, text, length);
        return;
    }
    if (glue_holds(to))
        glue_flush();
    write_for(glue_cell, to, text, length);
}

static void give_up_held(int to) {
    if (held[to].length > 0) {
        held[to].length = 0;
        write_for(held[to].cell, (cellar_kernel_output_stream_name_t)to, REPLACEMENT, 3);
    }
}

void glue_flush(void) {
    for (int to = 0; to < 2; to++)
        give_up_held(to);
}

void glue_flush_cell(uint32_t cell) {
    for (int to = 0; to < 2; to++)
        if (held[to].cell == cell)
            give_up_held(to);
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
            give_up_held(to); // the byte at hand begins something new
            return;
        }
        (*bytes)++;
        (*length)--;
    }
}

// Bytes that are escaped at a time, and four times as many that come of them.
#define ESCAPED_BYTES ((size_t)2048)

static void write_exactly(cellar_kernel_output_stream_name_t to, const char *bytes, size_t length) {
    while (length > 0) {
        size_t plain = glue_plain_prefix(to, bytes, length);
        write_for(glue_cell, to, bytes, plain);
        bytes += plain;
        length -= plain;
        char escaped[4 * ESCAPED_BYTES];
        size_t piece = length < ESCAPED_BYTES ? length : ESCAPED_BYTES;
        write_for(glue_cell, to, escaped, utf8_escaped(bytes, piece, escaped));
        bytes += piece;
        length -= piece;
    }
}

// Text on its way to the host: many short pieces cross at once.
typedef struct {
    cellar_kernel_output_stream_name_t to;
    size_t used;
    char text[4096];
} gathered_t;

static void send(gathered_t *gathered) {
    write_for(glue_cell, gathered->to, gathered->text, gathered->used);
    gathered->used = 0;
}

static void gather(gathered_t *gathered, const char *text, size_t length) {
    if (length > sizeof gathered->text - gathered->used)
        send(gathered);
    if (length > sizeof gathered->text) {
        write_for(glue_cell, gathered->to, text, length);
        return;
    }
    memcpy(gathered->text + gathered->used, text, length);
    gathered->used += length;
}

void glue_write_bytes(cellar_kernel_output_stream_name_t to, const char *bytes, size_t length) {
    if (glue_exact) {
        write_exactly(to, bytes, length);
        return;
    }
    if (held[to].length > 0 && held[to].cell != glue_cell)
        give_up_held(to);
    complete_held(to, &bytes, &length);
    gathered_t gathered;
    gathered.to = to;
    gathered.used = 0;
    while (length > 0) {
        size_t valid = utf8_valid_prefix(bytes, length);
        gather(&gathered, bytes, valid);
        bytes += valid;
        length -= valid;
        if (length == 0)
            break;
        if (utf8_is_incomplete(bytes, length)) {
            memcpy(held[to].bytes, bytes, length);
            held[to].length = (uint8_t)length;
            held[to].cell = glue_cell;
            break;
        }
        gather(&gathered, REPLACEMENT, 3);
        size_t wrong = utf8_wrong(bytes, length);
        bytes += wrong;
        length -= wrong;
    }
    send(&gathered);
}
