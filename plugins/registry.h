/* The plugins there are: found in folders, loaded, fingerprinted, looked up by name, reloaded.
 *
 * A plugin folder holds NAME/NAME.json; the source lies beside it or in a `kernels_src` folder next
 * to the plugins folder. Folders are searched in order, and the first plugin of a name wins. A
 * plugin that cannot be loaded is remembered with its reason and does not disturb the others.
 *
 * A plugin's text is read once: the manifest, the source, and every header it includes with quotes
 * (recursively, from the source's own folder and the plugin's folder), so that a sweep compiles the
 * same text to its end whatever happens to the files. Plugins are reference counted: a reload makes
 * new ones, while a sweep keeps the one it started with.
 *
 * The fingerprint is a hash of the canonical manifest and of the tokens (no comments, no blanks) of
 * the source, its quoted headers and the hooks. Headers in angle brackets belong to the toolkit and
 * are part of a cubin's key instead. */
#ifndef TUNE_REGISTRY_H
#define TUNE_REGISTRY_H

#include "manifest.h"

#define PLUGIN_SOURCE_LIMIT_BYTES ((size_t)4 << 20) /* source and headers together */
#define PLUGIN_HEADER_LIMIT 64

struct plugin_header {
    char *name; /* as written between the quotes */
    char *text;
};

struct plugin {
    _Atomic unsigned references; /* any thread may take and drop them */
    struct manifest *manifest;
    char *folder;      /* of the manifest, resolved */
    char *source_name; /* "gemm.cu", for compile logs */
    char *source;
    size_t header_count;
    struct plugin_header *headers;
    char **toolkit_headers; /* names in <...> that source and headers include, NULL-ended */
    char *hooks;            /* path of NAME.so beside the manifest, or NULL */
    char fingerprint[33];   /* 32 hex digits */
    char content[33];       /* hash of the exact source and header text: part of a cubin's key */
};

/* Loads one plugin from its manifest's path. kernels_src may be NULL. New (1 reference). */
struct plugin *plugin_load(
    const char *manifest_path, const char *kernels_src, struct tune_error *err);
struct plugin *plugin_ref(struct plugin *plugin);
void plugin_unref(struct plugin *plugin); /* NULL is fine */

struct registry;

/* folders: NULL-ended, copied. A folder that does not exist is skipped. */
struct registry *registry_create(const char *const *folders);
void registry_destroy(struct registry *registry);

/* Reads all folders again. Returns the number of plugins; failures are kept for registry_failure.
 */
size_t registry_reload(struct registry *registry);

size_t registry_count(const struct registry *registry);
struct plugin *registry_at(const struct registry *registry, size_t index); /* borrowed, by name */
/* Borrowed until the next reload, or NULL with TUNE_ENOTFOUND (naming the kernels there are) or the
 * reason why that plugin could not be loaded. */
struct plugin *registry_find(
    const struct registry *registry, const char *name, struct tune_error *err);

/* Plugins that could not be loaded: name and sentence; false past the end. */
bool registry_failure(
    const struct registry *registry, size_t index, const char **name, const char **reason);

#endif
