/* Functions of real numbers two at a time, in 128-bit vectors: NumPy has vectors for other processors alone, and what
   the compiler's library has takes three to twenty times as long. They are its own algorithms, those of FreeBSD's
   library, with less than one unit in the last place of error; numbers that they are not for are left to it. What a
   number gives does not depend on where it stands in an array. */
#ifndef CELLAR_FUNCTIONS_H
#define CELLAR_FUNCTIONS_H

#include <wasm_simd128.h>

#include "numpy/npy_math.h"

/* Two doubles. */
typedef npy_double cellar_pair __attribute__((vector_size(16)));
typedef npy_uint64 cellar_bits __attribute__((vector_size(16)));

/* A function, the greatest magnitude that it is for, and what is for others. */
typedef struct {
    cellar_pair (*of_pair)(cellar_pair);
    npy_double most;
    npy_double (*of_one)(npy_double);
} cellar_function;

/* Adds what rounds to whole numbers; they are the last bits of the sum then. */
#define CELLAR_ROUND 0x1.8p52

static inline cellar_pair
cellar_exp_pair(cellar_pair x)
{
    /* e^x = 2^k e^r, with r no more than half of ln 2. */
    cellar_pair rounded = x * 1.44269504088896338700e+00 + CELLAR_ROUND, k = rounded - CELLAR_ROUND;
    cellar_pair high = x - k * 6.93147180369123816490e-01, low = k * 1.90821492927058770002e-10, r = high - low;
    cellar_pair z = r * r;
    cellar_pair c = r - z * (1.66666666666666019037e-01 + z * (-2.77777777770155933842e-03 + z *
            (6.61375632143793436117e-05 + z * (-1.65339022054652515390e-06 + z * 4.13813679705723846039e-08))));
    cellar_pair power = 1 - ((low - (r * c) / (2 - c)) - high);
    return power * (cellar_pair)(((cellar_bits)rounded + 1023) << 52);
}

/* The sine of x and so many quarters of a turn. */
static inline cellar_pair
cellar_sine_pair(cellar_pair x, npy_uint64 quarters)
{
    cellar_pair rounded = x * 6.36619772367581382433e-01 + CELLAR_ROUND, n = rounded - CELLAR_ROUND;
    /* What is left of x after n quarters, which have 118 bits here, as a sum of two numbers. */
    cellar_pair t = x - n * 1.57079632673412561417e+00, w = n * 6.07710050630396597660e-11, r = t - w;
    w = n * 2.02226624879595063154e-21 - ((t - r) - w);
    cellar_pair y = r - w, rest = (r - y) - w;

    cellar_pair z = y * y, zz = z * z, v = z * y, half = 0.5 * z, one = 1 - half;
    cellar_pair s = 8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 + z * 2.75573137070700676789e-06) +
            z * zz * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10);
    cellar_pair sine = y - ((z * (0.5 * rest - v * s) - rest) - v * -1.66666666666666324348e-01);
    cellar_pair c = z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 + z * 2.48015872894767294178e-05)) +
            zz * zz * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11));
    cellar_pair cosine = one + (((1 - one) - half) + (z * c - y * rest));

    cellar_bits quadrant = (cellar_bits)rounded + quarters, is_odd = -(quadrant & 1);
    cellar_bits found = ((cellar_bits)cosine & is_odd) | ((cellar_bits)sine & ~is_odd);
    return (cellar_pair)(found ^ (quadrant >> 1 << 63));
}

static inline cellar_pair
cellar_sin_pair(cellar_pair x)
{
    /* The sine of a zero is that zero. */
    cellar_bits is_zero = (cellar_bits)(x == 0);
    return (cellar_pair)(((cellar_bits)x & is_zero) | ((cellar_bits)cellar_sine_pair(x, 0) & ~is_zero));
}

static inline cellar_pair
cellar_cos_pair(cellar_pair x)
{
    return cellar_sine_pair(x, 1);
}

