/* The tuning database: an LMDB environment with the named databases samples, best, cubin,
 * cubin_order, logs, jobs and meta, and where it belongs to a fleet outbox and aside. One
 * transaction per call; values are copied out before a call returns. The keys of best start with
 * the kernel, so it is its own index for the nearest shape.
 *
 * Threads: any thread may read; one thread at a time writes (the daemon's writer thread). The map
 * grows by itself up to a limit: growth waits until no transaction is open, and a write that met a
 * full map is replayed whole after it. Reader slots are not tied to threads.
 *
 * Opening takes a kernel lock (flock) on DIR/lock, so a second daemon is refused with a sentence,
 * also from another PID namespace; checks that DIR is ours (0700, files 0600, no symbolic links),
 * that the data file is an LMDB file of this version, page size and word size, is not cut short,
 * and that each page that LMDB may follow is sound (pages.h): LMDB itself trusts its file and would
 * end the process by a signal. A file that fails is refused with a sentence and not changed by one
 * byte. Stale readers are cleared. Network file systems are refused. What cannot be guarded
 * against: a file that is cut short or overwritten while it is open (SIGBUS or wrong pages; the
 * next opening detects it).
 *
 * Reading every page of a large file takes its time (about 2 s for 3 GiB). A clean end leaves a
 * mark, DIR/clean, that names the data file as it then is: device, inode, size, both time stamps,
 * last transaction. When the mark is there and still true, nobody has written the file since we
 * closed it; then the two header pages alone are checked before it is opened, and all pages in a
 * thread beside the work, on the state that was opened. What that finds is refused as well: every
 * call fails with the sentence (on_unsound). Left open is a medium that lost bits by itself, met by
 * a lookup within those seconds. Without a true mark (a crash, a copy, anything that wrote the
 * file) all pages are checked before anything else.
 *
 * Commits are durable when they return. After a failed write (disk full, I/O error) nothing of the
 * batch is stored and the next call works, opening LMDB anew if need be. A part of the map's limit
 * (1/16, at most 4 MiB) is kept back for batches that only delete, so a full database can be
 * relieved.
 *
 * A handle belongs to the process that opened it; in a forked child every call fails. One process
 * opens a folder once.
 *
 * Of the rows of one identity (key, configuration, GPU, run) one is stored. One of this machine,
 * once final, is never overwritten by another of this machine, which counts as a duplicate of the
 * batch. In all other cases the one that stands is told by sample_precedence (record_line.h),
 * whatever order they come in, so that machines that hold the same rows hold the same database. A
 * damaged value counts as absent, is counted in tuning_db_stats, and may be overwritten. */
#ifndef TUNE_TUNING_DB_H
#define TUNE_TUNING_DB_H

#include "record.h"

#define TUNING_DB_MAP_START_BYTES ((size_t)16 << 20)
#define TUNING_DB_MAP_LIMIT_BYTES ((size_t)64 << 30)
#define TUNING_DB_CUBIN_LIMIT_BYTES ((size_t)1 << 30)

/* The identity of a sample as bytes: hashes of its key, configuration, GPU UUID and run. */
#define TUNING_DB_ID_BYTES 64
void tuning_db_id(const struct sample *sample, uint8_t id[TUNING_DB_ID_BYTES]);

struct tuning_db;

