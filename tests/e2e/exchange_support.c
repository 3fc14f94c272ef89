/* See exchange_support.h. */
#include "exchange_support.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PART_BYTES 400000

/* --- lines ------------------------------------------------------------------------------------ */

void text_add(struct text *text, const char *bytes, size_t length)
{
    if (text->length + length + 1 > text->room) {
        text->room = 2 * (text->length + length + 1);
        text->bytes = realloc(text->bytes, text->room);
        assert_non_null(text->bytes);
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

void text_line(struct text *text, const char *line)
{
    text_add(text, line, strlen(line));
    text_add(text, "\n", 1);
}

void text_finish(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}

static char usual_fingerprint[33];

const char *fingerprint_of(struct harness *harness, const char *kernel)
{
    static char texts[4][33];
    static unsigned next;
    char *text = texts[next++ % 4];
    json_t *answer = ask(harness, "describe", json_pack("{s:s}", "kernel", kernel));
    snprintf(text, sizeof texts[0], "%s", text_at(answer, "fingerprint"));
    json_decref(answer);
    return text;
}

void use_fingerprint_of(struct harness *harness)
{
    memcpy(usual_fingerprint, fingerprint_of(harness, "tiny"), sizeof usual_fingerprint);
}

static const char * or (const char *text, const char *usual)
{
    return text != NULL ? text : usual;
}

struct sample sample_of(const struct spec *spec)
{
    static char shape[32];
    static float times[3];
    bool is_ok = spec->outcome == OUTCOME_OK;
    double median_ns = is_ok ? (spec->median_ns > 0 ? spec->median_ns : 10000) : 0;
    snprintf(shape, sizeof shape, "N=%d", spec->n ? spec->n : 64);
    for (size_t i = 0; i < 3; i++)
        times[i] = (float)median_ns;
    return (struct sample){
        .key = {.kernel = or (spec->kernel, "tiny"),
            .fingerprint = or (spec->fingerprint, usual_fingerprint),
            .shape = shape,
            .dtype = "f32",
            .arch = or (spec->arch, "sm_90"),
            .mode = or (spec->mode, "cold")},
        .config = or (spec->config, "TAG=1"),
        .gpu_name = or (spec->gpu, "NVIDIA H200"),
        .gpu_uuid = or (spec->uuid, "GPU-11111111-2222-4333-8444-555555555555"),
        .run = or (spec->run, "20260101-000000-abcd/search"),
        .host = or (spec->host, "elsewhere"),
        .outcome = spec->outcome,
        .is_final = !spec->is_first,
        .is_confirmed = spec->is_confirmed,
        .is_default = spec->is_default,
        .attempts = spec->attempts ? spec->attempts : 1,
        .method = "event",
        .median_ns = median_ns,
        .lo_ns = median_ns * 0.99,
        .hi_ns = median_ns * 1.01,
        .sample_count = is_ok ? 3 : 0,
        .samples_ns = times,
        .detail = is_ok ? "" : "it failed",
        .log_id = "",
        .same_as = "",
        .nvrtc = "13.0",
        .method_note = "",
        .driver = 13000,
        .time_unix_ms = 1767225600000,
        .sms = 132,
        .extra = or (spec->extra, ""),
    };
}

void add_record(struct text *text, const struct spec *spec)
{
    struct tune_error err = {0};
    struct sample sample = sample_of(spec);
    size_t length;
    char *line = record_line_format(&sample, &length, &err);
    if (line == NULL)
        fail_msg("%s", err.text);
    text_line(text, line);
    free(line);
}

void add_header(struct text *text)
{
    char *line = record_header_format();
    text_line(text, line);
    free(line);
}

size_t count_records(const char *text)
{
    size_t lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    return lines > 0 ? lines - 1 : 0;
}

/* --- imports ---------------------------------------------------------------------------------- */

/* Sends the lines; false when the daemon refused the file meanwhile. */
static bool send_text(
    struct harness *harness, json_int_t import, const char *text, struct tune_error *err)
{
    json_int_t line = 1;
    while (*text != '\0') {
        size_t length = strlen(text);
        json_int_t lines = 0;
        if (length > PART_BYTES) {
            const char *end = memrchr(text, '\n', PART_BYTES);
            length = (size_t)(end - text) + 1;
        }
        for (size_t i = 0; i < length; i++)
            lines += text[i] == '\n';
        if (tune_request(harness->client, "import",
                json_pack("{s:I, s:s%, s:I}", "import", import, "lines", text, length, "first_line",
                    line),
                NULL, err))
            return false;
        text += length;
        line += lines;
    }
    return true;
}

static json_t *try_import(
    struct harness *harness, json_t *options, const char *text, struct tune_error *err)
{
    json_t *report = NULL;
    json_t *answer =
        ask(harness, "import", json_pack("{s:o}", "begin", options ? options : json_object()));
    json_int_t import = json_integer_value(json_object_get(answer, "import"));
    json_decref(answer);
    if (send_text(harness, import, text, err))
        tune_request(harness->client, "import", json_pack("{s:I, s:b}", "import", import, "end", 1),
            &report, err);
    return report;
}

json_t *import_text(struct harness *harness, json_t *options, const char *text)
{
    struct tune_error err = {0};
    json_t *report = try_import(harness, options, text, &err);
    if (report == NULL)
        fail_msg("import: %s", err.text);
    return report;
}

const char *import_fails(struct harness *harness, const char *text, enum tune_code code)
{
    static struct tune_error err;
    err = (struct tune_error){0};
    json_t *report = try_import(harness, NULL, text, &err);
    assert_null(report);
    if (code != TUNE_OK && err.code != code)
        fail_msg("the import failed with %s in place of %s: %s", tune_code_word(err.code),
            tune_code_word(code), err.text);
    return err.text;
}

size_t count_in(const json_t *report, const char *name)
{
    const json_t *number = json_object_get(report, name);
    assert_true(json_is_integer(number));
    return (size_t)json_integer_value(number);
}

bool is_refused(const json_t *report, int line, const char *text)
{
    const json_t *refusal;
    size_t i;
    json_array_foreach (json_object_get(report, "refusals"), i, refusal)
        if ((int)number_at(refusal, "line") == line)
            return strstr(text_at(refusal, "reason"), text) != NULL;
    return false;
}

static int compare_lines(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* The lines of a text in order, after a header. New. */
static char *sort_lines(char *text)
{
    size_t count = count_records(text) + (text[0] != '\0'), i = 0;
    char **lines = calloc(count + 1, sizeof *lines), *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL)
        if (*line != '\0')
            lines[i++] = line;
    qsort(lines, i, sizeof *lines, compare_lines);
    struct text sorted = {0};
    add_header(&sorted);
    for (size_t j = 0; j < i; j++)
        text_line(&sorted, lines[j]);
    free(lines);
    return sorted.bytes;
}

char *export_text(struct harness *harness, const char *arch)
{
    struct text text = {0};
    json_t *cursor = NULL;
    text_add(&text, "", 0);
    do {
        json_t *page =
            ask(harness, "export", json_pack("{s:s*, s:O*}", "arch", arch, "cursor", cursor));
        const char *lines = text_at(page, "lines");
        text_add(&text, lines, strlen(lines));
        json_decref(cursor);
        cursor = json_incref(json_object_get(page, "cursor"));
        json_decref(page);
    } while (json_is_string(cursor));
    json_decref(cursor);
    char *sorted = sort_lines(text.bytes);
    text_finish(&text);
    return sorted;
}

/* --- tunectl ---------------------------------------------------------------------------------- */

int run_tunectl(const struct harness *harness, const char **output, const char *const *args)
{
    static struct text text;
    char program[300], part[4096];
    const char *argv[24] = {program};
    int ends[2], status;
    ssize_t got;
    for (size_t i = 0; args[i] != NULL; i++)
        argv[i + 1] = args[i];
    snprintf(program, sizeof program, "%s/bin/tunectl", build_folder());
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        set_environment(harness);
        setenv("TUNE_SOCKET", harness->socket, 1);
        setenv("TUNE_AUTOSTART", "0", 1);
        execv(program, (char *const *)argv);
        _exit(127);
    }
    close(ends[1]);
    text_finish(&text);
    text_add(&text, "", 0);
    while ((got = read(ends[0], part, sizeof part)) > 0)
        text_add(&text, part, (size_t)got);
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (output != NULL)
        *output = text.bytes;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const char *file_in(const struct harness *harness, const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", harness->folder, name);
    return path;
}

char *read_file(const char *path)
{
    struct text text = {0};
    char part[65536];
    size_t got;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        fail_msg("%s: %s", path, strerror(errno));
    text_add(&text, "", 0);
    while ((got = fread(part, 1, sizeof part, file)) > 0)
        text_add(&text, part, got);
    fclose(file);
    return text.bytes;
}

void write_file(const char *path, const char *text, size_t length)
{
    FILE *file = fopen(path, "we");
    if (file == NULL)
        fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

long resident_kib(const struct harness *harness)
{
    char path[64], line[128];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)harness->daemon);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    fclose(file);
    return kib;
}
