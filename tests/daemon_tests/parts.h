/* All that a tuning or a job stands on: database, writer, scheduler with stand-in workers, images,
 * the shipped kernels, and a transpose of the tests' own. */
#ifndef DAEMON_PARTS_H
#define DAEMON_PARTS_H

#include "daemon/tuning.h"
#include "support.h"

extern struct tuning_deps parts;
extern struct registry *parts_registry;

/* Setup and teardown of a test; between them start_parts, once the stand-in's environment is set.
 */
int open_parts(void **state);
int close_parts(void **state);
void start_parts(void);
/* With a limit on the cache of compiled images; before start_parts. */
void limit_images(size_t limit_bytes);

#endif
