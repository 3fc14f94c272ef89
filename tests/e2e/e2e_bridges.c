/* Files of other tuners through the programs: a cache file becomes records that nobody takes for
 * confirmed ones, records become files that come back, a T1 description becomes a kernel that is
 * swept. */
#include "exchange_support.h"

#include <dirent.h>
#include <sys/stat.h>

static const char cache[] =
    "{\"device_name\": \"Card\", \"kernel_name\": \"other\", \"problem_size\": [64],\n"
    "\"tune_params_keys\": [\"TAG\", \"FIXED\"], \"tune_params\": {\"TAG\": [0, 1, 2, 3]},\n"
    "\"cache\": {\n"
    "\"0,7\": {\"TAG\": 0, \"FIXED\": 7, \"time\": 0.5, \"times\": [0.5, 0.25, 0.75]},\n"
    "\"1,7\": {\"TAG\": 1, \"FIXED\": 7, \"time\": 0.125},\n"
    "\"2,7\": {\"TAG\": 2, \"FIXED\": 7, \"time\": \"CompilationFailedConfig\"},\n"
    "\"9,7\": {\"TAG\": 9, \"FIXED\": 7, \"time\": 0.5},\n"
    "\"3,7\": {\"TAG\": 3, \"FIXED\": 7, \"ti";

static void a_cut_cache_file_becomes_unconfirmed_records(void)
{
    const char *output;
    struct harness *harness = start_tiny(&(struct tiny){0}, NULL);
    const char *path = file_in(harness, "cache.json");
    write_file(path, cache, strlen(cache));
    /* One value is not the kernel's: told, and with --strict nothing is stored. */
    assert_int_equal(TUNECTL(harness, &output, "import", "--from", "kernel-tuner", "--kernel",
                         "tiny", "--arch", "cpu", "--strict", path),
        1);
    assert_non_null(strstr(output, "record 4: 9 is no value of the parameter TAG"));
    assert_non_null(strstr(output, "the file was cut off"));
    assert_non_null(strstr(output, "has no parameter FIXED"));
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(json_array_size(rows), 0);
    json_decref(rows);
    assert_int_equal(TUNECTL(harness, &output, "import", "--from", "kernel-tuner", "--kernel",
                         "tiny", "--arch", "cpu", path),
        1);
    assert_non_null(strstr(output, "3 added"));
    rows = records_of(harness, NULL);
    assert_int_equal(rows_with(rows, "ok", -1), 2);
    assert_int_equal(rows_with(rows, "compile_failed", 2), 1);
    assert_true(number_at(row_of(rows, 0), "median_ns") == 500000);
    assert_string_equal(text_at(row_of(rows, 1), "method"), "kernel_tuner");
    json_decref(rows);
    json_t *answer = ask(harness, "get",
        json_pack("{s:s, s:{s:i}, s:s}", "kernel", "tiny", "shape", "N", 64, "arch", "cpu"));
    char *text = json_dumps(answer, JSON_COMPACT);
    assert_null(strstr(text, "\"confirmed\":true"));
    assert_null(strstr(text, "\"verified\":true"));
    assert_int_equal(
        TUNECTL(harness, &output, "get", "tiny", "--shape", "N=64", "--arch", "cpu"), 0);
    assert_non_null(strstr(output, "by another tuner"));
    free(text);
    json_decref(answer);
}

/* A reason quotes the file, and may end inside of a character. */
static void a_refused_record_counts_whatever_text_it_has(void)
{
    static const char odd[] =
        "{\"device_name\": \"Card\", \"kernel_name\": \"other\", \"problem_size\": [64],\n"
        "\"tune_params_keys\": [\"TAG\"], \"tune_params\": {\"TAG\": [0, 1, 2, 3]},\n"
        "\"cache\": {\n"
        "\"0\": {\"TAG\": 0, \"time\": 0.5},\n"
        "\"1\": {\"TAG\": \"123456789012345678901234567890123456789012345\xC3\xA9\", "
        "\"time\": 0.5}}}";
    const char *output;
    struct harness *harness = start_tiny(&(struct tiny){0}, NULL);
    const char *path = file_in(harness, "cache.json");
    write_file(path, odd, strlen(odd));
    assert_int_equal(TUNECTL(harness, &output, "import", "--from", "kernel-tuner", "--kernel",
                         "tiny", "--arch", "cpu", "--strict", path),
        1);
    assert_non_null(strstr(output, "1 refused"));
    assert_non_null(strstr(output, "record 2: "));
    assert_non_null(strstr(output, "nothing is stored"));
}

