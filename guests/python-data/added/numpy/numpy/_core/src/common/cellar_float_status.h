/* What floating-point arithmetic did, told from its results.
 *
 * Processors keep a record of divisions by zero, overflows and invalid operations, which NumPy reads after its loops.
 * WebAssembly keeps none. But IEEE 754 says what leaves which result: a NaN from numbers that are none is an invalid
 * operation, an infinity from finite numbers a pole (of a quotient, a logarithm, a power) or an overflow. Underflow
 * leaves no trace that could be told from an exact result, and is not known. */
#pragma once

#include <math.h>
#include <string.h>
#include <wasm_simd128.h>

#include "numpy/ndarraytypes.h"
#include "numpy/npy_math.h"

typedef enum { CELLAR_FINITE, CELLAR_ZERO, CELLAR_INFINITE, CELLAR_NAN } cellar_kind;

/* How a function comes to an infinity from finite numbers. */
typedef enum { CELLAR_OVERFLOWS, CELLAR_DIVIDES, CELLAR_INVERTS_FIRST, CELLAR_HAS_POLES } cellar_way;

static inline cellar_way
cellar_way_of(const char *name)
{
    static const struct { const char *name; cellar_way way; } ways[] = {
        {"divide", CELLAR_DIVIDES}, {"true_divide", CELLAR_DIVIDES}, {"floor_divide", CELLAR_DIVIDES},
        {"divmod", CELLAR_DIVIDES}, {"reciprocal", CELLAR_INVERTS_FIRST}, {"power", CELLAR_INVERTS_FIRST},
        {"float_power", CELLAR_INVERTS_FIRST}, {"log", CELLAR_HAS_POLES}, {"log2", CELLAR_HAS_POLES},
        {"log10", CELLAR_HAS_POLES}, {"log1p", CELLAR_HAS_POLES}, {"arctanh", CELLAR_HAS_POLES},
    };
    for (size_t i = 0; name != NULL && i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (strcmp(ways[i].name, name) == 0) {
            return ways[i].way;
        }
    }
    return CELLAR_OVERFLOWS;
}

#define CELLAR_KIND_OF(x) (isnan(x) ? CELLAR_NAN : isinf(x) ? CELLAR_INFINITE : (x) == 0 ? CELLAR_ZERO : CELLAR_FINITE)

static inline cellar_kind
cellar_kind_of_half(npy_uint16 bits)
{
    if ((bits & 0x7c00u) == 0x7c00u) {
        return bits & 0x03ffu ? CELLAR_NAN : CELLAR_INFINITE;
    }
    return bits & 0x7fffu ? CELLAR_FINITE : CELLAR_ZERO;
}

/* A complex number is as its worse part. */
static inline cellar_kind
cellar_kind_of_parts(cellar_kind real, cellar_kind imaginary)
{
    if (real == CELLAR_ZERO || imaginary == CELLAR_ZERO) {
        return real == CELLAR_ZERO ? imaginary : real;
    }
    return real > imaginary ? real : imaginary;
}

#define CELLAR_KIND_OF_PARTS(type, at) \
    cellar_kind_of_parts(CELLAR_KIND_OF(((const type *)(at))[0]), CELLAR_KIND_OF(((const type *)(at))[1]))

/* Of a number that lies at `at`, aligned: `size` bytes of the type that NumPy has this number for. */
static inline cellar_kind
cellar_kind_at(int type, int size, const char *at)
{
    switch (type) {
        case NPY_HALF: return cellar_kind_of_half(*(const npy_uint16 *)at);
        case NPY_FLOAT: return CELLAR_KIND_OF(*(const npy_float *)at);
        case NPY_DOUBLE: return CELLAR_KIND_OF(*(const npy_double *)at);
        case NPY_LONGDOUBLE: return CELLAR_KIND_OF(*(const npy_longdouble *)at);
        case NPY_CFLOAT: return CELLAR_KIND_OF_PARTS(npy_float, at);
        case NPY_CDOUBLE: return CELLAR_KIND_OF_PARTS(npy_double, at);
        case NPY_CLONGDOUBLE: return CELLAR_KIND_OF_PARTS(npy_longdouble, at);
        default:
            for (int i = 0; i < size; i++) {
                if (at[i] != 0) {
                    return CELLAR_FINITE;
                }
            }
            return CELLAR_ZERO;
    }
}

/* What one operation did, as NumPy's bits, with a result of the type of this number. Functions of one number give
 * `CELLAR_FINITE` for the second. */
