#include "daemon/sched.h"
#include "support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sched *sched;
static struct sched_options options;
static bool is_ready, is_stopped;
static size_t ready_calls;

/* A task handed to the scheduler. */
struct asked {
    bool is_done;
    enum task_end end;
    json_t *answer;
    char why[256];
    unsigned order; /* in which it ended */
};

static unsigned ended;

static void on_ready(void *context)
{
    (void)context;
    is_ready = true;
    ready_calls++;
}

static void on_stopped(void *context)
{
    (void)context;
    is_stopped = true;
}

static void on_task(const struct task_result *result, void *context)
{
    struct asked *asked = context;
    assert_false(asked->is_done);
    asked->is_done = true;
    asked->end = result->end;
    asked->answer = json_incref((json_t *)result->answer);
    snprintf(asked->why, sizeof asked->why, "%s", result->why);
    asked->order = ended++;
}

static int start(void **state)
{
    if (support_start(state))
        return -1;
    options = (struct sched_options){.worker_path = fake_worker(),
        .compile_workers = 2,
        .compile_deadline_ms = 20000,
        .busy_pause_ms = 1,
        .compiler_retry_ms = 600000};
    is_ready = is_stopped = false;
    ready_calls = ended = 0;
    sched = NULL;
    return 0;
}

static void create(void)
{
    options.env = fake_env();
    sched = sched_create(test_loop(), &options, on_ready, NULL);
    assert_false(is_ready); /* never from inside the call */
    run_until_true(&is_ready);
}

static void stop(void)
{
    sched_stop(sched, on_stopped, NULL);
    run_until_true(&is_stopped);
    sched = NULL;
}

static int finish(void **state)
{
    if (sched != NULL)
        stop();
    assert_int_equal(ready_calls > 1, 0);
    return support_finish(state);
}

static void compile(const char *how, struct asked *asked)
{
    *asked = (struct asked){0};
    sched_compile(sched, json_pack("{s:s, s:s}", "op", "compile", "do", how), on_task, asked);
    assert_false(asked->is_done);
}

static void bench_for(size_t device, uint64_t session, const char *setup_how, const char *how,
    uint64_t deadline_ms, struct asked *asked)
{
    *asked = (struct asked){0};
    json_t *setup = json_pack(
        "{s:s, s:I, s:s}", "op", "setup", "session", (json_int_t)session, "do", setup_how);
    sched_bench(sched, device, setup, session, json_pack("{s:s, s:s}", "op", "bench", "do", how),
        deadline_ms, on_task, asked);
    json_decref(setup);
    assert_false(asked->is_done);
}

static void bench(const char *how, struct asked *asked)
{
    bench_for(0, 1, "", how, 20000, asked);
}

static void expect_end(struct asked *asked, enum task_end end)
{
    run_until_true(&asked->is_done);
    if (asked->end != end)
        fail_msg("end %d, not %d: %s", asked->end, end, asked->why);
    if (end == TASK_ANSWERED) {
        assert_non_null(asked->answer);
        assert_string_equal(asked->why, "");
    } else {
        assert_int_not_equal(asked->why[0], '\0');
    }
    json_decref(asked->answer);
    asked->answer = NULL;
}

static void expect_text(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, text);
    json_t *json = json_string(text); /* it will be sent */
    assert_non_null(json);
    json_decref(json);
}

static void expect_state(size_t device, const char *expected)
{
    const char *reason;
    assert_string_equal(sched_device_state(sched, device, &reason), expected);
    bool has_reason = strcmp(expected, "busy") == 0 || strcmp(expected, "offline") == 0;
    assert_int_equal(reason[0] != '\0', has_reason);
}

/* --- start ------------------------------------------------------------------------------------ */

