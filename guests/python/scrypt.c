/* The part of scrypt (RFC 7914) that takes long: mixing blocks through a table of them. */
#include "shim.h"

#include <string.h>

/* The table is no larger than this. */
#define TABLE_BYTES_MAX (128u << 20)

static uint32_t rotated(uint32_t word, int bits) {
    return word << bits | word >> (32 - bits);
}

static void salsa20_8(uint32_t block[16]) {
    uint32_t x[16];
    memcpy(x, block, sizeof x);
    static const uint8_t quarters[8][4] = {
        {0, 4, 8, 12}, {5, 9, 13, 1}, {10, 14, 2, 6}, {15, 3, 7, 11},
        {0, 1, 2, 3}, {5, 6, 7, 4}, {10, 11, 8, 9}, {15, 12, 13, 14},
    };
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 8; i++) {
            const uint8_t *q = quarters[i];
            x[q[1]] ^= rotated(x[q[0]] + x[q[3]], 7);
            x[q[2]] ^= rotated(x[q[1]] + x[q[0]], 9);
            x[q[3]] ^= rotated(x[q[2]] + x[q[1]], 13);
            x[q[0]] ^= rotated(x[q[3]] + x[q[2]], 18);
        }
    }
    for (int i = 0; i < 16; i++) {
        block[i] += x[i];
    }
}

/* Mixes 2r blocks of 64 bytes; `out` is another place of that length. */
static void mix_blocks(const uint32_t *in, uint32_t *out, size_t r) {
    uint32_t x[16];
    memcpy(x, in + (2 * r - 1) * 16, sizeof x);
    for (size_t i = 0; i < 2 * r; i++) {
        for (int word = 0; word < 16; word++) {
            x[word] ^= in[i * 16 + word];
        }
        salsa20_8(x);
        memcpy(out + ((i & 1) * r + i / 2) * 16, x, sizeof x);
    }
}

/* scrypt_mix(bytes of 128 r, n) -> bytes of the same length */
PyObject *cellar_scrypt_mix(PyObject *module, PyObject *args) {
    const char *data;
    Py_ssize_t length;
    unsigned long n;
    if (!PyArg_ParseTuple(args, "y#k", &data, &length, &n)) {
        return NULL;
    }
    size_t words = (size_t)length / 4, r = (size_t)length / 128;
    if (length == 0 || length % 128 != 0 || n < 2 || (n & (n - 1)) != 0 || n > TABLE_BYTES_MAX / (size_t)length) {
        PyErr_SetString(PyExc_ValueError, "n must be a power of 2, and 128 * n * r at most 128 MiB");
        return NULL;
    }
    uint32_t *table = PyMem_RawMalloc(n * (size_t)length), *x = PyMem_RawMalloc(2 * (size_t)length);
    PyObject *result = NULL;
    if (table == NULL || x == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    uint32_t *y = x + words;
    memcpy(x, data, (size_t)length);
    for (size_t i = 0; i < 2 * n; i++) {
        if (i < n) {
            memcpy(table + i * words, x, (size_t)length);
        } else {
            const uint32_t *chosen = table + (x[(2 * r - 1) * 16] & (n - 1)) * words;
            for (size_t word = 0; word < words; word++) {
                x[word] ^= chosen[word];
            }
        }
        mix_blocks(x, y, r);
        memcpy(x, y, (size_t)length);
        if (i % 64 == 0 && PyErr_CheckSignals() < 0) {
            goto end;
        }
    }
    result = PyBytes_FromStringAndSize((const char *)x, length);
end:
    PyMem_RawFree(table);
    PyMem_RawFree(x);
    return result;
}
