/* The tuning database: an LMDB environment with the named databases samples, best, shapes, cubin,
 * logs, jobs and meta. One transaction per call; values are copied out before a call returns.
 *
 * Threads: any thread may read; one thread at a time writes (the daemon's writer thread). The map
 * grows by itself up to a limit: growth waits until no transaction is open, and a write that met a full
 * map is replayed whole after it. Reader slots are not tied to threads.
 *
 * Opening takes a kernel lock (flock) on DIR/lock, so a second daemon is refused with a sentence, also
 * from another PID namespace; checks that DIR is ours (0700, files 0600, no symbolic links), that the
 * data file is an LMDB file of this version, page size and word size and is not cut short (last used
 * page against file size); clears stale readers. Network file systems are refused.
 *
 * The value of samples is append-only: a key once written is never overwritten by put_batch (writing
 * the same (key, config, GPU, run) again is reported as "already there"), except that a row with
 * is_final false may be replaced by a later attempt. A damaged value counts as absent, is counted in
 * tuning_db_stats, and may be overwritten. */
#ifndef TUNE_TUNING_DB_H
#define TUNE_TUNING_DB_H

#include "record.h"

#define TUNING_DB_MAP_START_BYTES ((size_t)16 << 20)
#define TUNING_DB_MAP_LIMIT_BYTES ((size_t)64 << 30)
#define TUNING_DB_CUBIN_LIMIT_BYTES ((size_t)1 << 30)

struct tuning_db;

struct tuning_db_options {
    size_t map_start_bytes;  /* 0: the defaults above */
    size_t map_limit_bytes;
    size_t cubin_limit_bytes; /* cubins are evicted, oldest first, above this */
    bool read_only;           /* for offline tools: no lock, no writes, takes up a grown map */
    void (*on_damage)(const char *what, void *context); /* once per damaged entry, may be NULL */
    void *damage_context;
};

/* New, or NULL. `options` may be NULL. Creates DIR (0700) with its parents. */
struct tuning_db *tuning_db_open(
    const char *dir, const struct tuning_db_options *options, struct tune_error *err);
void tuning_db_close(struct tuning_db *db); /* no call may be in flight */

/* --- writing: one batch is one transaction ---------------------------------------------------- */

/* A batch collects writes in memory; commit makes them durable together or not at all. */
struct tuning_db_batch;
struct tuning_db_batch *tuning_db_batch_create(void);
void tuning_db_batch_destroy(struct tuning_db_batch *batch);
size_t tuning_db_batch_count(const struct tuning_db_batch *batch);

int tuning_db_batch_sample(struct tuning_db_batch *batch, const struct sample *sample);
/* Recomputes `best` of this key from all its samples, inside the commit: for (key, GPU name) and
 * (key, arch); also enters the key into the nearest-shape index. */
int tuning_db_batch_refresh(struct tuning_db_batch *batch, const struct record_key *key);
int tuning_db_batch_cubin(struct tuning_db_batch *batch, const struct record_hash *key,
    const void *bytes, size_t count);
/* Content-addressed log text (<= 64 KiB); id_out gets 32 hex digits. */
int tuning_db_batch_log(struct tuning_db_batch *batch, const char *text, size_t length,
    char id_out[33]);
/* Jobs and marks: small opaque values under a name of 1..200 bytes; bytes NULL deletes. */
int tuning_db_batch_job(struct tuning_db_batch *batch, const char *name, const void *bytes,
    size_t count);

/* 0, or -1: TUNE_EFULL at the map's limit or on a full disk, TUNE_EIO. On failure nothing of the batch
 * is stored and the database stays usable. */
int tuning_db_commit(struct tuning_db *db, struct tuning_db_batch *batch, struct tune_error *err);

/* --- reading ---------------------------------------------------------------------------------- */

/* Exact best. gpu_name NULL: the arch's. 0 found (best_finish it), 1 not there, -1 error. */
int tuning_db_best(struct tuning_db *db, const struct record_key *key, const char *gpu_name,
    struct best *best, struct tune_error *err);

/* Walks the best rows of a kernel (any shape, arch, fingerprint): the nearest-shape index. The
 * callback returns 0 to go on. The best is borrowed during the callback. */
int tuning_db_walk_best(struct tuning_db *db, const char *kernel,
    int (*on_best)(const struct best *best, void *context), void *context, struct tune_error *err);

/* Samples of one key (all configs, GPUs, runs), or of the whole database with key NULL. */
int tuning_db_walk_samples(struct tuning_db *db, const struct record_key *key,
    int (*on_sample)(const struct sample *sample, void *context), void *context,
    struct tune_error *err);

/* *bytes is malloc'ed. 0 found, 1 not there (or damaged), -1 error. */
int tuning_db_cubin(struct tuning_db *db, const struct record_hash *key, void **bytes,
    size_t *count, struct tune_error *err);
int tuning_db_log(struct tuning_db *db, const char *id, char **text, size_t *length,
    struct tune_error *err);
int tuning_db_job(struct tuning_db *db, const char *name, void **bytes, size_t *count,
    struct tune_error *err);
int tuning_db_walk_jobs(struct tuning_db *db, const char *prefix,
    int (*on_job)(const char *name, const void *bytes, size_t count, void *context), void *context,
    struct tune_error *err);

struct tuning_db_stats {
    size_t samples, best, cubins, logs, jobs;
    size_t cubin_bytes, map_bytes, used_bytes;
    unsigned readers_used, readers_max;
    uint64_t damaged, generation; /* generation: raised by every commit that changed `best` */
};
int tuning_db_stats(struct tuning_db *db, struct tuning_db_stats *stats, struct tune_error *err);

/* Full check: every value of every database decodes. Counts damaged entries. */
int tuning_db_check(struct tuning_db *db, size_t *damaged, struct tune_error *err);

#endif
