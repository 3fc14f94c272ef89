/* See bridge.h. What a foreign file does not say (kernel, shape, architecture) comes from the
 * command line, what a kernel is from the daemon. */
#include "bridge.h"
#include "print.h"
#include "record_file.h"

#include "bridges/foreign.h"
#include "client/proto.h"
#include "tuning_db/record_line.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* --- files ------------------------------------------------------------------------------------ */

static int read_all(gzFile file, char **text, size_t limit, size_t *length, struct tune_error *err)
{
    size_t room = 0;
    *length = 0;
    for (;;) {
        if (*length + 1 >= room) {
            room = room ? room * 2 : (size_t)1 << 16;
            char *more = realloc(*text, room);
            if (more == NULL)
                return tune_fail(err, TUNE_ENOMEM, "no memory for a file of %zu bytes", room);
            *text = more;
        }
        size_t wanted = room - *length - 1;
        int got =
            gzread(file, *text + *length, (unsigned)(wanted < INT32_MAX ? wanted : INT32_MAX));
        int code = Z_OK;
        if (got < 0)
            return tune_fail(err, TUNE_EIO, "cannot read it: %.80s", gzerror(file, &code));
        if (got == 0)
            break;
        *length += (size_t)got;
        if (*length > limit)
            return tune_fail(
                err, TUNE_ELIMIT, "it has more than the %zu MiB that are read", limit >> 20);
    }
    (*text)[*length] = '\0';
    return 0;
}

char *bridge_read_file(const char *path, size_t limit, size_t *length, struct tune_error *err)
{
    char *text = NULL;
    errno = 0;
    gzFile file = strcmp(path, "-") == 0 ? gzdopen(dup(STDIN_FILENO), "rb") : gzopen(path, "rb");
    if (file == NULL) {
        tune_fail_errno(
            err, errno == ENOENT ? TUNE_ENOTFOUND : TUNE_EIO, "cannot open %.120s", path);
        return NULL;
    }
    int status = read_all(file, &text, limit, length, err);
    gzclose(file);
    if (status == 0)
        return text;
    free(text);
    return NULL;
}

/* --- the kernel ------------------------------------------------------------------------------- */

struct kernel {
    struct manifest *manifest;
    char fingerprint[64];
};

/* The daemon's description is the manifest with what the daemon knows of it; without that it is a
 * manifest again. */
static struct manifest *manifest_of(json_t *description, const char *name, struct tune_error *err)
{
    static const char *const added[] = {"fingerprint", "folder", "strategies"};
    json_t *constraints = json_object_get(description, "constraints"), *constraint;
    size_t i;
    for (i = 0; i < sizeof added / sizeof added[0]; i++)
        json_object_del(description, added[i]);
    json_array_foreach (constraints, i, constraint)
        json_object_del(constraint, "params_only");
    char *text = json_dumps(description, JSON_COMPACT);
    struct manifest *manifest = text ? manifest_create(text, strlen(text), name, err) : NULL;
    free(text);
    return manifest;
}

static int ask_kernel(
    struct tunectl *ctl, const char *name, struct kernel *kernel, struct tune_error *err)
{
    json_t *description = NULL;
    *kernel = (struct kernel){0};
    if (tune_request(
            ctl->client, "describe", json_pack("{s:s}", "kernel", name), &description, err))
        return -1;
    snprintf(
        kernel->fingerprint, sizeof kernel->fingerprint, "%s", text_of(description, "fingerprint"));
    kernel->manifest = manifest_of(description, name, err);
    json_decref(description);
    return kernel->manifest ? 0 : -1;
}

/* --- the command line ------------------------------------------------------------------------- */

int bridge_check_options(const struct args *args, struct tune_error *err)
{
    static const char *const options[] = {
        "--kernel", "--shape", "--dtype", "--arch", "--gpu", "--mode", "--from-kernel"};
    bool is_import = strcmp(args->command->name, "import") == 0;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        bool is_own = !is_import && (i == 0 || i == 3); /* of export without --to */
        if (!is_own && args_has(args, options[i]))
            return tune_fail(err, TUNE_EINVAL, "%s goes with %s", options[i],
                is_import ? "--from: records of tunerd say it themselves" : "--to");
    }
    return 0;
}

