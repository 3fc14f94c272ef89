/* See registry.h. The only file of this folder that does I/O. */
#include "registry.h"

#include "source_text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define TOOLKIT_HEADER_LIMIT 256
#define HOOKS_LIMIT_BYTES ((size_t)16 << 20)
#define HEADER_NAME_LIMIT 200

/* --- files ------------------------------------------------------------------------------------ */

/* A path for sentences: its end says more than its beginning. */
static const char *tail(const char *path)
{
    size_t length = strlen(path);
    return length > 70 ? path + length - 70 : path;
}

static char *path_new(const char *folder, const char *name, const char *suffix)
{
    char *path;
    return asprintf(&path, "%s/%s%s", folder, name, suffix) < 0 ? NULL : path;
}

static int no_memory(struct tune_error *err)
{
    return tune_fail(err, TUNE_ENOMEM, "no memory for a plugin");
}

static bool is_file(const char *path)
{
    struct stat status;
    return path != NULL && stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static bool is_folder(const char *path)
{
    struct stat status;
    return path != NULL && stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Reads until the end, whatever the size was said to be. */
static int read_all(
    int fd, const char *path, char *bytes, size_t limit, size_t *length, struct tune_error *err)
{
    *length = 0;
    while (*length <= limit) {
        ssize_t got = read(fd, bytes + *length, limit + 1 - *length);
        if (got == 0)
            return 0;
        if (got < 0 && errno != EINTR)
            return tune_fail_errno(err, TUNE_EIO, "cannot read %s", tail(path));
        if (got > 0)
            *length += (size_t)got;
    }
    return tune_fail(err, TUNE_ELIMIT,
        "%s is too large: more than the %zu bytes that are left to it", tail(path), limit);
}

/* The whole file, NUL-terminated and malloc'ed. Nothing but a regular file is opened for good: a
 * FIFO among the plugins must not stop the daemon. */
static char *read_file(const char *path, size_t limit, size_t *length, struct tune_error *err)
{
    struct stat status;
    char *bytes = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &status) != 0) {
        tune_fail_errno(
            err, errno == ENOENT ? TUNE_ENOTFOUND : TUNE_EIO, "cannot open %s", tail(path));
        goto out;
    }
    if (!S_ISREG(status.st_mode)) {
        tune_fail(err, TUNE_EINVAL, "%s is not a regular file", tail(path));
        goto out;
    }
    bytes = malloc(limit + 2);
    if (bytes == NULL) {
        no_memory(err);
    } else if (read_all(fd, path, bytes, limit, length, err)) {
        free(bytes);
        bytes = NULL;
    } else {
        bytes[*length] = '\0';
        char *fitted = realloc(bytes, *length + 1);
        bytes = fitted ? fitted : bytes;
    }
out:
    if (fd >= 0)
        close(fd);
    return bytes;
}

/* The same for source text: no NUL, and from a budget that all files of a plugin share. */
static char *read_text_file(const char *path, size_t *budget, struct tune_error *err)
{
    size_t length;
    char *text = read_file(path, *budget, &length, err);
    if (text == NULL)
        return NULL;
    if (memchr(text, '\0', length) != NULL) {
        tune_fail(err, TUNE_EINVAL, "%s has a NUL byte: it is not a source text", tail(path));
        free(text);
        return NULL;
    }
    *budget -= length;
    return text;
}

/* --- source and headers ----------------------------------------------------------------------- */

struct loader {
    struct plugin *plugin;
    const char *kernels_src; /* may be NULL */
    char *source_folder;
    size_t budget_bytes;
    char *tokens[1 + PLUGIN_HEADER_LIMIT]; /* of the source, then of each header */
    struct tune_error *err;
};

