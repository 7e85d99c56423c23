/* What LAPACK leaves to BLAS, for one type of number, by products of matrices. See `cellar_blas.h`.

   Include it with `REAL` and `NAMED(name)`, as `cellar_matrix_product.h`. All views of matrices are by strides, so
   what is upper, transposed, or on the right side is turned into a lower triangle on the left side by them. */
#define MATRIX NAMED(matrix)
#define AT(of, i, j) (*(REAL *)((of).data + (i) * (of).row + (j) * (of).column))

/* A matrix of LAPACK: columns in one piece each. */
static inline MATRIX NAMED(fortran)(const REAL *data, integer leading) {
    return (MATRIX){(char *)data, sizeof(REAL), leading * (ptrdiff_t)sizeof(REAL)};
}

/* The same rows from the last one to the first. */
static inline MATRIX NAMED(flipped)(MATRIX from, ptrdiff_t rows) {
    return (MATRIX){from.data + (rows - 1) * from.row, -from.row, from.column};
}

/* c += scale a b, or c = scale a b, whatever the sizes. */
static void NAMED(multiply)(MATRIX a, MATRIX b, MATRIX c, ptrdiff_t rows, ptrdiff_t depth, ptrdiff_t columns,
                            REAL scale, int adds) {
    /* Blocks are copied faster forwards. */
    if (c.row < 0)
        c = NAMED(flipped)(c, rows), a = NAMED(flipped)(a, rows);
    if (b.row < 0)
        b = NAMED(flipped)(b, depth), a = NAMED(transposed)(NAMED(flipped)(NAMED(transposed)(a), depth));
    if (rows == 0 || columns == 0 || NAMED(product)(a, b, c, rows, depth, columns, scale, adds))
        return;
    for (ptrdiff_t i = 0; i < rows; i++)
        for (ptrdiff_t j = 0; j < columns; j++) {
            REAL sum = 0;
            for (ptrdiff_t k = 0; k < depth; k++)
                sum += AT(a, i, k) * AT(b, k, j);
            AT(c, i, j) = scale * sum + (adds ? AT(c, i, j) : 0);
        }
}

/* Multiplies what a triangle holds, or all of the rows, by a number; by 0 whatever it was. */
static void NAMED(scale)(MATRIX c, ptrdiff_t rows, ptrdiff_t columns, int is_lower, REAL factor) {
    if (factor == 1)
        return;
    for (ptrdiff_t j = 0; j < columns; j++)
        for (ptrdiff_t i = is_lower ? j : 0; i < rows; i++)
            AT(c, i, j) = factor == 0 ? 0 : factor * AT(c, i, j);
}

/* Both things that are done with a small lower triangle, in a copy whose rows are as wide as it takes vectors. */
static void NAMED(small_triangle)(MATRIX a, int is_unit, int solves, MATRIX b, ptrdiff_t order, ptrdiff_t columns) {
    REAL rows[SMALL_TRIANGLE][TRIANGLE_COLUMNS];
    for (ptrdiff_t first = 0; first < columns; first += TRIANGLE_COLUMNS) {
        ptrdiff_t there = columns - first < TRIANGLE_COLUMNS ? columns - first : TRIANGLE_COLUMNS;
        MATRIX part = NAMED(part)(b, 0, first);
        for (ptrdiff_t i = 0; i < order; i++)
            for (ptrdiff_t j = 0; j < TRIANGLE_COLUMNS; j++)
                rows[i][j] = j < there ? AT(part, i, j) : 0;
        for (ptrdiff_t turn = 0; turn < order; turn++) {
            ptrdiff_t i = solves ? turn : order - 1 - turn;
            REAL diagonal = is_unit ? 1 : AT(a, i, i), *row = rows[i];
            for (ptrdiff_t j = 0; !solves && j < TRIANGLE_COLUMNS; j++)
                row[j] *= diagonal;
            for (ptrdiff_t k = 0; k < i; k++) {
                REAL factor = solves ? -AT(a, i, k) : AT(a, i, k);
                for (ptrdiff_t j = 0; j < TRIANGLE_COLUMNS; j++)
                    row[j] += factor * rows[k][j];
            }
            for (ptrdiff_t j = 0; solves && j < TRIANGLE_COLUMNS; j++)
                row[j] /= diagonal;
        }
        for (ptrdiff_t i = 0; i < order; i++)
            for (ptrdiff_t j = 0; j < there; j++)
                AT(part, i, j) = rows[i][j];
    }
}

