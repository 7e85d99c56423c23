/* The LU factors of a panel of columns, by halves: all but the narrowest panels are products of matrices and triangles.
   LAPACK's own way subtracts one column after the other from all that follow.

   Include it with `REAL` and `LAPACK(name)`, which makes a name the type's own. */
enum { SMALL_PANEL = 8 };

extern int LAPACK(getf2)(integer *, integer *, REAL *, integer *, integer *, integer *);
extern int LAPACK(laswp)(integer *, REAL *, integer *, integer *, integer *, integer *, integer *);
extern int LAPACK(trsm)(char *, char *, char *, char *, integer *, integer *, REAL *, REAL *, integer *, REAL *,
                        integer *);
extern int LAPACK(gemm)(char *, char *, integer *, integer *, integer *, REAL *, REAL *, integer *, REAL *, integer *,
                        REAL *, REAL *, integer *);

static void LAPACK(cellar_lu)(integer rows, integer columns, REAL *a, integer leading, integer *pivots, integer *info) {
    if (columns <= SMALL_PANEL || rows < columns) {
        LAPACK(getf2)(&rows, &columns, a, &leading, pivots, info);
        return;
    }
    integer half = columns / 2, rest = columns - half, below = rows - half, first = 1, after = half + 1, info_of_rest = 0;
    REAL *right = a + (ptrdiff_t)half * leading, *last = right + half, one = 1, minus_one = -1;
    LAPACK(cellar_lu)(rows, half, a, leading, pivots, info);
    LAPACK(laswp)(&rest, right, &leading, &first, &half, pivots, &first);
    LAPACK(trsm)("Left", "Lower", "No transpose", "Unit", &half, &rest, &one, a, &leading, right, &leading);
    LAPACK(gemm)("No transpose", "No transpose", &below, &rest, &half, &minus_one, a + half, &leading, right, &leading,
                 &one, last, &leading);
    LAPACK(cellar_lu)(below, rest, last, leading, pivots + half, &info_of_rest);
    if (*info == 0 && info_of_rest > 0)
        *info = info_of_rest + half;
    for (integer i = half; i < columns; i++)
        pivots[i] += half;
    LAPACK(laswp)(&half, a, &leading, &after, &columns, pivots, &first);
}

#undef LAPACK
#undef REAL
