/* bridges/foreign: each format as its writers leave it, cut anywhere; and round trips. */
#include "bridges/foreign.h"
#include "support.h"
#include "tuning_db/record_line.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME                                                                                      \
    "{\"tunerd\":1,\"name\":\"k\",\"summary\":\"s\",\"dims\":[%s],\"shapes\":[%s],"                \
    "\"dtypes\":[\"f32\"],\"params\":[%s],\"default\":%s,\"buffers\":[{\"name\":\"y\",\"dtype\":"  \
    "\"T\",\"count\":1,\"role\":\"out\"}],\"launches\":[{\"entry\":\"k\",\"args\":[{\"buffer\":"   \
    "\"y\"}]}],\"reference\":{\"buffers\":[{\"name\":\"r\",\"dtype\":\"f64\",\"count\":1,"         \
    "\"role\":"                                                                                    \
    "\"out\"}],\"launches\":[{\"entry\":\"r\",\"args\":[{\"buffer\":\"r\"}]}]},\"checks\":[{"      \
    "\"buffer\":\"y\",\"reference\":\"r\",\"derivation\":\"d\",\"tolerance\":{\"unit\":\"f32\"}}]" \
    "}"

static struct manifest *manifest_of(
    const char *dims, const char *shape, const char *params, const char *config)
{
    struct tune_error err = {0};
    char *text;
    if (asprintf(&text, FRAME, dims, shape, params, config) < 0)
        abort();
    struct manifest *manifest = manifest_create(text, strlen(text), "k.json", &err);
    if (manifest == NULL)
        fail_msg("%s", err.text);
    free(text);
    return manifest;
}

/* The convolution of the cache files; its fixed parameters but one are not the kernel's. */
static struct manifest *convolution(void)
{
    return manifest_of("{\"name\":\"X\",\"meaning\":\"x\"},{\"name\":\"Y\",\"meaning\":\"y\"}",
        "{\"X\":4096,\"Y\":4096}",
        "{\"name\":\"block_size_x\",\"meaning\":\"m\",\"values\":[16,32,48,64,80,96,112,128,144,"
        "160,"
        "176,192,208,224,240,256]},"
        "{\"name\":\"block_size_y\",\"meaning\":\"m\",\"values\":[1,2,4,8,16]},"
        "{\"name\":\"tile_size_x\",\"meaning\":\"m\",\"values\":[1,2,3,4]},"
        "{\"name\":\"tile_size_y\",\"meaning\":\"m\",\"values\":[1,2,3,4]},"
        "{\"name\":\"read_only\",\"meaning\":\"m\",\"values\":[{\"value\":0,\"name\":\"no\"},{"
        "\"value\":1,\"name\":\"yes\"}]},"
        "{\"name\":\"use_padding\",\"meaning\":\"m\",\"values\":[0,1]},"
        "{\"name\":\"use_shmem\",\"meaning\":\"m\",\"values\":[0,1]},"
        "{\"name\":\"use_cmem\",\"meaning\":\"m\",\"values\":[1]}",
        "{\"block_size_x\":16,\"block_size_y\":1,\"tile_size_x\":1,\"tile_size_y\":1,\"read_only\":"
        "0,"
        "\"use_padding\":0,\"use_shmem\":0,\"use_cmem\":1}");
}

static struct manifest *axpy(void)
{
    return manifest_of("{\"name\":\"N\",\"meaning\":\"n\"}", "{\"N\":1000}",
        "{\"name\":\"BLOCK\",\"meaning\":\"m\",\"values\":[32,64,96,128,160,192,224]},{\"name\":"
        "\"UNROLL\",\"meaning\":\"m\",\"values\":[2,4]}",
        "{\"BLOCK\":32,\"UNROLL\":2}");
}

static struct foreign_target target_of(const struct manifest *manifest)
{
    return (struct foreign_target){.manifest = manifest,
        .fingerprint = "0123456789abcdef0123456789abcdef",
        .dtype = "f32",
        .arch = "sm_80",
        .mode = "cold"};
}

