/* The screen of `tunectl watch` without a terminal: what it knows, and the lines it makes of it. */
#include "client/tunectl/print.h"
#include "client/tunectl/watch_text.h"
#include "client/tunectl/watch_view.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <cmocka.h>

static struct watch_model model;

/* --- what the daemon sends -------------------------------------------------------------------- */

struct told {
    const char *job;
    double at_s, done, total, rate, shape_index;
    json_t *recent; /* taken; NULL: none */
};

static void tell(struct told told)
{
    json_t *recent = told.recent ? told.recent : json_array();
    json_t *message = json_pack(
        "{s:s, s:{s:s, s:s, s:{s:i}, s:s, s:f, s:f, s:f, s:f, s:i, s:f, s:f, s:f, s:{s:i}, s:{s:i, "
        "s:i}, s:o}}",
        "method", "progress", "params", "job", told.job, "kernel", "gemm", "shape", "M", 64,
        "phase", "searching", "done", told.done, "total", told.total, "configs_per_s", told.rate,
        "shape_index", told.shape_index, "shape_count", 2, "elapsed_s", told.at_s, "best_ns",
        63200.0, "default_ns", 94800.0, "best_config", "BM", 32, "outcomes", "ok", 3, "timeout", 0,
        "recent", recent);
    assert_non_null(message);
    watch_notify(&model, message, told.at_s);
    json_decref(message);
}

static void end(const char *job, const char *state)
{
    json_t *message =
        json_pack("{s:s, s:{s:s, s:s, s:s, s:[{s:{s:f}}]}}", "method", "done", "params", "job", job,
            "kernel", "gemm", "state", state, "results", "best", "median_ns", 63200.0);
    watch_notify(&model, message, 0);
    json_decref(message);
}

/* Results BM=first, first + 1, ... of as many times; 0: a timeout. */
static json_t *results(int first, const double *times_ns, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(
            list, json_pack("{s:{s:i}, s:s, s:f, s:s}", "config", "BM", first + (int)i, "outcome",
                      times_ns[i] > 0 ? "ok" : "timeout", "median_ns", times_ns[i], "detail",
                      times_ns[i] > 0 ? "" : "over 5000 ms"));
    return list;
}

static void tell_stats(double uptime_s, int workers, double compile_s, double gpu0_s, double gpu1_s)
{
    json_t *stats = json_pack("{s:f, s:i, s:i, s:i, s:{s:i, s:i, s:i, s:f}}", "uptime_s", uptime_s,
        "clients", 1, "jobs_active", 3, "jobs_queued", 2, "workers", "compile", workers,
        "compile_busy", 1, "compile_queue", 5, "compile_busy_s", compile_s);
    json_t *devices = json_pack("[{s:i, s:s, s:s, s:f}, {s:i, s:s, s:s, s:s, s:f}]", "ordinal", 0,
        "name", "H200", "state", "running", "busy_s", gpu0_s, "ordinal", 3, "name", "H200", "state",
        "offline", "reason", "it fell off", "busy_s", gpu1_s);
    watch_take_stats(&model, stats, devices);
    json_decref(stats);
    json_decref(devices);
}

static int start(void **state)
{
    (void)state;
    watch_init(&model, NULL, 0);
    return setlocale(LC_CTYPE, "C.UTF-8") == NULL;
}

static int finish(void **state)
{
    (void)state;
    watch_finish(&model);
    return 0;
}

/* --- text ------------------------------------------------------------------------------------- */

static void expect_fit(const char *text, int columns, const char *expected)
{
    char *fit = text_fit(text, columns);
    assert_string_equal(fit, expected);
    free(fit);
}

static void text_is_cut_between_characters_and_wide_ones_take_two_columns(void **state)
{
    (void)state;
    expect_fit("gemm", 4, "gemm");
    expect_fit("gemm64", 4, "gem…");
    expect_fit("größe", 5, "größe");
    expect_fit("größe", 4, "grö…");
    expect_fit("行列積", 6, "行列積");
    expect_fit("行列積", 5, "行列…");
    expect_fit("行列積", 4, "行…"); /* half of a character is none */
    expect_fit("e\u0301a", 2, "e\u0301a");
    expect_fit("gemm", 1, "…");
    expect_fit("gemm", 0, "");
    expect_fit("", 0, "");
}

