/* Reads T4 results. Writers differ from the schema: `compilation` for `compilation_time`,
 * "miliseconds", a correctness of 1 for everything; what a row is, its `invalidity` tells. */
#include "foreign_internal.h"

#include <string.h>
#include <strings.h>

/* Milliseconds where the file does not say; 0: not known. */
static double unit_of(const json_t *root)
{
    static const struct {
        const char *word;
        double ms;
    } units[] = {{"", 1}, {"milliseconds", 1}, {"miliseconds", 1}, {"seconds", 1e3},
        {"microseconds", 1e-3}, {"nanoseconds", 1e-6}};
    const char *unit = told_text(json_object_get(root, "metadata"), "timeunit");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcasecmp(units[i].word, unit) == 0)
            return units[i].ms;
    return 0;
}

static bool find_outcome(const char *invalidity, enum outcome *outcome)
{
    static const struct {
        const char *word;
        enum outcome outcome;
    } words[] = {{"correct", OUTCOME_OK}, {"timeout", OUTCOME_TIMEOUT},
        {"compile", OUTCOME_COMPILE_FAILED}, {"runtime", OUTCOME_LAUNCH_FAILED},
        {"correctness", OUTCOME_WRONG_RESULT}, {"constraints", OUTCOME_INVALID}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(words[i].word, invalidity) == 0) {
            *outcome = words[i].outcome;
            return true;
        }
    }
    return false;
}

/* The measurement called "time": a number, or the word of an error. */
static void read_measurements(const json_t *result, struct foreign_row *row)
{
    const json_t *list = json_object_get(result, "measurements"), *measurement;
    size_t i;
    json_array_foreach (list, i, measurement) {
        const json_t *value = json_object_get(measurement, "value");
        if (strcmp(told_text(measurement, "name"), "time") != 0)
            continue;
        row->time_ms = json_number_value(value);
        if (json_is_string(value) && foreign_error(json_string_value(value), &row->outcome))
            row->detail = json_string_value(value);
    }
}

static void read_result(const json_t *root, const json_t *result, struct foreign_row *row)
{
    const json_t *metadata = json_object_get(root, "metadata");
    const char *invalidity = told_text(result, "invalidity");
    enum outcome outcome = OUTCOME_OK;
    row->config = json_object_get(result, "configuration");
    row->device = told_text(metadata, "device");
    row->unit_ms = unit_of(root);
    strncpy(row->arch, told_text(metadata, "arch"), sizeof row->arch - 1);
    if (!json_is_object(row->config)) {
        foreign_refuse(row, "it has no configuration");
        return;
    }
    read_measurements(result, row);
    if (!find_outcome(invalidity, &outcome))
        foreign_refuse(row, "its invalidity \"%.20s\" is none of the format", invalidity);
    if (outcome != OUTCOME_OK) /* it says more than the four words of errors */
        row->outcome = outcome;
    row->times = json_object_get(json_object_get(result, "times"), "runtimes");
    row->time_unix_ms = foreign_moment(told_text(result, "timestamp"));
}

int foreign_read_t4(struct foreign_reader *reader)
{
    json_t *root = reader->file->content = foreign_parse(reader->text, reader->length, reader->err),
           *result;
    const json_t *results = json_object_get(root, "results");
    const char *version = told_text(root, "schema_version");
    size_t i;
    if (root == NULL)
        return -1;
    if (!json_is_array(results))
        return tune_fail(
            reader->err, TUNE_EINVAL, "these are no T4 results: there is no list \"results\"");
    if (version[0] != '\0' && strncmp(version, "1.", 2) != 0)
        return tune_fail(reader->err, TUNE_EVERSION,
            "T4 results of version %.20s; versions 1.x are read here", version);
    if (unit_of(root) == 0)
        return tune_fail(reader->err, TUNE_EINVAL,
            "the results' timeunit is \"%.20s\"; seconds, milliseconds, microseconds and "
            "nanoseconds are read here",
            told_text(json_object_get(root, "metadata"), "timeunit"));
    json_array_foreach (results, i, result) {
        struct foreign_row *row = foreign_row(reader, i + 1);
        if (row == NULL)
            return -1;
        read_result(root, result, row);
    }
    return 0;
}
