/* The LU factors of a panel of columns, by halves: all but the narrowest panels are products of matrices and triangles.
   LAPACK's own way subtracts one column after the other from all that follow.

   Include it with `REAL` and `LAPACK(name)`, which makes a name the type's own. */
enum { SMALL_PANEL = 8 };

extern int LAPACK(getf2)(integer *, integer *, REAL *, integer *, integer *, integer *);
extern int LAPACK(trsm)(char *, char *, char *, char *, integer *, integer *, REAL *, REAL *, integer *, REAL *,
                        integer *);
extern int LAPACK(gemm)(char *, char *, integer *, integer *, integer *, REAL *, REAL *, integer *, REAL *, integer *,
                        REAL *, REAL *, integer *);

/* Puts rows where the pivots from `first` to before `after` say, column by column: what lies in one piece. */
static void LAPACK(cellar_swap)(REAL *a, integer columns, integer leading, integer first, integer after,
                                const integer *pivots) {
    for (integer j = 0; j < columns; j++, a += leading)
        for (integer i = first; i < after; i++) {
            REAL other = a[pivots[i] - 1];
            a[pivots[i] - 1] = a[i], a[i] = other;
        }
}

/* Where the greatest number is, whatever its sign. */
static integer LAPACK(cellar_greatest)(const REAL *x, integer count) {
    REAL greatest[4] = {0}, all = 0;
    integer i = 0;
    for (; i + 4 <= count; i += 4)
        for (int lane = 0; lane < 4; lane++) {
            REAL size = __builtin_elementwise_abs(x[i + lane]);
            greatest[lane] = size > greatest[lane] ? size : greatest[lane];
        }
    for (; i < count; i++) {
        REAL size = __builtin_elementwise_abs(x[i]);
        all = size > all ? size : all;
    }
    for (int lane = 0; lane < 4; lane++)
        all = greatest[lane] > all ? greatest[lane] : all;
    for (i = 0; i < count; i++)
        if (__builtin_elementwise_abs(x[i]) == all)
            return i;
    return 0;
}

/* The same column after column. */
static void LAPACK(cellar_panel)(integer rows, integer columns, REAL *a, integer leading, integer *pivots,
                                 integer *info) {
    for (integer j = 0; j < columns; j++) {
        REAL *column = a + (ptrdiff_t)j * leading;
        integer at = j + LAPACK(cellar_greatest)(column + j, rows - j);
        pivots[j] = at + 1;
        if (column[at] == 0) {
            *info = *info == 0 ? j + 1 : *info;
            continue;
        }
        LAPACK(cellar_swap)(a, columns, leading, j, j + 1, pivots);
        REAL pivot = column[j];
        for (integer i = j + 1; i < rows; i++)
            column[i] /= pivot;
        for (integer k = j + 1; k < columns; k++) {
            REAL *restrict other = a + (ptrdiff_t)k * leading, factor = other[j];
            for (integer i = j + 1; i < rows; i++)
                other[i] -= column[i] * factor;
        }
    }
}

static void LAPACK(cellar_lu)(integer rows, integer columns, REAL *a, integer leading, integer *pivots, integer *info) {
    if (rows < columns) {
        LAPACK(getf2)(&rows, &columns, a, &leading, pivots, info);
        return;
    }
    if (columns <= SMALL_PANEL) {
        LAPACK(cellar_panel)(rows, columns, a, leading, pivots, info);
        return;
    }
    integer half = columns / 2, rest = columns - half, below = rows - half, info_of_rest = 0;
    REAL *right = a + (ptrdiff_t)half * leading, *last = right + half, one = 1, minus_one = -1;
    LAPACK(cellar_lu)(rows, half, a, leading, pivots, info);
    LAPACK(cellar_swap)(right, rest, leading, 0, half, pivots);
    LAPACK(trsm)("Left", "Lower", "No transpose", "Unit", &half, &rest, &one, a, &leading, right, &leading);
    LAPACK(gemm)("No transpose", "No transpose", &below, &rest, &half, &minus_one, a + half, &leading, right, &leading,
                 &one, last, &leading);
    LAPACK(cellar_lu)(below, rest, last, leading, pivots + half, &info_of_rest);
    if (*info == 0 && info_of_rest > 0)
        *info = info_of_rest + half;
    for (integer i = half; i < columns; i++)
        pivots[i] += half;
    LAPACK(cellar_swap)(a, half, leading, half, columns, pivots);
}

#undef LAPACK
#undef REAL
