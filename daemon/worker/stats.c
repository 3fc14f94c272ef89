#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_LIMIT 2000 /* above, the normal approximation is right to a rank */

/* How many samples lie below the median is binomial(count, 1/2): the lower rank is the largest k
 * with P(fewer than k + 1 below) <= 2.5 %. */
static size_t lower_rank(size_t count)
{
    double n = (double)count;
    if (count > EXACT_LIMIT)
        return (size_t)floor(n / 2 - 0.9799820 * sqrt(n)); /* 1.96 / 2 */
    double sum = 0;
    size_t rank = 0;
    for (size_t k = 0; k < count; k++) {
        double below = (double)k;
        sum += exp(lgamma(n + 1) - lgamma(below + 1) - lgamma(n - below + 1) - n * M_LN2);
        if (sum > 0.025)
            break;
        rank = k + 1;
    }
    return rank > 0 ? rank - 1 : 0;
}

void stats_ranks(size_t count, size_t *lo, size_t *hi)
{
    *lo = lower_rank(count);
    *hi = count - 1 - *lo;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double stats_median(const double *samples, size_t count, double *scratch)
{
    memcpy(scratch, samples, count * sizeof(*samples));
    qsort(scratch, count, sizeof(*scratch), compare);
    return (scratch[(count - 1) / 2] + scratch[count / 2]) / 2;
}

struct stats stats_of(const double *samples, size_t count, double *scratch)
{
    size_t lo, hi;
    double median = stats_median(samples, count, scratch);
    stats_ranks(count, &lo, &hi);
    return (struct stats){.median = median, .lo = scratch[lo], .hi = scratch[hi]};
}