/* The samples of the lines that are records, in their order. */
struct samples {
    struct sample *samples;
    size_t count, refused;
    json_t *warnings;
};

static struct samples read_text(enum foreign_format format, const char *text, size_t length,
    const struct foreign_target *target)
{
    struct tune_error err = {0};
    struct foreign_file file;
    struct foreign_lines lines = {0};
    struct samples out = {0};
    if (foreign_read(&file, format, text, length, NULL, &err) ||
        foreign_lines(&file, target, &lines, &err))
        fail_msg("%s", err.text);
    out.samples = calloc(lines.count + 1, sizeof *out.samples);
    for (size_t i = 0; i < lines.count; i++) {
        const char *line = lines.lines[i].text;
        if (line == NULL)
            out.refused++;
        else if (record_line_parse(line, strlen(line), &out.samples[out.count++], &err))
            fail_msg("%s: %s", line, err.text);
    }
    out.warnings = json_incref(file.warnings);
    foreign_lines_finish(&lines);
    foreign_finish(&file);
    return out;
}

static struct samples read_data(
    enum foreign_format format, const char *name, const struct foreign_target *target)
{
    size_t length;
    char *text = data_file(name, &length);
    struct samples samples = read_text(format, text, length, target);
    free(text);
    return samples;
}

static void samples_finish(struct samples *samples)
{
    for (size_t i = 0; i < samples->count; i++)
        sample_finish(&samples->samples[i]);
    free(samples->samples);
    json_decref(samples->warnings);
}

static size_t count_outcome(const struct samples *samples, enum outcome outcome)
{
    size_t count = 0;
    for (size_t i = 0; i < samples->count; i++)
        count += samples->samples[i].outcome == outcome;
    return count;
}

/* --- reading ---------------------------------------------------------------------------------- */

static void a_cache_file_is_read_open_and_closed(void **state)
{
    static const char *const names[] = {"cache_open.json", "cache_closed.json"};
    (void)state;
    struct manifest *manifest = convolution();
    struct foreign_target target = target_of(manifest);
    for (size_t i = 0; i < 2; i++) {
        struct samples read = read_data(FOREIGN_KERNEL_TUNER, names[i], &target);
        assert_int_equal(read.count, 40);
        assert_int_equal(read.refused, 0);
        assert_int_equal(count_outcome(&read, OUTCOME_COMPILE_FAILED), 2);
        assert_int_equal(count_outcome(&read, OUTCOME_LAUNCH_FAILED), 2);
        assert_true(has_warning(read.warnings, "no parameter filter_height"));
        const struct sample *first = &read.samples[0];
        assert_string_equal(first->key.shape, "X=4096,Y=4096");
        assert_string_equal(first->gpu_name, "NVIDIA A100-PCIE-40GB");
        assert_string_equal(first->gpu_uuid, "import:NVIDIA A100-PCIE-40GB");
        assert_string_equal(first->method, "kernel_tuner");
        assert_string_equal(first->method_note, "imported, unconfirmed");
        assert_false(first->is_confirmed);
        assert_int_equal(strncmp(first->run, "import/kernel-tuner/", 20), 0);
        assert_int_equal(first->sample_count, 8);
        assert_true(fabs(first->median_ns - 3873280) < 1);
        assert_true(first->lo_ns <= first->median_ns && first->median_ns <= first->hi_ns);
        assert_int_equal(first->time_unix_ms, INT64_C(1703238840502));
        samples_finish(&read);
    }
    manifest_destroy(manifest);
}

static size_t records_before(const char *text, size_t length)
{
    size_t count = 0;
    bool is_in_cache = false;
    for (size_t at = 0; at < length; at++) {
        is_in_cache |= length - at > 9 && strncmp(text + at, "\"cache\": {", 10) == 0;
        count += is_in_cache && text[at] == '}' && (at + 1 == length || text[at + 1] != '}');
    }
    return count;
}

