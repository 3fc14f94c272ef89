/* Reads what CLBlast's tuners leave: the output of one of them (one section, results with their
 * parameters by name), or the database made of many (sections with the names apart: a result is
 * then ["16,1,8", time]). */
#include "foreign_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAMES_SHOWN 8

static int64_t integer_of(const json_t *json)
{
    return json_is_string(json) ? strtoll(json_string_value(json), NULL, 10)
                                : json_integer_value(json);
}

/* "64" -> 64; the database keeps values as texts. New. */
static json_t *value_of(const char *text, size_t length)
{
    char number[32], *end;
    snprintf(number, sizeof number, "%.*s", (int)length, text);
    long long integer = strtoll(number, &end, 10);
    return *end == '\0' && end != number ? json_integer(integer) : json_stringn(text, length);
}

/* "16,1,8" with the section's names. New. */
static json_t *config_by_position(
    const json_t *section, const char *values, struct foreign_row *row)
{
    const json_t *names = json_object_get(section, "parameter_names"), *name;
    json_t *config = json_object();
    size_t i, count = values[0] != '\0';
    for (const char *at = values; *at != '\0'; at++)
        count += *at == ',';
    if (count != json_array_size(names)) {
        foreign_refuse(row, "it has %zu values; its section names %zu parameters", count,
            json_array_size(names));
        return config;
    }
    json_array_foreach (names, i, name) {
        size_t length = strcspn(values, ",");
        if (json_is_string(name))
            json_object_set_new(config, json_string_value(name), value_of(values, length));
        values += length + (values[length] == ',');
    }
    return config;
}

/* Parameters by name, as numbers or as texts of them. New. */
static json_t *config_by_name(const json_t *parameters)
{
    json_t *config = json_object(), *value;
    const char *name;
    json_object_foreach ((json_t *)parameters, name, value) {
        json_object_set_new(config, name,
            json_is_string(value) ? value_of(json_string_value(value), json_string_length(value))
                                  : json_incref(value));
    }
    return config;
}

/* "SM8.6" -> sm_86. */
static void read_arch(const char *text, struct foreign_row *row)
{
    int major, minor;
    if (sscanf(text, "SM%d.%d", &major, &minor) == 2 && major > 0 && major < 100 && minor >= 0 &&
        minor < 10)
        snprintf(row->arch, sizeof row->arch, "sm_%d%d", major, minor);
}

static void read_section_fields(const json_t *section, struct foreign_row *row)
{
    static const char *const sizes[] = {"arg_m", "arg_n", "arg_k"};
    row->device = told_text(section, "device");
    if (row->device[0] == '\0')
        row->device = told_text(section, "clblast_device_name");
    read_arch(told_text(section, "clblast_device_architecture"), row);
    row->precision = (int)integer_of(json_object_get(section, "precision"));
    for (size_t i = 0; i < FOREIGN_DIMS; i++) {
        int64_t size = integer_of(json_object_get(section, sizes[i]));
        if (size > 0)
            row->problem[row->problem_count++] = size;
    }
}

static int read_result(struct foreign_reader *reader, const json_t *section, const json_t *result)
{
    struct foreign_row *row = foreign_row(reader, reader->file->count + 1);
    if (row == NULL)
        return -1;
    bool is_pair = json_is_array(result);
    const json_t *time = is_pair ? json_array_get(result, 1) : json_object_get(result, "time");
    const char *values = json_string_value(json_array_get(result, 0));
    row->config = is_pair ? config_by_position(section, values ? values : "", row)
                          : config_by_name(json_object_get(result, "parameters"));
    json_array_append_new(json_object_get(reader->file->content, "configs"), row->config);
    read_section_fields(section, row);
    /* It repeats the section's precision; the kernel's parameters do not have it. */
    json_object_del(row->config, "PRECISION");
    row->time_ms = json_number_value(time);
    return 0;
}

/* "xgemm_1" is the second half of the tuning of "xgemm". */
static bool is_of_kernel(const json_t *section, const json_t *result, const char *kernel)
{
    const char *family = told_text(section, "kernel_family");
    size_t length = strlen(kernel);
    bool is_family = strncasecmp(family, kernel, length) == 0 &&
                     (family[length] == '\0' || family[length] == '_');
    return is_family || strcasecmp(told_text(section, "kernel"), kernel) == 0 ||
           strcasecmp(told_text(result, "kernel"), kernel) == 0;
}

/* The kernels of a file, if there are several, as a sentence's end; *count of them. */
static void list_kernels(const json_t *sections, char *list, size_t room, size_t *count)
{
    json_t *seen = json_object(), *section;
    size_t i, used = 0;
    list[0] = '\0';
    json_array_foreach (sections, i, section) {
        const char *family = told_text(section, "kernel_family");
        if (family[0] == '\0' || json_object_get(seen, family) != NULL)
            continue;
        json_object_set_new(seen, family, json_true());
        if (json_object_size(seen) <= NAMES_SHOWN && used + strlen(family) + 8 < room)
            used +=
                (size_t)snprintf(list + used, room - used, "%s%s", used > 0 ? ", " : "", family);
    }
    *count = json_object_size(seen);
    json_decref(seen);
}

static int read_section(struct foreign_reader *reader, const json_t *section)
{
    const json_t *results = json_object_get(section, "results"), *result;
    size_t i;
    json_array_foreach (results, i, result) {
        bool is_wanted = reader->kernel == NULL || is_of_kernel(section, result, reader->kernel);
        if (is_wanted && read_result(reader, section, result))
            return -1;
    }
    return 0;
}

static int read_sections(struct foreign_reader *reader, const json_t *sections)
{
    char list[160];
    size_t i, kernels;
    const json_t *section;
    list_kernels(sections, list, sizeof list, &kernels);
    if (reader->kernel == NULL && kernels > 1)
        return tune_fail(reader->err, TUNE_EINVAL,
            "the file has %zu kernels (%s%s): name the one that is meant with --from-kernel",
            kernels, list, kernels > NAMES_SHOWN ? ", ..." : "");
    json_array_foreach (sections, i, section) {
        if (read_section(reader, section))
            return -1;
    }
    return reader->file->count > 0 || reader->kernel == NULL
               ? 0
               : tune_fail(reader->err, TUNE_ENOTFOUND,
                     "the file has no kernel \"%.40s\"; there are %s", reader->kernel, list);
}

int foreign_read_clblast(struct foreign_reader *reader)
{
    json_t *root = foreign_parse(reader->text, reader->length, reader->err);
    if (root == NULL)
        return -1;
    reader->file->content = json_pack("{s:o, s:[]}", "file", root, "configs");
    json_t *sections = json_incref(json_object_get(root, "sections"));
    if (sections == NULL && json_is_array(json_object_get(root, "results")))
        sections = json_pack("[O]", root);
    int status =
        json_is_array(sections)
            ? read_sections(reader, sections)
            : tune_fail(reader->err, TUNE_EINVAL,
                  "this is no file of CLBlast: it has neither \"sections\" nor \"results\"");
    json_decref(sections);
    return status;
}
