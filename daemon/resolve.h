/* From a question to an answer: which configuration to launch, where it comes from, how much it may
 * lose. Reads the database, changes nothing; for any thread.
 *
 * Order: exact on the same GPU model; exact on the arch; the nearest shape on the model; on the
 * arch; other archs (transferred); the default (nearest.h has distances and ties). Exact rows are
 * those of today's fingerprint; older ones serve as nearest, at distance 0 for the same shape. A
 * configuration is taken only if it is valid for the asked shape on the asked device: where that of
 * an exact row is not, the next best of the key is taken, which takes reading its samples.
 *
 * expected_loss (0.05: probably 5 % slower than the best; null: nothing is known):
 *   exact on the same model   0 when confirmed, else half the relative width of its interval: it
 *                             was the best of what was tried, as far as its time is known
 *   exact on another model    null: what moving between models costs was not measured
 *   nearest, default          what such answers have cost where it was measured (nearest.h)
 *   transferred               null, as between models
 *
 * "match" lists which of arch, gpu, sms (multiprocessors), shape and fingerprint (the kernel's
 * text) are the same as where the configuration was measured. Two GPUs of one name are of one model
 * only if their multiprocessors agree, where both are known. */
#ifndef TUNE_RESOLVE_H
#define TUNE_RESOLVE_H

#include "daemon/nearest.h"
#include "plugins/registry.h"
#include "tuning_db/tuning_db.h"

enum resolve_origin {
    RESOLVE_EXACT,
    RESOLVE_NEAREST,
    RESOLVE_TRANSFERRED,
    RESOLVE_DEFAULT,
    RESOLVE_NONE,
};

struct question {
    const struct plugin *plugin; /* borrowed */
    int64_t dims[MANIFEST_MAX_DIMS];
    const char *dtype, *mode;  /* borrowed */
    struct device_info device; /* to launch on; uuid "" where none is attached */
    bool only_exact;           /* else RESOLVE_NONE */
    bool is_quick;             /* with only_exact: no samples are read, see is_unsure */
    struct nearest *nearest;   /* borrowed; NULL with only_exact */
};

struct resolved {
    enum resolve_origin origin;
    bool is_unsure; /* an exact row is not valid here: what stands behind it, which is served (or may
                       be there, when is_quick), can change while the generation does not */
    int64_t values[MANIFEST_MAX_PARAMS];
    json_t *json; /* the result of `get` without cubin and job; NULL with RESOLVE_NONE */
};

/* 0, or -1 when the database cannot be read. */
int resolve(struct tuning_db *db, const struct question *question, struct resolved *resolved,
    struct tune_error *err);
void resolved_finish(struct resolved *resolved);

#endif
