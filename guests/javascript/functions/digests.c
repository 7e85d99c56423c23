// Hash functions, and keys from passwords. Done in C, they take a hundredth of the time that they take in JavaScript.
//
// The state of a digest lies in an array of the prelude's, so that copying the array copies the digest.
#include "convert.h"
#include "engine/engine.h"
#include "functions.h"

#include <stdlib.h>
#include <string.h>

typedef enum { MD5, SHA1, SHA224, SHA256, SHA384, SHA512, SHA512_256, KIND_COUNT } kind_t;

typedef struct {
    uint32_t kind, fill;
    uint64_t length;
    union {
        uint32_t words[8];
        uint64_t longs[8];
    } state;
    uint8_t buffer[128];
} digest_t;

// Bytes of a result, of a block, and of the length that ends the last block.
static const struct {
    uint8_t result, block, tail;
} sizes[KIND_COUNT] = {
    [MD5] = {16, 64, 8},      [SHA1] = {20, 64, 8},      [SHA224] = {28, 64, 8},      [SHA256] = {32, 64, 8},
    [SHA384] = {48, 128, 16}, [SHA512] = {64, 128, 16}, [SHA512_256] = {32, 128, 16},
};

// Bytes that are hashed before it is asked whether the cell must stop.
#define PIECE_BYTES (64u << 10)

// ---- The functions, as RFC 1321 and FIPS 180-4 say

static const uint32_t md5_sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

// The first 32 bits of each are SHA-256's.
static const uint64_t cube_roots[80] = {
    0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc,
    0x3956c25bf348b538, 0x59f111f1b605d019, 0x923f82a4af194f9b, 0xab1c5ed5da6d8118,
    0xd807aa98a3030242, 0x12835b0145706fbe, 0x243185be4ee4b28c, 0x550c7dc3d5ffb4e2,
    0x72be5d74f27b896f, 0x80deb1fe3b1696b1, 0x9bdc06a725c71235, 0xc19bf174cf692694,
    0xe49b69c19ef14ad2, 0xefbe4786384f25e3, 0x0fc19dc68b8cd5b5, 0x240ca1cc77ac9c65,
    0x2de92c6f592b0275, 0x4a7484aa6ea6e483, 0x5cb0a9dcbd41fbd4, 0x76f988da831153b5,
    0x983e5152ee66dfab, 0xa831c66d2db43210, 0xb00327c898fb213f, 0xbf597fc7beef0ee4,
    0xc6e00bf33da88fc2, 0xd5a79147930aa725, 0x06ca6351e003826f, 0x142929670a0e6e70,
    0x27b70a8546d22ffc, 0x2e1b21385c26c926, 0x4d2c6dfc5ac42aed, 0x53380d139d95b3df,
    0x650a73548baf63de, 0x766a0abb3c77b2a8, 0x81c2c92e47edaee6, 0x92722c851482353b,
    0xa2bfe8a14cf10364, 0xa81a664bbc423001, 0xc24b8b70d0f89791, 0xc76c51a30654be30,
    0xd192e819d6ef5218, 0xd69906245565a910, 0xf40e35855771202a, 0x106aa07032bbd1b8,
    0x19a4c116b8d2d0c8, 0x1e376c085141ab53, 0x2748774cdf8eeb99, 0x34b0bcb5e19b48a8,
    0x391c0cb3c5c95a63, 0x4ed8aa4ae3418acb, 0x5b9cca4f7763e373, 0x682e6ff3d6b2b8a3,
    0x748f82ee5defb2fc, 0x78a5636f43172f60, 0x84c87814a1f0ab72, 0x8cc702081a6439ec,
    0x90befffa23631e28, 0xa4506cebde82bde9, 0xbef9a3f7b2c67915, 0xc67178f2e372532b,
    0xca273eceea26619c, 0xd186b8c721c0c207, 0xeada7dd6cde0eb1e, 0xf57d4f7fee6ed178,
    0x06f067aa72176fba, 0x0a637dc5a2c898a6, 0x113f9804bef90dae, 0x1b710b35131c471b,
    0x28db77f523047d84, 0x32caab7b40c72493, 0x3c9ebe0a15c9bebc, 0x431d67c49c100d4c,
    0x4cc5d4becb3e42b6, 0x597f299cfc657e2a, 0x5fcb6fab3ad6faec, 0x6c44198c4a475817,
};

static const uint32_t md5_start[8] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};

