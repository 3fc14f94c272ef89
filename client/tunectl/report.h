/* `report`: what sweeps measured, as one HTML file that needs nothing else.
 *
 * report.c gathers records (from the daemon, or from files of records), report_model.c turns them
 * into the JSON below, report_page.c puts that and the parts of share/tunerd/report (page.html,
 * page.css, the scripts, echarts.min.js) into one file. All arithmetic on measurements is done
 * here, in C; the page only draws, picks and brushes.
 *
 * {"tunerd":version,"created_unix_ms","from":"daemon"|file names,   these two set by report.c
 *  "groups":[{    one per (kernel, dtype, arch, GPU name, mode, fingerprint), the fullest first
 *    "kernel","dtype","arch","device","mode","fingerprint","summary"|null,
 *    "params":[{"name","meaning"|null,"names":{"1":"xor"}}],    in the manifest's order
 *    "limits":{"dram_bytes_per_s","flops" (of the dtype),"from":"measured"|"shipped"}|null,
 *    "shapes":[{"shape":{},"label":"M=64 N=32","flops"|0,"bytes"|0,"best":config|null,
 *      "default":config|null,"ties":[config...],"method"}],
 *    "configs":[[value of each param]...],                      each once
 *    "rows":{"shape":[],"config":[],"outcome":[],"median_ns":[],"lo_ns":[],"hi_ns":[] (null: it
 *      failed),"requested_bytes":[] (the manifest's traffic; null),"time_ms":[] (since the first
 *      row; null: not known),"run":[],"confirmed":[] (1 or 0),"stands":[] (1: its time is the
 *      configuration's),"registers":[],"spill_bytes":[],"shared_bytes":[],
 *      "detail":[] (why it failed; "")},
 *                                                 columns of equal length; in time order
 *    "outcomes":["ok",...],"runs":[names],
 *    "importance":[{"shape":index|null (all shapes),"rows":N,"shares":[one per param],"rest":x}],
 *    "loss":{"configs":[config...],"matrix":[[per shape: time / best time - 1, or null]...],
 *      "worst":[per config],"mean":[per config (geometric)]},   best overall first
 *    "provenance":{"drivers":["13.0"],"nvrtc":[],"hosts":[],"uuids":[],"first_unix_ms"|null,
 *      "last_unix_ms"|null,"rows":N,"ok":N,"throttled":N,"set_aside":N}}]}
 * `config`, `shape`, `outcome` and `run` are indices.
 *
 * Of one identity (key, configuration, GPU, run) one row is used. Rows that are not final, refused,
 * or timed by another method than the best of their shape are set aside. Rows of the emulated
 * device count when there are no others. Importance and loss take one time for each configuration
 * of a shape: the one that stands by the rule of tuning_db/best.c. */
#ifndef TUNECTL_REPORT_H
#define TUNECTL_REPORT_H

#include "client/error.h"
#include "plugins/manifest.h"
#include "tuning_db/record.h"

#include <jansson.h>

struct report; /* what has been gathered */

struct report *report_create(void);
void report_destroy(struct report *report);

/* Copies what it needs. */
void report_add(struct report *report, const struct sample *sample);

/* What is known of a kernel beside its records, asked for once per group; any part may be missing.
 * Returns NULL when the kernel, in the text of that fingerprint, is not known here. Borrowed. */
typedef const struct manifest *(*report_manifest_of)(
    const char *kernel, const char *fingerprint, void *context);
/* {"dram_bytes_per_s","flops_f32","from"} of a GPU model, or NULL. New reference. */
typedef json_t *(*report_limits_of)(const char *gpu_name, void *context);

/* The JSON above; new. */
json_t *report_model(const struct report *report, report_manifest_of manifest_of,
    report_limits_of limits_of, void *context);

/* Share of the variance of log(time) that each parameter alone explains (its first-order Sobol
 * index: the variance of the means over its values, I. M. Sobol 1993), over `count` rows of
 * `param_count` values. shares[param_count]; *rest: what no parameter explains alone, 0 at least.
 */
void report_importance(const double *times, const int64_t *values, size_t count, size_t param_count,
    double *shares, double *rest);

/* Writes the page; "-" is standard output. Nothing of an older file is lost when it fails. */
int report_page(const json_t *model, const char *path, struct tune_error *err);
/* The page's text, out of the parts in `folder`. New, or NULL with what is missing. */
char *report_page_text(
    const json_t *model, const char *folder, size_t *length, struct tune_error *err);

#endif
