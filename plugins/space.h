/* The valid configurations of a kernel for one shape on one device, in lexicographic order of the
 * manifest's parameters and values.
 *
 * Building walks the parameters depth first and checks each constraint as soon as its last
 * parameter is bound, so rejected subtrees are never walked. A constraint or derived value that
 * cannot be evaluated (division by zero, overflow) rejects the configuration and is counted apart,
 * with the first such message kept.
 *
 * A configuration takes a byte per param and nothing else grows with the space: the 414,920 valid
 * ones of a published space of 22.2 million points are built in 0.4 s by a process of 27 MB. */
#ifndef TUNE_SPACE_H
#define TUNE_SPACE_H

#include "manifest.h"

#define SPACE_CONFIG_LIMIT 1000000  /* valid configurations */
#define SPACE_VISIT_LIMIT 200000000 /* nodes walked while building */

/* Restricts params to some of their values: the `params` of a sweep request. */
struct space_filter {
    uint64_t allowed[MANIFEST_MAX_PARAMS]; /* bit v: value index v may be used */
};

void space_filter_init(struct space_filter *filter, const struct manifest *manifest); /* all */
/* From {"BM":[32,64],"PAD":1}; every value must be one that the manifest lists. */
int space_filter_from_json(struct space_filter *filter, const struct manifest *manifest,
    const json_t *json, struct tune_error *err);

struct space;

/* New, or NULL: TUNE_EEMPTY naming the constraint (its message and text) that removed the most,
 * TUNE_ELIMIT past a limit above. `filter` may be NULL. The manifest is borrowed for the space's
 * life. */
struct space *space_create(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, const struct space_filter *filter,
    struct tune_error *err);
void space_destroy(struct space *space);

size_t space_count(const struct space *space);
const struct manifest *space_manifest(const struct space *space);

/* Values of the params of configuration `index`, in manifest order. */
void space_config(const struct space *space, size_t index, int64_t *values);
/* Index of a configuration, or SIZE_MAX when it is not in the space. */
size_t space_find(const struct space *space, const int64_t *values);
/* The default: the first of the manifest's defaults that is valid here; SIZE_MAX when none is. One
 * that the filter leaves out has the index space_count(): space_config and space_find know it, but
 * it is not of the space. */
size_t space_default(const struct space *space);
/* Configurations that differ in one param only, nearest values first; returns how many were
 * written to out[0..room). */
size_t space_neighbours(const struct space *space, size_t index, size_t *out, size_t room);

/* Why one configuration is or is not valid, without building a space: 0, or -1 with TUNE_EINVAL and
 * the failed constraint's sentence, or TUNE_EMATH. Fills derived values into slots[] (bound by
 * manifest_bind before). */
int space_check(
    const struct manifest *manifest, const int64_t *values, int64_t *slots, struct tune_error *err);

/* How many configurations a constraint removed, for reports: the manifest's constraints come first,
 * then its `requires`. Each removed configuration counts once, for the first constraint that failed
 * on the way down. And how many could not be evaluated, with the first reason (borrowed, NULL if
 * none). Both stop at SIZE_MAX. */
size_t space_removed(const struct space *space, size_t constraint);
size_t space_errors(const struct space *space, const char **first);

#endif
