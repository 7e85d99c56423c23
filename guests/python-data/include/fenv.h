/* Floating-point exceptions in software. WebAssembly keeps no record of what its arithmetic did; what NumPy raises is known:
   integers divided by zero, singular matrices, and what it tells from results (`cellar_float_status.h`). */
#pragma once

#include_next <fenv.h>

#undef FE_ALL_EXCEPT
#define FE_INVALID 1
#define FE_DIVBYZERO 2
#define FE_OVERFLOW 4
#define FE_UNDERFLOW 8
#define FE_INEXACT 16
#define FE_ALL_EXCEPT 31

#ifdef __cplusplus
extern "C" {
#endif
int cellar_raise_float(int exceptions);
int cellar_clear_float(int exceptions);
int cellar_test_float(int exceptions);
#ifdef __cplusplus
}
#endif

#define feraiseexcept cellar_raise_float
#define feclearexcept cellar_clear_float
#define fetestexcept cellar_test_float
