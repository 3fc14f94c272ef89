/* Rows for the tests of record lines: one with every field set, and random ones. */
#ifndef DB_ROWS_H
#define DB_ROWS_H

#include "tuning_db/record_line.h"

#include "daemon/search/rng.h"

/* Every field that a line can have, all but `extra`. */
struct sample full_row(void);

/* A random row that may stand in a line; its texts and floats lie in `room`. Few keys,
 * configurations, GPUs and runs, so that identities meet; every other field from its whole range.
 */
struct row_room {
    char texts[16][256];
    float floats[32];
};
struct sample random_row(struct rng *rng, struct row_room *room);

#endif
