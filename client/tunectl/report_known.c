/* See report_known.h. A kernel counts only in the text that the records are of: by its
 * fingerprint. The daemon's limits go before those that came with the program. */
#include "report_known.h"
#include "print.h"

#include "client/folders.h"
#include "plugins/registry.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct report_known {
    struct tune_client *client;
    struct plugin **plugins; /* handed out; count of them */
    size_t plugin_count;
    json_t *devices; /* the daemon's answer, or NULL */
    json_t *shipped; /* all entries of *.limits.json */
};

/* --- limits ----------------------------------------------------------------------------------- */

static void read_limits(json_t *shipped, const char *path)
{
    json_t *list = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_array(list))
        json_array_extend(shipped, list);
    json_decref(list);
}

static json_t *read_shipped(void)
{
    json_t *shipped = json_array();
    char folder[PATH_MAX], pattern[PATH_MAX + 32];
    for (size_t i = 0; folders_installed(i, "records", folder); i++) {
        glob_t found;
        snprintf(pattern, sizeof pattern, "%s/*.limits.json", folder);
        if (glob(pattern, 0, NULL, &found) == 0) {
            for (size_t k = 0; k < found.gl_pathc; k++)
                read_limits(shipped, found.gl_pathv[k]);
            globfree(&found);
        }
    }
    return shipped;
}

static bool is_of(const json_t *object, const char *key, const char *gpu_name)
{
    return strcmp(text_of(object, key), gpu_name) == 0;
}

json_t *report_known_limits(const char *gpu_name, void *context)
{
    const struct report_known *known = context;
    const json_t *entry;
    size_t i;
    json_array_foreach (known->devices, i, entry) {
        json_t *limits = json_object_get(entry, "limits");
        if (json_is_object(limits) && is_of(entry, "name", gpu_name))
            return json_incref(limits);
    }
    json_array_foreach (known->shipped, i, entry)
        if (is_of(entry, "device", gpu_name))
            return json_pack("{s:f, s:f, s:s}", "dram_bytes_per_s",
                number_of(entry, "dram_bytes_per_s"), "flops_f32", number_of(entry, "flops_f32"),
                "from", "shipped");
    return NULL;
}

/* --- kernels ---------------------------------------------------------------------------------- */

static const struct manifest *keep(struct report_known *known, struct plugin *plugin)
{
    known->plugins =
        need(realloc(known->plugins, (known->plugin_count + 1) * sizeof(struct plugin *)));
    known->plugins[known->plugin_count++] = plugin;
    return plugin->manifest;
}

/* Of a folder of kernels: the kernel, if it is there in that text. */
static struct plugin *load(const char *folder, const char *kernel, const char *fingerprint)
{
    char *manifest, *sources;
    if (asprintf(&manifest, "%s/%s/%s.json", folder, kernel, kernel) < 0 ||
        asprintf(&sources, "%s/../kernels_src", folder) < 0)
        need(NULL);
    struct plugin *plugin = plugin_load(manifest, sources, NULL);
    free(manifest);
    free(sources);
    if (plugin != NULL && strcmp(plugin->fingerprint, fingerprint) == 0)
        return plugin;
    plugin_unref(plugin);
    return NULL;
}

/* The same from where the daemon has it, which may have been told of other folders. */
static struct plugin *load_of_daemon(
    const struct report_known *known, const char *kernel, const char *fingerprint)
{
    json_t *answer = NULL;
    struct plugin *plugin = NULL;
    if (known->client == NULL || tune_request(known->client, "describe",
                                     json_pack("{s:s}", "kernel", kernel), &answer, NULL))
        return NULL;
    if (strcmp(text_of(answer, "fingerprint"), fingerprint) == 0) {
        char *folder;
        if (asprintf(&folder, "%s/..", text_of(answer, "folder")) < 0)
            need(NULL);
        plugin = load(folder, kernel, fingerprint);
        free(folder);
    }
    json_decref(answer);
    return plugin;
}

const struct manifest *report_known_manifest(
    const char *kernel, const char *fingerprint, void *context)
{
    struct report_known *known = context;
    struct plugin *plugin = NULL;
    char folder[PATH_MAX];
    if (!folders_is_kernel(kernel))
        return NULL;
    for (size_t i = 0; plugin == NULL && folders_of_plugins(i, folder); i++)
        plugin = load(folder, kernel, fingerprint);
    if (plugin == NULL)
        plugin = load_of_daemon(known, kernel, fingerprint);
    return plugin != NULL ? keep(known, plugin) : NULL;
}

/* --- the whole -------------------------------------------------------------------------------- */

struct report_known *report_known_create(struct tune_client *client)
{
    struct report_known *known = need(calloc(1, sizeof *known));
    known->client = client;
    known->shipped = read_shipped();
    if (client != NULL)
        tune_request(client, "devices", NULL, &known->devices, NULL);
    return known;
}

void report_known_destroy(struct report_known *known)
{
    for (size_t i = 0; i < known->plugin_count; i++)
        plugin_unref(known->plugins[i]);
    free(known->plugins);
    json_decref(known->devices);
    json_decref(known->shipped);
    free(known);
}
