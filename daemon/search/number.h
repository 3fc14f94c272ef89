/* Logarithm and exponential made of IEEE additions, multiplications and divisions alone, so that
 * they give the same bits on every machine; libm's do not. Good to about 1e-8, which is ample for a
 * search. */
#ifndef TUNE_SEARCH_NUMBER_H
#define TUNE_SEARCH_NUMBER_H

#include "daemon/search/rng.h"

#include <stdint.h>
#include <string.h>

/* Base 2, of a positive normal number: exponent, then the series of atanh for the mantissa. */
static inline double number_log2(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u;
    double mantissa;
    memcpy(&mantissa, &bits, sizeof mantissa);
    if (mantissa > 1.4142135) {
        mantissa *= 0.5;
        exponent++;
    }
    double z = (mantissa - 1) / (mantissa + 1), q = z * z;
    double series = 1.0 / 9 + q * (1.0 / 11);
    series = 1 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * series)));
    return exponent + 2.8853900817779268 * z * series;
}

/* e^x for x <= 0. */
static inline double number_exp(double x)
{
    if (x < -40)
        return 0;
    double y = x * 1.4426950408889634;
    int exponent = (int)(y - 0.5);
    double f = (y - exponent) * 0.6931471805599453;
    double series = 1.0 / 24 + f * (1.0 / 120 + f * (1.0 / 720));
    series = 1 + f * (1 + f * (0.5 + f * (1.0 / 6 + f * series)));
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return series * power;
}

/* Uniform in [0, 1). */
static inline double number_uniform(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * (1.0 / 9007199254740992.0);
}

#endif
