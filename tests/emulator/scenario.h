/* Scenario files: what to do wrong, and when. See README.md for the form.
 *
 * The file named by TUNE_SCENARIO is read once, at the first call of the process; a file that
 * cannot be read or parsed ends the process with a sentence, since a test with half a scenario
 * proves nothing. */
#ifndef TUNE_EMULATOR_SCENARIO_H
#define TUNE_EMULATOR_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCENARIO_DEVICES 16

struct scenario_device {
    char name[96];
    unsigned char uuid[16];
    int major, minor, sms;
    uint64_t memory_bytes;
};

struct scenario_call {
    const char *call;    /* name without _v2 */
    const char *entry;   /* kernel or name expressions, NULL: none */
    const char *defines; /* "BM=64\nBN=32\n", NULL: none */
    int device;          /* ordinal in the file, -1: none */
};

struct scenario_effect {
    unsigned error; /* 0: go on */
    bool is_sticky;
    unsigned fault; /* the launch succeeds, later calls give this error; 0: none */
    bool has_garbage;
    double time_ns;     /* below 0: the model's */
    uint32_t registers; /* 0: as made up */
};

int scenario_device_count(void);
const struct scenario_device *scenario_device(int ordinal);
int scenario_driver_version(void);
void scenario_nvrtc_version(int *major, int *minor);
/* Architectures of the compiler, ascending; 0 is the emulator's own. */
const int *scenario_archs(int *count);

/* Counts the call and tells what to do. Delays, hangs and ends of the process happen inside. */
struct scenario_effect scenario_apply(const struct scenario_call *call);

/* Factor for the next time: 1, or one within 1 +- relative. Repeats with the file's seed. */
double scenario_noise(void);

/* Whether some rule for another call than the compile asks about this macro. Only those are kept in
 * images, so that configurations which compile to the same code give the same bytes. */
bool scenario_asks_about(const char *macro);

#endif