/* Every whole record is read wherever the file ends; a file without one is refused. */
static void a_cache_file_may_be_cut_anywhere(void **state)
{
    (void)state;
    size_t length;
    char *text = data_file("cache_open.json", &length);
    struct manifest *manifest = convolution();
    struct foreign_target target = target_of(manifest);
    for (size_t cut = 0; cut < length; cut += 1 + cut % 97) {
        struct tune_error err = {0};
        struct foreign_file file;
        struct foreign_lines lines = {0};
        char *exact = malloc(cut + 1); /* so that a sanitizer sees a read past its end */
        memcpy(exact, text, cut);
        int status = foreign_read(&file, FOREIGN_KERNEL_TUNER, exact, cut, NULL, &err);
        size_t whole = records_before(text, cut);
        if (whole > 0)
            assert_int_equal(status, 0);
        if (status == 0)
            status = foreign_lines(&file, &target, &lines, &err);
        assert_true(status == 0 || err.text[0] != '\0');
        if (whole > 0)
            assert_int_equal(lines.taken, whole);
        foreign_lines_finish(&lines);
        foreign_finish(&file);
        free(exact);
    }
    manifest_destroy(manifest);
    free(text);
}

static void t4_results_are_read_with_their_causes(void **state)
{
    (void)state;
    struct manifest *manifest = axpy();
    struct foreign_target target = target_of(manifest);
    target.dims = (const int64_t[]){1000};
    struct samples read = read_data(FOREIGN_T4, "t4.json", &target);
    static const enum outcome expected[] = {OUTCOME_OK, OUTCOME_TIMEOUT, OUTCOME_COMPILE_FAILED,
        OUTCOME_LAUNCH_FAILED, OUTCOME_WRONG_RESULT, OUTCOME_INVALID, OUTCOME_OK};
    assert_int_equal(read.count, 7);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(read.samples[i].outcome, expected[i]);
    assert_true(read.samples[0].median_ns == 1.5e6);
    assert_true(read.samples[0].lo_ns == 1.25e6 && read.samples[0].hi_ns == 1.75e6);
    assert_true(read.samples[6].median_ns == 2.5e6 && read.samples[6].hi_ns == 2.5e6);
    samples_finish(&read);
    manifest_destroy(manifest);
}

static void wisdom_is_read_line_by_line(void **state)
{
    (void)state;
    struct manifest *manifest = axpy();
    struct foreign_target target = target_of(manifest);
    target.arch = NULL;
    struct samples read = read_data(FOREIGN_WISDOM, "sample.wisdom", &target);
    assert_int_equal(read.count, 2);
    assert_int_equal(read.refused, 2);
    assert_true(has_warning(read.warnings, "the fastest stays"));
    assert_string_equal(read.samples[0].key.arch, "sm_70");
    assert_string_equal(read.samples[0].config, "BLOCK=64,UNROLL=2");
    assert_true(read.samples[0].median_ns == 0.25e6);
    assert_string_equal(read.samples[1].key.shape, "N=2000");
    assert_string_equal(read.samples[1].key.arch, "sm_80");
    samples_finish(&read);
    manifest_destroy(manifest);
}

static void both_forms_of_clblast_are_read(void **state)
{
    (void)state;
    size_t length;
    char *text = data_file("clblast_database.json", &length);
    struct manifest *manifest = axpy();
    struct foreign_target target = target_of(manifest);
    struct tune_error err = {0};
    struct foreign_file file;
    struct foreign_lines lines;
    target.arch = NULL;
    assert_int_equal(foreign_read(&file, FOREIGN_CLBLAST, text, length, NULL, &err), -1);
    assert_non_null(strstr(err.text, "--from-kernel"));
    foreign_finish(&file);
    err = (struct tune_error){0};
    assert_int_equal(foreign_read(&file, FOREIGN_CLBLAST, text, length, "xaxpy", &err), 0);
    assert_int_equal(foreign_lines(&file, &target, &lines, &err), 0);
    assert_int_equal(lines.taken, 2); /* and one of another precision */
    assert_non_null(strstr(lines.lines[0].text, "\"arch\":\"sm_86\""));
    assert_non_null(strstr(lines.lines[1].text, "\"median_ns\":62500"));
    foreign_lines_finish(&lines);
    foreign_finish(&file);
    free(text);
    struct samples read = read_data(FOREIGN_CLBLAST, "clblast_tuner.json", &target);
    assert_int_equal(read.count, 2);
    assert_string_equal(read.samples[1].config, "BLOCK=96,UNROLL=2");
    samples_finish(&read);
    manifest_destroy(manifest);
}