static void devices_and_compiler_are_known_when_it_is_ready(void **state)
{
    (void)state;
    set_fake("FAKE_DEVICES=3");
    create();
    assert_int_equal(sched_device_count(sched), 3);
    assert_string_equal(sched_device(sched, 2)->uuid, "GPU-2");
    assert_string_equal(sched_device_error(sched), "");
    const struct compiler_info *compiler = sched_compiler(sched);
    assert_true(compiler->is_known);
    assert_string_equal(compiler->nvrtc, "13.0");
    assert_int_equal(compiler->arch_count, 3);
    assert_int_equal(compiler->archs[2], 90);
    assert_int_equal(noted("start bench"), 0); /* a GPU is left alone until it is needed */
    expect_state(2, "idle");
}

static void only_the_devices_asked_for_are_used(void **state)
{
    (void)state;
    set_fake("FAKE_DEVICES=4");
    options.devices = "3, 1,9";
    create();
    assert_int_equal(sched_device_count(sched), 2);
    assert_int_equal(sched_device(sched, 0)->ordinal, 1);
    struct asked asked;
    bench_for(1, 1, "", "", 20000, &asked);
    expect_end(&asked, TASK_ANSWERED);
    assert_int_equal(noted("start bench 3"), 1);
}

static void a_list_that_names_no_device_is_said(void **state)
{
    (void)state;
    options.devices = "7";
    create();
    assert_int_equal(sched_device_count(sched), 0);
    expect_text(sched_device_error(sched), "--devices");
}

static void a_missing_worker_program_is_a_state_not_a_hang(void **state)
{
    (void)state;
    options.worker_path = "/nowhere/tune-worker";
    create();
    assert_int_equal(sched_device_count(sched), 0);
    expect_text(sched_device_error(sched), "/nowhere/tune-worker");
    expect_text(sched_compiler(sched)->error, "/nowhere/tune-worker");
    struct asked asked;
    compile("", &asked);
    expect_end(&asked, TASK_UNAVAILABLE);
}

static void a_machine_without_gpu_still_compiles(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_DEVICES=error");
    create();
    assert_int_equal(sched_device_count(sched), 0);
    expect_text(sched_device_error(sched), "this cannot work");
    struct asked asked;
    compile("", &asked);
    expect_end(&asked, TASK_ANSWERED);
}

static void a_lister_that_dies_or_hangs_means_no_device(void **state)
{
    (void)state;
    static const char *const ways[] = {"FAKE_HELLO_DEVICES=crash", "FAKE_HELLO_DEVICES=garbage",
        "FAKE_HELLO_DEVICES=exit", "FAKE_HELLO_DEVICES=hang", "FAKE_HELLO_DEVICES=version",
        "FAKE_HELLO_DEVICES=role"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        set_fake(ways[i]);
        options.hello_deadline_ms = i == 3 ? 300 : 20000;
        is_ready = is_stopped = false;
        ready_calls = 0;
        create();
        assert_int_equal(sched_device_count(sched), 0);
        expect_text(sched_device_error(sched), i < 4 ? "worker" : "different versions");
        stop();
    }
}

static void a_machine_without_nvrtc_says_so_for_each_task(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_COMPILE=error");
    create();
    expect_text(sched_compiler(sched)->error, "this cannot work: \u20ac");
    assert_false(sched_compiler(sched)->is_known);
    struct asked one, two;
    compile("", &one);
    compile("", &two);
    expect_end(&one, TASK_UNAVAILABLE);
    expect_end(&two, TASK_UNAVAILABLE);
    expect_text(one.why, "this cannot work");
    assert_int_equal(noted("start compile"), 1); /* not tried anew for each */
}

static void a_compiler_that_comes_back_is_used(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_COMPILE=error:1");
    options.compiler_retry_ms = 1;
    create();
    assert_false(sched_compiler(sched)->is_known);
    struct asked asked;
    do { /* until the pause is over */
        compile("", &asked);
        run_until_true(&asked.is_done);
        json_decref(asked.answer);
    } while (asked.end == TASK_UNAVAILABLE);
    assert_int_equal(asked.end, TASK_ANSWERED);
    assert_true(sched_compiler(sched)->is_known);
    assert_string_equal(sched_compiler(sched)->error, "");
}

