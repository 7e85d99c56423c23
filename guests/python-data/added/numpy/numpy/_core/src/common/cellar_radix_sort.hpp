/* Sorts integers, moments, `float32` and `float64` by their bytes, from the last one to the first. Where vectors have 128 bits, this is
   several times as fast as what compares: nothing depends on which way a comparison goes. It is stable, so it serves
   every kind of sort. */
#ifndef CELLAR_RADIX_SORT_HPP
#define CELLAR_RADIX_SORT_HPP

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "numpy_tag.h"

namespace cellar {

/* Fewer numbers are sorted as fast by comparing, and more cannot be counted. */
constexpr npy_intp kFewest = 256, kMost = UINT32_MAX;
/* So few numbers are sorted by putting each among those before it. */
constexpr npy_intp kInserted = 32;

template <class Tag>
constexpr bool is_sorted_by_bytes() {
    return std::is_base_of_v<npy::integral_tag, Tag> || std::is_base_of_v<npy::date_tag, Tag> ||
            std::is_same_v<Tag, npy::float_tag> || std::is_same_v<Tag, npy::double_tag>;
}

/* Bits of so many bytes. */
template <size_t size>
using Bits = std::conditional_t<size == 8, uint64_t,
        std::conditional_t<size == 4, uint32_t, std::conditional_t<size == 2, uint16_t, uint8_t>>>;

/* A number as bits whose order, as that of integers without sign, is the order of the numbers. */
template <class Tag, bool reverse>
static inline auto
key_of(typename Tag::type number)
{
    using T = typename Tag::type;
    using Key = Bits<sizeof(T)>;
    constexpr Key sign = Key(1) << (sizeof(Key) * 8 - 1);
    Key bits;
    if constexpr (std::is_floating_point_v<T>) {
        /* Both zeros are equal. */
        number += 0;
        std::memcpy(&bits, &number, sizeof bits);
        bits ^= (bits & sign) ? Key(~Key(0)) : sign;
        /* What is not a number comes last, whichever way the rest is sorted. */
        return number != number ? Key(~Key(0)) : reverse ? Key(~bits) : bits;
    }
    else {
        std::memcpy(&bits, &number, sizeof bits);
        bits ^= std::is_signed_v<T> ? sign : Key(0);
        if constexpr (std::is_base_of_v<npy::date_tag, Tag>) {
            /* The lowest number stands for no time, which comes last too. */
            return reverse ? Key(~bits) : Key(bits - 1);
        }
        else {
            return reverse ? Key(~bits) : bits;
        }
    }
}

/* How many items have which byte at each place of their key; then, where the first such item is to go. */
template <class Key>
class Places {
  public:
    void count(Key key) {
        for (size_t place = 0; place < sizeof(Key); place++) {
            counts_[place][byte(key, place)]++;
        }
    }

    /* Whether all items have the same byte there, as `key` has. */
    bool is_settled(Key key, size_t place, npy_intp items) const {
        return counts_[place][byte(key, place)] == items;
    }

    void add_up(size_t place) {
        uint32_t before = 0;
        for (uint32_t &count : counts_[place]) {
            before += std::exchange(count, before);
        }
    }

    uint32_t next(Key key, size_t place) {
        return counts_[place][byte(key, place)]++;
    }

  private:
    static uint8_t byte(Key key, size_t place) {
        return uint8_t(key >> (place * 8));
    }