/* b = a b, or where it `solves`, b = (inverse of a) b. `a` is a lower triangle. */
static void NAMED(lower_triangle)(MATRIX a, int is_unit, int solves, MATRIX b, ptrdiff_t order, ptrdiff_t columns) {
    if (order <= SMALL_TRIANGLE) {
        NAMED(small_triangle)(a, is_unit, solves, b, order, columns);
        return;
    }
    ptrdiff_t half = (order / 2 + 3) / 4 * 4, rest = order - half;
    MATRIX below = NAMED(part)(b, half, 0), square = NAMED(part)(a, half, 0), last = NAMED(part)(a, half, half);
    if (solves) {
        NAMED(lower_triangle)(a, is_unit, solves, b, half, columns);
        NAMED(multiply)(square, b, below, rest, half, columns, -1, 1);
        NAMED(lower_triangle)(last, is_unit, solves, below, rest, columns);
    } else {
        NAMED(lower_triangle)(last, is_unit, solves, below, rest, columns);
        NAMED(multiply)(square, b, below, rest, half, columns, 1, 1);
        NAMED(lower_triangle)(a, is_unit, solves, b, half, columns);
    }
}

/* What `trmm` and `trsm` do. */
static void NAMED(triangle)(int is_left, int is_upper, int is_transposed, int is_unit, int solves, integer rows,
                            integer columns, REAL scale, const REAL *a_data, integer a_leading, REAL *b_data,
                            integer b_leading) {
    MATRIX a = NAMED(fortran)(a_data, a_leading), b = NAMED(fortran)(b_data, b_leading);
    NAMED(scale)(b, rows, columns, 0, scale);
    /* What is on the right side is the left side of the transposed equation. */
    ptrdiff_t order = is_left ? rows : columns, others = is_left ? columns : rows;
    if (!is_left)
        b = NAMED(transposed)(b);
    if (!is_transposed != !!is_left)
        a = NAMED(transposed)(a), is_upper = !is_upper;
    /* An upper triangle is a lower one from its end. */
    if (is_upper) {
        a = NAMED(transposed)(NAMED(flipped)(NAMED(transposed)(NAMED(flipped)(a, order)), order));
        b = NAMED(flipped)(b, order);
    }
    NAMED(lower_triangle)(a, is_unit, solves, b, order, others);
}

/* The lower triangle of c += scale a b. */
static void NAMED(add_to_triangle)(MATRIX a, MATRIX b, MATRIX c, ptrdiff_t order, ptrdiff_t depth, REAL scale) {
    if (order <= SMALL_TRIANGLE) {
        REAL sums[SMALL_TRIANGLE * SMALL_TRIANGLE];
        MATRIX to = {(char *)sums, SMALL_TRIANGLE * sizeof(REAL), sizeof(REAL)};
        NAMED(multiply)(a, b, to, order, depth, order, scale, 0);
        for (ptrdiff_t i = 0; i < order; i++)
            for (ptrdiff_t j = 0; j <= i; j++)
                AT(c, i, j) += AT(to, i, j);
        return;
    }
    ptrdiff_t half = (order / 2 + 3) / 4 * 4, rest = order - half;
    MATRIX below = NAMED(part)(a, half, 0);
    NAMED(add_to_triangle)(a, b, c, half, depth, scale);
    NAMED(multiply)(below, b, NAMED(part)(c, half, 0), rest, depth, half, scale, 1);
    NAMED(add_to_triangle)(below, NAMED(part)(b, 0, half), NAMED(part)(c, half, half), rest, depth, scale);
}