static void a_compiler_of_another_version_is_refused(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_COMPILE=version");
    create();
    expect_text(sched_compiler(sched)->error, "different versions");
}

static void one_crash_at_the_start_is_not_the_end_of_compiling(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_COMPILE=crash:2");
    create();
    assert_true(sched_compiler(sched)->is_known);
    assert_int_equal(noted("start compile"), 3);
}

static void a_compiler_that_always_crashes_is_given_up(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_COMPILE=crash");
    create();
    expect_text(sched_compiler(sched)->error, "signal 9");
    assert_int_equal(noted("start compile"), 3);
}

/* --- compiling -------------------------------------------------------------------------------- */

static void compiles_run_in_order_on_as_many_workers_as_allowed(void **state)
{
    (void)state;
    options.compile_workers = 1;
    create();
    struct asked asked[20];
    for (size_t i = 0; i < 20; i++)
        compile("", &asked[i]);
    size_t compile_workers, bench_workers, queue;
    uint64_t deaths;
    sched_counts(sched, &compile_workers, &bench_workers, &queue, &deaths);
    assert_int_equal(queue, 20);
    for (size_t i = 0; i < 20; i++)
        expect_end(&asked[i], TASK_ANSWERED);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(asked[i].order, i);
    assert_int_equal(noted("start compile"), 1);
    sched_counts(sched, &compile_workers, &bench_workers, &queue, &deaths);
    assert_int_equal(queue, 0);
    assert_int_equal(compile_workers, 1);
    assert_int_equal(deaths, 0);
}

static void more_work_starts_more_workers(void **state)
{
    (void)state;
    options.compile_workers = 3;
    options.compile_deadline_ms = 300;
    create();
    struct asked asked[6];
    for (size_t i = 0; i < 6; i++)
        compile("hang", &asked[i]);
    for (size_t i = 0; i < 6; i++)
        expect_end(&asked[i], TASK_TIMED_OUT);
    assert_in_range(noted("start compile"), 3, 7);
}

