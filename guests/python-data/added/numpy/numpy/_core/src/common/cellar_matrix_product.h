/* Products of matrices, for one type of number. Where no BLAS is built in, NumPy multiplies element by element, which
   reads the second matrix from memory as often as the first has rows. Here both are copied, a block that fits a cache
   at a time, into the order in which a kernel of 4 rows by 2 vectors reads them: a number of the first matrix as a vector
   that is full of it. `scale` is a factor of the product; what `adds` adds it to the result instead of replacing it.

   Include it with `REAL` (float or double) and `NAMED(name)`, which makes a name the type's own. Strides are in bytes. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifndef CELLAR_MATRIX_PRODUCT
#define CELLAR_MATRIX_PRODUCT
/* A tile of the result, in registers: 8 vectors. So many steps of its sums are laid out in a row. */
enum { TILE_ROWS = 4, TILE_BYTES = 32, TILE_DEPTH = 32 };
/* Blocks: of the first matrix 192 KiB, which a second-level cache holds, and of the second one 512 KiB of doubles. */
enum { BLOCK_DEPTH = 256, BLOCK_ROWS = 48, BLOCK_COLUMNS = 256 };
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

/* What begins at a row and a column. */
static inline NAMED(matrix) NAMED(part)(NAMED(matrix) from, ptrdiff_t row, ptrdiff_t column) {
    from.data += row * from.row + column * from.column;
    return from;
}

static inline ptrdiff_t NAMED(least)(ptrdiff_t a, ptrdiff_t b) {
    return a < b ? a : b;
}

static inline NAMED(matrix) NAMED(transposed)(NAMED(matrix) from) {
    return (NAMED(matrix)){from.data, from.column, from.row};
}

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

/* Adds a matrix times a vector to a vector in one piece, four columns at a time: the vector is read and written as
   often as there are columns otherwise. Each column is in one piece. */
static void NAMED(add_columns)(NAMED(matrix) a, const char *x, ptrdiff_t x_step, REAL *restrict y, ptrdiff_t rows,
                               ptrdiff_t depth, REAL scale) {
    ptrdiff_t k = 0;
    for (; k + 4 <= depth; k += 4) {
        const REAL *c0 = (const REAL *)(a.data + k * a.column), *c1 = (const REAL *)((const char *)c0 + a.column);
        const REAL *c2 = (const REAL *)((const char *)c1 + a.column), *c3 = (const REAL *)((const char *)c2 + a.column);
        REAL x0 = scale * AT(x, k * x_step), x1 = scale * AT(x, (k + 1) * x_step);
        REAL x2 = scale * AT(x, (k + 2) * x_step), x3 = scale * AT(x, (k + 3) * x_step);
        for (ptrdiff_t i = 0; i < rows; i++)
            y[i] += (c0[i] * x0 + c1[i] * x1) + (c2[i] * x2 + c3[i] * x3);
    }
    for (; k < depth; k++) {
        const REAL *column = (const REAL *)(a.data + k * a.column);
        REAL factor = scale * AT(x, k * x_step);
        for (ptrdiff_t i = 0; i < rows; i++)
            y[i] += column[i] * factor;
    }
}

/* A matrix times a vector: row by row, or where its columns lie in memory in one piece, by columns. */
static void NAMED(times_vector)(NAMED(matrix) a, const char *x, ptrdiff_t x_step, char *y, ptrdiff_t y_step,
                                ptrdiff_t rows, ptrdiff_t depth, REAL scale, int adds) {
    if (a.row == sizeof(REAL) && a.column != sizeof(REAL) && y_step == sizeof(REAL)) {
        if (!adds)
            memset(y, 0, rows * sizeof(REAL));
        NAMED(add_columns)(a, x, x_step, (REAL *)y, rows, depth, scale);
        return;
    }
    for (ptrdiff_t i = 0; i < rows; i++) {
        REAL sum = scale * NAMED(dot)(a.data + i * a.row, a.column, x, x_step, depth), *at = &AT(y, i * y_step);
        *at = adds ? *at + sum : sum;
    }
}

/* A vector of one number. */
static inline VECTOR NAMED(full)(REAL number) {
    VECTOR all;
    for (int lane = 0; lane < LANES; lane++)
        all[lane] = number;
    return all;
}

/* Copies a block of the first matrix, times `scale`, in panels of as many rows as a tile has, each column of a panel in
   one piece, and each number of it a vector. Rows that are missing are zeros. */
