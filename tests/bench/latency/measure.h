/* Short times: the clock, and the median and 99th percentile of many of them. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stddef.h>
#include <stdint.h>

/* Ticks of the finest clock there is: the processor's counter on x86-64 (a pair of readings costs
 * some 20 ns, which are not subtracted), else nanoseconds. */
uint64_t ticks_now(void);
/* Nanoseconds per tick; measured over 20 ms at the first call. */
double ns_per_tick(void);

struct spread {
    double median_ns, p99_ns;
};
/* Sorts the ticks. count >= 1. */
struct spread spread_of(uint64_t *ticks, size_t count);

/* The next of a sequence that the seed decides; below `limit`. */
size_t random_below(uint64_t *state, size_t limit);

/* Ends the program with a sentence. */
void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void *bench_alloc(size_t count, size_t size); /* zeroed; or ends the program */

/* Calls of malloc, calloc and realloc by this program and every library in it, so far (count.c). */
uint64_t allocations(void);

#endif