static void a_compiler_crash_costs_its_own_task_only(void **state)
{
    (void)state;
    create();
    static const struct {
        const char *how;
        enum task_end end;
    } cases[] = {{"crash", TASK_CRASHED}, {"", TASK_ANSWERED}, {"exit", TASK_CRASHED},
        {"garbage", TASK_CRASHED}, {"", TASK_ANSWERED}, {"half", TASK_CRASHED},
        {"wrong_id", TASK_CRASHED}, {"no_id", TASK_CRASHED}, {"fail", TASK_ANSWERED},
        {"array", TASK_CRASHED}, {"wrong_then_right", TASK_CRASHED}, {"", TASK_ANSWERED},
        {"close", TASK_CRASHED}, {"", TASK_ANSWERED}, {"grandchild", TASK_ANSWERED}};
    enum { COUNT = sizeof cases / sizeof cases[0] };
    struct asked asked[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        compile(cases[i].how, &asked[i]);
    for (size_t i = 0; i < COUNT; i++)
        expect_end(&asked[i], cases[i].end);
    kill(noted_number("grandchild "), SIGKILL);
}

static void a_death_between_two_tasks_is_nobodys_fault(void **state)
{
    (void)state;
    create();
    struct asked asked[40];
    for (size_t i = 0; i < 40; i++)
        compile(i % 2 == 0 ? "answer_exit" : "", &asked[i]);
    for (size_t i = 0; i < 40; i++)
        expect_end(&asked[i], TASK_ANSWERED);
}

static void an_answer_too_many_costs_the_worker_not_the_next_task(void **state)
{
    (void)state;
    options.compile_workers = 1;
    create();
    struct asked first, second;
    compile("twice", &first);
    compile("", &second);
    expect_end(&first, TASK_ANSWERED);
    run_until_true(&second.is_done);
    assert_true(second.end == TASK_ANSWERED || second.end == TASK_CRASHED);
    json_decref(second.answer);
    compile("", &second);
    expect_end(&second, TASK_ANSWERED);
}

static bool bench_is_noted(void *context)
{
    (void)context;
    return noted("run bench") == 1;
}

static void time_with_a_task_is_counted_and_idle_time_is_not(void **state)
{
    (void)state;
    struct sched_work idle, busy, after, later;
    create();
    sched_work(sched, &idle);
    assert_int_equal(idle.compile_busy + idle.bench_busy, 0);
    assert_true(idle.compile_busy_s == 0 && idle.bench_busy_s == 0);
    struct asked asked, hangs;
    compile("", &asked);
    bench_for(0, 1, "", "hang", 20000, &hangs);
    expect_end(&asked, TASK_ANSWERED);
    run_until(bench_is_noted, NULL);
    sched_work(sched, &busy);
    assert_int_equal(busy.compile_busy, 0);
    assert_int_equal(busy.bench_busy, 1);
    assert_true(busy.compile_busy_s > 0 && busy.bench_busy_s > 0);
    sched_abort(sched, &hangs);
    bench("", &asked); /* by the next worker of that device: the one that hung is gone */
    expect_end(&asked, TASK_ANSWERED);
    sched_work(sched, &after);
    assert_int_equal(after.bench_busy, 0);
    assert_true(after.bench_busy_s > busy.bench_busy_s);
    run_turns(3);
    sched_work(sched, &later);
    assert_true(later.compile_busy_s == busy.compile_busy_s);
    assert_true(later.bench_busy_s == after.bench_busy_s);
    assert_true(sched_device_busy_s(sched, 0) == later.bench_busy_s);
}

static void a_compile_over_its_memory_is_named_so(void **state)
{
    (void)state;
    options.compile_memory_limit_bytes = (size_t)200 << 20;
    create();
    struct asked asked = {0};
    sched_compile(sched, json_pack("{s:s, s:s, s:i}", "op", "compile", "do", "eat", "echo", 400),
        on_task, &asked);
    expect_end(&asked, TASK_OVER_MEMORY);
}

/* --- measuring -------------------------------------------------------------------------------- */

static void a_session_is_set_up_once_per_worker(void **state)
{
    (void)state;
    create();
    struct asked asked[6];
    for (size_t i = 0; i < 4; i++)
        bench("", &asked[i]);
    bench_for(0, 2, "", "", 20000, &asked[4]);
    bench("", &asked[5]);
    for (size_t i = 0; i < 6; i++)
        expect_end(&asked[i], TASK_ANSWERED);
    assert_int_equal(noted("start bench 0"), 1);
    assert_int_equal(noted("setup 1"), 2); /* once, and again after session 2 took its place */
    assert_int_equal(noted("setup 2"), 1);
}

/* Neither on a new worker nor between the tasks of a session. */
static void a_task_without_a_session_is_set_up_nothing_and_costs_nobody_his_session(void **state)
{
    (void)state;
    create();
    struct asked asked[4];
    for (size_t i = 0; i < 4; i += 2) {
        asked[i] = (struct asked){0};
        sched_bench(sched, 0, NULL, 0, json_pack("{s:s, s:s}", "op", "limits", "do", ""), 20000,
            on_task, &asked[i]);
        bench("", &asked[i + 1]);
    }
    for (size_t i = 0; i < 4; i++)
        expect_end(&asked[i], TASK_ANSWERED);
    assert_int_equal(noted("start bench 0"), 1);
    assert_int_equal(noted("setup 1"), 1);
    assert_int_equal(noted("setup"), 1);
}

static void a_new_worker_gets_the_session_again(void **state)
{
    (void)state;
    create();
    struct asked asked[3];
    bench("", &asked[0]);
    bench("sticky", &asked[1]);
    bench("", &asked[2]);
    for (size_t i = 0; i < 3; i++)
        expect_end(&asked[i], TASK_ANSWERED);
    assert_int_equal(noted("start bench 0"), 2);
    assert_int_equal(noted("setup 1"), 2);
}

static void one_bad_candidate_is_one_failure(void **state)
{
    (void)state;
    create();
    static struct asked asked[100];
    for (size_t i = 0; i < 100; i++)
        bench(i == 10 ? "crash" : i == 50 ? "sticky" : "", &asked[i]);
    for (size_t i = 0; i < 100; i++)
        expect_end(&asked[i], i == 10 ? TASK_CRASHED : TASK_ANSWERED);
    assert_int_equal(noted("start bench 0"), 3);
    assert_int_equal(noted("setup 1"), 3);
}

static void a_worker_that_stays_after_its_last_answer_is_ended(void **state)
{
    (void)state;
    set_fake("FAKE_STUBBORN=1");
    create();
    struct asked first, second;
    bench("sticky_stay", &first);
    bench("", &second);
    expect_end(&first, TASK_ANSWERED);
    expect_end(&second, TASK_ANSWERED);
    assert_int_equal(noted("start bench 0"), 2);
}

static void a_bench_task_has_a_deadline(void **state)
{
    (void)state;
    create();
    struct asked first, second;
    bench_for(0, 1, "", "hang", 100, &first);
    bench("", &second);
    expect_end(&first, TASK_TIMED_OUT);
    expect_end(&second, TASK_ANSWERED);
}

static void the_gpu_lock_has_a_deadline_of_its_own(void **state)
{
    (void)state;
    options.begin_deadline_ms = options.lock_deadline_ms = 100;
    create();
    struct asked first, second;
    bench_for(0, 1, "", "unlocked", 20000, &first);
    bench("", &second);
    expect_end(&first, TASK_TIMED_OUT);
    expect_end(&second, TASK_ANSWERED);
}

static void a_setup_that_fails_is_told_apart(void **state)
{
    (void)state;
    options.setup_deadline_ms = 300;
    create();
    struct asked asked;
    static const char *const ways[] = {"fail", "crash", "hang"};
    for (size_t i = 0; i < 3; i++) {
        bench_for(0, 10 + i, ways[i], "", 20000, &asked);
        run_until_true(&asked.is_done);
        assert_int_equal(asked.answer != NULL, i == 0);
        expect_end(&asked, TASK_SETUP_FAILED);
        if (i == 0)
            expect_text(asked.why, "it cannot be done");
    }
    bench("", &asked);
    expect_end(&asked, TASK_ANSWERED);
    assert_int_equal(noted("run bench"), 1);
}

static void one_setup_serves_two_devices_at_once(void **state)
{
    (void)state;
    set_fake("FAKE_DEVICES=2");
    create();
    struct asked asked[2] = {0};
    json_t *setup = json_pack("{s:s, s:i}", "op", "setup", "session", 1);
    for (size_t i = 0; i < 2; i++)
        sched_bench(
            sched, i, setup, 1, json_pack("{s:s}", "op", "bench"), 20000, on_task, &asked[i]);
    json_decref(setup);
    expect_end(&asked[0], TASK_ANSWERED);
    expect_end(&asked[1], TASK_ANSWERED);
    assert_int_equal(noted("setup 1"), 2);
    uint64_t deaths;
    size_t unused[3];
    sched_counts(sched, &unused[0], &unused[1], &unused[2], &deaths);
    assert_int_equal(deaths, 0);
}

static bool has_no_bench_worker(void *context)
{
    size_t compile_workers, bench_workers, queue;
    uint64_t deaths;
    (void)context;
    sched_counts(sched, &compile_workers, &bench_workers, &queue, &deaths);
    return bench_workers == 0;
}

static void an_idle_bench_worker_gives_the_gpu_back(void **state)
{
    (void)state;
    options.bench_idle_ms = 1;
    create();
    struct asked asked;
    bench("", &asked);
    expect_end(&asked, TASK_ANSWERED);
    run_until(has_no_bench_worker, NULL);
    expect_state(0, "idle");
    bench("", &asked);
    expect_end(&asked, TASK_ANSWERED);
}

static bool has_no_compile_worker(void *context)
{
    size_t compile_workers, bench_workers, queue;
    uint64_t deaths;
    (void)context;
    sched_counts(sched, &compile_workers, &bench_workers, &queue, &deaths);
    assert_int_equal(deaths, 0); /* an end that was meant */
    return compile_workers == 0;
}

static void an_idle_compile_worker_ends_and_another_comes_with_work(void **state)
{
    (void)state;
    options.compile_idle_ms = 1;
    create();
    run_until(has_no_compile_worker, NULL);
    struct asked asked;
    compile("", &asked);
    expect_end(&asked, TASK_ANSWERED);
    assert_true(
        noted("start compile") >= 2); /* the second may have been idle too before its task came */
}

/* --- devices in trouble ----------------------------------------------------------------------- */

static void a_busy_device_is_tried_again_and_nobody_is_blamed(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_BENCH=busy:5");
    create();
    struct asked asked;
    bench("", &asked);
    bool was_busy = false;
    while (!asked.is_done) {
        const char *reason;
        if (strcmp(sched_device_state(sched, 0, &reason), "busy") == 0) {
            expect_text(reason, "in use");
            was_busy = true;
        }
        uv_run(test_loop(), UV_RUN_ONCE);
    }
    expect_end(&asked, TASK_ANSWERED);
    assert_true(was_busy);
    assert_int_equal(noted("start bench 0"), 6);
}

static void a_device_that_stays_busy_goes_offline(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_BENCH=busy");
    create();
    struct asked asked;
    bench("", &asked);
    expect_end(&asked, TASK_UNAVAILABLE);
    expect_text(asked.why, "in use");
    assert_int_equal(noted("start bench 0"), SCHED_BUSY_TRIES_MAX);
    expect_state(0, "offline");
}

static void a_worker_that_is_blocked_ends_at_the_start_limit(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_BENCH=hang");
    options.hello_deadline_ms = 300;
    create();
    struct asked asked;
    bench("", &asked);
    expect_end(&asked, TASK_UNAVAILABLE);
    assert_int_equal(noted("start bench 0"), 3);
    expect_state(0, "offline");
}

static void a_broken_card_is_set_aside_after_one_try(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_BENCH=code:214");
    create();
    struct asked one, two;
    bench("", &one);
    bench("", &two);
    expect_end(&one, TASK_UNAVAILABLE);
    expect_end(&two, TASK_UNAVAILABLE);
    assert_int_equal(noted("start bench 0"), 1);
    expect_state(0, "offline");
}

static void three_starts_in_vain_put_a_device_offline_until_it_is_revived(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_BENCH=crash:3");
    create();
    struct asked asked[4];
    for (size_t i = 0; i < 3; i++)
        bench("", &asked[i]);
    for (size_t i = 0; i < 3; i++)
        expect_end(&asked[i], TASK_UNAVAILABLE);
    assert_int_equal(noted("start bench 0"), 3);
    expect_state(0, "offline");
    bench("", &asked[0]);
    expect_end(&asked[0], TASK_UNAVAILABLE);
    assert_int_equal(noted("start bench 0"), 3);
    sched_revive(sched, 0);
    expect_state(0, "idle");
    bench("", &asked[3]);
    expect_end(&asked[3], TASK_ANSWERED);
}

static void two_starts_in_vain_are_forgiven(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_BENCH=crash:2");
    create();
    struct asked asked;
    bench("", &asked);
    expect_end(&asked, TASK_ANSWERED);
    assert_int_equal(noted("start bench 0"), 3);
}

static void an_offline_device_leaves_the_others_alone(void **state)
{
    (void)state;
    set_fake("FAKE_DEVICES=2");
    create();
    struct asked asked[4];
    for (size_t i = 0; i < 3; i++)
        bench_for(0, 1, "crash", "", 20000, &asked[i]);
    bench_for(1, 2, "", "", 20000, &asked[3]);
    for (size_t i = 0; i < 3; i++)
        expect_end(&asked[i], TASK_SETUP_FAILED);
    expect_end(&asked[3], TASK_ANSWERED);
    struct asked late;
    bench_for(0, 1, "", "", 20000, &late);
    expect_end(&late, TASK_UNAVAILABLE);
    expect_state(0, "offline");
    expect_state(1, "idle");
}

static void a_hello_that_makes_no_sense_is_no_device(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "FAKE_HELLO_BENCH=garbage", "FAKE_HELLO_BENCH=version", "FAKE_HELLO_BENCH=role"};
    create();
    for (size_t i = 0; i < 3; i++) {
        set_fake(ways[i]);
        struct asked asked;
        bench("", &asked);
        expect_end(&asked, TASK_UNAVAILABLE);
        expect_state(0, "offline");
        sched_revive(sched, 0);
    }
    assert_int_equal(noted("start bench 0"), 9);
}