static inline void NAMED(pack_rows)(NAMED(matrix) from, ptrdiff_t rows, ptrdiff_t columns, REAL scale, VECTOR *to) {
    for (ptrdiff_t first = 0; first < rows; first += TILE_ROWS, to += TILE_ROWS * columns) {
        const char *row[TILE_ROWS];
        for (ptrdiff_t i = 0; i < TILE_ROWS; i++)
            row[i] = from.data + NAMED(least)(first + i, rows - 1) * from.row;
        for (ptrdiff_t k = 0; k < columns; k++)
            for (ptrdiff_t i = 0; i < TILE_ROWS; i++)
                to[k * TILE_ROWS + i] = NAMED(full)(scale * AT(row[i], k * from.column));
        for (ptrdiff_t i = rows - first; i < TILE_ROWS; i++)
            for (ptrdiff_t k = 0; k < columns; k++)
                to[k * TILE_ROWS + i] = NAMED(full)(0);
    }
}

/* Copies a block of the second matrix in panels of as many columns as a tile has, each row of a panel in one piece.
   Columns that are missing are zeros. */
static inline void NAMED(pack_columns)(NAMED(matrix) from, ptrdiff_t rows, ptrdiff_t columns, REAL *to) {
    for (ptrdiff_t first = 0; first < columns; first += TILE_COLUMNS, to += TILE_COLUMNS * rows) {
        ptrdiff_t there = NAMED(least)(columns - first, TILE_COLUMNS);
        const char *panel = from.data + first * from.column;
        if (from.column == sizeof(REAL) && there == TILE_COLUMNS) {
            for (ptrdiff_t k = 0; k < rows; k++) {
                const VECTOR *row = (const VECTOR *)(panel + k * from.row);
                VECTOR *copy = (VECTOR *)(to + k * TILE_COLUMNS);
                copy[0] = row[0], copy[1] = row[1];
            }
            continue;
        }
        if (there < TILE_COLUMNS)
            memset(to, 0, TILE_COLUMNS * rows * sizeof(REAL));
        for (ptrdiff_t j = 0; j < there; j++)
            for (ptrdiff_t k = 0; k < rows; k++)
                to[k * TILE_COLUMNS + j] = AT(panel, k * from.row + j * from.column);
    }
}

/* One tile of the result. `a` and `b` are panels, and may be read as if they began up to `TILE_DEPTH` steps earlier.

   The engine asks at each turn of a loop whether to stop, and keeps the sums in memory for that, so a turn has many steps.
   Its compiler computes what nobody has asked for as late as it can: without labels between them it would read the
   numbers of all steps before it added any, and keep those in memory too. The first turn begins at the label that leaves
   whole turns. */
static inline void NAMED(tile)(const VECTOR *a, const REAL *b, ptrdiff_t depth, VECTOR sums[TILE_ROWS][2]) {
    VECTOR c00 = {0}, c01 = {0}, c10 = {0}, c11 = {0}, c20 = {0}, c21 = {0}, c30 = {0}, c31 = {0};
    ptrdiff_t steps = (depth - 1) % TILE_DEPTH + 1;
    a -= (TILE_DEPTH - steps) * TILE_ROWS, b -= (TILE_DEPTH - steps) * TILE_COLUMNS;
    for (;;) {
        /* Keeps the compiler from making other pointers of these, and another loop of this. */
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(steps));
        switch (steps) {
#define STEP(n) \
        case TILE_DEPTH - (n): { \
            const VECTOR *row = (const VECTOR *)(b + (n) * TILE_COLUMNS), b0 = row[0], b1 = row[1]; \
            const VECTOR *column = a + (n) * TILE_ROWS; \
            VECTOR a0 = column[0], a1 = column[1], a2 = column[2], a3 = column[3]; \
            c00 += a0 * b0, c01 += a0 * b1, c10 += a1 * b0, c11 += a1 * b1; \
            c20 += a2 * b0, c21 += a2 * b1, c30 += a3 * b0, c31 += a3 * b1; \
        }
#define FOUR_STEPS(n) STEP(n) STEP(n + 1) STEP(n + 2) STEP(n + 3)
            FOUR_STEPS(0) FOUR_STEPS(4) FOUR_STEPS(8) FOUR_STEPS(12)
            FOUR_STEPS(16) FOUR_STEPS(20) FOUR_STEPS(24) FOUR_STEPS(28)
#undef FOUR_STEPS
#undef STEP
        }
        depth -= steps;
        if (depth <= 0)
            break;
        steps = TILE_DEPTH, a += TILE_DEPTH * TILE_ROWS, b += TILE_DEPTH * TILE_COLUMNS;
    }
    sums[0][0] = c00, sums[0][1] = c01, sums[1][0] = c10, sums[1][1] = c11;
    sums[2][0] = c20, sums[2][1] = c21, sums[3][0] = c30, sums[3][1] = c31;
}

