/* Products of matrices, for one type of number. Where no BLAS is built in, NumPy multiplies element by element, which
   reads the second matrix from memory as often as the first has rows. Here both are copied, a block that fits a cache
   at a time, into the order in which a kernel of 4 rows by 2 vectors reads them.

   Include it with `REAL` (float or double) and `NAMED(name)`, which makes a name the type's own. Strides are in bytes. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifndef CELLAR_MATRIX_PRODUCT
#define CELLAR_MATRIX_PRODUCT
/* A tile of the result, in registers: 8 vectors. */
enum { TILE_ROWS = 4, TILE_BYTES = 32 };
/* Blocks: of the first matrix 96 KiB of doubles, which a second-level cache holds, and of the second one 512 KiB. */
enum { BLOCK_DEPTH = 128, BLOCK_ROWS = 96, BLOCK_COLUMNS = 512 };
/* Products of fewer multiplications are not worth copying for. */
enum { SMALL_PRODUCT = 512 };
#endif

#define VECTOR NAMED(vector)
#define TILE_COLUMNS ((ptrdiff_t)(TILE_BYTES / sizeof(REAL)))
#define LANES ((ptrdiff_t)(16 / sizeof(REAL)))
#define AT(base, offset) (*(REAL *)((char *)(base) + (offset)))

typedef REAL VECTOR __attribute__((vector_size(16), aligned(sizeof(REAL))));

/* A matrix, or a part of one. */
typedef struct {
    char *data;
    ptrdiff_t row, column;
} NAMED(matrix);

/* The sum of products of two vectors, in four chains that do not wait for each other. */
static inline REAL NAMED(dot)(const char *a, ptrdiff_t a_step, const char *b, ptrdiff_t b_step, ptrdiff_t n) {
    VECTOR sums[4] = {{0}};
    ptrdiff_t i = 0;
    REAL sum = 0;
    if (a_step == sizeof(REAL) && b_step == sizeof(REAL)) {
        for (; i + 4 * LANES <= n; i += 4 * LANES)
            for (int chain = 0; chain < 4; chain++) {
                ptrdiff_t at = (i + chain * LANES) * (ptrdiff_t)sizeof(REAL);
                sums[chain] += *(const VECTOR *)(a + at) * *(const VECTOR *)(b + at);
            }
        VECTOR all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        for (int lane = 0; lane < LANES; lane++)
            sum += all[lane];
    }
    for (; i < n; i++)
        sum += AT(a, i * a_step) * AT(b, i * b_step);
    return sum;
}

/* A matrix times a vector: row by row, or where its columns lie in memory in one piece, column by column. */
static void NAMED(times_vector)(NAMED(matrix) a, const char *x, ptrdiff_t x_step, char *y, ptrdiff_t y_step,
                                ptrdiff_t rows, ptrdiff_t depth) {
    if (a.row != sizeof(REAL) || a.column == sizeof(REAL) || y_step != sizeof(REAL)) {
        for (ptrdiff_t i = 0; i < rows; i++)
            AT(y, i * y_step) = NAMED(dot)(a.data + i * a.row, a.column, x, x_step, depth);
        return;
    }
    memset(y, 0, rows * sizeof(REAL));
    for (ptrdiff_t k = 0; k < depth; k++) {
        const REAL *column = (const REAL *)(a.data + k * a.column);
        REAL factor = AT(x, k * x_step), *restrict sums = (REAL *)y;
        for (ptrdiff_t i = 0; i < rows; i++)
            sums[i] += column[i] * factor;
    }
}

/* Copies a block in panels of `width` rows, each column of a panel in one piece; rows that are missing are zeros. */
static void NAMED(pack)(NAMED(matrix) from, ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t width, REAL *to) {
    for (ptrdiff_t first = 0; first < rows; first += width) {
        ptrdiff_t there = rows - first < width ? rows - first : width;
        const char *panel = from.data + first * from.row;
        if (there < width)
            memset(to, 0, width * columns * sizeof(REAL));
        if (from.row == sizeof(REAL) && there == width) {
            for (ptrdiff_t k = 0; k < columns; k++)
                memcpy(to + k * width, panel + k * from.column, width * sizeof(REAL));
        } else {
            for (ptrdiff_t i = 0; i < there; i++)
                for (ptrdiff_t k = 0; k < columns; k++)
                    to[k * width + i] = AT(panel, i * from.row + k * from.column);
        }
        to += width * columns;
    }
}

