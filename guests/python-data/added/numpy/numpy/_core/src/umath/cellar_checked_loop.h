/* Loops of universal functions that look at what they have written: see `cellar_float_status.h`.
 *
 * A loop runs piece by piece, so that its results are looked at while they are in the processor's nearest memory. Most
 * pieces have nothing but finite numbers and cost one comparison of each vector. Others are looked at again, with what
 * they were made from. */
#pragma once

#include "cellar_float_status.h"

/* Bytes of a piece of one operand. */
#define CELLAR_PIECE 16384

static int
cellar_any_special(int type, int size, const char *at, npy_intp stride, npy_intp count)
{
    if (stride == size) {
        switch (type) {
            case NPY_DOUBLE: return cellar_any_special_double(at, count);
            case NPY_CDOUBLE: return cellar_any_special_double(at, 2 * count);
            case NPY_FLOAT: return cellar_any_special_float(at, count);
            case NPY_CFLOAT: return cellar_any_special_float(at, 2 * count);
        }
    }
    for (; count > 0; count--, at += stride) {
        if (cellar_kind_at(type, size, at) >= CELLAR_INFINITE) {
            return 1;
        }
    }
    return 0;
}

/* What one operand of a loop is. */
typedef struct {
    int type;
    int size;
    char *at;
    npy_intp stride;
} cellar_operand;

static inline cellar_operand
cellar_operand_of(PyArray_Descr *descriptor, char *at, npy_intp stride)
{
    return (cellar_operand){descriptor->type_num, (int)PyDataType_ELSIZE(descriptor), at, stride};
}

static inline v128_t
cellar_two_doubles(const char *at, npy_intp stride)
{
    if (stride == sizeof(npy_double)) {
        return wasm_v128_load(at);
    }
    return wasm_v128_load64_lane(at + stride, wasm_v128_load64_zero(at), 1);
}

/* Whether any result is infinite or no number, and was made from numbers alone. The strides are constants where it is
 * called. */
static inline __attribute__((always_inline)) int
cellar_look_for_suspects(const char *one, npy_intp ones, const char *two, npy_intp twos, const char *out, npy_intp outs,
                         npy_intp count)
{
    for (; count >= 8; count -= 8, one += 8 * ones, two += 8 * twos, out += 8 * outs) {
        v128_t found = wasm_i64x2_splat(0);
        for (int i = 0; i < 8; i += 2) {
            v128_t a = cellar_two_doubles(one + i * ones, ones), b = cellar_two_doubles(two + i * twos, twos);
            v128_t c = cellar_two_doubles(out + i * outs, outs);
            v128_t special = CELLAR_SPECIAL_DOUBLES(c);
            v128_t numbers = wasm_v128_and(wasm_f64x2_eq(a, a), wasm_f64x2_eq(b, b));
            found = wasm_v128_or(found, wasm_v128_and(special, numbers));
        }
        if (wasm_v128_any_true(found)) {
            return 1;
        }
    }
    for (; count > 0; count--, one += ones, two += twos, out += outs) {
        double a = *(const npy_double *)one, b = *(const npy_double *)two;
        if (!isfinite(*(const npy_double *)out) && !isnan(a) && !isnan(b)) {
            return 1;
        }
    }
    return 0;
}

static int
cellar_any_suspect_double(const cellar_operand *first, const cellar_operand *second, const cellar_operand *out,
                          npy_intp count)
{
    const npy_intp side_by_side = sizeof(npy_double);
    if (first->stride == side_by_side && second->stride == side_by_side && out->stride == side_by_side) {
        return cellar_look_for_suspects(first->at, 8, second->at, 8, out->at, 8, count);
    }
    return cellar_look_for_suspects(first->at, first->stride, second->at, second->stride, out->at, out->stride, count);
}

/* `second` of a function of one number is NULL. */
static inline __attribute__((always_inline)) int
cellar_look_at_piece(int in_type, int out_type, const cellar_operand *first, const cellar_operand *second,
                     const cellar_operand *out, npy_intp count, cellar_way way)
{
    int status = 0;
    for (npy_intp i = 0; i < count; i++) {
        cellar_kind kind = cellar_kind_at(out_type, out->size, out->at + i * out->stride);
        if (kind < CELLAR_INFINITE) {
            continue;
        }
        cellar_kind one = cellar_kind_at(in_type, first->size, first->at + i * first->stride);
        if (one == CELLAR_NAN) {
            continue;
        }
        cellar_kind two = CELLAR_FINITE;
        if (second != NULL) {
            two = cellar_kind_at(second->type == out_type ? out_type : second->type, second->size,
                                 second->at + i * second->stride);
        }
        status |= cellar_float_status(out_type, one, two, kind, way);
    }
    return status;
}

static int
cellar_status_of_piece(const cellar_operand *first, const cellar_operand *second, const cellar_operand *out,
                       npy_intp count, cellar_way way)
{
    // Tables of measurements are full of NaNs, which come from NaNs.
    if (first->type == NPY_DOUBLE && out->type == NPY_DOUBLE && (second == NULL || second->type == NPY_DOUBLE)) {
        if (!cellar_any_suspect_double(first, second == NULL ? first : second, out, count)) {
            return 0;
        }
        return cellar_look_at_piece(NPY_DOUBLE, NPY_DOUBLE, first, second, out, count, way);
    }
    return cellar_look_at_piece(first->type, out->type, first, second, out, count, way);
}