/* --- cancelling and stopping ------------------------------------------------------------------ */

static void cancelled_tasks_never_call_back(void **state)
{
    (void)state;
    options.compile_workers = 1;
    create();
    struct asked kept, cancelled[3], benched;
    compile("", &cancelled[0]);
    compile("", &cancelled[1]);
    compile("", &kept);
    compile("", &cancelled[2]);
    bench("", &benched);
    for (size_t i = 0; i < 3; i++)
        sched_cancel(sched, &cancelled[i]);
    sched_cancel(sched, &benched);
    expect_end(&kept, TASK_ANSWERED);
    for (size_t i = 0; i < 3; i++)
        assert_false(cancelled[i].is_done);
    assert_false(benched.is_done);
    assert_int_equal(noted("run compile"), 1);
}

static bool is_running(void *context)
{
    (void)context;
    return noted("run bench") > 0;
}

static void an_aborted_task_frees_its_device_at_once(void **state)
{
    (void)state;
    create();
    struct asked hanging, next;
    bench("hang", &hanging);
    run_until(is_running, NULL);
    sched_abort(sched, &hanging);
    bench("", &next);
    expect_end(&next, TASK_ANSWERED);
    assert_false(hanging.is_done);
    assert_int_equal(noted("start bench 0"), 2);
}

