/* Narrows where the k-th smallest of many numbers is looked for. What a comparison says is added to a place instead of
   branched on: a branch that goes either way as often costs as much as several numbers, and here each turn of a loop
   costs too. */
#ifndef CELLAR_NARROW_HPP
#define CELLAR_NARROW_HPP

#include <type_traits>
#include <utility>

namespace cellar {

/* Fewer are looked through as fast otherwise. */
constexpr npy_intp kNarrow = 1024;

template <typename type>
constexpr bool is_narrowed() {
    return std::is_arithmetic_v<type> && (sizeof(type) == 4 || sizeof(type) == 8);
}

/* A number that about as many are less than as are less than the k-th smallest. Returns where it is. */
template <typename Tag, typename type>
static npy_intp
likely_pivot(const type *v, npy_intp low, npy_intp high, npy_intp kth)
{
    constexpr npy_intp kSample = 31;
    npy_intp sample[kSample];
    for (npy_intp i = 0; i < kSample; i++) {
        npy_intp index = low + (high - low) / kSample * i, at = i;
        for (; at > 0 && Tag::less(v[index], v[sample[at - 1]]); at--) {
            sample[at] = sample[at - 1];
        }
        sample[at] = index;
    }
    return sample[(npy_intp)((double)(kth - low) * (kSample - 1) / (double)(high - low))];
}

/* Puts what is less than the number at `pivot` before it, between `low` and `high`. Returns where it is then. */
template <typename Tag, typename type>
static npy_intp
part(type *v, npy_intp low, npy_intp high, npy_intp pivot)
{
    std::swap(v[pivot], v[high]);
    const type number = v[high];
    npy_intp at = low;
#pragma clang loop unroll_count(4)
    for (npy_intp i = low; i <= high; i++) {
        type other = v[i];
        v[i] = v[at];
        v[at] = other;
        at += Tag::less(other, number);
    }
    return at;
}

/* Puts what equals the number at `pivot`, which nothing up to `high` is less than, behind it. Returns where the last is. */
template <typename Tag, typename type>
static npy_intp
gather(type *v, npy_intp high, npy_intp pivot)
{
    const type number = v[pivot];
    npy_intp at = pivot + 1;
#pragma clang loop unroll_count(4)
    for (npy_intp i = pivot + 1; i <= high; i++) {
        type other = v[i];
        v[i] = v[at];
        v[at] = other;
        at += !Tag::less(number, other);
    }
    return at - 1;
}

}  // namespace cellar

#endif