static int load_source(struct loader *loader)
{
    struct plugin *plugin = loader->plugin;
    const char *name = plugin->manifest->source;
    const char *folders[] = {plugin->folder, loader->kernels_src};
    for (size_t i = 0; i < 2 && folders[i] != NULL; i++) {
        char *path = path_new(folders[i], name, "");
        if (path == NULL)
            return no_memory(loader->err);
        if (is_file(path)) {
            plugin->source = read_text_file(path, &loader->budget_bytes, loader->err);
            free(path);
            plugin->source_name = strdup(name);
            loader->source_folder = strdup(folders[i]);
            if (plugin->source_name == NULL || loader->source_folder == NULL)
                return no_memory(loader->err);
            return plugin->source ? 0 : -1;
        }
        free(path);
    }
    return tune_fail(loader->err, TUNE_ENOTFOUND, "source %.64s is neither in %s nor in %s", name,
        tail(plugin->folder),
        loader->kernels_src ? tail(loader->kernels_src) : "a kernels_src folder");
}

static char *find_header(const struct loader *loader, const char *name)
{
    const char *folders[] = {loader->source_folder, loader->plugin->folder, loader->kernels_src};
    for (size_t i = 0; i < 3; i++) {
        char *path = folders[i] ? path_new(folders[i], name, "") : NULL;
        if (is_file(path))
            return path;
        free(path);
    }
    return NULL;
}

/* Takes `name`. */
static int add_header(struct loader *loader, char *name)
{
    struct plugin *plugin = loader->plugin;
    for (size_t i = 0; i < plugin->header_count; i++) {
        if (strcmp(plugin->headers[i].name, name) == 0) {
            free(name);
            return 0;
        }
    }
    struct plugin_header header = {.name = name};
    char *path = find_header(loader, name);
    if (plugin->header_count == PLUGIN_HEADER_LIMIT)
        tune_fail(loader->err, TUNE_ELIMIT, "%s includes more than %d headers", plugin->source_name,
            PLUGIN_HEADER_LIMIT);
    else if (path == NULL)
        tune_fail(loader->err, TUNE_ENOTFOUND,
            "header \"%.60s\" is neither in %s nor in %s; the toolkit's headers go in <>", name,
            tail(loader->source_folder), tail(plugin->folder));
    else
        header.text = read_text_file(path, &loader->budget_bytes, loader->err);
    free(path);
    if (header.text == NULL) {
        free(name);
        return -1;
    }
    plugin->headers[plugin->header_count++] = header;
    return 0;
}

/* Takes `name`. The list always has room for its NULL. */
static int add_toolkit_header(struct loader *loader, char *name)
{
    char **list = loader->plugin->toolkit_headers;
    size_t count = 0;
    for (; list[count] != NULL; count++) {
        if (strcmp(list[count], name) == 0) {
            free(name);
            return 0;
        }
    }
    if (count == TOOLKIT_HEADER_LIMIT) {
        free(name);
        return tune_fail(loader->err, TUNE_ELIMIT, "%s includes more than %d toolkit headers",
            loader->plugin->source_name, TOOLKIT_HEADER_LIMIT);
    }
    list[count] = name;
    return 0;
}

static int add_include(
    struct loader *loader, const struct source_include *include, const char *from)
{
    if (include->form == INCLUDE_COMPUTED)
        return tune_fail(loader->err, TUNE_EINVAL,
            "%.60s: #include %.*s: the name must stand in quotes or <>, so that the headers are "
            "known",
            from, include->length < 60 ? (int)include->length : 60, include->name);
    char *name = strndup(include->name, include->length);
    if (name == NULL)
        return no_memory(loader->err);
    if (!source_is_inside(name) || include->length > HEADER_NAME_LIMIT) {
        tune_fail(loader->err, TUNE_EINVAL,
            "%.60s: #include of \"%.80s\": a header lies beside the source or below, and its name "
            "has at most %d bytes",
            from, name, HEADER_NAME_LIMIT);
        free(name);
        return -1;
    }
    return include->form == INCLUDE_QUOTED ? add_header(loader, name)
                                           : add_toolkit_header(loader, name);
}

