/* tracer: each asker is told once, two run at a time, and nothing is left behind. */
#include "daemon/tracer.h"

#include "support.h"

#include <stdio.h>
#include <string.h>

static struct tracer *tracer;

/* One that asks. */
struct asker {
    bool is_told;
    json_t *launches;
    char why[256];
};

static void start(const char *emulator, uint64_t deadline_ms)
{
    struct tracer_options options = {
        .worker_path = fake_worker(),
        .emulator = emulator,
        .env = fake_env(),
        .deadline_ms = deadline_ms,
    };
    tracer = tracer_create(test_loop(), &options);
}

static void on_traced(const json_t *launches, const char *why, void *context)
{
    struct asker *asker = context;
    assert_false(asker->is_told);
    asker->is_told = true;
    asker->launches = json_incref((json_t *)launches);
    snprintf(asker->why, sizeof asker->why, "%s", why);
}

static int request(struct asker *asker, const char *how, int number, struct tune_error *err)
{
    *asker = (struct asker){0};
    return tracer_request(tracer,
        json_pack("{s:s, s:s*, s:i}", "op", "trace", "do", how, "echo", number), on_traced, asker,
        err);
}

static void ask(struct asker *asker, const char *how, int number)
{
    struct tune_error err = {0};
    if (request(asker, how, number, &err))
        fail_msg("%s", err.text);
    assert_false(asker->is_told);
}

/* What a request with this wish ends with. */
static const char *reason_for(const char *how)
{
    static struct asker asker;
    ask(&asker, how, 1);
    run_until_true(&asker.is_told);
    assert_null(asker.launches);
    return asker.why;
}

static bool is_alone(void *context)
{
    (void)context;
    return !has_children();
}

static void stop(void)
{
    tracer_stop(tracer);
    run_until(is_alone, NULL);
}

static void the_answer_is_handed_on_and_the_worker_ends(void **state)
{
    (void)state;
    struct asker asker;
    start("/emulator", 0);
    ask(&asker, NULL, 7);
    run_until_true(&asker.is_told);
    assert_string_equal(asker.why, "");
    assert_int_equal(json_integer_value(json_array_get(asker.launches, 0)), 7);
    json_decref(asker.launches);
    assert_false(has_children());
    assert_int_equal(noted("start trace"), 1);
    stop();
}

static void each_failure_has_a_reason(void **state)
{
    (void)state;
    start("/emulator", 0);
    assert_string_equal(reason_for("fail"), "it cannot be done");
    assert_non_null(strstr(reason_for("crash"), "signal 9"));
    assert_non_null(strstr(reason_for("exit"), "status 5"));
    assert_non_null(strstr(reason_for("garbage"), "worker"));
    stop();
}

static void a_hello_with_an_error_is_the_reason(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_TRACE=error");
    start("/emulator", 0);
    assert_non_null(strstr(reason_for(NULL), "this cannot work"));
    stop();
}

static void one_that_takes_too_long_is_killed(void **state)
{
    (void)state;
    start("/emulator", 50);
    assert_string_equal(reason_for("hang"), "running it on the emulator took too long");
    stop();
}

static void without_the_emulator_nothing_is_started(void **state)
{
    (void)state;
    struct asker asker;
    struct tune_error err = {0};
    start(NULL, 0);
    assert_int_equal(request(&asker, NULL, 1, &err), -1);
    assert_non_null(strstr(err.text, "not installed"));
    assert_false(has_children());
    stop();
}

/* Lets time pass: another tracer answers. */
static void wait_a_while(void)
{
    struct tracer *kept = tracer;
    struct asker asker;
    start("/emulator", 0);
    for (int i = 0; i < 3; i++) {
        ask(&asker, NULL, 0);
        run_until_true(&asker.is_told);
        json_decref(asker.launches);
    }
    tracer_stop(tracer);
    tracer = kept;
}

static void two_run_at_a_time_and_the_rest_follow(void **state)
{
    (void)state;
    struct asker busy[2], later[3];
    start("/emulator", 0);
    ask(&busy[0], "hang", 0);
    ask(&busy[1], "hang", 0);
    for (int i = 0; i < 3; i++)
        ask(&later[i], NULL, i);
    wait_a_while();
    assert_false(later[0].is_told || later[1].is_told || later[2].is_told);
    tracer_cancel(tracer, &later[1]);
    tracer_cancel(tracer, &busy[0]);
    run_until_true(&later[2].is_told);
    assert_true(later[0].is_told);
    assert_false(later[1].is_told || busy[0].is_told || busy[1].is_told);
    json_decref(later[0].launches);
    json_decref(later[2].launches);
    stop();
    assert_false(busy[1].is_told);
}

static void the_queue_has_an_end(void **state)
{
    (void)state;
    static struct asker askers[TRACER_RUNS_MAX + TRACER_QUEUE_MAX], last;
    struct tune_error err = {0};
    start("/emulator", 0);
    for (size_t i = 0; i < sizeof askers / sizeof askers[0]; i++)
        ask(&askers[i], "hang", 0);
    assert_int_equal(request(&last, NULL, 1, &err), -1);
    assert_int_equal(err.code, TUNE_EBUSY);
    stop();
    assert_false(askers[0].is_told || askers[10].is_told || last.is_told);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_start, support_finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_answer_is_handed_on_and_the_worker_ends),
        TEST(each_failure_has_a_reason),
        TEST(a_hello_with_an_error_is_the_reason),
        TEST(one_that_takes_too_long_is_killed),
        TEST(without_the_emulator_nothing_is_started),
        TEST(two_run_at_a_time_and_the_rest_follow),
        TEST(the_queue_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
