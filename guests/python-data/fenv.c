/* The record that `include/fenv.h` keeps. */
#include <fenv.h>

static int raised;

int cellar_raise_float(int exceptions) {
    raised |= exceptions & FE_ALL_EXCEPT;
    return 0;
}

int cellar_clear_float(int exceptions) {
    raised &= ~exceptions;
    return 0;
}

int cellar_test_float(int exceptions) {
    return raised & exceptions;
}
