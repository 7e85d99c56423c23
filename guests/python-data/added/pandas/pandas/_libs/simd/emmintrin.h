/* What the tokenizer of pandas uses of SSE2, by vectors of WebAssembly. */
#ifndef CELLAR_EMMINTRIN_H
#define CELLAR_EMMINTRIN_H

#include <wasm_simd128.h>

typedef v128_t __m128i;

#define _mm_cmpeq_epi8 wasm_i8x16_eq
#define _mm_loadu_si128 wasm_v128_load
#define _mm_movemask_epi8 (int)wasm_i8x16_bitmask
#define _mm_or_si128 wasm_v128_or
#define _mm_set1_epi8 wasm_i8x16_splat
#define _mm_setzero_si128() wasm_i8x16_splat(0)

#endif