    uint32_t counts_[sizeof(Key)][256] = {};
};

/* Moves items between two buffers until they are sorted; the buffer where they are then. */
template <class Item, class Key, class KeyOf>
static Item *
settle(Item *items, Item *other, npy_intp count, Places<Key> &places, KeyOf key_of_item)
{
    Key first = key_of_item(items[0]);
    for (size_t place = 0; place < sizeof(Key); place++) {
        if (places.is_settled(first, place, count)) {
            continue;
        }
        places.add_up(place);
        /* Each turn of a loop asks whether to stop. */
#pragma clang loop unroll_count(4)
        for (npy_intp i = 0; i < count; i++) {
            Item item = items[i];
            other[places.next(key_of_item(item), place)] = item;
        }
        std::swap(items, other);
    }
    return items;
}

/* Sorts keys, which differ in some bits. Few bytes tell most numbers apart: only by those are they all moved, and what is
   alike in them stands side by side then and is sorted by itself. `other` has as much room. */
template <class Key>
static void
sort_keys(Key *keys, Key *other, npy_intp count, Key differing)
{
    constexpr int kGroup = 4;
    uint32_t places[sizeof(Key) + kGroup][256];
    int shifts[sizeof(Key) + kGroup] = {}, all = 0, used = 0;
    for (int shift = sizeof(Key) * 8 - 8; shift >= 0; shift -= 8) {
        if ((differing >> shift) & 255) {
            shifts[all++] = shift;
        }
    }
    /* How many others are like a number, if one byte tells nothing of the next one. */
    double alike = (double)count;
    while (used < all && alike > 0.125) {
        if (used % kGroup == 0) {
            auto group = places + used;
            const int *shift = shifts + used;
            std::memset(group, 0, kGroup * sizeof *group);
#pragma clang loop unroll_count(4)
            for (npy_intp i = 0; i < count; i++) {
                for (int place = 0; place < kGroup; place++) {
                    group[place][uint8_t(keys[i] >> shift[place])]++;
                }
            }
        }
        double chance = 0;
        for (uint32_t items : places[used]) {
            chance += (double)items * items;
        }
        alike *= chance / ((double)count * count);
        used++;
    }
    Key *from = keys, *to = other;
    for (int place = used; place-- > 0;) {
        uint32_t *next = places[place], before = 0;
        for (int byte = 0; byte < 256; byte++) {
            before += std::exchange(next[byte], before);
        }
        int shift = shifts[place];
        /* Each turn of a loop asks whether to stop. */
#pragma clang loop unroll_count(8)
        for (npy_intp i = 0; i < count; i++) {
            Key key = from[i];
            to[next[uint8_t(key >> shift)]++] = key;
        }
        std::swap(from, to);
    }
    if (from != keys) {
        std::memcpy(keys, from, count * sizeof(Key));
    }
    if (used == all) {
        return;
    }
    Key lower = Key((Key(1) << shifts[used - 1]) - 1);
    npy_intp i = 1;
    while (i < count) {
#pragma clang loop unroll_count(8)
        while (i < count && keys[i - 1] <= keys[i]) {
            i++;
        }
        if (i == count) {
            return;
        }
        npy_intp first = i - 1;
        Key upper = Key(keys[i] & ~lower);
        while (first > 0 && (keys[first - 1] & ~lower) == upper) {
            first--;
        }
        while (i < count && (keys[i] & ~lower) == upper) {
            i++;
        }
        if (i - first > kInserted) {
            sort_keys(keys + first, other, i - first, lower);
            continue;
        }
        for (npy_intp next = first + 1; next < i; next++) {
            Key key = keys[next];
            npy_intp at = next;
            for (; at > first && keys[at - 1] > key; at--) {
                keys[at] = keys[at - 1];
            }
            keys[at] = key;
        }
    }
}

/* Whether numbers can be told from their keys, and bits alone give all of them the order that they are to have. */
template <class Tag, bool reverse>
static bool
is_ordered_by_bits(const typename Tag::type *numbers, npy_intp count)
{
    using T = typename Tag::type;
    if constexpr (std::is_floating_point_v<T>) {
        using Signed = std::make_signed_t<Bits<sizeof(T)>>;
        const T infinity = std::numeric_limits<T>::infinity(), less = -infinity;
        const Signed lowest = std::numeric_limits<Signed>::min();
        Signed highest, negative;
        std::memcpy(&highest, &infinity, sizeof highest);
        std::memcpy(&negative, &less, sizeof negative);
        Signed wrong = 0;
        for (npy_intp i = 0; i < count; i++) {
            Signed bits;
            std::memcpy(&bits, &numbers[i], sizeof bits);
            /* A zero below zero, and what is not a number where it would come first. */
            wrong |= Signed(bits == lowest) | Signed((bits > negative) & (bits < 0)) | Signed(reverse & (bits > highest));
        }
        return wrong == 0;
    }
    return true;
}

/* Makes keys of numbers where they stand, or numbers of keys. Returns the bits in which they differ. */
template <class Tag, bool reverse, bool back>
static Bits<sizeof(typename Tag::type)>
recode(typename Tag::type *numbers, npy_intp count)
{
    using T = typename Tag::type;
    using Key = Bits<sizeof(T)>;
    constexpr Key sign = Key(1) << (sizeof(Key) * 8 - 1);
    constexpr Key time = std::is_base_of_v<npy::date_tag, Tag> && !reverse;
    Key *keys = (Key *)numbers, differing = 0, one = 0;
    for (npy_intp i = 0; i < count; i++) {
        Key bits = keys[i];
        if constexpr (back) {
            bits = Key((reverse ? ~bits : bits) + time);
        }
        if constexpr (std::is_floating_point_v<T>) {
            Key negative = Key(std::make_signed_t<Key>(back ? ~bits : bits) >> (sizeof(Key) * 8 - 1));
            bits ^= negative | sign;
        }
        else {
            bits ^= std::is_signed_v<T> ? sign : Key(0);
        }
        if constexpr (!back) {
            bits = Key((reverse ? ~bits : bits) - time);
        }
        keys[i] = bits;
        one = i == 0 ? bits : one;
        differing |= bits ^ one;
    }
    return differing;
}

/* Sorts numbers. False, with nothing done, if another way is better, or there is no memory for a copy. */
template <class Tag, bool reverse>
static bool
radix_sort(typename Tag::type *numbers, npy_intp count)
{
    using T = typename Tag::type;
    using Key = decltype(key_of<Tag, reverse>(T()));
    if (count < kFewest || count > kMost) {
        return false;
    }
    auto key_of_item = [](T number) { return key_of<Tag, reverse>(number); };
    npy_intp sorted = 1;
    while (sorted < count && key_of_item(numbers[sorted - 1]) <= key_of_item(numbers[sorted])) {
        sorted++;
    }
    if (sorted == count) {
        return true;
    }
    T *other = (T *)std::malloc(count * sizeof(T));
    if (other == nullptr) {
        return false;
    }
    if (is_ordered_by_bits<Tag, reverse>(numbers, count)) {
        Key differing = recode<Tag, reverse, false>(numbers, count);
        sort_keys((Key *)numbers, (Key *)other, count, differing);
        recode<Tag, reverse, true>(numbers, count);
    }
    else {
        Places<Key> places;
        for (npy_intp i = 0; i < count; i++) {
            places.count(key_of_item(numbers[i]));
        }
        T *sorted = settle(numbers, other, count, places, key_of_item);
        if (sorted != numbers) {
            std::memcpy(numbers, sorted, count * sizeof(T));
        }
    }
    std::free(other);
    return true;
}

/* Puts indices of numbers into the numbers' order. False as above. */
template <class Tag, bool reverse>
static bool
radix_argsort(const typename Tag::type *numbers, npy_intp *indices, npy_intp count)
{
    using Key = decltype(key_of<Tag, reverse>(*numbers));
    struct Item {
        Key key;
        uint32_t index;
    };
    if (count < kFewest || count > kMost) {
        return false;
    }
    /* The keys go along: to look them up in another order each time would cost more than all the rest. */
    Item *items = (Item *)std::malloc(2 * count * sizeof(Item));
    if (items == nullptr) {
        return false;
    }
    Places<Key> places;
    for (npy_intp i = 0; i < count; i++) {
        items[i] = {key_of<Tag, reverse>(numbers[indices[i]]), (uint32_t)indices[i]};
        places.count(items[i].key);
    }
    Item *sorted = settle(items, items + count, count, places, [](Item item) { return item.key; });
    for (npy_intp i = 0; i < count; i++) {
        indices[i] = sorted[i].index;
    }
    std::free(items);
    return true;
}

}  // namespace cellar

#endif