/* What import and export have in common. */
struct question {
    enum foreign_format format;
    const char *dtype, *mode;
    bool has_dims;
    int64_t dims[MANIFEST_MAX_DIMS];
};

static int read_question(const struct args *args, const char *option, const struct kernel *kernel,
    struct question *question, struct tune_error *err)
{
    static const char *const modes[] = {"cold", "warm", NULL};
    const char *shape = args_value(args, "--shape"), *dtype = args_value(args, "--dtype");
    const char *mode = args_value(args, "--mode");
    const char *arch = args_value(args, "--arch");
    struct device_info device;
    json_t *dims = NULL;
    *question = (struct question){.dtype = dtype ? dtype : kernel->manifest->dtypes[0],
        .mode = mode ? mode : "cold",
        .has_dims = shape != NULL};
    if (foreign_from_word(args_value(args, option), &question->format, err) ||
        (mode != NULL && parse_choice("--mode", mode, modes, err)) ||
        (arch != NULL && strcmp(arch, "cpu") != 0 && device_generic(arch, &device, err)))
        return -1;
    if (!manifest_has_dtype(kernel->manifest, question->dtype))
        return tune_fail(err, TUNE_EINVAL, "kernel %s has no dtype \"%.20s\"",
            kernel->manifest->name, question->dtype);
    int status =
        shape != NULL && (parse_dims(shape, &dims, err) ||
                             manifest_shape_from_json(kernel->manifest, dims, question->dims, err))
            ? -1
            : 0;
    json_decref(dims);
    return status;
}

static const char *kernel_name(const struct args *args, const char *option, struct tune_error *err)
{
    const char *name = args_value(args, "--kernel");
    if (name == NULL)
        tune_fail(err, TUNE_EINVAL, "%s needs --kernel: the kernel of tunerd that the file is of",
            option);
    return name;
}

/* --- import ----------------------------------------------------------------------------------- */

struct source {
    const struct foreign_lines *lines;
    const char *unit; /* "record" or "line" */
    char *header;
    size_t at;
    char refusal[256];
};

/* The rows under the numbers that they have in their file, then the header. */
static int next_line(void *context, struct exchange_line *out, struct tune_error *err)
{
    struct source *source = context;
    (void)err;
    if (source->at > source->lines->count)
        return 0;
    if (source->at == source->lines->count) {
        uint64_t last = source->at > 0 ? source->lines->lines[source->at - 1].number : 0;
        *out = (struct exchange_line){source->header, strlen(source->header), last + 1, NULL};
        source->at++;
        return 1;
    }
    const struct foreign_line *line = &source->lines->lines[source->at++];
    *out = (struct exchange_line){
        line->text ? line->text : "", line->text ? strlen(line->text) : 0, line->number, NULL};
    if (line->refusal != NULL) {
        snprintf(source->refusal, sizeof source->refusal, "%s %" PRIu64 ": %s", source->unit,
            line->number, line->refusal);
        out->refusal = source->refusal;
    }
    return 1;
}

