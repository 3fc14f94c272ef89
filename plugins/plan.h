/* Everything that follows from (manifest, shape, dtype, configuration, device): the macros to
 * compile with, the buffers to allocate, the launches to make. Pure; the JSON forms are those of
 * the protocol (`get`) and of the worker pipe, so both see the very same geometry.
 *
 * Device limits are checked here, before any compile: a block, grid, or shared-memory size past the
 * device's limit is TUNE_ELIMIT with the dimension, the value and the limit (outcome over_limits);
 * an expression that fails or gives a size below 1 is TUNE_EINVAL or TUNE_EMATH (outcome invalid).
 */
#ifndef TUNE_PLAN_H
#define TUNE_PLAN_H

#include "manifest.h"

/* Launches of a configuration, as the protocol shows them:
 * [{"entry","grid":[x,y,z],"block":[x,y,z],"shared_bytes","defines":{"BM":64,...},
 *   "args":[{"kind":"buffer","name"}|{"kind":"scalar","type","value"}],"cluster":null|[x,y,z],
 *   "cooperative":false,"repeat":1} | {"memset":"C","byte":0} |
 * {"constant":"taps","buffer":"filter"}]; what is done once has "once":true and comes first, then
 * `zero_before` buffers as memsets; "defines"
 * has a value with a "define" of its own as its integer, for programs (the compiler gets the text).
 * New reference, or NULL. */
json_t *plan_launches(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, const int64_t *values, struct tune_error *err);

/* [{"name","dtype","bytes","count","role","zero_before","fill","fill_value"}]; "fill_value" is what
 * a fill "value" puts everywhere, or what a "below" stays below; buffers of count 0 have bytes 0;
 * one that is filled from a sparse matrix has "matrix":{"ROWS",...}, its description.
 * With values NULL only those that do not depend on params (in, out, inout). */
json_t *plan_buffers(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, const int64_t *values, struct tune_error *err);

/* The reference: {"buffers":[...],"launches":[...],"checks":[{"buffer","reference","scale"|null,
 * "relative","absolute"}]} with tolerances evaluated: |x - ref| <= absolute + relative * scale. */
json_t *plan_reference(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, struct tune_error *err);

/* Compiler options, an array of strings in canonical order: the macros of params, compile dims and
 * dtype ("-DBM=64"). values NULL: the reference's defines instead of the params. */
json_t *plan_defines(const struct manifest *manifest, const int64_t *dims, const char *dtype,
    const int64_t *values, struct tune_error *err);

/* Names of the entries that the launches use (unique, in order). New reference to an array. */
json_t *plan_entries(const struct manifest *manifest, bool of_reference);

/* "a" or "" for the configuration: the suffix of the arch it must be compiled for. */
const char *plan_arch_suffix(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, const int64_t *values);

/* flops and bytes of one call; 0 when the manifest gives none. */
int plan_work(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, double *flops, double *bytes, struct tune_error *err);

#endif