/* What `syr2k` does, and where there is no second matrix, `syrk`. */
static void NAMED(symmetric_product)(int is_upper, int is_transposed, integer order, integer depth, REAL scale,
                                     const REAL *a_data, integer a_leading, const REAL *b_data, integer b_leading,
                                     REAL factor, REAL *c_data, integer c_leading) {
    MATRIX a = NAMED(fortran)(a_data, a_leading), c = NAMED(fortran)(c_data, c_leading);
    MATRIX b = b_data == NULL ? a : NAMED(fortran)(b_data, b_leading);
    if (is_upper)
        c = NAMED(transposed)(c);
    if (is_transposed)
        a = NAMED(transposed)(a), b = NAMED(transposed)(b);
    NAMED(scale)(c, order, order, 1, factor);
    NAMED(add_to_triangle)(a, NAMED(transposed)(b), c, order, depth, scale);
    if (b_data != NULL)
        NAMED(add_to_triangle)(b, NAMED(transposed)(a), c, order, depth, scale);
}

/* What `gemm` does. Returns 0, with nothing done, where its own loops are as good. */
static int NAMED(general_product)(int a_is_transposed, int b_is_transposed, integer rows, integer columns,
                                  integer depth, REAL scale, const REAL *a_data, integer a_leading,
                                  const REAL *b_data, integer b_leading, REAL factor, REAL *c_data,
                                  integer c_leading) {
    if (rows > 1 && columns > 1 && (depth < 4 || (double)rows * columns * depth < SMALL_PRODUCT))
        return 0;
    MATRIX a = NAMED(fortran)(a_data, a_leading), b = NAMED(fortran)(b_data, b_leading);
    MATRIX c = NAMED(fortran)(c_data, c_leading);
    if (factor != 0)
        NAMED(scale)(c, rows, columns, 0, factor);
    NAMED(multiply)(a_is_transposed ? NAMED(transposed)(a) : a, b_is_transposed ? NAMED(transposed)(b) : b, c, rows,
                    depth, columns, scale, factor != 0);
    return 1;
}

/* What `gemv` does: y += scale a x. Returns 0, with nothing done, where its own loops are better. */
static int NAMED(add_times_vector)(int is_transposed, integer rows, integer columns, REAL scale, const REAL *a_data,
                                   integer a_leading, const REAL *x, integer x_step, REAL *y, integer y_step) {
    MATRIX a = NAMED(fortran)(a_data, a_leading);
    if (!is_transposed && y_step != 1)
        return 0;
    if (is_transposed)
        a = NAMED(transposed)(a);
    NAMED(times_vector)(a, (const char *)x, x_step * (ptrdiff_t)sizeof(REAL), (char *)y,
                        y_step * (ptrdiff_t)sizeof(REAL), is_transposed ? columns : rows,
                        is_transposed ? rows : columns, scale, 1);
    return 1;
}

/* y += scale a x, where `a` is symmetric and its lower triangle is read. */
static void NAMED(add_symmetric)(MATRIX a, ptrdiff_t order, REAL scale, const REAL *x, REAL *y) {
    if (order <= SMALL_TRIANGLE) {
        for (ptrdiff_t j = 0; j < order; j++) {
            y[j] += scale * AT(a, j, j) * x[j];
            for (ptrdiff_t i = j + 1; i < order; i++) {
                y[i] += scale * AT(a, i, j) * x[j];
                y[j] += scale * AT(a, i, j) * x[i];
            }
        }
        return;
    }
    ptrdiff_t half = (order / 2 + 3) / 4 * 4, rest = order - half, step = sizeof(REAL);
    MATRIX square = NAMED(part)(a, half, 0);
    NAMED(add_symmetric)(a, half, scale, x, y);
    NAMED(times_vector)(square, (const char *)x, step, (char *)(y + half), step, rest, half, scale, 1);
    NAMED(times_vector)(NAMED(transposed)(square), (const char *)(x + half), step, (char *)y, step, half, rest, scale, 1);
    NAMED(add_symmetric)(NAMED(part)(a, half, half), rest, scale, x + half, y + half);
}

#undef AT
#undef MATRIX
#undef NAMED
#undef REAL