static int send(struct tunectl *ctl, const char *path, const struct foreign_file *file,
    const struct foreign_lines *lines, const struct exchange_options *options, json_t **report,
    struct tune_error *err)
{
    struct source source = {.lines = lines,
        .unit = file->format == FOREIGN_WISDOM ? "line" : "record",
        .header = record_header_format()};
    struct exchange_source from = {next_line, &source};
    if (source.header == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a header");
    int status = exchange_send(ctl->client, path, &from, options, report, err);
    free(source.header);
    return status;
}

static void show_warnings(const char *path, const json_t *warnings)
{
    size_t i;
    json_t *warning;
    json_array_foreach (warnings, i, warning) {
        fputs("tunectl: ", stderr);
        print_clean(stderr, path);
        fputs(": ", stderr);
        print_clean(stderr, json_string_value(warning));
        putc('\n', stderr);
    }
}

static int import_rows(struct tunectl *ctl, const struct args *args, const char *path,
    const struct exchange_options *options, struct foreign_file *file, json_t **report,
    struct tune_error *err)
{
    struct kernel kernel = {0};
    struct question question;
    struct foreign_lines lines = {0};
    size_t length = 0;
    const char *name = kernel_name(args, "--from", err);
    char *text = NULL;
    int status = -1;
    if (name != NULL && ask_kernel(ctl, name, &kernel, err) == 0 &&
        read_question(args, "--from", &kernel, &question, err) == 0)
        text = bridge_read_file(path, FOREIGN_LIMIT_BYTES, &length, err);
    if (text != NULL)
        status = foreign_read(
            file, question.format, text, length, args_value(args, "--from-kernel"), err);
    if (status == 0) {
        struct foreign_target target = {kernel.manifest, kernel.fingerprint,
            question.has_dims ? question.dims : NULL, question.dtype, args_value(args, "--arch"),
            args_value(args, "--gpu"), question.mode};
        status = foreign_lines(file, &target, &lines, err);
    }
    if (status == 0)
        status = send(ctl, path, file, &lines, options, report, err);
    foreign_lines_finish(&lines);
    free(text);
    manifest_destroy(kernel.manifest);
    return status;
}

json_t *bridge_import_file(struct tunectl *ctl, const struct args *args, const char *path,
    const struct exchange_options *options)
{
    struct tune_error err = {0};
    struct foreign_file file = {0};
    json_t *report = NULL;
    if (import_rows(ctl, args, path, options, &file, &report, &err))
        report = json_pack("{s:o, s:{s:s, s:o}}", "name", proto_text(path), "error", "code",
            tune_code_word(err.code), "message", proto_text(err.text));
    show_warnings(path, file.warnings);
    if (file.warnings != NULL)
        json_object_set(report, "warnings", file.warnings);
    foreign_finish(&file);
    return report;
}

/* --- export ----------------------------------------------------------------------------------- */

struct picked {
    struct sample *samples;
    size_t count;
    const char *arch, *gpu; /* of all of them */
};

static bool is_equal(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

/* Whether a sample answers the question; arch and GPU are looked at by check_one. */
static bool is_asked(const struct sample *sample, const struct kernel *kernel,
    const struct question *question, const char *shape, const char *gpu)
{
    return is_equal(sample->key.fingerprint, kernel->fingerprint) &&
           is_equal(sample->key.shape, shape) && is_equal(sample->key.dtype, question->dtype) &&
           is_equal(sample->key.mode, question->mode) &&
           (gpu == NULL || is_equal(sample->gpu_name, gpu));
}

/* A file of these formats is of one GPU. */
static int check_one(struct picked *picked, const struct sample *sample, struct tune_error *err)
{
    if (picked->count == 0) {
        picked->arch = sample->key.arch;
        picked->gpu = sample->gpu_name ? sample->gpu_name : "";
        return 0;
    }
    if (is_equal(picked->arch, sample->key.arch) && is_equal(picked->gpu, sample->gpu_name))
        return 0;
    return tune_fail(err, TUNE_EINVAL,
        "there are records of several GPUs (%.60s, %.10s; %.60s, %.10s), and such a file is of "
        "one: "
        "name it with --gpu or --arch",
        picked->gpu, picked->arch, sample->gpu_name ? sample->gpu_name : "", sample->key.arch);
}

static int pick(const struct exchange_lines *lines, const struct kernel *kernel,
    const struct question *question, const char *shape, const char *gpu, struct picked *picked,
    struct tune_error *err)
{
    picked->samples = calloc(lines->count + 1, sizeof *picked->samples);
    if (picked->samples == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for %zu records", lines->count);
    for (size_t i = 0; i < lines->count; i++) {
        struct sample sample;
        if (record_line_parse(lines->lines[i], strlen(lines->lines[i]), &sample, err))
            return -1;
        bool is_wanted = is_asked(&sample, kernel, question, shape, gpu);
        if (!is_wanted || check_one(picked, &sample, err)) {
            sample_finish(&sample);
            if (is_wanted)
                return -1;
            continue;
        }
        picked->samples[picked->count++] = sample;
    }
    return picked->count > 0 ? 0
                             : tune_fail(err, TUNE_ENOTFOUND,
                                   "there is nothing to export: no record of kernel %s as it is "
                                   "here, shape %s, %s, "
                                   "%s",
                                   kernel->manifest->name, shape, question->dtype, question->mode);
}

static int write_text(const char *path, const char *text, size_t length, struct tune_error *err)
{
    struct record_writer *writer = record_writer_open(path, err);
    if (writer == NULL)
        return -1;
    if (record_writer_add(writer, text, length, err)) {
        record_writer_abandon(writer);
        return -1;
    }
    return record_writer_finish(writer, err);
}

static int export_lines(const struct exchange_lines *lines, const struct args *args,
    const struct kernel *kernel, const struct question *question, size_t *written,
    struct tune_error *err)
{
    struct picked picked = {0};
    char *shape = manifest_shape_text(kernel->manifest, question->dims), *text = NULL;
    size_t length = 0;
    int status = shape == NULL ? tune_fail(err, TUNE_ENOMEM, "no memory for a shape")
                               : pick(lines, kernel, question, shape, args_value(args, "--gpu"),
                                     &picked, err);
    if (status == 0) {
        struct foreign_output output = {kernel->manifest, kernel->fingerprint, shape,
            question->dtype, picked.arch, picked.gpu, picked.samples, picked.count};
        text = foreign_write(question->format, &output, &length, written, err);
    }
    if (text != NULL)
        status = write_text(args_value(args, "-o"), text, length, err);
    else
        status = -1;
    for (size_t i = 0; i < picked.count; i++)
        sample_finish(&picked.samples[i]);
    free(picked.samples);
    free(shape);
    free(text);
    return status;
}

static int export(
    struct tunectl *ctl, const struct args *args, size_t *written, struct tune_error *err)
{
    struct kernel kernel = {0};
    struct question question;
    struct exchange_lines lines = {0};
    const char *name = kernel_name(args, "--to", err);
    int status = -1;
    if (name != NULL && ctl_connect(ctl, true, err) == 0 &&
        ask_kernel(ctl, name, &kernel, err) == 0)
        status = read_question(args, "--to", &kernel, &question, err);
    if (status == 0 && !question.has_dims)
        status = tune_fail(err, TUNE_EINVAL, "--to needs --shape: such a file is of one shape");
    if (status == 0) {
        struct exchange_filter filter = {.kernel = name, .arch = args_value(args, "--arch")};
        status = exchange_fetch(ctl->client, &filter, !ctl->is_json, &lines, err);
    }
    if (status == 0)
        status = export_lines(&lines, args, &kernel, &question, written, err);
    exchange_lines_finish(&lines);
    manifest_destroy(kernel.manifest);
    return status;
}

int bridge_export(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    size_t written = 0;
    const char *path = args_value(args, "-o");
    if (args_has(args, "--best") || args_has(args, "--anonymous")) {
        tune_fail(&err, TUNE_EINVAL,
            "--best and --anonymous do not go with --to: such a file has one record of each "
            "configuration, and no names of machines");
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    if (export(ctl, args, &written, &err))
        return ctl_fail(ctl, &err);
    if (ctl->is_json && strcmp(path, "-") != 0) {
        json_t *value =
            json_pack("{s:o, s:I}", "file", proto_text(path), "records", (json_int_t)written);
        print_json(value);
        json_decref(value);
    } else if (strcmp(path, "-") != 0) {
        printf("%zu records written to %s\n", written, path);
    }
    return CTL_DONE;
}