/* A failing task whose callback cancels the next one, as a job that ends does. */
static struct asked victims[2];

static void on_first_failed(const struct task_result *result, void *context)
{
    on_task(result, context);
    sched_cancel(sched, &victims[1]);
}

static void a_callback_may_cancel_tasks_that_fail_with_it(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_BENCH=code:214");
    create();
    memset(victims, 0, sizeof victims);
    json_t *setup = json_pack("{s:s}", "op", "setup");
    sched_bench(
        sched, 0, setup, 1, json_pack("{s:s}", "op", "bench"), 1000, on_first_failed, &victims[0]);
    sched_bench(sched, 0, setup, 1, json_pack("{s:s}", "op", "bench"), 1000, on_task, &victims[1]);
    json_decref(setup);
    expect_end(&victims[0], TASK_UNAVAILABLE);
    run_turns(5);
    assert_false(victims[1].is_done);
}

static void stopping_ends_all_that_runs_and_fails_all_that_waits(void **state)
{
    (void)state;
    create();
    struct asked running, waiting[4], benched;
    compile("hang", &running);
    bench("hang", &benched);
    run_until(is_running, NULL);
    for (size_t i = 0; i < 3; i++)
        compile("hang", &waiting[i]);
    bench("", &waiting[3]);
    sched_stop(sched, on_stopped, NULL);
    assert_false(is_stopped);
    run_until_true(&is_stopped);
    sched = NULL;
    for (size_t i = 0; i < 4; i++) {
        assert_true(waiting[i].is_done || i == 0); /* the second compiler may have taken one */
        assert_int_equal(waiting[i].end, i == 0 && !waiting[i].is_done ? 0 : TASK_UNAVAILABLE);
    }
    assert_false(running.is_done || benched.is_done); /* their askers are being destroyed */
}

