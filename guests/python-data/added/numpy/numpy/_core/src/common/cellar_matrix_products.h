/* Products of matrices of both types of floating-point numbers that there are vectors of, and of complex ones. */
#ifndef CELLAR_MATRIX_PRODUCTS_H
#define CELLAR_MATRIX_PRODUCTS_H

#include "numpy/npy_common.h"

#define REAL npy_float
#define NAMED(name) cellar_##name##_FLOAT
#include "cellar_matrix_product.h"

#define REAL npy_double
#define NAMED(name) cellar_##name##_DOUBLE
#include "cellar_matrix_product.h"

/* Complex matrices are two of real ones each, and their products four. Returns 0 where element by element is as good; of
   the result nothing can be told then. */
#define COMPLEX_PRODUCT(TYPE, REAL_TYPE, REAL) \
    static inline int cellar_product_##TYPE(cellar_matrix_##REAL_TYPE a, cellar_matrix_##REAL_TYPE b, \
                                            cellar_matrix_##REAL_TYPE c, ptrdiff_t rows, ptrdiff_t depth, \
                                            ptrdiff_t columns) { \
        cellar_matrix_##REAL_TYPE ai = a, bi = b, ci = c; \
        ai.data += sizeof(REAL), bi.data += sizeof(REAL), ci.data += sizeof(REAL); \
        return rows > 1 && columns > 1 && depth >= 8 && \
               cellar_product_##REAL_TYPE(a, b, c, rows, depth, columns, 1, 0) && \
               cellar_product_##REAL_TYPE(ai, bi, c, rows, depth, columns, -1, 1) && \
               cellar_product_##REAL_TYPE(a, bi, ci, rows, depth, columns, 1, 0) && \
               cellar_product_##REAL_TYPE(ai, b, ci, rows, depth, columns, 1, 1); \
    }
COMPLEX_PRODUCT(CFLOAT, FLOAT, npy_float)
COMPLEX_PRODUCT(CDOUBLE, DOUBLE, npy_double)
#undef COMPLEX_PRODUCT

#endif
