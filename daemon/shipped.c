/* See shipped.h. */
#include "daemon/shipped.h"

#include "daemon/intake.h"
#include "daemon/limits.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"
#include "tuning_db/record_line.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WARNINGS_PER_FILE 3

struct loading {
    struct shipped *shipped;
    struct intake *intake;
    struct sample *samples;
    size_t count, room;
    size_t bytes; /* read so far */
};

/* The file at hand. */
struct source {
    const char *path;
    bool allows_cpu;
    bool has_header;
    size_t line, refused;
};

static void refuse(struct loading *loading, struct source *source, const char *reason)
{
    loading->shipped->refused++;
    if (++source->refused <= WARNINGS_PER_FILE)
        log_warnx("%s, line %zu is left out: %s", source->path, source->line, reason);
}

static void keep(struct loading *loading, const struct sample *sample)
{
    if (loading->count == loading->room) {
        loading->room = loading->room * 2 + 64;
        loading->samples = xrealloc(loading->samples, loading->room * sizeof *loading->samples);
    }
    loading->samples[loading->count++] = *sample;
    loading->shipped->records++;
}

static void take_record(
    struct loading *loading, struct source *source, const char *line, size_t length)
{
    struct tune_error why = {0};
    struct sample sample;
    if (record_line_parse(line, length, &sample, &why)) {
        refuse(loading, source, why.text);
        return;
    }
    bool is_cpu = strcmp(sample.key.arch, "cpu") == 0;
    enum intake_verdict verdict = INTAKE_REFUSED;
    if (is_cpu && !source->allows_cpu)
        tune_fail(&why, TUNE_EINVAL, "records of the emulated device stand in files cpu*.jsonl");
    else
        verdict = intake_judge(loading->intake, &sample, &why);
    if (verdict == INTAKE_TAKEN) {
        keep(loading, &sample);
        return;
    }
    if (verdict == INTAKE_ASIDE)
        loading->shipped->set_aside++;
    else
        refuse(loading, source, why.text);
    sample_finish(&sample);
}

/* 0, or -1 when the rest of the file is not for us. */
static int take_line(
    struct loading *loading, struct source *source, const char *line, size_t length)
{
    struct tune_error why = {0};
    char *unknown = NULL;
    if (length == 0)
        return 0;
    if (record_line_is_header(line, length)) {
        int status = record_header_check(line, length, &unknown, &why);
        free(unknown);
        source->has_header = status == 0;
    } else if (!source->has_header) {
        tune_fail(&why, TUNE_EVERSION, "it does not begin with a header line");
    } else if (loading->count == SHIPPED_RECORDS_MAX) {
        tune_fail(&why, TUNE_ELIMIT, "%d records are read at most", SHIPPED_RECORDS_MAX);
    } else {
        take_record(loading, source, line, length);
    }
    if (why.code == TUNE_OK)
        return 0;
    log_warnx("the records of %s from line %zu on are left out: %s", source->path, source->line,
        why.text);
    return -1;
}

static void read_lines(struct loading *loading, struct source *source, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int status = 0;
    while (status == 0 && (length = getline(&line, &room, file)) >= 0) {
        source->line++;
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
            length--;
        status = take_line(loading, source, line, (size_t)length);
    }
    free(line);
    if (ferror(file))
        log_warnx("%s cannot be read to its end", source->path);
    if (source->refused > WARNINGS_PER_FILE)
        log_warnx("%s: %zu lines are left out", source->path, source->refused);
}

/* NULL for what is no plain file, or too large. */
static FILE *open_file(struct loading *loading, const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &status) != 0) {
        log_warn("the records of %s are left out", path);
    } else if (!S_ISREG(status.st_mode)) {
        log_warnx("the records of %s are left out: it is no plain file", path);
    } else if ((size_t)status.st_size > SHIPPED_BYTES_MAX - loading->bytes) {
        log_warnx("the records of %s are left out: %zu MiB of them are read at most", path,
            SHIPPED_BYTES_MAX >> 20);
    } else {
        FILE *file = fdopen(fd, "r");
        loading->bytes += (size_t)status.st_size;
        if (file != NULL)
            return file;
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

static void read_file(struct loading *loading, const char *folder, const char *name)
{
    char *path = xasprintf("%s/%s", folder, name);
    FILE *file = open_file(loading, path);
    if (file != NULL) {
        struct source source = {.path = path, .allows_cpu = strncmp(name, "cpu", 3) == 0};
        loading->shipped->files++;
        read_lines(loading, &source, file);
        fclose(file);
    }
    free(path);
}

/* --- limits ----------------------------------------------------------------------------------- */

static void take_limits(struct shipped *shipped, const char *path, json_t *list)
{
    size_t i;
    json_t *entry;
    json_array_foreach (list, i, entry) {
        struct tune_error why = {0};
        if (limits_check(entry, &why) == 0)
            json_array_append(shipped->limits, entry);
        else
            log_warnx("%s, entry %zu is left out: %s", path, i + 1, why.text);
    }
}

static void read_limits(struct loading *loading, const char *folder, const char *name)
{
    char *path = xasprintf("%s/%s", folder, name);
    FILE *file = open_file(loading, path);
    json_error_t why;
    json_t *list = file != NULL ? json_loadf(file, JSON_REJECT_DUPLICATES, &why) : NULL;
    if (json_is_array(list))
        take_limits(loading->shipped, path, list);
    else if (file != NULL)
        log_warnx("the limits of %s are left out: %s", path, list ? "it is no list" : why.text);
    json_decref(list);
    if (file != NULL)
        fclose(file);
    free(path);
}

/* --- the folder ------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), end_length = strlen(end);
    return length > end_length && strcmp(name + length - end_length, end) == 0;
}

static int is_ours(const struct dirent *entry)
{
    return entry->d_name[0] != '.' &&
           (ends_with(entry->d_name, ".jsonl") || ends_with(entry->d_name, ".limits.json"));
}

static int compare_names(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

static void read_folder(struct loading *loading, const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, is_ours, compare_names);
    if (count < 0) {
        if (errno != ENOENT)
            log_warn("cannot read the folder of records %s", folder);
        return;
    }
    for (int i = 0; i < count; i++) {
        if (ends_with(entries[i]->d_name, ".jsonl"))
            read_file(loading, folder, entries[i]->d_name);
        else
            read_limits(loading, folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

void shipped_load(const char *folder, const struct registry *registry, struct tuning_db *db,
    struct shipped *shipped)
{
    struct tune_error err = {0};
    *shipped = (struct shipped){.limits = json_array()};
    struct loading loading = {.shipped = shipped, .intake = intake_create(registry)};
    read_folder(&loading, folder);
    if (loading.count > 0 && tuning_db_set_base(db, loading.samples, loading.count, &err)) {
        log_warnx("the records in %s are not used: %s", folder, err.text);
        shipped->records = 0;
    }
    if (shipped->files > 0)
        log_info("%zu records came with the program (%zu of other kernels, %zu refused)",
            shipped->records, shipped->set_aside, shipped->refused);
    for (size_t i = 0; i < loading.count; i++)
        sample_finish(&loading.samples[i]);
    free(loading.samples);
    intake_destroy(loading.intake);
}

void shipped_finish(struct shipped *shipped)
{
    json_decref(shipped->limits);
    *shipped = (struct shipped){0};
}
