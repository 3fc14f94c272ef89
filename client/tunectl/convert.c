/* `convert`: a problem description of other tuners becomes a kernel's folder. */
#include "bridge.h"
#include "print.h"

#include "bridges/t1.h"
#include "plugins/source_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOURCE_LIMIT_BYTES ((size_t)4 << 20)

/* --- the kernel's source ---------------------------------------------------------------------- */

/* The KernelFile, which lies beside the description; NULL when it is not there. */
static char *read_source(const char *t1_path, const char *kernel_file)
{
    struct tune_error why = {0};
    const char *slash = strrchr(t1_path, '/');
    char *path = NULL, *text = NULL;
    size_t length;
    if (!source_is_inside(kernel_file) ||
        asprintf(&path, "%.*s%s", slash ? (int)(slash + 1 - t1_path) : 0, t1_path, kernel_file) < 0)
        return NULL;
    if (access(path, R_OK) == 0)
        text = bridge_read_file(path, SOURCE_LIMIT_BYTES, &length, &why);
    free(path);
    return text;
}

/* --- the folder ------------------------------------------------------------------------------- */

/* What is made beside FOLDER under a hidden name, which no daemon loads, and then takes that name:
 * FOLDER is there whole or not at all. */
struct making {
    const char *folder;
    char *path; /* where it is made */
    int fd;
    const char *names[3]; /* of the files that were begun */
    size_t count;
};

static int is_there_already(const struct making *making, struct tune_error *err)
{
    return tune_fail(err, TUNE_EINVAL,
        "%.120s is there already: give the kernel another --name, or write to another folder with "
        "-o",
        making->folder);
}

/* mkdtemp's folder is its owner's alone; this one gets the mode that mkdir would give. */
static int begin(struct making *making, struct tune_error *err)
{
    const char *slash = strrchr(making->folder, '/');
    struct stat before;
    if (lstat(making->folder, &before) == 0)
        return is_there_already(making, err);
    if (asprintf(&making->path, "%.*s.%s.XXXXXX", (int)(slash + 1 - making->folder), making->folder,
            slash + 1) < 0) {
        making->path = NULL;
        return tune_fail(err, TUNE_ENOMEM, "no memory for a path");
    }
    if (mkdtemp(making->path) == NULL) {
        free(making->path);
        making->path = NULL;
        return tune_fail_errno(err, TUNE_EIO, "cannot make the folder %.120s", making->folder);
    }
    mode_t mask = umask(0);
    umask(mask);
    making->fd = open(making->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return making->fd >= 0 && fchmod(making->fd, 0777 & ~mask) == 0
               ? 0
               : tune_fail_errno(err, TUNE_EIO, "cannot make the folder %.120s", making->folder);
}

static int write_new(
    struct making *making, const char *name, const char *text, struct tune_error *err)
{
    int fd = openat(making->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot make %.80s in %.120s", name, making->folder);
    making->names[making->count++] = name;
    FILE *file = fdopen(fd, "w");
    if (file == NULL) {
        close(fd);
        return tune_fail(err, TUNE_ENOMEM, "no memory for a file");
    }
    bool is_written = fputs(text, file) >= 0 && fflush(file) == 0 && fsync(fd) == 0;
    return fclose(file) == 0 && is_written
               ? 0
               : tune_fail_errno(
                     err, TUNE_EIO, "cannot write %.80s in %.120s", name, making->folder);
}

static int complete(struct making *making, struct tune_error *err)
{
    fsync(making->fd); /* not every file system can */
    if (rename(making->path, making->folder) == 0)
        return 0;
    return errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR
               ? is_there_already(making, err)
               : tune_fail_errno(err, TUNE_EIO, "cannot make the folder %.120s", making->folder);
}

static void remove_made(const struct making *making)
{
    for (size_t i = 0; i < making->count; i++)
        unlinkat(making->fd, making->names[i], 0);
    if (making->path != NULL)
        rmdir(making->path);
}

static int write_plugin(
    const char *folder, const struct t1_plugin *plugin, const char *source, struct tune_error *err)
{
    struct making making = {.folder = folder, .fd = -1};
    char manifest[MANIFEST_MAX_NAME + 8];
    snprintf(manifest, sizeof manifest, "%s.json", plugin->name);
    int status =
        begin(&making, err) || write_new(&making, manifest, plugin->manifest, err) ||
                write_new(&making, plugin->source_name, plugin->source, err) ||
                (source != NULL && write_new(&making, plugin->included_name, source, err)) ||
                complete(&making, err)
            ? -1
            : 0;
    if (status)
        remove_made(&making);
    if (making.fd >= 0)
        close(making.fd);
    free(making.path);
    return status;
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