/* Writes a tile into the result, or adds it, as far as it lies within `rows` and `columns`. */
static inline void NAMED(put_tile)(NAMED(matrix) c, VECTOR sums[TILE_ROWS][2], ptrdiff_t rows, ptrdiff_t columns,
                                   int adds) {
    if (columns >= TILE_COLUMNS && c.column == sizeof(REAL)) {
        /* With constant places, a tile stays in registers. */
#pragma clang loop unroll(full)
        for (int i = 0; i < TILE_ROWS && i < rows; i++)
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

/* The product of two packed blocks. A function of its own, so that the loop in it has all registers. */
static __attribute__((noinline)) void NAMED(blocks)(const VECTOR *a, const REAL *b, NAMED(matrix) c, ptrdiff_t rows, ptrdiff_t depth,
                          ptrdiff_t columns, int adds) {
    for (ptrdiff_t j = 0; j < columns; j += TILE_COLUMNS)
        for (ptrdiff_t i = 0; i < rows; i += TILE_ROWS) {
            VECTOR sums[TILE_ROWS][2];
            NAMED(tile)(a + i * depth, b + j * depth, depth, sums);
            NAMED(put_tile)(NAMED(part)(c, i, j), sums, rows - i, columns - j, adds);
        }
}

/* c = scale a b, or c += scale a b. Returns 0, with nothing done, where element by element is as good, or there is no
   memory for the copies. */
static int NAMED(product)(NAMED(matrix) a, NAMED(matrix) b, NAMED(matrix) c, ptrdiff_t rows, ptrdiff_t depth,
                          ptrdiff_t columns, REAL scale, int adds) {
    if (columns == 1) {
        NAMED(times_vector)(a, b.data, b.row, c.data, c.row, rows, depth, scale, adds);
        return 1;
    }
    if (rows == 1) {
        NAMED(times_vector)(NAMED(transposed)(b), a.data, a.column, c.data, c.column, columns, depth, scale, adds);
        return 1;
    }
    if (depth == 0 || (double)rows * depth * columns < SMALL_PRODUCT)
        return 0;
    /* Tiles are written by rows. */
    if (c.row == sizeof(REAL) && c.column != sizeof(REAL))
        return NAMED(product)(NAMED(transposed)(b), NAMED(transposed)(a), NAMED(transposed)(c), columns, depth, rows,
                              scale, adds);
    ptrdiff_t deep = NAMED(least)(depth, BLOCK_DEPTH);
    ptrdiff_t high = NAMED(least)((rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS, BLOCK_ROWS);
    ptrdiff_t wide = NAMED(least)((columns + TILE_COLUMNS - 1) / TILE_COLUMNS * TILE_COLUMNS, BLOCK_COLUMNS);
    /* Tiles are read from a little before them. */
    VECTOR *memory = malloc((TILE_DEPTH * TILE_ROWS + high * deep) * sizeof(VECTOR) + wide * deep * sizeof(REAL));
    if (memory == NULL)
        return 0;
    VECTOR *a_block = memory + TILE_DEPTH * TILE_ROWS;
    REAL *b_block = (REAL *)(a_block + high * deep);
    for (ptrdiff_t j = 0; j < columns; j += wide) {
        ptrdiff_t width = NAMED(least)(wide, columns - j);
        for (ptrdiff_t k = 0; k < depth; k += deep) {
            ptrdiff_t thickness = NAMED(least)(deep, depth - k);
            NAMED(pack_columns)(NAMED(part)(b, k, j), thickness, width, b_block);
            for (ptrdiff_t i = 0; i < rows; i += high) {
                ptrdiff_t height = NAMED(least)(high, rows - i);
                NAMED(pack_rows)(NAMED(part)(a, i, k), height, thickness, scale, a_block);
                NAMED(blocks)(a_block, b_block, NAMED(part)(c, i, j), height, thickness, width, adds || k > 0);
            }
        }
    }
    free(memory);
    return 1;
}

#undef AT
#undef LANES
#undef TILE_COLUMNS
#undef VECTOR
#undef NAMED
#undef REAL