static void what_steers_a_terminal_is_shown_as_a_question_mark(void **state)
{
    (void)state;
    expect_fit("a\x1b[2Jb\n\x7f", 80, "a?[2Jb??");
    expect_fit("a\xc2\x9b"
               "1m",
        80, "a?1m");
    expect_fit("a\u202eb\u200bc", 80, "a?b?c");
    expect_fit("a\xff\xc3", 80, "a??");
    setlocale(LC_CTYPE, "C");
    expect_fit("a\xc2\x9b"
               "1m\x1b",
        80, "a??1m?");
    expect_fit("gemm64", 4, "gem~");
}

static void expect_sparkline(const double *times_ns, size_t count, int columns,
    const char *expected, double expected_low, double expected_high)
{
    double low_ns, high_ns;
    char *line = text_sparkline(times_ns, count, columns, &low_ns, &high_ns);
    assert_string_equal(line, expected);
    assert_true(low_ns == expected_low && high_ns == expected_high);
    free(line);
}

static void a_sparkline_goes_from_the_lowest_to_the_highest_by_factors(void **state)
{
    (void)state;
    static const double powers[] = {1, 2, 4, 8, 16, 32, 64, 128};
    static const double gaps[] = {1000, 100, 0, 10, 100};
    static const double equal[] = {7, 7};
    expect_sparkline(powers, 8, 20, "▁▂▃▄▅▆▇█", 1, 128);
    expect_sparkline(gaps + 1, 4, 20, "█x▁█", 10, 100);
    expect_sparkline(gaps, 5, 4, "█x▁█", 10, 100); /* the last four, by themselves */
    expect_sparkline(equal, 2, 20, "▁▁", 7, 7);
    expect_sparkline(gaps + 2, 1, 20, "x", 0, 0);
    expect_sparkline(equal, 2, -3, "", 0, 0);
    setlocale(LC_CTYPE, "C");
    expect_sparkline(powers, 8, 20, "_.-:=+*#", 1, 128);
}

static void a_bar_is_filled_by_the_share_and_never_beyond_its_ends(void **state)
{
    (void)state;
    char text[TEXT_BAR_MAX + 1];
    assert_string_equal(text_bar(0.5, 4, text), "##..");
    assert_string_equal(text_bar(-1, 4, text), "....");
    assert_string_equal(text_bar(9, 4, text), "####");
    assert_string_equal(text_bar(1, -4, text), "");
    assert_int_equal(strlen(text_bar(0, 1000, text)), TEXT_BAR_MAX);
}

/* --- jobs ------------------------------------------------------------------------------------- */

static void the_rate_is_that_of_the_last_seconds(void **state)
{
    (void)state;
    tell((struct told){.job = "a", .at_s = 0, .total = 1000, .rate = 3});
    const struct watch_job *job = watch_selected(&model);
    assert_true(watch_rate(job, 0.5) == 3); /* too early: the daemon's mean */
    for (int second = 1; second <= 100; second++)
        tell((struct told){.job = "a",
            .at_s = second,
            .done = second <= 80 ? second : 80 + (second - 80) * 5,
            .total = 1000,
            .rate = 3});
    assert_true(watch_rate(job, 100) == 5);
    assert_true(watch_left_s(job, 100) == (1000.0 - 180) / 5);
    assert_true(watch_elapsed_s(job, 103) == 103);
    assert_true(watch_rate(job, 105) < 5); /* nothing came for 5 seconds */
    assert_true(watch_rate(job, 200) == 0);
    assert_true(watch_left_s(job, 200) == -1);
}

static void jobs_come_and_go_and_the_selection_stays_with_its_own(void **state)
{
    (void)state;
    assert_null(watch_selected(&model));
    tell((struct told){.job = "a"});
    tell((struct told){.job = "b"});
    tell((struct told){.job = "c"});
    tell((struct told){.job = "b"}); /* again: no fourth */
    assert_int_equal(model.job_count, 3);
    watch_key(&model, 'k');
    assert_string_equal(watch_selected(&model)->id, "a");
    watch_key(&model, 'j');
    assert_string_equal(watch_selected(&model)->id, "b");
    end("a", "done");
    assert_string_equal(watch_selected(&model)->id, "b");
    assert_string_equal(model.last_end, "gemm a is done, best 63.2 us");
    watch_key(&model, 'j');
    watch_key(&model, 'j');
    assert_string_equal(watch_selected(&model)->id, "c");
    end("c", "failed");
    assert_string_equal(watch_selected(&model)->id, "b");
    end("b", "canceled");
    end("b", "canceled");
    assert_null(watch_selected(&model));
}