static void it_can_be_stopped_before_it_is_ready(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_DEVICES=hang");
    set_fake("FAKE_HELLO_COMPILE=hang");
    options.env = fake_env();
    sched = sched_create(test_loop(), &options, on_ready, NULL);
    stop();
    assert_false(is_ready);
}

static void it_can_be_stopped_while_a_busy_device_is_waited_for(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_BENCH=busy");
    options.busy_pause_ms = 100000;
    create();
    struct asked asked;
    bench("", &asked);
    run_until(has_no_bench_worker, NULL);
    while (noted("start bench 0") == 0 || !has_no_bench_worker(NULL))
        uv_run(test_loop(), UV_RUN_ONCE);
    stop();
    assert_true(asked.is_done);
    assert_int_equal(asked.end, TASK_UNAVAILABLE);
}

static void stubborn_workers_do_not_hold_up_the_stop(void **state)
{
    (void)state;
    set_fake("FAKE_STUBBORN=1");
    create();
    struct asked asked;
    bench("", &asked);
    expect_end(&asked, TASK_ANSWERED);
    stop();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(devices_and_compiler_are_known_when_it_is_ready),
        TEST(only_the_devices_asked_for_are_used),
        TEST(a_list_that_names_no_device_is_said),
        TEST(a_missing_worker_program_is_a_state_not_a_hang),
        TEST(a_machine_without_gpu_still_compiles),
        TEST(a_lister_that_dies_or_hangs_means_no_device),
        TEST(a_machine_without_nvrtc_says_so_for_each_task),
        TEST(a_compiler_that_comes_back_is_used),
        TEST(a_compiler_of_another_version_is_refused),
        TEST(one_crash_at_the_start_is_not_the_end_of_compiling),
        TEST(a_compiler_that_always_crashes_is_given_up),
        TEST(compiles_run_in_order_on_as_many_workers_as_allowed),
        TEST(more_work_starts_more_workers),
        TEST(a_compiler_crash_costs_its_own_task_only),
        TEST(a_death_between_two_tasks_is_nobodys_fault),
        TEST(an_answer_too_many_costs_the_worker_not_the_next_task),
        TEST(time_with_a_task_is_counted_and_idle_time_is_not),
        TEST(a_compile_over_its_memory_is_named_so),
        TEST(a_session_is_set_up_once_per_worker),
        TEST(a_task_without_a_session_is_set_up_nothing_and_costs_nobody_his_session),
        TEST(a_new_worker_gets_the_session_again),
        TEST(one_bad_candidate_is_one_failure),
        TEST(a_worker_that_stays_after_its_last_answer_is_ended),
        TEST(a_bench_task_has_a_deadline),
        TEST(the_gpu_lock_has_a_deadline_of_its_own),
        TEST(a_setup_that_fails_is_told_apart),
        TEST(one_setup_serves_two_devices_at_once),
        TEST(an_idle_bench_worker_gives_the_gpu_back),
        TEST(an_idle_compile_worker_ends_and_another_comes_with_work),
        TEST(a_busy_device_is_tried_again_and_nobody_is_blamed),
        TEST(a_device_that_stays_busy_goes_offline),
        TEST(a_worker_that_is_blocked_ends_at_the_start_limit),
        TEST(a_broken_card_is_set_aside_after_one_try),
        TEST(three_starts_in_vain_put_a_device_offline_until_it_is_revived),
        TEST(two_starts_in_vain_are_forgiven),
        TEST(an_offline_device_leaves_the_others_alone),
        TEST(a_hello_that_makes_no_sense_is_no_device),
        TEST(cancelled_tasks_never_call_back),
        TEST(an_aborted_task_frees_its_device_at_once),
        TEST(a_callback_may_cancel_tasks_that_fail_with_it),
        TEST(stopping_ends_all_that_runs_and_fails_all_that_waits),
        TEST(it_can_be_stopped_before_it_is_ready),
        TEST(it_can_be_stopped_while_a_busy_device_is_waited_for),
        TEST(stubborn_workers_do_not_hold_up_the_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
