// What every guest's shim shares: strings of the component ABI, the current cell, output, steps, memory access.
//
// The glue knows no language. It keeps everything that is per session in linear memory, so that an image of the
// memory is the whole state; nothing here holds a host handle.
#ifndef CELLAR_GLUE_H
#define CELLAR_GLUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel.h"

// ---- Strings

// A view of `length` bytes, which must be UTF-8: the host traps a guest that hands it anything else.
kernel_string_t glue_view(const char *bytes, size_t length);

// A copy that the generated post-return code frees. Traps when memory is exhausted: what is told to the host is told
// whole. For short texts; whoever copies what a program made uses `glue_try_copy`.
kernel_string_t glue_copy(const char *bytes, size_t length);

// The same, but returns false and leaves `copy` empty when memory is exhausted.
bool glue_try_copy(const char *bytes, size_t length, kernel_string_t *copy);

// A present option holding a copy.
kernel_option_string_t glue_some(const char *bytes, size_t length);

// ---- Crossings
//
// The host kills a guest that hands it more than 96 MiB at once. What may be longer is cut into pieces, or refused before.

// Bytes of a text or of a file's content that cross at once.
#define GLUE_PIECE_BYTES ((size_t)1 << 20)

// Bytes of the arguments of a call, names included, as the host has it.
#define GLUE_CALL_BYTES_MAX ((size_t)64 << 20)

// Bytes of a display with all its names, but for the few that the ABI adds. A session may allow fewer.
#define GLUE_DISPLAY_BYTES_MAX ((size_t)95 << 20)

// Bytes of each text of a failure and of a status.
#define GLUE_WORD_BYTES_MAX ((size_t)64 << 10)

// Bytes of a path.
#define GLUE_PATH_BYTES_MAX ((size_t)4096)

// The longest prefix of valid UTF-8 that has at most `room` bytes and ends between characters.
size_t utf8_prefix(const char *bytes, size_t length, size_t room);

// Bytes of a bundle.
size_t glue_bundle_bytes(const kernel_mime_bundle_t *bundle);

// Tells the reader of the current cell that a display is larger than what can cross. The host says the same of one that
// is larger than its session allows.
void glue_display_left_out(size_t size);

// Why no call can be begun when the host answers with the number 0.
#define GLUE_CALLS_FULL "so many calls wait for an answer that no more can be begun: await some of them first"

// Says why a call of so many bytes is refused. Returns the length of the message, which ends with a zero byte.
size_t glue_call_too_large(char *message, size_t room, size_t size);

// ---- UTF-8

// Length of the longest prefix that is whole, valid UTF-8.
size_t utf8_valid_prefix(const char *bytes, size_t length);

// Whether the bytes after the valid prefix are the beginning of a longer sequence, rather than wrong.
bool utf8_is_incomplete(const char *bytes, size_t length);

// Number of bytes that one U+FFFD stands for, as the web and Python have it, where the valid prefix ends.
size_t utf8_wrong(const char *bytes, size_t length);

// Bytes that are no UTF-8 cross the host as characters of private use, U+10FF80 to U+10FFFF, so that what processes write
// and read is exact. Writes such a text of at most four times as many bytes, and returns its length.
size_t utf8_escaped(const char *bytes, size_t length, char *text);

// Writes the bytes that such a text stands for, which are no more than its own, and returns their number.
size_t utf8_unescaped(const char *text, size_t length, char *bytes);

// Length of the longest prefix of valid UTF-8 without such characters.
size_t utf8_before_escapes(const char *bytes, size_t length);

// Replaces what is not UTF-8 in place. Lone surrogates, which some interpreters encode as three bytes, become U+FFFD;
// any other wrong byte becomes a question mark.
void utf8_repair(char *bytes, size_t length);

// Number of Unicode scalar values in valid UTF-8.
size_t utf8_count(const char *bytes, size_t length);

// ---- The current cell

// The cell that the interpreter now runs code for; 0 when none. The shim sets it whenever it enters or switches.
extern uint32_t glue_cell;

// ---- Output

// Writes UTF-8 of the current cell. `text` must be valid.
void glue_write(cellar_kernel_output_stream_name_t to, const char *text, size_t length);

// Writes bytes that may be invalid or end inside a character; see `stdio.c`.
void glue_write_bytes(cellar_kernel_output_stream_name_t to, const char *bytes, size_t length);

// Says that all bytes cross, as in a process; see `stdio.c`.
extern bool glue_exact;

// Says if the beginning of a character is held back.
bool glue_holds(cellar_kernel_output_stream_name_t to);

// Length of the longest prefix that `glue_write_bytes` would hand to the host as it is.
size_t glue_plain_prefix(cellar_kernel_output_stream_name_t to, const char *bytes, size_t length);

// Writes what is held back of an incomplete character, of all cells or of one that ends; `glue_finish` does the latter.
void glue_flush(void);
void glue_flush_cell(uint32_t cell);

// For the people who build guests.
void glue_log(const char *text);

// ---- Steps

// Notes that `cell` ended. Takes over the strings inside `outcome`.
void glue_finish(uint32_t cell, const cellar_kernel_types_outcome_t *outcome);

// Hands all that ended since the last call to the host, with the earliest timer when `wake_at` is not null.
void glue_step(kernel_step_t *step, const uint64_t *wake_at);

// ---- Session

// Sets the C library's working directory and environment.
void glue_configure(const kernel_configuration_t *configuration);

// ---- Memory

// Makes the next list that the host lowers land in `buffer`, if it has at most `capacity` bytes.
void glue_aim(void *buffer, size_t capacity);

// Takes back what `glue_aim` did when no list came. Returns whether one did.
bool glue_landed(void);

// Sets all memory aside but for the end of it: what is allocated from here on lies side by side, on few pages, and what was
// allocated before is never free, so that its pages stay as they were baked. In the holes of an image each small block
// would cost a session a page of its own. For the end of baking. Returns the address below which memory is sealed; 0 when
// the host gives no more memory.
uintptr_t glue_seal_memory(void);

// Set while the guest is baked: clocks stand still and random bytes are the same each time, so that the image is the
// same wherever it is made.
extern bool glue_baking;

// How C code waits for a moment of the monotonic clock: the host suspends the guest, unless the shim has something else to do.
extern void (*glue_sleep)(uint64_t until);

// Fills `buffer` with random bytes from the host.
void glue_random(void *buffer, size_t length);

#endif