static void what_ran_before_is_taken_from_the_list_of_jobs(void **state)
{
    (void)state;
    json_t *jobs = json_pack("[{s:s, s:s, s:{s:s, s:s, s:i}}, {s:s, s:s}, {s:s, s:s}]", "job", "a",
        "state", "running", "progress", "job", "a", "kernel", "reduce", "done", 7, "job", "b",
        "state", "queued", "job", "c", "state", "done");
    watch_take_jobs(&model, jobs, 0);
    watch_take_jobs(&model, jobs, 0);
    assert_int_equal(model.job_count, 1);
    assert_string_equal(watch_selected(&model)->kernel, "reduce");
    watch_finish(&model);
    watch_init(&model, "b", 0);
    watch_take_jobs(&model, jobs, 0);
    assert_int_equal(model.job_count, 0);
    json_decref(jobs);
}

/* --- results ---------------------------------------------------------------------------------- */

static void the_newest_results_are_kept_in_order(void **state)
{
    (void)state;
    static const double times_ns[10] = {5, 0, 7, 8, 9, 10, 11, 12, 13, 14};
    for (int i = 0; i < 30; i++)
        tell((struct told){.job = "a", .recent = results(10 * i, times_ns, 10)});
    const struct watch_job *job = watch_selected(&model);
    assert_string_equal(watch_recent(job, 0)->config, "BM=299");
    assert_string_equal(watch_recent(job, 8)->config, "BM=291");
    assert_string_equal(watch_recent(job, 8)->outcome, "timeout");
    assert_string_equal(watch_recent(job, 8)->detail, "over 5000 ms");
    assert_string_equal(watch_recent(job, WATCH_RECENT_MAX - 1)->config, "BM=44");
    assert_null(watch_recent(job, WATCH_RECENT_MAX));
    double kept_ns[3];
    assert_int_equal(watch_times(job, kept_ns, 3), 3);
    assert_true(kept_ns[0] == 12 && kept_ns[2] == 14);
}

static void a_paused_list_stands_still_until_it_goes_on(void **state)
{
    (void)state;
    static const double times_ns[10] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    tell((struct told){.job = "a", .recent = results(0, times_ns, 10)});
    const struct watch_job *job = watch_selected(&model);
    watch_key(&model, 'p');
    tell((struct told){.job = "a", .recent = results(10, times_ns, 10)});
    assert_string_equal(watch_recent(job, 0)->config, "BM=9");
    assert_int_equal(job->recent_count - job->shown_count, 10);
    for (int i = 2; i < 26; i++)
        tell((struct told){.job = "a", .recent = results(10 * i, times_ns, 10)});
    /* Four of the ten on show have fallen out of what is kept. */
    assert_string_equal(watch_recent(job, 5)->config, "BM=4");
    assert_null(watch_recent(job, 6));
    watch_key(&model, 'p');
    assert_string_equal(watch_recent(job, 0)->config, "BM=259");
}

static void the_next_shape_has_times_and_a_rate_of_its_own(void **state)
{
    (void)state;
    static const double slow_ns[] = {900, 901, 902}, fast_ns[] = {5, 6};
    double kept_ns[8];
    tell((struct told){.job = "a", .at_s = 0, .done = 3, .recent = results(0, slow_ns, 3)});
    tell((struct told){.job = "a",
        .at_s = 5,
        .done = 2,
        .rate = 4,
        .shape_index = 1,
        .recent = results(3, fast_ns, 2)});
    const struct watch_job *job = watch_selected(&model);
    assert_int_equal(watch_times(job, kept_ns, 8), 2);
    assert_true(kept_ns[0] == 5);
    assert_true(watch_rate(job, 5) == 4);
    assert_string_equal(watch_recent(job, 4)->config, "BM=0");
}

/* --- how busy it is --------------------------------------------------------------------------- */

static void busy_shares_are_those_of_the_last_seconds(void **state)
{
    (void)state;
    tell_stats(0, 2, 0, 0, 0);
    assert_true(watch_gpu_share(&model, 0) == -1);
    assert_true(watch_compile_share(&model) == -1);
    tell_stats(2, 2, 1, 1, 0);
    assert_true(watch_gpu_share(&model, 0) == 0.5);
    assert_true(watch_gpu_share(&model, 1) == 0);
    assert_true(watch_compile_share(&model) == 0.25);
    for (int i = 1; i <= WATCH_LOADS_MAX; i++) /* what came before is long ago */
        tell_stats(2 + i, 2, 1 + 2 * i, 1, i);
    assert_true(watch_gpu_share(&model, 0) == 0);
    assert_true(watch_gpu_share(&model, 1) == 1);
    assert_true(watch_compile_share(&model) == 1);
}