/* Its tokens are kept in the loader, as number `index`. */
static int scan_includes(struct loader *loader, size_t index, const char *text, const char *from)
{
    struct source_include include;
    const char *at = loader->tokens[index] = source_tokens(text, strlen(text));
    int failed = at == NULL ? no_memory(loader->err) : 0;
    while (!failed && (at = source_next_include(at, &include)) != NULL)
        failed = add_include(loader, &include, from);
    return failed;
}

/* Breadth first: the list of headers grows while it is walked. */
static int load_headers(struct loader *loader)
{
    struct plugin *plugin = loader->plugin;
    plugin->headers = calloc(PLUGIN_HEADER_LIMIT, sizeof *plugin->headers);
    plugin->toolkit_headers = calloc(TOOLKIT_HEADER_LIMIT + 1, sizeof *plugin->toolkit_headers);
    if (plugin->headers == NULL || plugin->toolkit_headers == NULL)
        return no_memory(loader->err);
    if (scan_includes(loader, 0, plugin->source, plugin->source_name))
        return -1;
    for (size_t i = 0; i < plugin->header_count; i++)
        if (scan_includes(loader, 1 + i, plugin->headers[i].text, plugin->headers[i].name))
            return -1;
    return 0;
}

/* --- fingerprints ----------------------------------------------------------------------------- */

/* Lengths go in front, so that no two lists of texts run together. */
static void hash_bytes(XXH3_state_t *state, const void *bytes, size_t length)
{
    uint8_t prefix[8];
    for (size_t i = 0; i < sizeof prefix; i++)
        prefix[i] = (uint8_t)((uint64_t)length >> (8 * i));
    XXH3_128bits_update(state, prefix, sizeof prefix);
    XXH3_128bits_update(state, bytes, length);
}

static void hash_text(XXH3_state_t *state, const char *text)
{
    hash_bytes(state, text, strlen(text));
}

static int hash_tokens(XXH3_state_t *state, const char *text, struct tune_error *err)
{
    char *tokens = source_tokens(text, strlen(text));
    if (tokens == NULL)
        return no_memory(err);
    hash_text(state, tokens);
    free(tokens);
    return 0;
}

