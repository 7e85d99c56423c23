/* Products of matrices of both types of floating-point numbers that there are vectors of. */
#ifndef CELLAR_MATRIX_PRODUCTS_H
#define CELLAR_MATRIX_PRODUCTS_H

#include "numpy/npy_common.h"

#define REAL npy_float
#define NAMED(name) cellar_##name##_FLOAT
#include "cellar_matrix_product.h"

#define REAL npy_double
#define NAMED(name) cellar_##name##_DOUBLE
#include "cellar_matrix_product.h"

#endif
