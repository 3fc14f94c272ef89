/* The records that came with the program: files of record lines in one folder, read at start, that
 * answer where the database has nothing better (tuning_db_set_base). Nothing of them is stored.
 *
 * A file is held to the rules of an import; what is wrong in it is a line in the log and never a
 * reason not to start. Only records of kernels as they are here count; those of the arch `cpu` only
 * from files whose name says so (cpu*.jsonl). What is read is bounded.
 *
 * Beside them lies what GPU models reach, *.limits.json: lists of entries as in daemon/limits.h. */
#ifndef TUNE_SHIPPED_H
#define TUNE_SHIPPED_H

#include "plugins/registry.h"
#include "tuning_db/tuning_db.h"

#include <jansson.h>

#define SHIPPED_RECORDS_MAX 100000
#define SHIPPED_BYTES_MAX ((size_t)64 << 20) /* of all files together */

struct shipped {
    size_t files;     /* that were read */
    size_t records;   /* that count */
    size_t set_aside; /* of kernels that are not here, or not with this text */
    size_t refused;   /* lines that are wrong */
    json_t *limits;   /* entries of daemon/limits.h, of all *.limits.json */
};

/* Reads all *.jsonl and *.limits.json of the folder, which need not be there, in the order of their
 * names. Before anybody reads the database. */
void shipped_load(const char *folder, const struct registry *registry, struct tuning_db *db,
    struct shipped *shipped);
void shipped_finish(struct shipped *shipped); /* zeros are fine */

#endif
