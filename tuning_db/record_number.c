/* See record_number.h. Two ways that share the values out between them: most times have few
 * decimals, and for those dividing a whole number by a power of ten is ten times as fast as asking
 * printf for one precision after the other. */
#include "record_number.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_LIMIT 9007199254740992.0 /* 2^53: whole doubles below it are all there */
#define PLAIN_EXPONENT_MIN (-5)        /* from 1e-5 to below 2^53 there is no exponent */

static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12,
    1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}; /* each exact */

static bool is_same(double a, double b, bool is_float)
{
    return is_float ? (float)a == (float)b : a == b;
}

/* `whole` with its last `decimals` digits behind the point. */
static size_t write_decimal(uint64_t whole, unsigned decimals, char *text)
{
    char reversed[NUMBER_TEXT_BYTES];
    size_t count = 0, length = 0;
    do {
        reversed[count++] = (char)('0' + whole % 10);
        whole /= 10;
    } while (whole > 0 || count <= decimals);
    while (count > 0) {
        text[length++] = reversed[--count];
        if (count == decimals && count > 0)
            text[length++] = '.';
    }
    text[length] = '\0';
    return length;
}

/* whole / 10^decimals, both exact, is the double that this decimal reads as, so the test is the
 * reader's own. 0: it takes more digits than a whole double holds. */
static size_t write_short(double value, bool is_float, char *text)
{
    for (unsigned decimals = 0; decimals < sizeof powers / sizeof powers[0]; decimals++) {
        double scaled = value * powers[decimals];
        if (scaled + 1 >= EXACT_LIMIT)
            return 0;
        uint64_t whole = (uint64_t)(scaled + 0.5);
        if (is_same((double)whole / powers[decimals], value, is_float))
            return write_decimal(whole, decimals, text);
    }
    return 0;
}

/* The digits of "d.ddde-07" without point (which is the locale's) and zeros at their end. */
static size_t take_digits(const char *printed, char *digits, int *exponent)
{
    size_t count = 0;
    const char *at = printed;
    for (; *at != 'e'; at++) {
        if (*at >= '0' && *at <= '9')
            digits[count++] = *at;
    }
    *exponent = atoi(at + 1);
    while (count > 1 && digits[count - 1] == '0')
        count--;
    return count;
}

static size_t write_scientific(const char *digits, size_t count, int exponent, char *text)
{
    size_t length = 0;
    text[length++] = digits[0];
    if (count > 1) {
        text[length++] = '.';
        memcpy(text + length, digits + 1, count - 1);
        length += count - 1;
    }
    return length + (size_t)snprintf(text + length, NUMBER_TEXT_BYTES - length, "e%d", exponent);
}

static size_t write_plain(const char *digits, size_t count, int exponent, char *text)
{
    size_t length = 0;
    if (exponent < 0) {
        text[length++] = '0';
        text[length++] = '.';
        for (int zeros = -1; zeros > exponent; zeros--)
            text[length++] = '0';
    }
    for (size_t i = 0; i < count || (int)i <= exponent; i++) {
        text[length++] = i < count ? digits[i] : '0';
        if ((int)i == exponent && i + 1 < count)
            text[length++] = '.';
    }
    text[length] = '\0';
    return length;
}

static size_t write_long(double value, bool is_float, char *text)
{
    char printed[NUMBER_TEXT_BYTES], digits[NUMBER_TEXT_BYTES];
    int exponent = 0;
    for (int precision = 0; precision <= 16; precision++) {
        snprintf(printed, sizeof printed, "%.*e", precision, value);
        if (is_same(strtod(printed, NULL), value, is_float))
            break;
    }
    size_t count = take_digits(printed, digits, &exponent);
    if (exponent < PLAIN_EXPONENT_MIN || value >= EXACT_LIMIT)
        return write_scientific(digits, count, exponent, text);
    return write_plain(digits, count, exponent, text);
}

static size_t write_number(double value, bool is_float, char *text)
{
    bool is_plain = value == 0 || (value >= 1e-5 && value < EXACT_LIMIT);
    size_t length = is_plain ? write_short(value, is_float, text) : 0;
    return length > 0 ? length : write_long(value, is_float, text);
}

size_t number_text(double value, char text[NUMBER_TEXT_BYTES])
{
    return write_number(value, false, text);
}

size_t number_text_float(float value, char text[NUMBER_TEXT_BYTES])
{
    return write_number((double)value, true, text);
}
