/* Records that came with the program: a known GPU is answered on the first call, what is measured
 * here goes before them, and nothing in their files can do harm. */
#include "exchange_support.h"

#include "client/answer.h"
#include "client/snapshot.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* A daemon, not started, whose shipped records lie in its folder's "records". Its kernel's
 * fingerprint is known: a first daemon has told it. */
static struct harness *prepare(void)
{
    static char folder[128];
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 4});
    harness_scenario(harness, TAG_WINS(2));
    snprintf(folder, sizeof folder, "%s/records", harness->folder);
    mkdir(folder, 0700);
    harness->args[0] = "--records";
    harness->args[1] = folder;
    harness_start(harness);
    use_fingerprint_of(harness);
    harness_stop(harness);
    return harness;
}

/* A file of one record. */
static void ship(struct harness *harness, const char *name, const struct spec *spec)
{
    struct text text = {0};
    char file[64];
    add_header(&text);
    add_record(&text, spec);
    snprintf(file, sizeof file, "records/%s", name);
    write_file(file_in(harness, file), text.bytes, text.length);
    text_finish(&text);
}

static const struct spec of_cpu = {.arch = "cpu",
    .gpu = "CPU emulator",
    .uuid = "GPU-e0e01a70-0001-4000-8000-0000000000ff",
    .config = "TAG=3",
    .is_confirmed = true};

static json_t *get(struct harness *harness, const char *arch, int n)
{
    return ask(harness, "get",
        json_pack("{s:s, s:{s:i}, s:s*}", "kernel", "tiny", "shape", "N", n, "arch", arch));
}

static void assert_answer(
    struct harness *harness, const char *arch, int n, const char *origin, int tag, bool is_shipped)
{
    json_t *answer = get(harness, arch, n);
    assert_string_equal(text_at(answer, "origin"), origin);
    assert_int_equal(number_at(answer, "config.TAG"), tag);
    if (is_shipped ? !json_is_true(at(answer, "shipped")) : !json_is_false(at(answer, "shipped")))
        fail_msg("N=%d on %s: shipped is to be %d", n, arch ? arch : "the device", is_shipped);
    json_decref(answer);
}

static void a_known_gpu_is_answered_on_the_first_call(void)
{
    struct harness *harness = prepare();
    const char *output;
    ship(harness, "sm_90-h200.jsonl", &(struct spec){.config = "TAG=2"});
    ship(harness, "cpu.jsonl", &of_cpu);
    harness_start(harness);
    assert_answer(harness, "sm_90", 64, "exact", 2, true);
    assert_answer(harness, "sm_90", 4096, "nearest", 2, true);
    assert_answer(harness, "sm_80", 64, "transferred", 2, true);
    assert_answer(harness, NULL, 64, "exact", 3, true);
    assert_int_equal(TUNECTL(harness, &output, "get", "tiny", "--shape", "N=64"), 0);
    assert_non_null(strstr(output, "exact, shipped, measured on CPU emulator"));
    assert_int_equal(TUNECTL(harness, &output, "doctor"), 0);
    assert_non_null(strstr(output, "2 records came with tunerd"));
    json_t *records = records_of(harness, NULL);
    assert_int_equal(json_array_size(records), 0);
    json_decref(records);
    assert_int_equal(TUNECTL(harness, &output, "export", "-o", "-"), 1); /* nothing of our own */
}

static void what_is_measured_here_goes_before(void)
{
    struct harness *harness = prepare();
    ship(harness, "cpu.jsonl", &of_cpu);
    ship(harness, "sm_90-h200.jsonl", &(struct spec){.config = "TAG=2", .median_ns = 1000});
    harness_start(harness);
    assert_answer(harness, NULL, 64, "exact", 3, true);
    tune_shape(harness, 64);
    assert_answer(harness, NULL, 64, "exact", 2, false); /* though its time is longer */
    assert_answer(harness, NULL, 96, "nearest", 2, false);
    struct text text = {0};
    add_header(&text);
    add_record(&text, &(struct spec){.config = "TAG=1", .median_ns = 2000});
    json_decref(import_text(harness, NULL, text.bytes));
    assert_answer(harness, "sm_90", 64, "exact", 1, false);
    text_finish(&text);
    json_decref(ask(harness, "refuse", json_pack("{s:s}", "host", "elsewhere")));
    assert_answer(harness, "sm_90", 64, "exact", 2, true); /* uncovered again */
}

