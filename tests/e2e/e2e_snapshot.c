/* What the real daemon publishes: the same answers as `get`, without a socket, through the daemon's
 * end, death and return. */
#include "harness.h"

#include "client/answer.h"
#include "client/snapshot.h"

#include <sys/stat.h>
#include <unistd.h>

/* --- reading ---------------------------------------------------------------------------------- */

/* A program that asks for tiny. */
struct reader {
    char link[128];
    struct snapshot *snapshot; /* opened when there is one */
    int64_t n;
    const char *dtype, *arch, *gpu;
    struct tune_answer answer;
};

static void reader_init(struct reader *reader, const struct harness *harness, int64_t n)
{
    *reader = (struct reader){.n = n};
    snprintf(reader->link, sizeof reader->link, "%s.served", harness->socket);
}

static bool has_answer(void *context)
{
    struct reader *reader = context;
    char key[SNAPSHOT_KEY_BYTES];
    struct tune_dim dims[] = {{"N", reader->n}};
    struct tune_query query = {.kernel = "tiny",
        .dims = dims,
        .dim_count = 1,
        .dtype = reader->dtype,
        .arch = reader->arch,
        .gpu = reader->gpu};
    if (reader->snapshot == NULL && snapshot_open(reader->link, &reader->snapshot, NULL) != 0)
        return false;
    return snapshot_get(reader->snapshot, key, snapshot_key(&query, key), &reader->answer) == 0;
}

static bool has_no_answer(void *context)
{
    return !has_answer(context);
}

static ino_t page_inode(const struct reader *reader)
{
    char path[160];
    struct stat status;
    snprintf(path, sizeof path, "%s/page", reader->link);
    assert_int_equal(stat(path, &status), 0);
    return status.st_ino;
}

/* --- tests ------------------------------------------------------------------------------------ */

/* Compares with the socket's answer to the same question, but for the generation. */
static void assert_same_as_get(struct harness *harness, struct reader *reader)
{
    struct tune_answer asked;
    struct tune_answer_info info;
    struct tune_error err = {0};
    wait_for(has_answer, reader, LIMIT_MS);
    tune_answer_info(&reader->answer, &info);
    json_t *json = ask(harness, "get",
        json_pack("{s:s, s:{s:I}, s:s*, s:s*, s:s*}", "kernel", "tiny", "shape", "N",
            (json_int_t)reader->n, "dtype", reader->dtype, "arch", reader->arch, "gpu",
            reader->gpu));
    json_object_set_new(json, "generation", json_integer((json_int_t)info.generation));
    if (answer_from_json(json, &asked, &err))
        fail_msg("%s", err.text);
    assert_int_equal(asked.length, reader->answer.length);
    assert_memory_equal(asked.words, reader->answer.words, asked.length);
    json_decref(json);
}

static void what_is_published_is_what_get_answers(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    struct reader reader;
    reader_init(&reader, harness, 64);
    tune_shape(harness, 64);
    assert_same_as_get(harness, &reader);
    json_t *devices = ask(harness, "devices", NULL);
    reader.gpu = text_at(json_array_get(devices, 0), "name");
    assert_same_as_get(harness, &reader);
    reader.gpu = NULL;
    reader.arch = "cpu";
    reader.dtype = "f32";
    assert_same_as_get(harness, &reader);
    int64_t tag;
    assert_int_equal(tune_answer_param(&reader.answer, "TAG", &tag, NULL), 0);
    assert_int_equal(tag, 2);
    json_t *ping = ask(harness, "ping", NULL);
    char *folder = realpath(reader.link, NULL);
    assert_string_equal(text_at(ping, "served"), folder);
    free(folder);
    json_decref(ping);
    json_decref(devices);
    snapshot_close(reader.snapshot);
}

static void news_reaches_an_open_handle_of_any_daemon_after_it(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    struct reader first, second;
    reader_init(&first, harness, 64);
    reader_init(&second, harness, 96);
    tune_shape(harness, 64);
    wait_for(has_answer, &first, LIMIT_MS);
    ino_t inode = page_inode(&first);
    second.snapshot = first.snapshot;
    assert_false(has_answer(&second));
    harness_stop(harness);
    assert_true(has_answer(&first)); /* while the daemon is away */
    harness_start(harness);
    assert_true(has_answer(&first));
    tune_shape(harness, 96);
    wait_for(has_answer, &second, LIMIT_MS);
    harness_kill(harness);
    assert_true(has_answer(&second));
    harness_start(harness);
    wait_for(has_answer, &second, LIMIT_MS);
    assert_int_equal(page_inode(&first), inode);
    snapshot_close(first.snapshot);
}

static void a_kernel_that_changed_is_not_answered_for_any_more(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    struct reader reader;
    reader_init(&reader, harness, 64);
    tune_shape(harness, 64);
    wait_for(has_answer, &reader, LIMIT_MS);
    write_tiny(harness, &(struct tiny){.tags = 3, .body = "if (n < -999) y[0] = 7;"});
    kill(harness->daemon, SIGHUP);
    wait_for(has_no_answer, &reader, LIMIT_MS);
    snapshot_close(reader.snapshot);
}

static void a_folder_in_the_way_does_not_stop_the_daemon(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 4});
    harness_scenario(harness, TAG_WINS(2));
    struct reader reader;
    reader_init(&reader, harness, 64);
    mkdir(reader.link, 0700);
    harness_start(harness);
    tune_shape(harness, 64);
    json_t *ping = ask(harness, "ping", NULL);
    assert_true(json_is_null(json_object_get(ping, "served")));
    json_decref(ping);
    assert_true(harness_log_has(harness, "is in the way: remove it"));
    assert_true(has_no_answer(&reader));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(what_is_published_is_what_get_answers),
        HARNESS_TEST(news_reaches_an_open_handle_of_any_daemon_after_it),
        HARNESS_TEST(a_kernel_that_changed_is_not_answered_for_any_more),
        HARNESS_TEST(a_folder_in_the_way_does_not_stop_the_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
