/* Files of other tuners: any bytes are refused with a sentence or become record lines that are read
 * again. The first byte chooses what the rest is: a format, a T1 description, a Python condition.
 */
#include "bridges/foreign.h"
#include "bridges/python_expr.h"
#include "bridges/t1.h"
#include "target.h"
#include "tuning_db/record_line.h"

#include <stdlib.h>
#include <string.h>

static void check(bool is_right)
{
    if (!is_right)
        abort();
}

static const char manifest_text[] =
    "{\"tunerd\":1,\"name\":\"k\",\"summary\":\"s\",\"dims\":[{\"name\":\"N\",\"meaning\":\"n\"}],"
    "\"shapes\":[{\"N\":1000}],\"dtypes\":[\"f32\"],\"params\":[{\"name\":\"BLOCK\",\"meaning\":"
    "\"m\",\"values\":[32,64,96,128]},{\"name\":\"UNROLL\",\"meaning\":\"m\",\"values\":[2,4]}],"
    "\"default\":{\"BLOCK\":32,\"UNROLL\":2},\"buffers\":[{\"name\":\"y\",\"dtype\":\"T\","
    "\"count\":"
    "1,\"role\":\"out\"}],\"launches\":[{\"entry\":\"k\",\"args\":[{\"buffer\":\"y\"}]}],"
    "\"reference\":{\"buffers\":[{\"name\":\"r\",\"dtype\":\"f64\",\"count\":1,\"role\":\"out\"}],"
    "\"launches\":[{\"entry\":\"r\",\"args\":[{\"buffer\":\"r\"}]}]},\"checks\":[{\"buffer\":\"y\","
    "\"reference\":\"r\",\"derivation\":\"d\",\"tolerance\":{\"unit\":\"f32\"}}]}";

static void check_lines(const struct foreign_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++) {
        struct tune_error err = {0};
        struct sample sample;
        const char *text = lines->lines[i].text;
        check((text != NULL) != (lines->lines[i].refusal != NULL));
        if (text == NULL)
            continue;
        check(record_line_parse(text, strlen(text), &sample, &err) == 0);
        check(!sample.is_confirmed);
        sample_finish(&sample);
    }
}

static void read_foreign(enum foreign_format format, const char *text, size_t length)
{
    static struct manifest *manifest;
    static const int64_t dims[] = {1000};
    struct tune_error err = {0};
    struct foreign_file file;
    struct foreign_lines lines = {0};
    if (manifest == NULL)
        manifest = manifest_create(manifest_text, strlen(manifest_text), "k.json", NULL);
    struct foreign_target target = {
        manifest, "0123456789abcdef0123456789abcdef", dims, "f32", "sm_80", NULL, "cold"};
    int status = foreign_read(&file, format, text, length, NULL, &err);
    if (status == 0)
        status = foreign_lines(&file, &target, &lines, &err);
    check(status == 0 || err.text[0] != '\0');
    check_lines(&lines);
    foreign_lines_finish(&lines);
    foreign_finish(&file);
}

static void read_t1(const char *text, size_t length)
{
    struct tune_error err = {0};
    struct t1_plugin plugin = {0};
    struct t1_options options = {.file = "fuzz.json", .source = text};
    json_t *t1 = t1_parse(text, length, &err);
    if (t1 == NULL || t1_convert(t1, &options, &plugin, &err))
        check(err.text[0] != '\0');
    t1_plugin_finish(&plugin);
    json_decref(t1);
}

static void read_condition(const char *text)
{
    static const struct python_value values[] = {{.type = PYTHON_INT, .integer = -7},
        {.type = PYTHON_INT}, {.type = PYTHON_INT, .integer = 16}};
    static const int64_t numbers[] = {-7, 0, 16};
    static const struct python_param params[] = {
        {"a", 3, values, numbers, true}, {"b", 3, values, numbers, true}};
    struct tune_error err = {0};
    char *expr = python_condition(text, params, 2, &err);
    check(expr != NULL || err.text[0] != '\0');
    free(expr);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count == 0)
        return 0;
    size_t length = count - 1;
    char *text = malloc(length + 1); /* readers of T1 and conditions are given a NUL */
    memcpy(text, bytes + 1, length);
    text[length] = '\0';
    if (bytes[0] >= '0' && bytes[0] < '0' + FOREIGN_FORMAT_COUNT)
        read_foreign((enum foreign_format)(bytes[0] - '0'), text, length);
    else if (bytes[0] == 't')
        read_t1(text, length);
    else
        read_condition(text);
    free(text);
    return 0;
}