static void expect_refusal(const char *text, const struct foreign_target *target, const char *why)
{
    struct tune_error err = {0};
    struct foreign_file file;
    struct foreign_lines lines = {0};
    int status = foreign_read(&file, FOREIGN_KERNEL_TUNER, text, strlen(text), NULL, &err);
    if (status == 0)
        status = foreign_lines(&file, target, &lines, &err);
    if (status == 0 || strstr(err.text, why) == NULL)
        fail_msg("%s: \"%s\", expected \"%s\"", text, err.text, why);
    foreign_lines_finish(&lines);
    foreign_finish(&file);
}

static void a_file_of_another_kernel_is_refused_as_a_whole(void **state)
{
    (void)state;
    struct manifest *manifest = axpy();
    struct foreign_target target = target_of(manifest);
    expect_refusal("{\"tune_params_keys\":[\"BLOCK\"],\"problem_size\":[1000],\"cache\":{\"32\":{"
                   "\"BLOCK\":32,\"time\":1.0}}}",
        &target, "lacks the parameter UNROLL");
    expect_refusal("{\"tune_params_keys\":[\"BLOCK\",\"UNROLL\",\"Z\"],\"problem_size\":1000,"
                   "\"cache\":{\"32,2,1\":{\"BLOCK\":32,\"UNROLL\":2,\"Z\":1,\"time\":1.0},"
                   "\"32,2,2\":{\"BLOCK\":32,\"UNROLL\":2,\"Z\":2,\"time\":1.0}}}",
        &target, "tunes a parameter \"Z\"");
    expect_refusal(
        "{\"tune_params_keys\":[\"BLOCK\",\"UNROLL\"],\"problem_size\":[10,10],\"cache\":{"
        "\"32,2\":{\"BLOCK\":32,\"UNROLL\":2,\"time\":1.0}}}",
        &target, "name the shape with --shape");
    target.arch = NULL;
    target.dims = (const int64_t[]){1000};
    expect_refusal("{\"tune_params_keys\":[\"BLOCK\",\"UNROLL\"],\"cache\":{\"32,2\":{\"BLOCK\":32,"
                   "\"UNROLL\":2,\"time\":1.0}}}",
        &target, "name it with --arch");
    expect_refusal("[1,2]", &target, "no cache file of Kernel Tuner");
    expect_refusal("", &target, "");
    manifest_destroy(manifest);
}

/* One slow run of many says nothing of the median. */
static void an_interval_is_that_of_the_median(void **state)
{
    char text[1024];
    size_t used = (size_t)snprintf(text, sizeof text,
        "{\"problem_size\":1000,\"tune_params_keys\":[\"BLOCK\",\"UNROLL\"],\"cache\":{\"32,2\":{"
        "\"BLOCK\":32,\"UNROLL\":2,\"time\":1.5,\"times\":[9.0,1e-300");
    for (int i = 0; i < 31; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, ",%d.0", 1 + i % 2);
    snprintf(text + used, sizeof text - used, "]}}}");
    (void)state;
    struct manifest *manifest = axpy();
    struct foreign_target target = target_of(manifest);
    struct samples read = read_text(FOREIGN_KERNEL_TUNER, text, strlen(text), &target);
    assert_int_equal(read.count, 1);
    assert_int_equal(read.samples[0].sample_count, 32);
    assert_true(read.samples[0].lo_ns == 1e6 && read.samples[0].hi_ns == 2e6);
    samples_finish(&read);
    manifest_destroy(manifest);
}