static void a_share_is_never_outside_of_nothing_and_all(void **state)
{
    (void)state;
    tell_stats(0, 1, 0, 5, 0);
    tell_stats(1, 0, 9, 4, 9);
    assert_true(watch_gpu_share(&model, 0) == 0);
    assert_true(watch_gpu_share(&model, 1) == 1);
    assert_true(watch_compile_share(&model) == 0); /* there is no worker any more */
    json_t *none = json_array();
    watch_take_stats(&model, NULL, none);
    json_decref(none);
    assert_int_equal(model.gpu_count, 0);
    assert_true(watch_compile_share(&model) == -1);
}

/* --- keys ------------------------------------------------------------------------------------- */

static void a_job_is_canceled_only_after_yes(void **state)
{
    (void)state;
    assert_int_equal(watch_key(&model, 'c'), WATCH_STAY);
    assert_null(model.asked); /* nothing runs */
    tell((struct told){.job = "a"});
    assert_int_equal(watch_key(&model, 'y'), WATCH_STAY);
    watch_key(&model, 'c');
    assert_string_equal(model.asked, "a");
    assert_int_equal(watch_key(&model, 'q'), WATCH_STAY); /* no */
    assert_null(model.asked);
    watch_key(&model, 'c');
    assert_int_equal(watch_key(&model, 'y'), WATCH_CANCEL);
    watch_canceled(&model, NULL);
    assert_string_equal(model.message, "canceling a");
    watch_key(&model, 'c');
    assert_null(model.message);
    watch_canceled(&model, "it belongs to user 7");
    assert_string_equal(model.message, "it belongs to user 7");
    watch_key(&model, 'c');
    end("a", "done");
    assert_null(model.asked); /* there is nothing left to cancel */
}

static void q_and_escape_leave_but_first_the_help(void **state)
{
    (void)state;
    assert_int_equal(watch_key(&model, '?'), WATCH_STAY);
    assert_true(model.shows_help);
    assert_int_equal(watch_key(&model, 'q'), WATCH_STAY);
    assert_false(model.shows_help);
    assert_int_equal(watch_key(&model, 'x'), WATCH_STAY);
    assert_int_equal(watch_key(&model, 'q'), WATCH_LEAVE);
    assert_int_equal(watch_key(&model, WATCH_KEY_ESCAPE), WATCH_LEAVE);
}

/* --- the view --------------------------------------------------------------------------------- */

static json_t *server;

static bool view_has(const struct view *view, const char *text)
{
    for (int i = 0; i < view->count; i++)
        if (strstr(view->lines[i].text, text) != NULL)
            return true;
    return false;
}

static void expect_in_view(int rows, int columns, const char *const *texts)
{
    struct view view;
    view_make(&view, &model, server, rows, columns, 1);
    for (; *texts != NULL; texts++)
        if (!view_has(&view, *texts))
            fail_msg("\"%s\" is not in a view of %d x %d", *texts, rows, columns);
    view_finish(&view);
}

static void fill_model(void)
{
    static const double times_ns[] = {63200, 0, 9.1e6};
    tell_stats(0, 2, 0, 0, 0);
    tell_stats(2, 2, 1, 1, 0);
    tell((struct told){
        .job = "j-1", .done = 5, .total = 10, .rate = 2.5, .recent = results(32, times_ns, 3)});
    tell((struct told){.job = "j-2"});
}

static void everything_asked_for_is_on_a_usual_terminal(void **state)
{
    (void)state;
    server = json_pack("{s:s, s:b}", "version", "0.1.0", "emulated", 1);
    fill_model();
    static const char *const texts[] = {"tunerd 0.1.0 (emulated), up 2.0 s, 1 client, 2 GPUs",
        "GPU 0    [#####.....]  50%  H200, running", "GPU 3", "offline: it fell off",
        "compile  [##........]  25%  1 of 2 workers busy, 5 wait", "jobs     1 running, 2 queued",
        "> gemm M=64 (shape 1 of 2), searching  j-1 (job 1 of 2)", "[##########..........] 5/10  ",
        "best 63.2 us (1.50 x the default)  BM=32", "outcomes 3 ok", "times    ▁x█",
        "63.2 us to 9.10 ms", "timeout        BM=33: over 5000 ms",
        "ok              63.2 us  BM=32", "  gemm M=64  0%  best 63.2 us  j-2", "q leave", NULL};
    expect_in_view(24, 80, texts);
    json_decref(server);
}

