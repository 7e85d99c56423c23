/* The fewest digits that tell a number from all others, by the C++ library. */
#include <charconv>
#include <cstring>

/* Writes those of a positive `double`, 17 at most, and returns how many they are. `exponent` is that of the first one. */
extern "C" int
cellar_shortest_digits(double number, char *digits, int *exponent)
{
    char text[40];
    const char *end = std::to_chars(text, text + sizeof text, number, std::chars_format::scientific).ptr;
    const char *mark = static_cast<const char *>(std::memchr(text, 'e', end - text));
    std::from_chars(mark + (mark[1] == '+' ? 2 : 1), end, *exponent);
    digits[0] = text[0];
    /* A point follows the first digit, unless it is the only one. */
    const int others = mark - text > 1 ? (int)(mark - text) - 2 : 0;
    std::memcpy(digits + 1, text + 2, others);
    return 1 + others;
}
