/* See measure.h. */
#include "measure.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

#define CALIBRATION_NS 20000000

/* --- time ------------------------------------------------------------------------------------- */

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t ticks_now(void)
{
#ifdef __x86_64__
    unsigned processor;
    return __rdtscp(&processor);
#else
    return clock_ns();
#endif
}

double ns_per_tick(void)
{
    static double known;
    if (known == 0) {
        uint64_t begun_ns = clock_ns(), begun = ticks_now(), now_ns;
        do
            now_ns = clock_ns();
        while (now_ns - begun_ns < CALIBRATION_NS);
        known = (double)(now_ns - begun_ns) / (double)(ticks_now() - begun);
    }
    return known;
}

static int compare_ticks(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

struct spread spread_of(uint64_t *ticks, size_t count)
{
    qsort(ticks, count, sizeof *ticks, compare_ticks);
    return (struct spread){
        .median_ns = (double)ticks[count / 2] * ns_per_tick(),
        .p99_ns = (double)ticks[count * 99 / 100] * ns_per_tick(),
    };
}

/* --- small things ----------------------------------------------------------------------------- */

size_t random_below(uint64_t *state, size_t limit)
{
    *state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t mixed = *state;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return (size_t)((mixed ^ mixed >> 31) % limit);
}

void bench_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

void *bench_alloc(size_t count, size_t size)
{
    void *bytes = calloc(count, size);
    if (bytes == NULL)
        bench_fail("no memory for %zu things of %zu bytes", count, size);
    return bytes;
}