struct tuning_db_options {
    size_t map_start_bytes; /* 0: the defaults above */
    size_t map_limit_bytes;
    size_t cubin_limit_bytes; /* cubins are evicted, oldest first, above this */
    bool read_only;           /* for offline tools: no lock, no writes, takes up a grown map */
    bool has_outbox; /* each row that a batch stores, but for those of tuning_db_batch_replica, is
                        noted as still to be sent, in the same transaction */
    /* Once per damaged entry, from whichever thread met it; must not call this database. May be
     * NULL. */
    void (*on_damage)(const char *what, void *context);
    /* The check that goes on after opening has found the file damaged; from a thread of its own.
     * Every call from then on fails with the same error. May be NULL. */
    void (*on_unsound)(const struct tune_error *why, void *context);
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
/* After a commit: how many of its samples were there already and therefore kept as they were. */
size_t tuning_db_batch_duplicates(const struct tuning_db_batch *batch);

/* The functions that add return 0, or -1 without memory or against a limit stated here; the batch
 * is then as before. They copy what they are given. */
int tuning_db_batch_sample(struct tuning_db_batch *batch, const struct sample *sample);
/* A row from elsewhere: an import (tuning_db_batch_merge) or the fleet (_replica, which does not
 * enter the outbox and, where it is or becomes the stored row, takes that one out of it: the fleet
 * has it. So what came before a comparison of digests is to be committed before it). Stored when
 * there is none of its identity or when it stands before the one there is (sample_precedence); its
 * key is refreshed by the batch by itself. */
int tuning_db_batch_merge(struct tuning_db_batch *batch, const struct sample *sample);
int tuning_db_batch_replica(struct tuning_db_batch *batch, const struct sample *sample);
/* What became of them; after a commit, or after tuning_db_try. */
struct tuning_db_merged {
    size_t added, equal, replaced, kept; /* kept: the stored row stands before the new one */
};
void tuning_db_batch_merged(const struct tuning_db_batch *batch, struct tuning_db_merged *merged);
/* A row of the fleet that is not taken in: remembered by id and hash, so that comparing digests
 * does not meet it again. In digests it stands for a stored row of its id; storing one ends that.
 */
int tuning_db_batch_aside(struct tuning_db_batch *batch, const uint8_t id[TUNING_DB_ID_BYTES],
    uint64_t hash, const char *reason);
/* The row was sent as it was when it had this hash: out of the outbox, unless it changed since.
 * Deletes only, so that a full database takes it. */
int tuning_db_batch_sent(
    struct tuning_db_batch *batch, const uint8_t id[TUNING_DB_ID_BYTES], uint64_t hash);
/* Puts a stored row into the outbox (again), if there is one of this id; what was set aside under
 * the id and this hash is forgotten. */
int tuning_db_batch_unsent(
    struct tuning_db_batch *batch, const uint8_t id[TUNING_DB_ID_BYTES], uint64_t hash);
/* Recomputes `best` of this key from all its samples, inside the commit and after the batch's
 * samples: for (key, GPU model) and (key, arch). The rule stands in best.c. */
int tuning_db_batch_refresh(struct tuning_db_batch *batch, const struct record_key *key);
int tuning_db_batch_cubin(
    struct tuning_db_batch *batch, const struct record_hash *key, const void *bytes, size_t count);
/* Content-addressed log text (<= 64 KiB); id_out gets 32 hex digits. */
int tuning_db_batch_log(
    struct tuning_db_batch *batch, const char *text, size_t length, char id_out[33]);
/* Jobs and marks: small opaque values under a name of 1..200 bytes; bytes NULL deletes. */
int tuning_db_batch_job(
    struct tuning_db_batch *batch, const char *name, const void *bytes, size_t count);

/* 0, or -1: TUNE_EFULL at the map's limit or on a full disk, TUNE_EIO. On failure nothing of the
 * batch is stored, the database stays usable, and the same batch may be committed again. */
int tuning_db_commit(struct tuning_db *db, struct tuning_db_batch *batch, struct tune_error *err);

/* The same without storing anything: what a commit would do (tuning_db_batch_merged), whether it
 * would fail. */
int tuning_db_try(struct tuning_db *db, struct tuning_db_batch *batch, struct tune_error *err);

/* --- the lower layer -------------------------------------------------------------------------- */

/* Best rows under the local ones, derived from these samples by the same rule; copied. They answer
 * (with is_shipped) where the database has no row of that GPU model, and an arch's row where it has
 * none of the arch; nothing of them is stored, counted or changed. Replaces an earlier layer; call
 * it before other threads read. 0, or -1 without memory. */
int tuning_db_set_base(
    struct tuning_db *db, const struct sample *samples, size_t count, struct tune_error *err);
/* A hash of what the layer holds, 0 without one: part of what published answers depend on. */
uint64_t tuning_db_base_hash(const struct tuning_db *db);

/* --- what is still to be sent, and comparing with another set of rows ------------------------- */

/* The outbox in the order of ids, from the first one after `after` (NULL: the first), each row as
 * it is at that moment and the hash of its line, for tuning_db_batch_sent. The walk ends when the
 * callback returns non-zero. Entries whose row is gone are passed over and taken out. */
int tuning_db_walk_outbox(struct tuning_db *db, const uint8_t *after,
    int (*on_sample)(const struct sample *sample, const uint8_t *id, uint64_t hash, void *context),
    void *context, struct tune_error *err);
int tuning_db_outbox_count(struct tuning_db *db, size_t *count, struct tune_error *err);

#define TUNING_DB_BUCKETS 256 /* rows by the first byte of their id */
struct tuning_db_bucket {
    uint64_t rows, digest; /* digest: the hashes of all, exclusive or */
};
/* Of all samples and of the rows set aside; with_cpu false: without the samples of the arch `cpu`.
 * Reads all rows. */
int tuning_db_digest(struct tuning_db *db, bool with_cpu,
    struct tuning_db_bucket buckets[TUNING_DB_BUCKETS], struct tune_error *err);
/* The rows of one bucket by id: is_aside tells those that are not stored. */
int tuning_db_walk_bucket(struct tuning_db *db, bool with_cpu, unsigned bucket,
    int (*on_row)(const uint8_t *id, uint64_t hash, bool is_aside, void *context), void *context,
    struct tune_error *err);

/* --- reading ---------------------------------------------------------------------------------- */

/* Exact best of a GPU model: a name, and its multiprocessors (0: measured when they were not
 * recorded). gpu_name NULL: the arch's. 0 found (best_finish it), 1 not there, -1 error. */
int tuning_db_best(struct tuning_db *db, const struct record_key *key, const char *gpu_name,
    uint32_t sms, struct best *best, struct tune_error *err);

/* Walks the best rows of a kernel (any shape, arch, fingerprint), or of all with kernel NULL: one
 * for each key and GPU model; the arch's row repeats one of them and is left out. In all walks the
 * callback returns 0 to go on, what it is given is borrowed while it runs, and it may call the
 * database. A listing of up to 16 MiB is one snapshot; a longer one is read in pieces. */
int tuning_db_walk_best(struct tuning_db *db, const char *kernel,
    int (*on_best)(const struct best *best, void *context), void *context, struct tune_error *err);

/* The same of one key. */
int tuning_db_walk_best_of(struct tuning_db *db, const struct record_key *key,
    int (*on_best)(const struct best *best, void *context), void *context, struct tune_error *err);

/* The same as if the key had only the samples whose configuration `is_valid` takes (asked for each
 * of them): for who cannot use what the stored rows name. The arch's winner comes first; the lower
 * layer's rows, none hidden, come last. Memory: the samples of the key. */
int tuning_db_walk_best_among(struct tuning_db *db, const struct record_key *key,
    bool (*is_valid)(const char *config, void *context),
    int (*on_best)(const struct best *best, void *context), void *context, struct tune_error *err);

/* Samples of one key (all configs, GPUs, runs), or of the whole database with key NULL. */
int tuning_db_walk_samples(struct tuning_db *db, const struct record_key *key,
    int (*on_sample)(const struct sample *sample, void *context), void *context,
    struct tune_error *err);

/* A place between samples, in the order of their ids; zeros: before the first. */
struct tuning_db_place {
    uint8_t id[TUNING_DB_ID_BYTES]; /* of the last one that was passed */
    bool is_set;
    bool is_end; /* nothing comes after it, or did when it was reached */
};
/* Samples from a place on, which moves behind the last one handed out: as many as about
 * limit_bytes hold, at least one, from one consistent reading. Ends early as the walks do. */
int tuning_db_page_samples(struct tuning_db *db, struct tuning_db_place *place, size_t limit_bytes,
    int (*on_sample)(const struct sample *sample, void *context), void *context,
    struct tune_error *err);
/* The first sample of the first key after that of the place's sample, which becomes the place: 0
 * (sample_finish it), 1 when there is none, -1 error. */
int tuning_db_next_key(struct tuning_db *db, struct tuning_db_place *place, struct sample *first,
    struct tune_error *err);

/* Of each key, or of one, the samples that its best rows rest on: the winners, their ties, the
 * default's of the same run, and what says that these stand. Imported alone they give the same best
 * rows. Memory: the samples of one key. */
int tuning_db_walk_best_samples(struct tuning_db *db, const struct record_key *key,
    int (*on_sample)(const struct sample *sample, void *context), void *context,
    struct tune_error *err);

/* *bytes is malloc'ed, with a NUL after its end. 0 found, 1 not there (or damaged), -1 error. */
int tuning_db_cubin(struct tuning_db *db, const struct record_hash *key, void **bytes,
    size_t *count, struct tune_error *err);
int tuning_db_log(
    struct tuning_db *db, const char *id, char **text, size_t *length, struct tune_error *err);
int tuning_db_job(
    struct tuning_db *db, const char *name, void **bytes, size_t *count, struct tune_error *err);
int tuning_db_walk_jobs(struct tuning_db *db, const char *prefix,
    int (*on_job)(const char *name, const void *bytes, size_t count, void *context), void *context,
    struct tune_error *err);

struct tuning_db_stats {
    size_t samples, best, cubins, logs, jobs; /* rows; best counts the arch's too */
    size_t cubin_bytes, map_bytes, used_bytes;
    unsigned readers_used, readers_max; /* slots held at this moment, by others than this call */
    uint64_t damaged, generation;       /* generation: raised by every commit that changed `best` */
};
int tuning_db_stats(struct tuning_db *db, struct tuning_db_stats *stats, struct tune_error *err);

/* Raised by every commit that changed `best`; one load. What it counts is stored. */
uint64_t tuning_db_generation(const struct tuning_db *db);

/* Tells the keys whose best rows this handle changed after generation `since`, oldest first, a key
 * perhaps several times; *now: the generation that this reaches. The callback must not call the
 * database; what it is given is borrowed while it runs. 0, or 1 when not all are known (they are
 * too many, or `since` is before opening): then all rows count as changed. */
int tuning_db_changes(struct tuning_db *db, uint64_t since,
    void (*on_change)(const struct record_key *key, void *context), void *context, uint64_t *now);

/* Full check: every value of every database decodes. Counts damaged entries. */
int tuning_db_check(struct tuning_db *db, size_t *damaged, struct tune_error *err);

/* Searches the data file of a database that cannot be opened (or is closed) for samples and hands
 * out each sound one, whatever state its structure is in; reads only. The same row may come several
 * times, and an attempt that was later replaced beside its successor: putting them all into a new
 * database, which keeps the first final one of each, and refreshing their keys makes the samples
 * and best rows anew. Callback as in the walks. */
int tuning_db_salvage(const char *dir, int (*on_sample)(const struct sample *sample, void *context),
    void *context, struct tune_error *err);

#endif
