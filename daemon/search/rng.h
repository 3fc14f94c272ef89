/* splitmix64: a small seeded generator, the same on every machine.
 * Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
#ifndef TUNE_RNG_H
#define TUNE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
    uint64_t z = (rng->state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Uniform in [0, bound), bound > 0, without the bias of a remainder (multiply and reject). */
static inline uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    uint64_t floor = -bound % bound;
    for (;;) {
        unsigned __int128 product = (unsigned __int128)rng_next(rng) * bound;
        if ((uint64_t)product >= floor)
            return (uint64_t)(product >> 64);
    }
}

#endif
