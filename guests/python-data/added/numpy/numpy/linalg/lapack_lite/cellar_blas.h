/* What LAPACK leaves to BLAS, by the products of matrices that `@` goes through. Its own loops go element by element. */
#ifndef CELLAR_BLAS_H
#define CELLAR_BLAS_H

#include "cellar_matrix_products.h"

/* Triangles are halved until they have so few rows. */
enum { SMALL_TRIANGLE = 16 };
/* So many columns of what is divided by a small triangle are in vectors at once. */
enum { TRIANGLE_COLUMNS = 16 };

#define REAL real
#define NAMED(name) cellar_##name##_FLOAT
#include "cellar_blas_type.h"

#define REAL doublereal
#define NAMED(name) cellar_##name##_DOUBLE
#include "cellar_blas_type.h"

#endif
