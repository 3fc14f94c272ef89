/* Compiled images: from the cache, or from a compile worker and then into the cache.
 *
 * An image is asked for by source, macros, and device; its key is a hash of everything that can
 * change it: source and quoted headers, toolkit headers (by content), options, entries, target and
 * NVRTC's version. Two askers of one key share one compile. An image travels as a JSON package
 *     {"image":BASE64,"is_ptx":bool,"names":{entry:lowered},"resources":{...}}
 * which is also what the cache holds. */
#ifndef TUNE_IMAGE_H
#define TUNE_IMAGE_H

#include "daemon/sched.h"
#include "daemon/writer.h"
#include "plugins/registry.h"

struct images;

/* What is compiled; everything is borrowed during image_request only. */
struct image_source {
    const char *name; /* "gemm.cu" */
    const char *text;
    const char *content; /* hash of text and headers, 32 hex digits */
    size_t header_count;
    const struct plugin_header *headers;
    char *const *toolkit_headers; /* NULL-ended */
};

struct image_request {
    struct image_source source;
    json_t *defines; /* array of options; a reference is kept */
    json_t *entries; /* array of names; a reference is kept */
    const struct device_info *device;
    const char *arch_suffix; /* "" or "a" */
    bool no_nvrtc_cache;     /* switch NVRTC's own disk cache off */
};

struct image_result {
    json_t *package;   /* borrowed; NULL when compiling failed */
    const char *error; /* one line when it failed */
    const char *log;   /* the compiler's, may be "" */
    size_t log_bytes;  /* before it was cut */
    bool is_cached, is_ptx;
    bool
        is_hopeless; /* no compiler, or none for this device: asking for another config is no use */
    bool is_static_assert;
    double compile_ms;
};

typedef void (*image_callback)(const struct image_result *result, void *context);

/* All borrowed for the life of the result. */
struct images *images_create(
    uv_loop_t *loop, struct sched *sched, struct tuning_db *db, struct writer *writer);
void images_destroy(struct images *images); /* after the scheduler has stopped */

/* The callback never runs inside this call. */
void image_request(struct images *images, const struct image_request *request,
    image_callback callback, void *context);
void image_cancel(struct images *images, const void *context);

/* The --gpu-architecture for a device: "sm_90", "sm_90a", "cpu", or "compute_NN" (*is_ptx) for a
 * device newer than NVRTC. -1 with TUNE_ENOCOMPILER naming both sides. */
int image_target(const struct compiler_info *compiler, const struct device_info *device,
    const char *suffix, char target[24], bool *is_ptx, struct tune_error *err);

/* What is compiled, as the worker's pipe has it: a compile request without id, op, arch and cache.
 * New; NULL when a text is not UTF-8. */
json_t *image_compile_json(const struct image_source *source, json_t *defines, json_t *entries);

/* The hash of a source, as 32 hex digits. */
void image_hash_text(const char *text, char hex[33]);
struct image_source image_source_of_plugin(const struct plugin *plugin);

struct image_counts {
    uint64_t hits, compiles, failures;
};
struct image_counts images_counts(const struct images *images);

#endif
