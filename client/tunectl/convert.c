/* `convert`: a problem description of other tuners becomes a kernel's folder. */
#include "bridge.h"
#include "print.h"

#include "bridges/t1.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOURCE_LIMIT_BYTES ((size_t)4 << 20)

/* --- the kernel's source ---------------------------------------------------------------------- */

/* Below the description, never elsewhere: a file that was sent by somebody names no other's. */
static bool is_inside(const char *name)
{
    if (name[0] == '/' || name[0] == '\0')
        return false;
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;
    }
    return true;
}

/* The KernelFile, which lies beside the description; NULL when it is not there. */
static char *read_source(const char *t1_path, const char *kernel_file)
{
    struct tune_error why = {0};
    const char *slash = strrchr(t1_path, '/');
    char *path = NULL, *text = NULL;
    size_t length;
    if (!is_inside(kernel_file) ||
        asprintf(&path, "%.*s%s", slash ? (int)(slash + 1 - t1_path) : 0, t1_path, kernel_file) < 0)
        return NULL;
    if (access(path, R_OK) == 0)
        text = bridge_read_file(path, SOURCE_LIMIT_BYTES, &length, &why);
    free(path);
    return text;
}

/* --- the folder ------------------------------------------------------------------------------- */

/* A new file; what is there already is nobody's to overwrite. */
static int write_new(const char *folder, const char *name, const char *text, struct tune_error *err)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a path");
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    int status = file == NULL ? tune_fail_errno(err, TUNE_EIO, "cannot make %.160s", path) : 0;
    if (file != NULL) {
        bool is_written = fputs(text, file) >= 0;
        if (fclose(file) != 0 || !is_written)
            status = tune_fail_errno(err, TUNE_EIO, "cannot write %.160s", path);
    }
    free(path);
    return status;
}

static int write_plugin(
    const char *folder, const struct t1_plugin *plugin, const char *source, struct tune_error *err)
{
    char manifest[MANIFEST_MAX_NAME + 8];
    snprintf(manifest, sizeof manifest, "%s.json", plugin->name);
    if (mkdir(folder, 0777) != 0)
        return errno == EEXIST
                   ? tune_fail(err, TUNE_EINVAL,
                         "%.120s is there already: give the kernel another --name, or write to "
                         "another folder with -o",
                         folder)
                   : tune_fail_errno(err, TUNE_EIO, "cannot make the folder %.120s", folder);
    return write_new(folder, manifest, plugin->manifest, err) ||
                   write_new(folder, plugin->source_name, plugin->source, err) ||
                   (source != NULL && write_new(folder, plugin->included_name, source, err))
               ? -1
               : 0;
}

static void add_warnings(
    const struct t1_plugin *plugin, const char *folder, const char *source, const json_t *t1)
{
    char text[512];
    text[0] = '\0';
    if (source == NULL)
        snprintf(text, sizeof text,
            "KernelFile \"%.80s\" is not below the description: put it into %.160s as %.80s, or "
            "the "
            "kernel cannot be loaded",
            t1_kernel_file(t1), folder, plugin->included_name);
    else if (strstr(source, "#include \"") != NULL)
        snprintf(text, sizeof text,
            "the kernel's source includes files of its own: copy them into %.160s", folder);
    if (text[0] != '\0')
        json_array_append_new(plugin->warnings, json_string(text));
}

/* --- the command ------------------------------------------------------------------------------ */

static void show(const struct tunectl *ctl, const struct t1_plugin *plugin, const char *folder)
{
    size_t i;
    json_t *warning;
    if (ctl->is_json) {
        json_t *value = json_pack("{s:s, s:s, s:I, s:O}", "name", plugin->name, "folder", folder,
            "configurations", (json_int_t)plugin->configurations, "warnings", plugin->warnings);
        print_json(value);
        json_decref(value);
        return;
    }
    json_array_foreach (plugin->warnings, i, warning) {
        fputs("tunectl: ", stderr);
        print_clean(stderr, json_string_value(warning));
        putc('\n', stderr);
    }
    printf("%s: ", plugin->name);
    if (plugin->configurations > 0)
        printf("%zu configurations, ", plugin->configurations);
    printf("written to %s\n", folder);
}

static int convert(
    struct tunectl *ctl, const struct args *args, const char *path, struct tune_error *err)
{
    const char *slash = strrchr(path, '/'), *parent = args_value(args, "-o");
    size_t length = 0;
    char *folder = NULL, *source = NULL;
    char *text = bridge_read_file(path, T1_LIMIT_BYTES, &length, err);
    json_t *t1 = text ? t1_parse(text, length, err) : NULL;
    struct t1_plugin plugin = {0};
    int status = -1;
    if (t1 != NULL) {
        source = read_source(path, t1_kernel_file(t1));
        struct t1_options options = {slash ? slash + 1 : path, args_value(args, "--name"),
            args_value(args, "--dtype"), source};
        status = t1_convert(t1, &options, &plugin, err);
    }
    if (status == 0 && asprintf(&folder, "%s/%s", parent ? parent : ".", plugin.name) < 0)
        status = tune_fail(err, TUNE_ENOMEM, "no memory for a path");
    if (status == 0)
        status = write_plugin(folder, &plugin, source, err);
    if (status == 0) {
        add_warnings(&plugin, folder, source, t1);
        show(ctl, &plugin, folder);
    }
    t1_plugin_finish(&plugin);
    json_decref(t1);
    free(folder);
    free(source);
    free(text);
    return status;
}

int run_convert(struct tunectl *ctl, const struct args *args)
{
    static const char *const formats[] = {"t1", NULL};
    struct tune_error err = {0};
    if (args->operand_count > 2)
        tune_fail(&err, TUNE_EINVAL, "\"convert\" takes one description at a time");
    if (err.code != TUNE_OK || parse_choice("FORMAT", args->operands[0], formats, &err)) {
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    return convert(ctl, args, args->operands[1], &err) ? ctl_fail(ctl, &err) : CTL_DONE;
}