// The lower halves are SHA-224's.
static const uint64_t sha384_start[8] = {
    0xcbbb9d5dc1059ed8, 0x629a292a367cd507, 0x9159015a3070dd17, 0x152fecd8f70e5939,
    0x67332667ffc00b31, 0x8eb44a8768581511, 0xdb0c2e0d64f98fa7, 0x47b5481dbefa4fa4,
};

// The upper halves are SHA-256's.
static const uint64_t sha512_start[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

static const uint64_t sha512_256_start[8] = {
    0x22312194fc2bf72c, 0x9f555fa3c84c64c2, 0x2393b86b6f53b151, 0x963877195940eabd,
    0x96283ee2a88effe3, 0xbe5e1e2553863992, 0x2b0199fc2c85b8aa, 0x0eb72ddc81c52ca2,
};

static uint32_t rotate_left(uint32_t x, int bits) {
    return x << bits | x >> (32 - bits);
}

static uint32_t rotate(uint32_t x, int bits) {
    return x >> bits | x << (32 - bits);
}

static uint64_t rotate_long(uint64_t x, int bits) {
    return x >> bits | x << (64 - bits);
}

static uint32_t word_at(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void md5_block(uint32_t *h, const uint8_t *block) {
    static const uint8_t turns[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    uint32_t words[16], a = h[0], b = h[1], c = h[2], d = h[3];
    memcpy(words, block, sizeof words); // both are little-endian
    for (int i = 0; i < 64; i++) {
        uint32_t f;
        int g;
        if (i < 16) {
            f = (b & c) | (~b & d);
            g = i;
        } else if (i < 32) {
            f = (d & b) | (~d & c);
            g = (5 * i + 1) % 16;
        } else if (i < 48) {
            f = b ^ c ^ d;
            g = (3 * i + 5) % 16;
        } else {
            f = c ^ (b | ~d);
            g = 7 * i % 16;
        }
        f += a + md5_sines[i] + words[g];
        a = d;
        d = c;
        c = b;
        b += rotate_left(f, turns[i / 16][i % 4]);
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
}

static void sha1_block(uint32_t *h, const uint8_t *block) {
    uint32_t words[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++)
        words[i] = word_at(block + 4 * i);
    for (int i = 16; i < 80; i++)
        words[i] = rotate_left(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999
                     : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                     : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
                              : (b ^ c ^ d) + 0xca62c1d6;
        uint32_t next = rotate_left(a, 5) + f + e + words[i];
        e = d;
        d = c;
        c = rotate_left(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

static void sha256_block(uint32_t *h, const uint8_t *block) {
    uint32_t words[64], v[8];
    for (int i = 0; i < 16; i++)
        words[i] = word_at(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t x = words[i - 15], y = words[i - 2];
        words[i] = words[i - 16] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) + words[i - 7] +
                   (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t first = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & v[5]) ^ (~e & v[6])) +
                         (uint32_t)(cube_roots[i] >> 32) + words[i];
        uint32_t second = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += first;
        v[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

static void sha512_block(uint64_t *h, const uint8_t *block) {
    uint64_t words[80], v[8];
    for (int i = 0; i < 16; i++)
        words[i] = (uint64_t)word_at(block + 8 * i) << 32 | word_at(block + 8 * i + 4);
    for (int i = 16; i < 80; i++) {
        uint64_t x = words[i - 15], y = words[i - 2];
        words[i] = words[i - 16] + (rotate_long(x, 1) ^ rotate_long(x, 8) ^ x >> 7) + words[i - 7] +
                   (rotate_long(y, 19) ^ rotate_long(y, 61) ^ y >> 6);
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 80; i++) {
        uint64_t a = v[0], e = v[4];
        uint64_t first = v[7] + (rotate_long(e, 14) ^ rotate_long(e, 18) ^ rotate_long(e, 41)) +
                         ((e & v[5]) ^ (~e & v[6])) + cube_roots[i] + words[i];
        uint64_t second = (rotate_long(a, 28) ^ rotate_long(a, 34) ^ rotate_long(a, 39)) +
                          ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += first;
        v[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

// ---- Digests

static void digest_start(digest_t *digest, kind_t kind) {
    *digest = (digest_t){.kind = kind};
    for (int i = 0; i < 8; i++) {
        if (kind <= SHA1)
            digest->state.words[i] = md5_start[i];
        else if (kind <= SHA256)
            digest->state.words[i] = kind == SHA224 ? (uint32_t)sha384_start[i] : (uint32_t)(sha512_start[i] >> 32);
        else
            digest->state.longs[i] = kind == SHA384   ? sha384_start[i]
                                     : kind == SHA512 ? sha512_start[i]
                                                      : sha512_256_start[i];
    }
}

static void digest_block(digest_t *digest, const uint8_t *block) {
    switch (digest->kind) {
    case MD5:
        md5_block(digest->state.words, block);
        break;
    case SHA1:
        sha1_block(digest->state.words, block);
        break;
    case SHA224:
    case SHA256:
        sha256_block(digest->state.words, block);
        break;
    default:
        sha512_block(digest->state.longs, block);
    }
}

static void digest_update(digest_t *digest, const uint8_t *bytes, size_t length) {
    size_t block = sizes[digest->kind].block;
    digest->length += length;
    if (digest->fill > 0) {
        size_t room = block - digest->fill, taken = length < room ? length : room;
        memcpy(digest->buffer + digest->fill, bytes, taken);
        digest->fill += (uint32_t)taken;
        bytes += taken;
        length -= taken;
        if (digest->fill < block)
            return;
        digest_block(digest, digest->buffer);
        digest->fill = 0;
    }
    for (; length >= block; bytes += block, length -= block)
        digest_block(digest, bytes);
    memcpy(digest->buffer, bytes, length);
    digest->fill = (uint32_t)length;
}

static void digest_finish(digest_t *digest, uint8_t *result) {
    size_t block = sizes[digest->kind].block, tail = sizes[digest->kind].tail;
    uint64_t bits = digest->length * 8; // no text has 2^61 bytes
    digest->buffer[digest->fill++] = 0x80;
    memset(digest->buffer + digest->fill, 0, sizeof digest->buffer - digest->fill);
    if (digest->fill > block - tail) {
        digest_block(digest, digest->buffer);
        memset(digest->buffer, 0, sizeof digest->buffer);
    }
    for (size_t i = 0; i < 8; i++)
        digest->buffer[digest->kind == MD5 ? block - 8 + i : block - 1 - i] = (uint8_t)(bits >> 8 * i);
    digest_block(digest, digest->buffer);
    for (size_t i = 0; i < sizes[digest->kind].result; i++) {
        if (digest->kind == MD5)
            result[i] = (uint8_t)(digest->state.words[i / 4] >> 8 * (i % 4));
        else if (digest->kind <= SHA256)
            result[i] = (uint8_t)(digest->state.words[i / 4] >> (24 - 8 * (i % 4)));
        else
            result[i] = (uint8_t)(digest->state.longs[i / 8] >> (56 - 8 * (i % 8)));
    }
}

// ---- PBKDF2, of RFC 8018

// A key of HMAC, hashed into both of its digests.
typedef struct {
    digest_t inner, outer;
} hmac_t;

static void hmac_start(hmac_t *hmac, kind_t kind, const uint8_t *key, size_t length) {
    uint8_t block[128] = {0};
    digest_start(&hmac->inner, kind);
    digest_start(&hmac->outer, kind);
    if (length > sizes[kind].block) {
        digest_t digest;
        digest_start(&digest, kind);
        digest_update(&digest, key, length);
        digest_finish(&digest, block);
    } else {
        memcpy(block, key, length);
    }
    for (size_t i = 0; i < sizes[kind].block; i++)
        block[i] ^= 0x36;
    digest_update(&hmac->inner, block, sizes[kind].block);
    for (size_t i = 0; i < sizes[kind].block; i++)
        block[i] ^= 0x36 ^ 0x5c;
    digest_update(&hmac->outer, block, sizes[kind].block);
}

// `hmac` has been given a text; works on copies.
static void hmac_finish(const digest_t *inner, const digest_t *outer, uint8_t *result) {
    digest_t first = *inner, second = *outer;
    digest_finish(&first, result);
    digest_update(&second, result, sizes[outer->kind].result);
    digest_finish(&second, result);
}

// False when the cell must stop.
static bool derive(JSContext *ctx, kind_t kind, kernel_string_t password, kernel_string_t salt, uint32_t iterations,
                   uint8_t *key, size_t length) {
    hmac_t hmac;
    size_t size = sizes[kind].result;
    hmac_start(&hmac, kind, password.ptr, password.len);
    for (uint32_t number = 1; length > 0; number++) {
        uint8_t last[64], sum[64], big_endian[4];
        for (int i = 0; i < 4; i++)
            big_endian[i] = (uint8_t)(number >> (24 - 8 * i));
        digest_t first = hmac.inner;
        digest_update(&first, salt.ptr, salt.len);
        digest_update(&first, big_endian, sizeof big_endian);
        hmac_finish(&first, &hmac.outer, last);
        memcpy(sum, last, size);
        for (uint32_t i = 1; i < iterations; i++) {
            digest_t next = hmac.inner;
            digest_update(&next, last, size);
            hmac_finish(&next, &hmac.outer, last);
            for (size_t j = 0; j < size; j++)
                sum[j] ^= last[j];
            if (i % 16 == 0 && must_stop_soon(ctx, PIECE_BYTES))
                return false;
        }
        size_t taken = length < size ? length : size;
        memcpy(key, sum, taken);
        key += taken;
        length -= taken;
        if (must_stop_soon(ctx, PIECE_BYTES))
            return false;
    }
    return true;
}

// ---- scrypt, of RFC 7914

static void salsa_8(uint32_t *block) {
    uint32_t x[16];
    memcpy(x, block, sizeof x);
    for (int i = 0; i < 4; i++) {
#define STEP(a, b, c, bits) x[a] ^= rotate_left(x[b] + x[c], bits)
#define QUARTER(a, b, c, d) \
    do { \
        STEP(b, a, d, 7); \
        STEP(c, b, a, 9); \
        STEP(d, c, b, 13); \
        STEP(a, d, c, 18); \
    } while (0)
        QUARTER(0, 4, 8, 12);
        QUARTER(5, 9, 13, 1);
        QUARTER(10, 14, 2, 6);
        QUARTER(15, 3, 7, 11);
        QUARTER(0, 1, 2, 3);
        QUARTER(5, 6, 7, 4);
        QUARTER(10, 11, 8, 9);
        QUARTER(15, 12, 13, 14);
#undef QUARTER
#undef STEP
    }
    for (int i = 0; i < 16; i++)
        block[i] += x[i];
}

// Mixes 2r blocks of 64 bytes; `spare` has room for as many.
static void mix_blocks(uint32_t *blocks, uint32_t *spare, size_t r) {
    uint32_t x[16];
    memcpy(x, blocks + (2 * r - 1) * 16, sizeof x);
    for (size_t i = 0; i < 2 * r; i++) {
        for (int j = 0; j < 16; j++)
            x[j] ^= blocks[i * 16 + j];
        salsa_8(x);
        memcpy(spare + (i / 2 + (i % 2) * r) * 16, x, sizeof x);
    }
    memcpy(blocks, spare, 128 * r);
}

// False when the cell must stop. `table` has room for n times what `blocks` has.
static bool mix_rounds(JSContext *ctx, uint32_t *blocks, uint32_t *spare, uint32_t *table, size_t n, size_t r) {
    size_t words = 32 * r;
    for (size_t i = 0; i < n; i++) {
        memcpy(table + i * words, blocks, 4 * words);
        mix_blocks(blocks, spare, r);
        if (must_stop_soon(ctx, 4 * words))
            return false;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t *other = table + (blocks[words - 16] & (n - 1)) * words;
        for (size_t j = 0; j < words; j++)
            blocks[j] ^= other[j];
        mix_blocks(blocks, spare, r);
        if (must_stop_soon(ctx, 4 * words))
            return false;
    }
    return true;
}

// ---- What the prelude calls

// The bytes of an argument, as a view. False with a TypeError when it has none.
static bool view_of(JSContext *ctx, JSValueConst value, kernel_string_t *view) {
    view->ptr = bytes_of(ctx, value, &view->len);
    if (view->ptr == NULL)
        JS_ThrowTypeError(ctx, "a typed array is needed");
    return view->ptr != NULL;
}

// A digest out of an array of the prelude's.
static bool load(JSContext *ctx, JSValueConst value, digest_t *digest) {
    kernel_string_t view;
    if (!view_of(ctx, value, &view))
        return false;
    if (view.len == sizeof *digest)
        memcpy(digest, view.ptr, sizeof *digest);
    if (view.len == sizeof *digest && digest->kind < KIND_COUNT && digest->fill < sizes[digest->kind].block)
        return true;
    JS_ThrowTypeError(ctx, "this is no digest");
    return false;
}

// Makes a hash function's number of an argument.
static bool kind_from(JSContext *ctx, JSValueConst value, uint32_t *kind) {
    if (JS_ToUint32(ctx, kind, value))
        return false;
    if (*kind >= KIND_COUNT)
        JS_ThrowRangeError(ctx, "there is no such hash function");
    return *kind < KIND_COUNT;
}

// digestStart(kind): the state of a digest
static JSValue start(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    uint32_t kind;
    digest_t digest;
    if (!kind_from(ctx, argv[0], &kind))
        return JS_EXCEPTION;
    digest_start(&digest, kind);
    return JS_NewUint8ArrayCopy(ctx, (const uint8_t *)&digest, sizeof digest);
}

// digestUpdate(state, bytes)
static JSValue update(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    digest_t digest;
    kernel_string_t bytes, state;
    if (!load(ctx, argv[0], &digest) || !view_of(ctx, argv[1], &bytes))
        return JS_EXCEPTION;
    while (bytes.len > 0) {
        size_t piece = bytes.len < PIECE_BYTES ? bytes.len : PIECE_BYTES;
        digest_update(&digest, bytes.ptr, piece);
        bytes.ptr += piece;
        bytes.len -= piece;
        if (must_stop_soon(ctx, piece))
            return JS_EXCEPTION;
    }
    if (!view_of(ctx, argv[0], &state))
        return JS_EXCEPTION;
    memcpy(state.ptr, &digest, sizeof digest);
    return JS_UNDEFINED;
}

// digestFinish(state): the result, which leaves the state as it is
static JSValue finish(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    digest_t digest;
    uint8_t result[64];
    if (!load(ctx, argv[0], &digest))
        return JS_EXCEPTION;
    digest_finish(&digest, result);
    return JS_NewUint8ArrayCopy(ctx, result, sizes[digest.kind].result);
}

// pbkdf2(kind, password, salt, iterations, length)
static JSValue pbkdf2(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    uint32_t kind, iterations, length;
    kernel_string_t password, salt;
    if (!kind_from(ctx, argv[0], &kind) || JS_ToUint32(ctx, &iterations, argv[3]) || JS_ToUint32(ctx, &length, argv[4]) ||
        !view_of(ctx, argv[1], &password) || !view_of(ctx, argv[2], &salt))
        return JS_EXCEPTION;
    uint8_t *key = js_malloc(ctx, length + 1);
    JSValue result = JS_EXCEPTION;
    if (key != NULL && derive(ctx, kind, password, salt, iterations, key, length))
        result = JS_NewUint8ArrayCopy(ctx, key, length);
    js_free(ctx, key);
    return result;
}

// scrypt(password, salt, n, r, p, length): the caller has looked that 128 * r * (n + p) bytes are not too many
static JSValue scrypt(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    uint32_t n, r, p, length;
    kernel_string_t password, salt;
    if (JS_ToUint32(ctx, &n, argv[2]) || JS_ToUint32(ctx, &r, argv[3]) || JS_ToUint32(ctx, &p, argv[4]) ||
        JS_ToUint32(ctx, &length, argv[5]) || !view_of(ctx, argv[0], &password) || !view_of(ctx, argv[1], &salt))
        return JS_EXCEPTION;
    if (n < 2 || (n & (n - 1)) != 0 || r == 0 || p == 0 || ((uint64_t)n + p + 2) * r * 128 > INT32_MAX)
        return JS_ThrowRangeError(ctx, "Invalid scrypt params");
    size_t block = 128 * (size_t)r;
    uint8_t *blocks = js_malloc(ctx, block * p), *key = js_malloc(ctx, length + 1);
    uint32_t *spare = js_malloc(ctx, block), *table = js_malloc(ctx, block * n);
    JSValue result = JS_EXCEPTION;
    bool ok = blocks != NULL && key != NULL && spare != NULL && table != NULL &&
              derive(ctx, SHA256, password, salt, 1, blocks, block * p);
    for (uint32_t i = 0; ok && i < p; i++)
        ok = mix_rounds(ctx, (uint32_t *)(blocks + i * block), spare, table, n, r);
    if (ok && derive(ctx, SHA256, password, glue_view((const char *)blocks, block * p), 1, key, length))
        result = JS_NewUint8ArrayCopy(ctx, key, length);
    js_free(ctx, blocks);
    js_free(ctx, key);
    js_free(ctx, spare);
    js_free(ctx, table);
    return result;
}

void add_digest_functions(JSContext *ctx, JSValueConst host) {
    static const JSCFunctionListEntry functions[] = {
        JS_CFUNC_DEF("digestStart", 1, start),   JS_CFUNC_DEF("digestUpdate", 2, update),
        JS_CFUNC_DEF("digestFinish", 1, finish), JS_CFUNC_DEF("pbkdf2", 5, pbkdf2),
        JS_CFUNC_DEF("scrypt", 6, scrypt),
    };
    JS_SetPropertyFunctionList(ctx, host, functions, sizeof functions / sizeof *functions);
}