static void files_that_are_wrong_are_warnings(void)
{
    struct harness *harness = prepare();
    struct text text = {0};
    ship(harness, "good.jsonl", &(struct spec){.config = "TAG=2"});
    ship(harness, "not-cpu.jsonl", &of_cpu);
    ship(harness, "old.jsonl",
        &(struct spec){.fingerprint = "0123456789abcdef0123456789abcdef", .n = 96});
    ship(harness, "fast.jsonl", &(struct spec){.n = 128, .median_ns = 1e-3});
    ship(harness, "outside.jsonl", &(struct spec){.n = 160, .config = "TAG=9"});
    ship(harness, "ignored.txt", &(struct spec){.n = 192});
    write_file(file_in(harness, "records/noise.jsonl"), "\xFF\x00\n{}\n{\"", 8);
    write_file(file_in(harness, "records/empty.jsonl"), "", 0);
    text_line(&text, "{\"format\":\"tunerd-records\",\"version\":[9,0]}");
    add_record(&text, &(struct spec){.n = 224});
    write_file(file_in(harness, "records/newer.jsonl"), text.bytes, text.length);
    text_finish(&text);
    add_header(&text);
    for (int i = 0; i < 10; i++)
        text_line(&text, "nonsense");
    add_record(&text, &(struct spec){.n = 256, .config = "TAG=1"});
    write_file(file_in(harness, "records/partly.jsonl"), text.bytes, text.length);
    text_finish(&text);
    mkdir(file_in(harness, "records/folder.jsonl"), 0700);
    mkfifo(file_in(harness, "records/pipe.jsonl"), 0600);
    harness_start(harness);
    assert_answer(harness, "sm_90", 64, "exact", 2, true);
    assert_answer(harness, "sm_90", 256, "exact", 1, true);
    assert_answer(harness, NULL, 64, "default", 0, false);
    json_t *stats = ask(harness, "stats", NULL);
    assert_int_equal(number_at(stats, "shipped.records"), 2);
    assert_int_equal(number_at(stats, "shipped.set_aside"), 1);
    assert_int_equal(number_at(stats, "shipped.refused"), 13);
    json_decref(stats);
    assert_true(harness_log_has(harness, "newer.jsonl"));
    assert_true(harness_log_has(harness, "not-cpu.jsonl, line 2"));
    assert_true(harness_log_has(harness, "outside.jsonl, line 2"));
    assert_true(harness_log_has(harness, "partly.jsonl: 10 lines are left out"));
    assert_true(harness_log_has(harness, "pipe.jsonl are left out: it is no plain file"));
}

/* --- published answers ------------------------------------------------------------------------ */

struct published {
    char link[128];
    int tag; /* waited for */
    struct snapshot *snapshot;
    struct tune_answer answer;
};

static bool is_published(void *context)
{
    struct published *published = context;
    char key[SNAPSHOT_KEY_BYTES];
    struct tune_dim dims[] = {{"N", 64}};
    struct tune_query query = {.kernel = "tiny", .dims = dims, .dim_count = 1, .arch = "sm_90"};
    int64_t tag;
    if (published->snapshot == NULL &&
        snapshot_open(published->link, &published->snapshot, NULL) != 0)
        return false;
    return snapshot_get(published->snapshot, key, snapshot_key(&query, key), &published->answer) ==
               0 &&
           tune_answer_param(&published->answer, "TAG", &tag, NULL) == 0 && tag == published->tag;
}

static void they_are_published_and_published_anew_when_others_are_shipped(void)
{
    struct harness *harness = prepare();
    struct published published = {.tag = 2};
    struct tune_answer_info info;
    snprintf(published.link, sizeof published.link, "%s.served", harness->socket);
    ship(harness, "h200.jsonl", &(struct spec){.config = "TAG=2"});
    harness_start(harness);
    wait_for(is_published, &published, LIMIT_MS);
    tune_answer_info(&published.answer, &info);
    assert_true(info.is_shipped);
    assert_int_equal(info.origin, TUNE_EXACT);
    harness_stop(harness);
    ship(harness, "h200.jsonl", &(struct spec){.config = "TAG=1"}); /* an update of the package */
    harness_start(harness);
    published.tag = 1;
    wait_for(is_published, &published, LIMIT_MS);
    struct text text = {0};
    add_header(&text);
    add_record(&text, &(struct spec){.config = "TAG=3"});
    json_decref(import_text(harness, NULL, text.bytes));
    published.tag = 3;
    wait_for(is_published, &published, LIMIT_MS);
    tune_answer_info(&published.answer, &info);
    assert_false(info.is_shipped);
    text_finish(&text);
    snapshot_close(published.snapshot);
}

/* A kernel's text may change only together with the records that were measured of it: those of
 * another text answer nobody (tuning_db/records/make.sh makes them). */
static void those_of_the_repository_are_of_its_kernels(void)
{
    struct harness *harness = harness_new();
    harness_start(harness);
    json_t *stats = ask(harness, "stats", NULL);
    assert_true(number_at(stats, "shipped.records") > 0);
    assert_int_equal(number_at(stats, "shipped.set_aside"), 0);
    assert_int_equal(number_at(stats, "shipped.refused"), 0);
    json_decref(stats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(a_known_gpu_is_answered_on_the_first_call),
        HARNESS_TEST(what_is_measured_here_goes_before),
        HARNESS_TEST(files_that_are_wrong_are_warnings),
        HARNESS_TEST(they_are_published_and_published_anew_when_others_are_shipped),
        HARNESS_TEST(those_of_the_repository_are_of_its_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