static inline int
cellar_float_status(int type, cellar_kind first, cellar_kind second, cellar_kind out, cellar_way way)
{
    if (out == CELLAR_NAN) {
        if (first == CELLAR_NAN || second == CELLAR_NAN) {
            return 0;
        }
        // A complex number divided by zero has an infinite part as well.
        int divided = PyTypeNum_ISCOMPLEX(type) && way == CELLAR_DIVIDES && second == CELLAR_ZERO && first == CELLAR_FINITE;
        return divided ? NPY_FPE_INVALID | NPY_FPE_DIVIDEBYZERO : NPY_FPE_INVALID;
    }
    if (out != CELLAR_INFINITE || first >= CELLAR_INFINITE || second >= CELLAR_INFINITE) {
        return 0;
    }
    int pole = way == CELLAR_HAS_POLES || (way == CELLAR_DIVIDES && second == CELLAR_ZERO)
        || (way == CELLAR_INVERTS_FIRST && first == CELLAR_ZERO);
    return pole ? NPY_FPE_DIVIDEBYZERO : NPY_FPE_OVERFLOW;
}

/* The same of a function of scalars. */
static inline int
cellar_scalar_status(int type, int size, const void *first, const void *second, const void *out, const char *name)
{
    cellar_kind kind = cellar_kind_at(type, size, (const char *)out);
    if (kind < CELLAR_INFINITE) {
        return 0;
    }
    return cellar_float_status(type, cellar_kind_at(type, size, (const char *)first),
                               cellar_kind_at(type, size, (const char *)second), kind, cellar_way_of(name));
}

/* A number less itself is zero, unless it is infinite or none. */
#define CELLAR_SPECIAL_DOUBLES(numbers) wasm_f64x2_sub(numbers, numbers)
#define CELLAR_SPECIAL_FLOATS(numbers) wasm_f32x4_sub(numbers, numbers)
#define CELLAR_NOT_BELOW_DOUBLES(numbers) \
    wasm_v128_not(wasm_f64x2_lt(wasm_f64x2_abs(numbers), wasm_f64x2_splat(bound)))
#define CELLAR_NOT_BELOW_FLOATS(numbers) wasm_v128_not(wasm_f32x4_lt(wasm_f32x4_abs(numbers), wasm_f32x4_splat(bound)))

/* Whether any of `count` numbers that lie side by side is marked by `MARK`, which gives bits for a vector of them, and
 * `IS`, which says the same of one. Eight vectors a turn, for each turn of a loop asks whether the cell is to stop. */
#define CELLAR_LOOK(type, MARK, IS)                                                            \
    {                                                                                          \
        const npy_intp turn = 128 / sizeof(type);                                              \
        for (; count >= turn; count -= turn, at += 128) {                                      \
            v128_t vectors[8], found[4];                                                       \
            for (int i = 0; i < 8; i++) {                                                      \
                vectors[i] = wasm_v128_load(at + 16 * i);                                      \
            }                                                                                  \
            for (int i = 0; i < 4; i++) {                                                      \
                found[i] = wasm_v128_or(MARK(vectors[i]), MARK(vectors[i + 4]));               \
            }                                                                                  \
            v128_t low = wasm_v128_or(found[0], found[1]), high = wasm_v128_or(found[2], found[3]); \
            if (wasm_v128_any_true(wasm_v128_or(low, high))) {                                 \
                return 1;                                                                      \
            }                                                                                  \
        }                                                                                      \
        for (; count > 0; count--, at += sizeof(type)) {                                       \
            const type number = *(const type *)at;                                             \
            if (IS) {                                                                          \
                return 1;                                                                      \
            }                                                                                  \
        }                                                                                      \
        return 0;                                                                              \
    }

/* Whether any number is infinite or none. */
static int
cellar_any_special_double(const char *at, npy_intp count)
CELLAR_LOOK(npy_double, CELLAR_SPECIAL_DOUBLES, !isfinite(number))

static int
cellar_any_special_float(const char *at, npy_intp count)
CELLAR_LOOK(npy_float, CELLAR_SPECIAL_FLOATS, !isfinite(number))

/* Whether any number is none, or not nearer to zero than `bound`. */
static int
cellar_any_beyond_double(const char *at, npy_intp count, npy_double bound)
CELLAR_LOOK(npy_double, CELLAR_NOT_BELOW_DOUBLES, !(fabs(number) < bound))

static int
cellar_any_beyond_float(const char *at, npy_intp count, npy_float bound)
CELLAR_LOOK(npy_float, CELLAR_NOT_BELOW_FLOATS, !(fabsf(number) < bound))

static inline void
cellar_raise_status(int status)
{
    if (status & NPY_FPE_DIVIDEBYZERO) {
        npy_set_floatstatus_divbyzero();
    }
    if (status & NPY_FPE_OVERFLOW) {
        npy_set_floatstatus_overflow();
    }
    if (status & NPY_FPE_INVALID) {
        npy_set_floatstatus_invalid();
    }
}
