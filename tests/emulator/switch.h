/* The switch between stacks: everything a call must preserve, and nothing else (a few nanoseconds;
 * the system's swapcontext makes a system call each time). */
#ifndef TUNE_EMULATOR_SWITCH_H
#define TUNE_EMULATOR_SWITCH_H

#include <stdint.h>

/* Saves the running context at *from and goes on with the one at `to`. */
void switch_stack(void **from, void *to);

/* A context that will call entry() on this stack; `top` is aligned to 16 bytes. */
void *switch_prepare(void *top, void (*entry)(void));

#endif