/* The name of a GPU is cut for its UUID, and not within a character. */
static void a_long_name_of_a_gpu_is_no_obstacle(void **state)
{
    char text[1024], name[256] = "a";
    (void)state;
    for (int i = 0; i < 100; i++)
        strcat(name, "\xC3\xA9");
    snprintf(text, sizeof text,
        "{\"device_name\":\"%s\",\"problem_size\":1000,\"tune_params_keys\":[\"BLOCK\",\"UNROLL\"],"
        "\"cache\":{\"32,2\":{\"BLOCK\":32,\"UNROLL\":2,\"time\":1.5}}}",
        name);
    struct manifest *manifest = axpy();
    struct foreign_target target = target_of(manifest);
    struct samples read = read_text(FOREIGN_KERNEL_TUNER, text, strlen(text), &target);
    assert_int_equal(read.count, 1);
    assert_string_equal(read.samples[0].gpu_name, name);
    samples_finish(&read);
    manifest_destroy(manifest);
}

static void times_of_an_unknown_unit_are_refused(void **state)
{
    static const char text[] = "{\"schema_version\":\"1.0.0\",\"metadata\":{\"timeunit\":"
                               "\"cycles\"},\"results\":[]}";
    struct tune_error err = {0};
    struct foreign_file file;
    (void)state;
    assert_int_equal(foreign_read(&file, FOREIGN_T4, text, strlen(text), NULL, &err), -1);
    assert_non_null(strstr(err.text, "\"cycles\""));
    foreign_finish(&file);
}

/* --- round trips ------------------------------------------------------------------------------ */

static char *write_samples(enum foreign_format format, const struct manifest *manifest,
    const struct samples *samples, size_t *length)
{
    struct tune_error err = {0};
    size_t written;
    struct foreign_output output = {manifest, "0123456789abcdef0123456789abcdef",
        samples->samples[0].key.shape, "f32", "sm_80", samples->samples[0].gpu_name,
        samples->samples, samples->count};
    char *text = foreign_write(format, &output, length, &written, &err);
    if (text == NULL)
        fail_msg("%s", err.text);
    assert_int_equal(written, samples->count);
    return text;
}

static const struct sample *find(const struct samples *samples, const char *config)
{
    for (size_t i = 0; i < samples->count; i++)
        if (strcmp(samples->samples[i].config, config) == 0)
            return &samples->samples[i];
    fail_msg("%s is lost", config);
    return NULL;
}

static void assert_same(const struct samples *before, const struct samples *after)
{
    assert_int_equal(before->count, after->count);
    for (size_t i = 0; i < before->count; i++) {
        const struct sample *a = &before->samples[i], *b = find(after, a->config);
        assert_int_equal(a->outcome, b->outcome);
        assert_int_equal(a->sample_count, b->sample_count);
        assert_true(a->median_ns == b->median_ns);
        assert_int_equal(a->time_unix_ms, b->time_unix_ms);
        for (size_t j = 0; j < a->sample_count; j++)
            assert_true(a->samples_ns[j] == b->samples_ns[j]);
    }
}

/* There and back, and there again to the same bytes, also when the samples come in another order.
 */
static void records_survive_a_file_of_another_tuner(void **state)
{
    static const enum foreign_format formats[] = {FOREIGN_KERNEL_TUNER, FOREIGN_T4};
    (void)state;
    struct manifest *manifest = convolution();
    struct foreign_target target = target_of(manifest);
    target.dims = (const int64_t[]){4096, 4096};
    struct samples first = read_data(FOREIGN_KERNEL_TUNER, "cache_closed.json", &target);
    /* A cache file has four words for eight outcomes; the finer one must come back too. */
    for (size_t i = 0, failures = 0; i < first.count; i++)
        if (first.samples[i].outcome == OUTCOME_LAUNCH_FAILED && failures++ == 0)
            first.samples[i].outcome = OUTCOME_TIMEOUT;
    for (size_t i = 0; i < 2; i++) {
        size_t length, again;
        char *text = write_samples(formats[i], manifest, &first, &length);
        struct samples second = read_text(formats[i], text, length, &target);
        assert_same(&first, &second);
        for (size_t j = 0; j < second.count / 2; j++) {
            struct sample swapped = second.samples[j];
            second.samples[j] = second.samples[second.count - 1 - j];
            second.samples[second.count - 1 - j] = swapped;
        }
        char *text_again = write_samples(formats[i], manifest, &second, &again);
        if (formats[i] == FOREIGN_KERNEL_TUNER) {
            assert_string_equal(text + length - 3, "}\n}"); /* by which the tuner knows it closed */
            assert_int_equal(length, again);
            assert_memory_equal(text, text_again, length);
        }
        samples_finish(&second);
        free(text);
        free(text_again);
    }
    samples_finish(&first);
    manifest_destroy(manifest);
}

