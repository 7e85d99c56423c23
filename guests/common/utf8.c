// UTF-8 as the component ABI wants it: no surrogates, no overlong forms, nothing above U+10FFFF.
#include "glue.h"

#include <string.h>

// Length of the sequence that begins at `p`: positive when it is valid, 0 when it is wrong, and minus what it lacks
// when it is a beginning cut off by `end`.
static int sequence(const uint8_t *p, const uint8_t *end) {
    static const struct { uint8_t first, last, low, high, length; } forms[] = {
        {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
        {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
        {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
    };
    if (*p < 0x80)
        return 1;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (*p < forms[i].first || *p > forms[i].last)
            continue;
        int have = end - p < forms[i].length ? (int)(end - p) : forms[i].length;
        for (int k = 1; k < have; k++) {
            uint8_t low = k == 1 ? forms[i].low : 0x80, high = k == 1 ? forms[i].high : 0xBF;
            if (p[k] < low || p[k] > high)
                return 0;
        }
        return have == forms[i].length ? have : have - forms[i].length;
    }
    return 0;
}

// Skips ASCII eight bytes at a time: most text is nothing else.
static const uint8_t *skip_ascii(const uint8_t *p, const uint8_t *end) {
    while (end - p >= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        if (word & 0x8080808080808080u)
            break;
        p += 8;
    }
    while (p < end && *p < 0x80)
        p++;
    return p;
}

size_t utf8_valid_prefix(const char *bytes, size_t length) {
    const uint8_t *start = (const uint8_t *)bytes, *end = start + length, *p = start;
    while ((p = skip_ascii(p, end)) < end) {
        int n = sequence(p, end);
        if (n <= 0)
            break;
        p += n;
    }
    return (size_t)(p - start);
}

bool utf8_is_incomplete(const char *bytes, size_t length) {
    return length > 0 && sequence((const uint8_t *)bytes, (const uint8_t *)bytes + length) < 0;
}

// Writes the character of private use that a byte above 0x7F crosses as; its length.
static size_t escape(uint8_t byte, char *text) {
    text[0] = (char)0xF4;
    text[1] = (char)0x8F;
    text[2] = (char)(0xBC | byte >> 6);
    text[3] = (char)(0x80 | (byte & 0x3F));
    return 4;
}

size_t utf8_wrong(const char *bytes, size_t length) {
    size_t wrong = 1;
    while (wrong < length && wrong < 3 && utf8_is_incomplete(bytes, wrong + 1))
        wrong++;
    return wrong;
}

size_t utf8_before_escapes(const char *bytes, size_t length) {
    const char *p = bytes, *end = bytes + length;
    while ((p = memchr(p, 0xF4, (size_t)(end - p))) != NULL) {
        if ((uint8_t)p[1] == 0x8F && (uint8_t)p[2] >= 0xBE)
            return (size_t)(p - bytes);
        p += 4;
    }
    return length;
}

size_t utf8_escaped(const char *bytes, size_t length, char *text) {
    size_t used = 0;
    while (length > 0) {
        size_t valid = utf8_valid_prefix(bytes, length);
        // A character that is an escape is none of ours: its bytes are escaped.
        for (size_t escapes; valid > 0; valid -= escapes) {
            size_t plain = utf8_before_escapes(bytes, valid);
            memcpy(text + used, bytes, plain);
            used += plain;
            bytes += plain;
            length -= plain;
            valid -= plain;
            escapes = valid > 0 ? 4 : 0;
            for (size_t i = 0; i < escapes; i++)
                used += escape((uint8_t)*bytes++, text + used);
            length -= escapes;
        }
        if (length > 0) {
            used += escape((uint8_t)*bytes++, text + used);
            length--;
        }
    }
    return used;
}

size_t utf8_unescaped(const char *text, size_t length, char *bytes) {
    size_t used = 0;
    while (length > 0) {
        size_t plain = utf8_before_escapes(text, length);
        memcpy(bytes + used, text, plain);
        used += plain;
        text += plain;
        length -= plain;
        if (length > 0) {
            bytes[used++] = (char)((uint8_t)text[2] << 6 | ((uint8_t)text[3] & 0x3F));
            text += 4;
            length -= 4;
        }
    }
    return used;
}

void utf8_repair(char *bytes, size_t length) {
    size_t done = 0;
    for (;;) {
        done += utf8_valid_prefix(bytes + done, length - done);
        if (done == length)
            return;
        uint8_t *p = (uint8_t *)bytes + done;
        bool surrogate = length - done >= 3 && p[0] == 0xED && p[1] >= 0xA0 && p[1] <= 0xBF && (p[2] & 0xC0) == 0x80;
        if (surrogate) {
            memcpy(p, "\xEF\xBF\xBD", 3);
            done += 3;
        } else {
            *p = '?';
            done += 1;
        }
    }
}

size_t utf8_prefix(const char *bytes, size_t length, size_t room) {
    if (length <= room)
        return length;
    while (room > 0 && ((unsigned char)bytes[room] & 0xC0) == 0x80)
        room--;
    return room;
}

size_t utf8_count(const char *bytes, size_t length) {
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += ((uint8_t)bytes[i] & 0xC0) != 0x80;
    return count;
}