static void records_go_to_another_tuner_and_come_back(void)
{
    static const char *const formats[] = {"kernel-tuner", "t4"};
    const char *output;
    struct harness *harness = start_tiny(&(struct tiny){0}, TAG_WINS(2));
    tune_shape(harness, 64);
    for (size_t i = 0; i < 2; i++) {
        const char *path = file_in(harness, formats[i]), *again = file_in(harness, "again");
        assert_int_equal(
            TUNECTL(harness, &output, "export", "--to", formats[i], "--kernel", "tiny", "--shape",
                "N=64", "--arch", "cpu", "--gpu", "CPU emulator", "-o", path),
            0);
        assert_non_null(strstr(output, "4 records"));
        assert_int_equal(
            TUNECTL(harness, &output, "export", "--to", formats[i], "--kernel", "tiny", "--shape",
                "N=64", "--arch", "cpu", "--gpu", "CPU emulator", "-o", again),
            0);
        char *first = read_file(path), *second = read_file(again);
        assert_string_equal(first, second);
        free(first);
        free(second);
        assert_int_equal(TUNECTL(harness, &output, "import", "--from", formats[i], "--kernel",
                             "tiny", "--shape", "N=64", "--arch", "cpu", "--gpu", "Other", path),
            0);
        assert_non_null(strstr(output, "4 added"));
        assert_int_equal(TUNECTL(harness, &output, "import", "--from", formats[i], "--kernel",
                             "tiny", "--shape", "N=64", "--arch", "cpu", "--gpu", "Other", path),
            0);
        assert_non_null(strstr(output, "4 equal"));
        /* One file is one run, also from another place. */
        assert_int_equal(TUNECTL(harness, &output, "import", "--from", formats[i], "--kernel",
                             "tiny", "--shape", "N=64", "--arch", "cpu", "--gpu", "Other", again),
            0);
        assert_non_null(strstr(output, "4 equal"));
    }
}

static void options_that_mean_nothing_are_refused(void)
{
    const char *output;
    struct harness *harness = start_tiny(&(struct tiny){0}, NULL);
    const char *path = file_in(harness, "cache.json");
    write_file(path, cache, strlen(cache));
    assert_int_equal(TUNECTL(harness, &output, "import", "--kernel", "tiny", path), 2);
    assert_non_null(strstr(output, "--kernel goes with --from"));
    assert_int_equal(
        TUNECTL(harness, &output, "import", "--from", "ktt", "--kernel", "tiny", path), 1);
    assert_non_null(strstr(output, "kernel-tuner, t4, wisdom and clblast"));
    assert_int_equal(TUNECTL(harness, &output, "import", "--from", "t4", path), 1);
    assert_non_null(strstr(output, "needs --kernel"));
    assert_int_equal(
        TUNECTL(harness, &output, "import", "--from", "kernel-tuner", "--kernel", "tiny", path), 1);
    assert_non_null(strstr(output, "--arch"));
    assert_int_equal(TUNECTL(harness, &output, "import", "--from", "kernel-tuner", "--kernel",
                         "tiny", "--arch", "sm80", path),
        1);
    assert_non_null(strstr(output, "sm80"));
    assert_int_equal(TUNECTL(harness, &output, "export", "--to", "wisdom", "--kernel", "tiny",
                         "--shape", "N=64", "-o", path),
        1);
}

static size_t entries_in(const char *folder)
{
    DIR *dir = opendir(folder);
    size_t count = 0;
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

/* The source of the kernel "a" is called as its manifest is, so that the last of three
 * files cannot be made. */
static void a_conversion_that_fails_leaves_nothing_behind(void)
{
    const char *output;
    char path[512];
    struct harness *harness = harness_new();
    snprintf(path, sizeof path, "%s/tests/data/bridges/t1/scale.json", getenv("TUNE_SOURCE_DIR"));
    char *text = read_file(path);
    char *name = strstr(text, "\"scale.cu\"");
    assert_non_null(name);
    memcpy(name, "\"a.json\"  ", 10);
    const char *t1 = file_in(harness, "a.json");
    write_file(t1, text, strlen(text));
    free(text);
    mkdir(harness->plugins, 0755);
    assert_int_equal(
        TUNECTL(harness, &output, "convert", "t1", t1, "--name", "a", "-o", harness->plugins), 1);
    assert_non_null(strstr(output, "cannot make a.json"));
    assert_int_equal(entries_in(harness->plugins), 0);
    assert_int_equal(
        TUNECTL(harness, &output, "convert", "t1", t1, "--name", "b", "-o", harness->plugins), 0);
    assert_non_null(strstr(output, "b is its own reference"));
    assert_int_equal(entries_in(harness->plugins), 1);
}

/* Its values are reals, words and bools; the candidates differ on purpose, so that a reference
 * which is the default itself is seen to tell them apart. */
static void a_description_becomes_a_kernel_that_is_swept(void)
{
    const char *output;
    char t1[512];
    struct harness *harness = harness_new();
    snprintf(t1, sizeof t1, "%s/tests/data/bridges/t1/scale.json", getenv("TUNE_SOURCE_DIR"));
    mkdir(harness->plugins, 0755);
    assert_int_equal(TUNECTL(harness, &output, "convert", "t1", t1, "-o", harness->plugins), 0);
    assert_non_null(strstr(output, "scale: 48 configurations"));
    assert_int_equal(TUNECTL(harness, &output, "convert", "t1", t1, "-o", harness->plugins), 1);
    assert_non_null(strstr(output, "is there already"));
    assert_int_equal(entries_in(harness->plugins), 1); /* and nothing half made beside it */
    harness_start(harness);
    json_t *params = sweep_params("scale");
    json_object_set_new(params, "budget", json_pack("{s:i}", "evals", 4));
    json_t *result = sweep_result(harness, params);
    assert_true(count_of(result, "ok") >= 1);
    assert_int_equal(count_of(result, "compile_failed"), 0);
    json_decref(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(a_cut_cache_file_becomes_unconfirmed_records),
        HARNESS_TEST(a_refused_record_counts_whatever_text_it_has),
        HARNESS_TEST(records_go_to_another_tuner_and_come_back),
        HARNESS_TEST(options_that_mean_nothing_are_refused),
        HARNESS_TEST(a_conversion_that_fails_leaves_nothing_behind),
        HARNESS_TEST(a_description_becomes_a_kernel_that_is_swept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
