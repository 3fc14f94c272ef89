/* A fuzz target is one file with this function, as libFuzzer wants it: it must return 0 for any
 * bytes, and every misbehaviour of the code under test must end the process. With -DTUNE_FUZZ=ON
 * (clang) it becomes a program of its own; in every build drive.c runs it over its corpus and
 * mutations of it. */
#ifndef FUZZ_TARGET_H
#define FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#endif
