/* Lengths of vectors, and magnitudes of complex numbers. The compiler's library multiplies and adds in one step for
   them, which WebAssembly has no instruction for: twenty times as slow. */
#include <math.h>

/* A square as a sum of two numbers, with twice as many digits. */
static double square(double x, double *rest) {
    double split = x * (0x1p27 + 1), high = x - split + split, low = x - high, product = x * x;
    *rest = high * high - product + 2 * high * low + low * low;
    return product;
}

double hypot(double x, double y) {
    double large = fmax(fabs(x), fabs(y)), small = fmin(fabs(x), fabs(y)), scale = 1;
    if (isinf(large) || isnan(x) || isnan(y))
        return isinf(large) ? INFINITY : NAN;
    // So that squares neither overflow nor vanish.
    if (large > 0x1p500)
        scale = 0x1p700;
    else if (large < 0x1p-400)
        scale = 0x1p-700;
    double rest, other_rest, sum = square(large / scale, &rest), other = square(small / scale, &other_rest);
    return scale * sqrt(other_rest + rest + other + sum);
}

float hypotf(float x, float y) {
    if (isinf(x) || isinf(y))
        return INFINITY;
    return (float)sqrt((double)x * x + (double)y * y);
}
