#include "daemon/image.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- targets ---------------------------------------------------------------------------------- */

static int target_of_device(struct device_info *device, int sm, const char *suffix, char target[24],
    bool *is_ptx, struct tune_error *err)
{
    static const struct compiler_info compiler = {
        .is_known = true, .nvrtc = "13.0", .arch_count = 5, .archs = {75, 80, 86, 90, 100}};
    device->attributes[DEVICE_sm] = sm;
    return image_target(&compiler, device, suffix, target, is_ptx, err);
}

static int target_of(
    int sm, const char *suffix, char target[24], bool *is_ptx, struct tune_error *err)
{
    struct device_info device = {.name = "GPU"};
    return target_of_device(&device, sm, suffix, target, is_ptx, err);
}

static void a_device_gets_code_that_it_can_run(void **state)
{
    (void)state;
    static const struct {
        int sm;
        const char *suffix, *target;
        bool is_ptx;
    } cases[] = {{75, "", "sm_75", false}, {80, "", "sm_80", false}, {89, "", "sm_86", false},
        {90, "", "sm_90", false}, {90, "a", "sm_90a", false}, {103, "", "sm_100", false},
        {120, "", "compute_100", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char target[24] = "";
        bool is_ptx = !cases[i].is_ptx;
        struct tune_error err = {0};
        if (target_of(cases[i].sm, cases[i].suffix, target, &is_ptx, &err))
            fail_msg("sm_%d: %s", cases[i].sm, err.text);
        assert_string_equal(target, cases[i].target);
        assert_int_equal(is_ptx, cases[i].is_ptx);
    }
}

static void a_device_without_code_is_told_both_sides(void **state)
{
    (void)state;
    char target[24];
    bool is_ptx;
    struct tune_error err = {0};
    assert_int_equal(target_of(70, "", target, &is_ptx, &err), -1);
    assert_int_equal(err.code, TUNE_ENOCOMPILER);
    assert_non_null(strstr(err.text, "sm_70"));
    assert_non_null(strstr(err.text, "75 80 86 90 100"));
    struct device_info nameless = {.name = ""}; /* of an architecture alone */
    err = (struct tune_error){0};
    assert_int_equal(target_of_device(&nameless, 70, "", target, &is_ptx, &err), -1);
    assert_non_null(strstr(err.text, "the architecture asked for is sm_70"));
    static const int others[] = {89, 103, 120}; /* code of an "a" target runs nowhere else */
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(target_of(others[i], "a", target, &is_ptx, NULL), -1);
    assert_int_equal(target_of(0, "", target, &is_ptx, NULL), -1); /* emulator against NVRTC */
}

/* --- compiling -------------------------------------------------------------------------------- */

static struct sched *sched;
static struct tuning_db *db;
static struct writer *writer;
static struct images *images;
static bool flag;
static unsigned told_in_all;

struct asker {
    unsigned told, place; /* place: in the order of telling */
    bool is_told, has_package, is_cached, is_hopeless;
    char error[256];
    struct asker *cancels; /* when told */
    const char *asks;      /* when told: this image, for the asker `next` */
    struct asker *next;
};

static void on_flag(void *context)
{
    (void)context;
    flag = true;
}

static int start(void **state)
{
    if (support_start(state))
        return -1;
    struct tune_error err = {0};
    db = tuning_db_open(path_in("db"), NULL, &err);
    if (db == NULL)
        fail_msg("%s", err.text);
    writer = writer_create(test_loop(), db, &err);
    return writer == NULL;
}

static void start_images(void)
{
    struct sched_options options = {.worker_path = fake_worker(),
        .env = fake_env(),
        .compile_workers = 1,
        .compile_deadline_ms = 500};
    flag = false;
    sched = sched_create(test_loop(), &options, on_flag, NULL);
    images = images_create(test_loop(), sched, db, writer);
    run_until_true(&flag);
}

static int finish(void **state)
{
    flag = sched == NULL;
    if (sched != NULL)
        sched_stop(sched, on_flag, NULL);
    run_until_true(&flag);
    images_destroy(images);
    flag = false;
    writer_stop(writer, on_flag, NULL);
    run_until_true(&flag);
    tuning_db_close(db);
    sched = NULL;
    images = NULL;
    return support_finish(state);
}

static void ask(const char *define, const char *text, struct asker *asker);

static void on_image(const struct image_result *result, void *context)
{
    struct asker *asker = context;
    asker->told++;
    asker->is_told = true;
    asker->place = ++told_in_all;
    asker->has_package = result->package != NULL;
    asker->is_cached = result->is_cached;
    asker->is_hopeless = result->is_hopeless;
    snprintf(asker->error, sizeof asker->error, "%s", result->package ? "" : result->error);
    if (asker->cancels != NULL)
        image_cancel(images, asker->cancels);
    if (asker->asks != NULL)
        ask(asker->asks, "source", asker->next);
}

static void ask(const char *define, const char *text, struct asker *asker)
{
    struct device_info device;
    assert_int_equal(device_generic("sm_90", &device, NULL), 0);
    struct image_request request = {.source = {.name = "k.cu", .text = text, .content = "0123"},
        .defines = json_pack("[s]", define),
        .entries = json_pack("[s]", "k"),
        .device = &device,
        .arch_suffix = ""};
    unsigned told = asker->told;
    image_request(images, &request, on_image, asker);
    assert_int_equal(asker->told, told); /* never from inside the call */
    json_decref(request.defines);
    json_decref(request.entries);
}

static void an_image_is_compiled_once_and_then_cached(void **state)
{
    (void)state;
    start_images();
    struct asker first = {0}, second = {0}, other = {0};
    ask("-DBM=1", "source", &first);
    run_until_true(&first.is_told);
    assert_true(first.has_package);
    assert_false(first.is_cached);
    flag = false;
    ask("-DBM=2", "source", &other);
    run_until_true(&other.is_told);
    do { /* until the commit is done */
        second = (struct asker){0};
        ask("-DBM=1", "source", &second);
        run_until_true(&second.is_told);
    } while (!second.is_cached);
    assert_true(second.has_package);
    assert_true(images_counts(images).hits >= 1);
}

/* Askers ask for what promises most first: cached images must not come in another order. */
static void cached_images_come_in_the_order_of_asking(void **state)
{
    (void)state;
    static const char *const defines[] = {"-DBM=1", "-DBM=2", "-DBM=3", "-DBM=4"};
    start_images();
    struct asker askers[4];
    bool all_are_cached = false;
    while (!all_are_cached) { /* until the commits are done */
        told_in_all = 0;
        for (size_t i = 0; i < 4; i++) {
            askers[i] = (struct asker){0};
            ask(defines[i], "source", &askers[i]);
        }
        all_are_cached = true;
        for (size_t i = 0; i < 4; i++) {
            run_until_true(&askers[i].is_told);
            all_are_cached = all_are_cached && askers[i].is_cached;
        }
    }
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(askers[i].place, i + 1);
}

static void askers_of_one_image_share_a_compile(void **state)
{
    (void)state;
    start_images();
    struct asker askers[5] = {0};
    for (size_t i = 0; i < 5; i++)
        ask("-DBM=1", "source", &askers[i]);
    for (size_t i = 0; i < 5; i++) {
        run_until_true(&askers[i].is_told);
        assert_true(askers[i].has_package);
    }
    assert_int_equal(noted("run compile"), 1);
    assert_int_equal(images_counts(images).compiles, 1);
}

static void a_compiler_that_dies_is_tried_once_more(void **state)
{
    (void)state;
    start_images();
    struct asker asker = {0};
    ask("-DDO=crash", "source", &asker);
    run_until_true(&asker.is_told);
    assert_false(asker.has_package || asker.is_hopeless);
    assert_non_null(strstr(asker.error, "died"));
    assert_int_equal(noted("run compile"), 2);
    assert_int_equal(images_counts(images).failures, 1);
}

static void a_compile_that_fails_says_why_and_leaves_hope(void **state)
{
    (void)state;
    start_images();
    struct asker asker = {0};
    ask("-DDO=fail", "source", &asker);
    run_until_true(&asker.is_told);
    assert_string_equal(asker.error, "it cannot be done");
    assert_false(asker.has_package || asker.is_hopeless);
    asker = (struct asker){0};
    ask("-DDO=hang", "source", &asker);
    run_until_true(&asker.is_told);
    assert_non_null(strstr(asker.error, "deadline"));
    assert_false(asker.is_hopeless);
}

static void without_a_compiler_there_is_no_hope(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_COMPILE=error");
    start_images();
    struct asker asker = {0};
    ask("-DBM=1", "source", &asker);
    run_until_true(&asker.is_told);
    assert_true(asker.is_hopeless);
    assert_non_null(strstr(asker.error, "this cannot work"));
}

static void a_source_that_is_not_utf8_is_said(void **state)
{
    (void)state;
    start_images();
    struct asker asker = {0};
    ask("-DBM=1", "// caf\xe9", &asker);
    run_until_true(&asker.is_told);
    assert_non_null(strstr(asker.error, "k.cu"));
    assert_non_null(strstr(asker.error, "UTF-8"));
    assert_false(asker.is_hopeless);
    assert_int_equal(noted("run compile"), 0);
}

static void a_cancelled_asker_hears_nothing_and_the_others_all(void **state)
{
    (void)state;
    start_images();
    struct asker gone = {0}, stays = {0};
    ask("-DBM=1", "source", &gone);
    ask("-DBM=1", "source", &stays);
    image_cancel(images, &gone);
    run_until_true(&stays.is_told);
    assert_int_equal(gone.told, 0);
}

/* As a job that gives up at its first answer: it is freed while another answer to it is due. */
static void an_asker_may_be_cancelled_while_others_are_told(void **state)
{
    (void)state;
    start_images();
    struct asker second = {0}, first = {.cancels = &second}, last = {0};
    ask("-DBM=1", "source", &first);
    ask("-DBM=1", "source", &second);
    ask("-DBM=1", "source", &last);
    run_until_true(&last.is_told);
    assert_int_equal(first.told, 1);
    assert_int_equal(second.told, 0);
}

static void an_answer_may_lead_to_the_next_question(void **state)
{
    (void)state;
    start_images();
    struct asker next = {0}, first = {.asks = "-DDO=fail", .next = &next};
    ask("-DDO=fail", "source", &first);
    run_until_true(&next.is_told);
    assert_int_equal(first.told, 1);
    assert_int_equal(noted("run compile"), 2);
}

static void who_waits_at_the_end_is_told_of_it(void **state)
{
    (void)state;
    start_images();
    struct asker asker = {0};
    ask("-DDO=hang", "source", &asker);
    flag = false;
    sched_stop(sched, on_flag, NULL);
    run_until_true(&flag);
    sched = NULL;
    images_destroy(images);
    images = NULL;
    assert_int_equal(asker.told, 1);
    assert_true(asker.is_hopeless);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_gets_code_that_it_can_run),
        cmocka_unit_test(a_device_without_code_is_told_both_sides),
        TEST(an_image_is_compiled_once_and_then_cached),
        TEST(cached_images_come_in_the_order_of_asking),
        TEST(askers_of_one_image_share_a_compile),
        TEST(a_compiler_that_dies_is_tried_once_more),
        TEST(a_compile_that_fails_says_why_and_leaves_hope),
        TEST(without_a_compiler_there_is_no_hope),
        TEST(a_source_that_is_not_utf8_is_said),
        TEST(a_cancelled_asker_hears_nothing_and_the_others_all),
        TEST(an_asker_may_be_cancelled_while_others_are_told),
        TEST(an_answer_may_lead_to_the_next_question),
        TEST(who_waits_at_the_end_is_told_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