static const cellar_function cellar_exp = {cellar_exp_pair, 708, npy_exp};
static const cellar_function cellar_sin = {cellar_sin_pair, 1e5, npy_sin};
static const cellar_function cellar_cos = {cellar_cos_pair, 1e5, npy_cos};

static inline __attribute__((always_inline)) cellar_pair
cellar_apply(cellar_function function, cellar_pair x)
{
    cellar_pair y = function.of_pair(x);
    v128_t fits = wasm_f64x2_le(wasm_f64x2_abs((v128_t)x), wasm_f64x2_splat(function.most));
    if (!wasm_i64x2_all_true(fits)) {
        for (int lane = 0; lane < 2; lane++) {
            if (!(npy_fabs(x[lane]) <= function.most)) {
                y[lane] = function.of_one(x[lane]);
            }
        }
    }
    return y;
}

/* The loop of a ufunc with a function of one number. */
#define CELLAR_MAP(TYPE, NAME) \
    static inline __attribute__((always_inline)) void \
    NAME(cellar_function function, char **args, npy_intp const *dimensions, npy_intp const *steps) \
    { \
        char *from = args[0], *to = args[1]; \
        npy_intp n = dimensions[0], from_step = steps[0], to_step = steps[1]; \
        for (; n >= 2; n -= 2, from += 2 * from_step, to += 2 * to_step) { \
            cellar_pair x = {*(TYPE *)from, *(TYPE *)(from + from_step)}; \
            cellar_pair y = cellar_apply(function, x); \
            *(TYPE *)to = y[0]; \
            *(TYPE *)(to + to_step) = y[1]; \
        } \
        if (n > 0) { \
            npy_double last = *(TYPE *)from; \
            *(TYPE *)to = cellar_apply(function, (cellar_pair){last, last})[0]; \
        } \
    }

CELLAR_MAP(npy_double, cellar_map_DOUBLE)
CELLAR_MAP(npy_float, cellar_map_FLOAT)

/* Magnitudes of complex numbers that lie in one piece, by squares of twice as many digits, as `npy_hypot` does. */
static inline void
cellar_absolute(const npy_double *from, npy_double *to, npy_intp n)
{
    npy_intp i = 0;
    for (; i + 2 <= n; i += 2) {
        v128_t first = wasm_v128_load(from + 2 * i), second = wasm_v128_load(from + 2 * i + 2);
        v128_t x = wasm_f64x2_abs(wasm_i64x2_shuffle(first, second, 0, 2));
        v128_t y = wasm_f64x2_abs(wasm_i64x2_shuffle(first, second, 1, 3));
        cellar_pair large = (cellar_pair)wasm_f64x2_pmax(x, y), small = (cellar_pair)wasm_f64x2_pmin(x, y);
        cellar_pair split = large * (0x1p27 + 1), high = large - split + split, low = large - high;
        cellar_pair square = large * large, rest = high * high - square + 2 * high * low + low * low;
        split = small * (0x1p27 + 1), high = small - split + split, low = small - high;
        cellar_pair other = small * small, other_rest = high * high - other + 2 * high * low + low * low;
        wasm_v128_store(to + i, wasm_f64x2_sqrt((v128_t)(other_rest + rest + other + square)));
        v128_t sum = wasm_f64x2_add(x, y);
        v128_t fits = wasm_v128_and(wasm_f64x2_le(sum, wasm_f64x2_splat(0x1p500)),
                                    wasm_f64x2_ge(sum, wasm_f64x2_splat(0x1p-400)));
        if (!wasm_i64x2_all_true(fits)) {
            to[i] = npy_hypot(wasm_f64x2_extract_lane(x, 0), wasm_f64x2_extract_lane(y, 0));
            to[i + 1] = npy_hypot(wasm_f64x2_extract_lane(x, 1), wasm_f64x2_extract_lane(y, 1));
        }
    }
    for (; i < n; i++) {
        to[i] = npy_hypot(from[2 * i], from[2 * i + 1]);
    }
}

#endif
