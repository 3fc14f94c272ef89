/* The tuned shapes of each kernel, kept in memory: which is nearest to a shape that is not tuned,
 * and what serving a neighbour's configuration has cost where that was measured.
 *
 * A kernel's table is made from its best rows when it is first needed, and brought up to date at
 * each use by the keys that the database says have changed; only a database that changed past
 * telling is read anew. Nothing but rows of that kernel is ever looked at.
 *
 * Threads: any. Making a table reads all best rows of the kernel (about 3 us each): not for the
 * loop thread. */
#ifndef TUNE_NEAREST_H
#define TUNE_NEAREST_H

#include "plugins/registry.h"
#include "tuning_db/tuning_db.h"

#define NEAREST_SHAPES 8 /* neighbours that an expected loss is computed from */

struct nearest;

/* The database is borrowed for its life. */
struct nearest *nearest_create(struct tuning_db *db);
void nearest_destroy(struct nearest *nearest); /* NULL is fine */

/* Whether a GPU with so many multiprocessors (0: not known) may be of the model of this one. A
 * stand-in for a device that is not attached knows no number. */
bool nearest_same_sms(uint32_t sms, const struct device_info *device);

struct nearest_question {
    const struct plugin *plugin;
    const int64_t *dims;
    const char *dtype, *mode;
    const struct device_info *device;
    /* Whether a configuration (canonical text) may be launched as asked. Called at most once for
     * each text; rows whose text is not are passed over. */
    bool (*is_valid)(const char *config, void *context);
    void *context;
};

/* A row of `best`; texts are malloc'ed. */
struct neighbour {
    bool same_arch, same_name, same_fingerprint, is_confirmed, is_shipped,
        is_own;      /* own: see method_is_own */
    uint32_t sms;    /* of the GPU; 0: not known */
    double distance; /* manifest_log_distance */
    double median_ns;
    double expected_loss; /* 0.05: 5 % slower than the best; below 0: not known */
    char *config, *shape, *gpu, *arch, *nvrtc;
};

/* The row to serve. Order: the same GPU model on the same arch; the arch; other archs. Within each
 * the shorter distance; then the arch of the nearer number; the same fingerprint; confirmed; and,
 * so that the answer never depends on the order of rows, the smaller dims, arch, GPU name and
 * fingerprint. Rows of the emulated device and of GPUs do not serve each other. 0 found
 * (neighbour_finish it), 1 none, -1 when the database cannot be read.
 *
 * The expected loss is what this rule has cost at similar distances, by the samples on hand: among
 * the NEAREST_SHAPES tuned shapes nearest to the asked one (of the served row's GPU model, arch,
 * dtype, mode and fingerprint), for each ordered pair (t, u) where the best configuration of u was
 * measured at t too: its median there over the best's, less 1. Of the pairs whose distance is
 * within a factor of four of the served one's, the eight most similar in distance count, and their
 * median is the loss; samples are read again when a best row of the kernel has changed. Not known
 * without such a pair, and for another arch: what moving between architectures costs was not
 * measured. */
int nearest_find(struct nearest *nearest, const struct nearest_question *question,
    struct neighbour *found, struct tune_error *err);
void neighbour_finish(struct neighbour *neighbour);

/* What the default has cost: the median over the NEAREST_SHAPES nearest tuned shapes on the arch
 * of its time over the best's, less 1; below 0 when not known. */
int nearest_default_loss(struct nearest *nearest, const struct nearest_question *question,
    double *loss, struct tune_error *err);

#endif
