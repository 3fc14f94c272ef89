/* The two clocks: one for how long something takes, one for when it was. */
#ifndef TUNE_CLOCK_H
#define TUNE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Never goes back; the difference of two is a duration. */
static inline double clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Since 1970, as this machine is set. */
static inline int64_t clock_unix_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

#endif
