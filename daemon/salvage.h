/* `tunerd --salvage`: a database that cannot be opened is moved aside, and every sample that can
 * still be read goes into a new one in its place. Nothing of the old one is changed or removed. */
#ifndef TUNE_SALVAGE_H
#define TUNE_SALVAGE_H

#include "client/error.h"

#include <stddef.h>

struct salvage {
    char aside[4096]; /* where the old database lies now; "" when it was sound and nothing was done
                       */
    size_t samples, keys;
};

int salvage_run(const char *dir, struct salvage *report, struct tune_error *err);

#endif