static void hash_print(const XXH3_state_t *state, char out[33])
{
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    snprintf(
        out, 33, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

/* The hooks count by the tokens of their source if it is there, else by the library's bytes. */
static int hash_hooks(XXH3_state_t *state, struct loader *loader)
{
    struct plugin *plugin = loader->plugin;
    char *path = path_new(plugin->folder, plugin->manifest->name, ".c");
    int failed = path == NULL ? no_memory(loader->err) : 0;
    if (!failed && is_file(path)) {
        size_t budget = PLUGIN_SOURCE_LIMIT_BYTES;
        char *text = read_text_file(path, &budget, loader->err);
        failed = text == NULL || hash_tokens(state, text, loader->err) ? -1 : 0;
        free(text);
    } else if (!failed && plugin->hooks != NULL) {
        size_t length;
        char *bytes = read_file(plugin->hooks, HOOKS_LIMIT_BYTES, &length, loader->err);
        if (bytes != NULL)
            hash_bytes(state, bytes, length);
        else
            failed = -1;
        free(bytes);
    }
    free(path);
    return failed;
}

/* Content alone: no path, no time stamp. */
static int make_fingerprint(struct loader *loader)
{
    struct plugin *plugin = loader->plugin;
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    hash_text(&state, "tunerd fingerprint 1"); /* raise when the canonical forms change */
    hash_text(&state, plugin->manifest->canonical);
    hash_text(&state, loader->tokens[0]);
    for (size_t i = 0; i < plugin->header_count; i++) {
        hash_text(&state, plugin->headers[i].name);
        hash_text(&state, loader->tokens[1 + i]);
    }
    if (hash_hooks(&state, loader))
        return -1;
    hash_print(&state, plugin->fingerprint);
    return 0;
}

static void make_content_hash(struct plugin *plugin)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    hash_text(&state, plugin->source_name); /* it is in the compiler's messages and in __FILE__ */
    hash_text(&state, plugin->source);
    for (size_t i = 0; i < plugin->header_count; i++) {
        hash_text(&state, plugin->headers[i].name);
        hash_text(&state, plugin->headers[i].text);
    }
    hash_print(&state, plugin->content);
}

/* --- one plugin ------------------------------------------------------------------------------- */

/* Reads the manifest at `path`, whose links are resolved, and splits off its folder. */
static int load_manifest(struct loader *loader, const char *path)
{
    struct plugin *plugin = loader->plugin;
    size_t length;
    const char *file = strrchr(path, '/') + 1;
    char *text = read_file(path, MANIFEST_MAX_BYTES, &length, loader->err);
    if (text == NULL)
        return -1;
    plugin->manifest = manifest_create(text, length, tail(path), loader->err);
    free(text);
    if (plugin->manifest == NULL)
        return -1;
    plugin->folder = strndup(path, (size_t)(file - path) > 1 ? (size_t)(file - path) - 1 : 1);
    if (plugin->folder == NULL)
        return no_memory(loader->err);
    const char *name = plugin->manifest->name;
    if (strncmp(file, name, strlen(name)) != 0 || strcmp(file + strlen(name), ".json") != 0)
        return tune_fail(loader->err, TUNE_EINVAL,
            "%s: the kernel is named \"%s\", so its manifest must be %s.json", tail(path), name,
            name);
    return 0;
}

static int find_hooks(struct loader *loader)
{
    struct plugin *plugin = loader->plugin;
    plugin->hooks = path_new(plugin->folder, plugin->manifest->name, ".so");
    if (plugin->hooks == NULL)
        return no_memory(loader->err);
    if (!is_file(plugin->hooks)) {
        free(plugin->hooks);
        plugin->hooks = NULL;
    }
    return 0;
}

struct plugin *plugin_load(
    const char *manifest_path, const char *kernels_src, struct tune_error *err)
{
    char *path = realpath(manifest_path, NULL);
    if (path == NULL) {
        tune_fail_errno(err, TUNE_ENOTFOUND, "cannot find %s", tail(manifest_path));
        return NULL;
    }
    struct plugin *plugin = calloc(1, sizeof *plugin);
    struct loader loader = {.plugin = plugin,
        .kernels_src = kernels_src,
        .budget_bytes = PLUGIN_SOURCE_LIMIT_BYTES,
        .err = err};
    int failed = plugin == NULL ? no_memory(err) : 0;
    if (!failed) {
        plugin->references = 1;
        failed = load_manifest(&loader, path) || load_source(&loader) || load_headers(&loader) ||
                 find_hooks(&loader) || make_fingerprint(&loader);
    }
    if (!failed)
        make_content_hash(plugin);
    for (size_t i = 0; i <= PLUGIN_HEADER_LIMIT; i++)
        free(loader.tokens[i]);
    free(loader.source_folder);
    free(path);
    if (!failed)
        return plugin;
    plugin_unref(plugin);
    return NULL;
}

struct plugin *plugin_ref(struct plugin *plugin)
{
    plugin->references++;
    return plugin;
}

void plugin_unref(struct plugin *plugin)
{
    if (plugin == NULL || --plugin->references > 0)
        return;
    manifest_destroy(plugin->manifest);
    free(plugin->folder);
    free(plugin->source_name);
    free(plugin->source);
    for (size_t i = 0; i < plugin->header_count; i++) {
        free(plugin->headers[i].name);
        free(plugin->headers[i].text);
    }
    free(plugin->headers);
    for (char **name = plugin->toolkit_headers; name != NULL && *name != NULL; name++)
        free(*name);
    free(plugin->toolkit_headers);
    free(plugin->hooks);
    free(plugin);
}

/* --- all plugins ------------------------------------------------------------------------------ */

struct failure {
    char *name;
    struct tune_error reason;
};

/* What one reading of the folders gives. */
struct catalogue {
    size_t count, failure_count;
    struct plugin **plugins; /* by name */
    struct failure *failures;
};

struct registry {
    char **folders; /* NULL-ended */
    struct catalogue catalogue;
};

static void catalogue_finish(struct catalogue *catalogue)
{
    for (size_t i = 0; i < catalogue->count; i++)
        plugin_unref(catalogue->plugins[i]);
    for (size_t i = 0; i < catalogue->failure_count; i++)
        free(catalogue->failures[i].name);
    free(catalogue->plugins);
    free(catalogue->failures);
    *catalogue = (struct catalogue){0};
}

static const struct failure *find_failure(const struct catalogue *catalogue, const char *name)
{
    for (size_t i = 0; i < catalogue->failure_count; i++)
        if (strcmp(catalogue->failures[i].name, name) == 0)
            return &catalogue->failures[i];
    return NULL;
}

static struct plugin *find_plugin(const struct catalogue *catalogue, const char *name)
{
    for (size_t i = 0; i < catalogue->count; i++)
        if (strcmp(catalogue->plugins[i]->manifest->name, name) == 0)
            return catalogue->plugins[i];
    return NULL;
}

/* A name that failed in an earlier folder stays failed: falling back to the plugin that it was
 * meant to replace would tune another kernel than the user wrote, without a word. */
static bool is_settled(const struct catalogue *catalogue, const char *name)
{
    return find_plugin(catalogue, name) != NULL || find_failure(catalogue, name) != NULL;
}

static void add_failure(
    struct catalogue *catalogue, const char *name, const struct tune_error *reason)
{
    struct failure *failures =
        realloc(catalogue->failures, (catalogue->failure_count + 1) * sizeof *failures);
    if (failures == NULL)
        return;
    catalogue->failures = failures;
    failures[catalogue->failure_count] = (struct failure){strdup(name), *reason};
    if (failures[catalogue->failure_count].name != NULL)
        catalogue->failure_count++;
}

/* Takes the reference. */
static void add_plugin(struct catalogue *catalogue, struct plugin *plugin)
{
    struct plugin **plugins = realloc(catalogue->plugins, (catalogue->count + 1) * sizeof *plugins);
    if (plugins == NULL) {
        plugin_unref(plugin);
        return;
    }
    catalogue->plugins = plugins;
    plugins[catalogue->count++] = plugin;
}

static void load_entry(
    struct catalogue *catalogue, const char *folder, const char *kernels_src, const char *name)
{
    struct tune_error err = {0};
    char *plugin_folder = path_new(folder, name, "");
    char *manifest_path = plugin_folder ? path_new(plugin_folder, name, ".json") : NULL;
    if (manifest_path != NULL && is_folder(plugin_folder) && !is_settled(catalogue, name)) {
        struct plugin *plugin = plugin_load(manifest_path, kernels_src, &err);
        if (plugin == NULL)
            add_failure(catalogue, name, &err);
        else if (is_settled(catalogue, plugin->manifest->name)) /* a link to one that is known */
            plugin_unref(plugin);
        else
            add_plugin(catalogue, plugin);
    }
    free(manifest_path);
    free(plugin_folder);
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* The kernels_src folder next to a plugins folder, or NULL. malloc'ed. */
static char *sibling_sources(const char *folder)
{
    char *resolved = realpath(folder, NULL);
    char *path = resolved ? path_new(resolved, "../kernels_src", "") : NULL;
    char *sources = is_folder(path) ? realpath(path, NULL) : NULL;
    free(path);
    free(resolved);
    return sources;
}

/* A user's folder without sources of its own shares those of the first folder that has some. */
static char *sources_for(const struct registry *registry, const char *folder)
{
    char *sources = sibling_sources(folder);
    for (char **other = registry->folders; sources == NULL && *other != NULL; other++)
        sources = sibling_sources(*other);
    return sources;
}

static void load_folder(
    const struct registry *registry, struct catalogue *catalogue, const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, is_visible, compare_names);
    if (count < 0)
        return;
    char *kernels_src = sources_for(registry, folder);
    for (int i = 0; i < count; i++) {
        load_entry(catalogue, folder, kernels_src, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    free(kernels_src);
}

static int compare_plugins(const void *a, const void *b)
{
    const struct plugin *const *first = a, *const *second = b;
    return strcmp((*first)->manifest->name, (*second)->manifest->name);
}

struct registry *registry_create(const char *const *folders)
{
    size_t count = 0;
    while (folders[count] != NULL)
        count++;
    struct registry *registry = calloc(1, sizeof *registry);
    char **copies = calloc(count + 1, sizeof *copies);
    if (registry == NULL || copies == NULL) {
        free(registry);
        free(copies);
        return NULL;
    }
    registry->folders = copies;
    for (size_t i = 0; i < count; i++) {
        copies[i] = strdup(folders[i]);
        if (copies[i] == NULL) {
            registry_destroy(registry);
            return NULL;
        }
    }
    return registry;
}

void registry_destroy(struct registry *registry)
{
    if (registry == NULL)
        return;
    catalogue_finish(&registry->catalogue);
    for (char **folder = registry->folders; *folder != NULL; folder++)
        free(*folder);
    free(registry->folders);
    free(registry);
}

size_t registry_reload(struct registry *registry)
{
    struct catalogue fresh = {0};
    for (char **folder = registry->folders; *folder != NULL; folder++)
        load_folder(registry, &fresh, *folder);
    if (fresh.count > 0)
        qsort(fresh.plugins, fresh.count, sizeof *fresh.plugins, compare_plugins);
    catalogue_finish(&registry->catalogue);
    registry->catalogue = fresh;
    return fresh.count;
}

size_t registry_count(const struct registry *registry)
{
    return registry->catalogue.count;
}

struct plugin *registry_at(const struct registry *registry, size_t index)
{
    return index < registry->catalogue.count ? registry->catalogue.plugins[index] : NULL;
}

static int not_found(const struct registry *registry, const char *name, struct tune_error *err)
{
    const struct catalogue *catalogue = &registry->catalogue;
    char list[140] = "";
    size_t used = 0;
    for (size_t i = 0; i < catalogue->count; i++) {
        const char *known = catalogue->plugins[i]->manifest->name;
        if (used + strlen(known) + 8 > sizeof list) {
            strcpy(list + used, ", ...");
            break;
        }
        used += (size_t)sprintf(list + used, "%s%s", used ? ", " : "", known);
    }
    if (catalogue->count == 0)
        return tune_fail(err, TUNE_ENOTFOUND,
            "there is no kernel \"%.60s\": no plugin was found in %s; give a folder with --plugins",
            name, registry->folders[0] ? tail(registry->folders[0]) : "any folder");
    return tune_fail(err, TUNE_ENOTFOUND, "there is no kernel \"%.60s\"; there are %s", name, list);
}

struct plugin *registry_find(
    const struct registry *registry, const char *name, struct tune_error *err)
{
    struct plugin *plugin = find_plugin(&registry->catalogue, name);
    if (plugin != NULL)
        return plugin;
    const struct failure *failure = find_failure(&registry->catalogue, name);
    if (failure != NULL)
        tune_fail(err, failure->reason.code, "%s", failure->reason.text);
    else
        not_found(registry, name, err);
    return NULL;
}

bool registry_failure(
    const struct registry *registry, size_t index, const char **name, const char **reason)
{
    if (index >= registry->catalogue.failure_count)
        return false;
    *name = registry->catalogue.failures[index].name;
    *reason = registry->catalogue.failures[index].reason.text;
    return true;
}