/* One tile of the result. `a` and `b` are panels. */
static inline void NAMED(tile)(const REAL *a, const REAL *b, ptrdiff_t depth, VECTOR sums[TILE_ROWS][2]) {
    VECTOR c00 = {0}, c01 = {0}, c10 = {0}, c11 = {0}, c20 = {0}, c21 = {0}, c30 = {0}, c31 = {0};
    /* Each turn of a loop asks whether to stop. */
#pragma clang loop unroll_count(4)
    for (ptrdiff_t k = 0; k < depth; k++) {
        VECTOR b0 = *(const VECTOR *)b, b1 = *(const VECTOR *)(b + LANES);
        c00 += a[0] * b0, c01 += a[0] * b1;
        c10 += a[1] * b0, c11 += a[1] * b1;
        c20 += a[2] * b0, c21 += a[2] * b1;
        c30 += a[3] * b0, c31 += a[3] * b1;
        a += TILE_ROWS, b += TILE_COLUMNS;
    }
    sums[0][0] = c00, sums[0][1] = c01, sums[1][0] = c10, sums[1][1] = c11;
    sums[2][0] = c20, sums[2][1] = c21, sums[3][0] = c30, sums[3][1] = c31;
}

/* Writes a tile into the result, or adds it, as far as it lies within `rows` and `columns`. */
static inline void NAMED(put_tile)(NAMED(matrix) c, VECTOR sums[TILE_ROWS][2], ptrdiff_t rows, ptrdiff_t columns,
                                   int adds) {
    if (rows >= TILE_ROWS && columns >= TILE_COLUMNS && c.column == sizeof(REAL)) {
        for (int i = 0; i < TILE_ROWS; i++)
            for (int half = 0; half < 2; half++) {
                VECTOR *at = (VECTOR *)(c.data + i * c.row) + half;
                *at = adds ? *at + sums[i][half] : sums[i][half];
            }
        return;
    }
    for (ptrdiff_t i = 0; i < rows && i < TILE_ROWS; i++)
        for (ptrdiff_t j = 0; j < columns && j < TILE_COLUMNS; j++) {
            REAL *at = &AT(c.data, i * c.row + j * c.column);
            REAL sum = sums[i][j / LANES][j % LANES];
            *at = adds ? *at + sum : sum;
        }
}

/* The product of two packed blocks. */
static void NAMED(blocks)(const REAL *a, const REAL *b, NAMED(matrix) c, ptrdiff_t rows, ptrdiff_t depth,
                          ptrdiff_t columns, int adds) {
    for (ptrdiff_t j = 0; j < columns; j += TILE_COLUMNS)
        for (ptrdiff_t i = 0; i < rows; i += TILE_ROWS) {
            VECTOR sums[TILE_ROWS][2];
            NAMED(tile)(a + i * depth, b + j * depth, depth, sums);
            NAMED(matrix) at = {c.data + i * c.row + j * c.column, c.row, c.column};
            NAMED(put_tile)(at, sums, rows - i, columns - j, adds);
        }
}

static inline ptrdiff_t NAMED(least)(ptrdiff_t a, ptrdiff_t b) {
    return a < b ? a : b;
}

/* c = a b. Returns 0, with nothing done, where element by element is as good, or there is no memory for the copies. */
static int NAMED(product)(NAMED(matrix) a, NAMED(matrix) b, NAMED(matrix) c, ptrdiff_t rows, ptrdiff_t depth,
                          ptrdiff_t columns) {
    if (columns == 1) {
        NAMED(times_vector)(a, b.data, b.row, c.data, c.row, rows, depth);
        return 1;
    }
    if (rows == 1) {
        NAMED(matrix) transposed = {b.data, b.column, b.row};
        NAMED(times_vector)(transposed, a.data, a.column, c.data, c.column, columns, depth);
        return 1;
    }
    if (depth == 0 || (double)rows * depth * columns < SMALL_PRODUCT)
        return 0;
    ptrdiff_t deep = NAMED(least)(depth, BLOCK_DEPTH);
    ptrdiff_t high = NAMED(least)((rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS, BLOCK_ROWS);
    ptrdiff_t wide = NAMED(least)((columns + TILE_COLUMNS - 1) / TILE_COLUMNS * TILE_COLUMNS, BLOCK_COLUMNS);
    REAL *a_block = malloc((high + wide) * deep * sizeof(REAL)), *b_block = a_block + high * deep;
    if (a_block == NULL)
        return 0;
    for (ptrdiff_t j = 0; j < columns; j += wide) {
        ptrdiff_t width = NAMED(least)(wide, columns - j);
        for (ptrdiff_t k = 0; k < depth; k += deep) {
            ptrdiff_t thickness = NAMED(least)(deep, depth - k);
            NAMED(matrix) from_b = {b.data + k * b.row + j * b.column, b.column, b.row};
            NAMED(pack)(from_b, width, thickness, TILE_COLUMNS, b_block);
            for (ptrdiff_t i = 0; i < rows; i += high) {
                ptrdiff_t height = NAMED(least)(high, rows - i);
                NAMED(matrix) from_a = {a.data + i * a.row + k * a.column, a.row, a.column};
                NAMED(pack)(from_a, height, thickness, TILE_ROWS, a_block);
                NAMED(matrix) to = {c.data + i * c.row + j * c.column, c.row, c.column};
                NAMED(blocks)(a_block, b_block, to, height, thickness, width, k > 0);
            }
        }
    }
    free(a_block);
    return 1;
}

#undef AT
#undef LANES
#undef TILE_COLUMNS
#undef VECTOR
#undef NAMED
#undef REAL
