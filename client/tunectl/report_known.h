/* What is known of kernels and GPUs beside their records: installed kernels, those of the daemon,
 * and the limits of GPU models. All of it may be missing. */
#ifndef TUNECTL_REPORT_KNOWN_H
#define TUNECTL_REPORT_KNOWN_H

#include "client/tune_rpc.h"
#include "plugins/manifest.h"

struct report_known;

/* client: borrowed, or NULL to ask no daemon. New. */
struct report_known *report_known_create(struct tune_client *client);
void report_known_destroy(struct report_known *known);

/* report_manifest_of and report_limits_of of report.h, with a struct report_known as context. */
const struct manifest *report_known_manifest(
    const char *kernel, const char *fingerprint, void *context);
json_t *report_known_limits(const char *gpu_name, void *context);

#endif
