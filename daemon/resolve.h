/* From a question to an answer: which configuration to launch, where it comes from, how much it may
 * lose. Reads the database, changes nothing; for any thread.
 *
 * Order: exact on the same GPU model; exact on the arch; the nearest shape on the model; on the
 * arch; other archs (transferred); the default. A configuration is taken only if it is valid for
 * the asked shape on the asked device. */
#ifndef TUNE_RESOLVE_H
#define TUNE_RESOLVE_H

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
    bool only_exact;
};

struct resolved {
    enum resolve_origin origin;
    int64_t values[MANIFEST_MAX_PARAMS];
    json_t *json; /* the result of `get` without cubin and job; NULL with RESOLVE_NONE */
};

/* 0, or -1 when the database cannot be read. */
int resolve(struct tuning_db *db, const struct question *question, struct resolved *resolved,
    struct tune_error *err);
void resolved_finish(struct resolved *resolved);

#endif