/* What a parameter's value stands for goes out as the other tuner has it, keys included. */
static void values_are_written_as_python_has_them(void **state)
{
    static const char text[] =
        "{\"device_name\":\"Card\",\"problem_size\":1000,\"tune_params_keys\":[\"F\"],\"cache\":{"
        "\"inf\":{\"F\":\"inf\",\"time\":1.0,\"times\":[1.0]},\"0x10\":{\"F\":\"0x10\",\"time\":2."
        "0,\"times\":[2.0]},"
        "\"10.0\":{\"F\":10.0,\"time\":3.0,\"times\":[3.0]},\"2\":{\"F\":2,\"time\":4.0,\"times\":["
        "4.0]},"
        "\"True\":{\"F\":true,\"time\":5.0,\"times\":[5.0]}}}";
    static const char *const written[] = {"\"inf\": {\"F\": \"inf\"", "\"0x10\": {\"F\": \"0x10\"",
        "\"10.0\": {\"F\": 10.0", "\"2\": {\"F\": 2,", "\"True\": {\"F\": true"};
    (void)state;
    struct manifest *manifest = manifest_of("{\"name\":\"N\",\"meaning\":\"n\"}", "{\"N\":1000}",
        "{\"name\":\"F\",\"meaning\":\"m\",\"values\":["
        "{\"value\":0,\"name\":\"a\",\"define\":\"inf\"},"
        "{\"value\":1,\"name\":\"b\",\"define\":\"0x10\"},"
        "{\"value\":2,\"name\":\"c\",\"define\":\"10.0\"},"
        "{\"value\":3,\"name\":\"d\",\"define\":\"2\"},"
        "{\"value\":4,\"name\":\"e\",\"define\":\"true\"}]}",
        "{\"F\":0}");
    struct foreign_target target = target_of(manifest);
    size_t length;
    struct samples first = read_text(FOREIGN_KERNEL_TUNER, text, strlen(text), &target);
    assert_int_equal(first.count, 5);
    char *out = write_samples(FOREIGN_KERNEL_TUNER, manifest, &first, &length);
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++)
        if (strstr(out, written[i]) == NULL)
            fail_msg("%s is not in %s", written[i], out);
    struct samples second = read_text(FOREIGN_KERNEL_TUNER, out, length, &target);
    assert_same(&first, &second);
    samples_finish(&first);
    samples_finish(&second);
    free(out);
    manifest_destroy(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cache_file_is_read_open_and_closed),
        cmocka_unit_test(a_cache_file_may_be_cut_anywhere),
        cmocka_unit_test(t4_results_are_read_with_their_causes),
        cmocka_unit_test(wisdom_is_read_line_by_line),
        cmocka_unit_test(both_forms_of_clblast_are_read),
        cmocka_unit_test(a_file_of_another_kernel_is_refused_as_a_whole),
        cmocka_unit_test(an_interval_is_that_of_the_median),
        cmocka_unit_test(a_long_name_of_a_gpu_is_no_obstacle),
        cmocka_unit_test(times_of_an_unknown_unit_are_refused),
        cmocka_unit_test(records_survive_a_file_of_another_tuner),
        cmocka_unit_test(values_are_written_as_python_has_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