static void a_small_terminal_keeps_what_matters_most(void **state)
{
    (void)state;
    server = json_pack("{s:s}", "version", "0.1.0");
    fill_model();
    static const char *const texts[] = {"tunerd 0.1.0", "GPU 0 50%, 3 0%, compile 25%, 5 wait",
        "> gemm", "[#####.....] 5/10", "best 63.2 us", "outcomes 3 ok", "times    ▁x█",
        "9.10 ms  BM=34", "q leave", NULL};
    expect_in_view(10, 40, texts);
    json_decref(server);
}

static void with_nothing_to_show_it_says_what_it_waits_for(void **state)
{
    (void)state;
    server = json_object();
    static const char *const idle[] = {"nothing runs", NULL}, *const ended[] = {"a is done", NULL},
                             *const one[] = {"j-7 has not begun", NULL};
    expect_in_view(24, 80, idle);
    tell((struct told){.job = "a"});
    end("a", "done");
    expect_in_view(10, 40, ended);
    watch_finish(&model);
    watch_init(&model, "j-7", 0);
    expect_in_view(24, 80, one);
    json_decref(server);
}

static int columns_of(const char *text)
{
    wchar_t wide[512];
    size_t count = mbstowcs(wide, text, 512);
    assert_true(count < 512);
    return wcswidth(wide, count); /* -1: a control character is among them */
}

static void expect_fits(int rows, int columns)
{
    struct view view;
    view_make(&view, &model, server, rows, columns, 1);
    assert_int_equal(view.count, rows);
    for (int i = 0; i < view.count; i++)
        assert_in_range(columns_of(view.lines[i].text), 0, columns);
    view_finish(&view);
}

/* Whatever names and sentences the daemon passes on. */
static void no_line_is_wider_than_the_terminal_at_any_size(void **state)
{
    (void)state;
    server = json_pack("{s:s}", "version", "行列\x1b[2J積\u202e積積");
    fill_model();
    json_t *message = json_pack(
        "{s:s, s:{s:s, s:s, s:{s:s}, s:{s:s}, s:{s:i}, s:[{s:s, s:s, s:s, s:s}]}}", "method",
        "progress", "params", "job", "積\r積", "kernel", "行列積\n行列積", "shape", "\x1b[H",
        "\u0301\u0301", "best_config", "積", "\xc2\x9b積", "outcomes", "\x1b積", 7, "recent",
        "config", "\x7f積", "outcome", "\x01", "detail", "積\t積", "median_ns", "no number");
    watch_notify(&model, message, 0);
    json_decref(message);
    for (int job = 0; job < 3; job++) {
        for (int rows = 1; rows <= 30; rows++)
            for (int columns = 1; columns <= 100; columns++)
                expect_fits(rows, columns);
        watch_key(&model, 'j');
    }
    watch_key(&model, 'c');
    expect_fits(3, 7);
    watch_key(&model, 'n');
    watch_key(&model, '?');
    expect_fits(5, 9);
    json_decref(server);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(text_is_cut_between_characters_and_wide_ones_take_two_columns),
        TEST(what_steers_a_terminal_is_shown_as_a_question_mark),
        TEST(a_sparkline_goes_from_the_lowest_to_the_highest_by_factors),
        TEST(a_bar_is_filled_by_the_share_and_never_beyond_its_ends),
        TEST(the_rate_is_that_of_the_last_seconds),
        TEST(jobs_come_and_go_and_the_selection_stays_with_its_own),
        TEST(what_ran_before_is_taken_from_the_list_of_jobs),
        TEST(the_newest_results_are_kept_in_order),
        TEST(a_paused_list_stands_still_until_it_goes_on),
        TEST(the_next_shape_has_times_and_a_rate_of_its_own),
        TEST(busy_shares_are_those_of_the_last_seconds),
        TEST(a_share_is_never_outside_of_nothing_and_all),
        TEST(a_job_is_canceled_only_after_yes),
        TEST(q_and_escape_leave_but_first_the_help),
        TEST(everything_asked_for_is_on_a_usual_terminal),
        TEST(a_small_terminal_keeps_what_matters_most),
        TEST(with_nothing_to_show_it_says_what_it_waits_for),
        TEST(no_line_is_wider_than_the_terminal_at_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
