/* What `explain` asks the database: which configuration it is about, where none or only some of its
 * parameters are given, and how long that one took where it was measured. Changes nothing; for any
 * thread. */
#ifndef TUNE_INQUIRY_H
#define TUNE_INQUIRY_H

#include "daemon/resolve.h"

struct inquiry {
    struct question question; /* as of `get` with the policy nearest */
    bool has_config, is_given[MANIFEST_MAX_PARAMS];
    int64_t values[MANIFEST_MAX_PARAMS]; /* those given; after inquiry_run all */
    /* What was found. */
    char origin[16];      /* "given", or that of the best known configuration */
    char filled_from[16]; /* the origin of the parameters not given; "": all are */
    char measured_on[96]; /* "": it was not measured */
    double median_ns, lo_ns, hi_ns;
};

/* Takes over {"BM":64,"SWIZZLE":"xor"}: any of the parameters. TUNE_EINVAL for one that there is
 * not, or a value that it does not have. */
int inquiry_config(struct inquiry *inquiry, const json_t *config, struct tune_error *err);

/* 0, or -1: TUNE_EINVAL with the constraint that the configuration breaks for that shape on that
 * device, TUNE_ENOTFOUND when none is given and none is known, or the database's error. */
int inquiry_run(struct inquiry *inquiry, struct tuning_db *db, struct tune_error *err);

#endif
