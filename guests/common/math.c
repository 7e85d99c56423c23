// One function that the compiler's library gets wrong.
#include <math.h>

// Its own is off from the seventh digit on for some numbers, and not exact for powers of two.
double log2(double x) {
    if (!(x > 0) || isinf(x))
        return log(x);
    int exponent;
    double fraction = frexp(x, &exponent);
    // The logarithm that is added has the sign of the exponent, so that no digits cancel out.
    return x >= 1 ? log(2 * fraction) / M_LN2 + (exponent - 1) : log(fraction) / M_LN2 + exponent;
}