/* Of a loop that gathers all numbers in one, which began with `start`. */
static int
cellar_status_of_reduction(cellar_kind start, const cellar_operand *in, const cellar_operand *out, npy_intp count,
                           cellar_way way)
{
    cellar_kind kind = cellar_kind_at(out->type, out->size, out->at);
    if (kind < CELLAR_INFINITE || start >= CELLAR_INFINITE) {
        return 0;
    }
    cellar_kind worst = CELLAR_FINITE;
    for (npy_intp i = 0; i < count; i++) {
        cellar_kind one = cellar_kind_at(in->type, in->size, in->at + i * in->stride);
        if (one == CELLAR_NAN) {
            return 0;
        }
        // What a number is divided by matters most where it is zero.
        if (one == CELLAR_INFINITE || (one == CELLAR_ZERO && worst == CELLAR_FINITE)) {
            worst = one;
        }
    }
    return cellar_float_status(out->type, CELLAR_FINITE, worst, kind, way);
}

/* The way of a loop's function; that of the newest one is remembered. */
static cellar_way
cellar_way_of_caller(const PyUFuncObject *ufunc)
{
    static const char *newest = NULL;
    static cellar_way way = CELLAR_OVERFLOWS;
    if (newest != ufunc->name || newest == NULL) {
        way = cellar_way_of(ufunc->name);
        newest = ufunc->name;
    }
    return way;
}

/* Whether results of loops over these operands tell what was done. */
static int
cellar_can_be_checked(PyUFuncObject *ufunc, PyArray_Descr *const *descriptors)
{
    if (ufunc->core_enabled || ufunc->nin > 2 || ufunc->nout > 2) {
        return 0;
    }
    int floats = 0;
    for (int i = 0; i < ufunc->nargs; i++) {
        int type = descriptors[i]->type_num;
        if (!PyTypeNum_ISNUMBER(type) && type != NPY_BOOL) {
            return 0;
        }
        floats |= i >= ufunc->nin && (PyTypeNum_ISFLOAT(type) || PyTypeNum_ISCOMPLEX(type));
    }
    return floats;
}

/* Brings results to where they belong. */
static void
cellar_put(const cellar_operand *from, char *to, npy_intp stride, npy_intp count)
{
    if (stride == from->size) {
        memcpy(to, from->at, count * from->size);
        return;
    }
    for (npy_intp i = 0; i < count; i++) {
        memcpy(to + i * stride, from->at + i * from->size, from->size);
    }
}

static int
checked_wrapped_legacy_loop(PyArrayMethod_Context *context, char *const *data, const npy_intp *dimensions,
                            const npy_intp *strides, NpyAuxData *auxdata)
{
    legacy_array_method_auxdata *ldata = (legacy_array_method_auxdata *)auxdata;
    const PyUFuncObject *ufunc = (const PyUFuncObject *)context->caller;
    PyArray_Descr *const *descriptors = context->descriptors;
    const int nin = ufunc->nin, nargs = ufunc->nargs;
    npy_intp count = dimensions[0];
    cellar_operand operands[4];
    char *at[4] = {NULL};
    int size = 1;
    for (int i = 0; i < nargs; i++) {
        operands[i] = cellar_operand_of(descriptors[i], data[i], strides[i]);
        at[i] = data[i];
        size = operands[i].size > size ? operands[i].size : size;
    }

    if (nargs == 3 && data[0] == data[2] && strides[0] == 0 && strides[2] == 0) {
        cellar_kind start = cellar_kind_at(operands[0].type, operands[0].size, data[0]);
        ldata->loop(at, dimensions, strides, ldata->user_data);
        if (cellar_kind_at(operands[2].type, operands[2].size, data[2]) >= CELLAR_INFINITE) {
            cellar_raise_status(cellar_status_of_reduction(start, &operands[1], &operands[2], count,
                                                           cellar_way_of_caller(ufunc)));
        }
        return ldata->pyerr_check && PyErr_Occurred() ? -1 : 0;
    }

    // What would be written over what it is made from is written elsewhere first, unless what follows is made from it too.
    char results[2][CELLAR_PIECE] __attribute__((aligned(16)));
    npy_intp piece = CELLAR_PIECE / size, steps[4] = {0};
    int is_apart[4] = {0};
    for (int i = 0; i < nargs; i++) {
        steps[i] = strides[i];
        int is_read_next = 0;
        for (int in = 0; i >= nin && in < nin; in++) {
            is_apart[i] |= data[in] == data[i];
            is_read_next |= strides[i] != 0 && data[in] + strides[in] == data[i];
        }
        is_apart[i] &= !is_read_next;
        if (is_apart[i]) {
            steps[i] = operands[i].stride = operands[i].size;
        }
    }

    int status = 0;
    while (count > 0) {
        npy_intp now = count < piece ? count : piece, sizes[1] = {now};
        char *args[4] = {NULL};
        for (int i = 0; i < nargs; i++) {
            args[i] = operands[i].at = is_apart[i] ? results[i - nin] : at[i];
        }
        ldata->loop(args, sizes, steps, ldata->user_data);
        for (int out = nin; out < nargs; out++) {
            const cellar_operand *result = &operands[out];
            if (cellar_any_special(result->type, result->size, result->at, result->stride, now)) {
                status |= cellar_status_of_piece(&operands[0], nin == 2 ? &operands[1] : NULL, result, now,
                                                 cellar_way_of_caller(ufunc));
            }
        }
        for (int i = 0; i < nargs; i++) {
            if (is_apart[i]) {
                cellar_put(&operands[i], at[i], strides[i], now);
            }
            at[i] += now * strides[i];
        }
        count -= now;
    }
    cellar_raise_status(status);
    return ldata->pyerr_check && PyErr_Occurred() ? -1 : 0;
}
