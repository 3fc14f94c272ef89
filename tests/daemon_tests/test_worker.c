#include "daemon/worker.h"
#include "support.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* One worker and what came of it. */
struct watched {
    struct worker *worker;
    const char *first; /* "do" of the request sent after the hello; NULL: none */
    json_t *echo;      /* goes with it */
    uint64_t deadline_ms;
    unsigned messages, answers;
    bool has_hello, is_done;
    bool stops_at_hello, stops_at_answer, kills_at_answer;
    json_t *last;
    struct worker_end end;
    int pid;
};

static void send_to(struct watched *watched, const char *how)
{
    json_t *request = json_pack(
        "{s:i, s:s, s:s, s:O*}", "id", 1, "op", "compile", "do", how, "echo", watched->echo);
    worker_send(watched->worker, request, watched->deadline_ms);
    json_decref(request);
}

static void on_answer(struct watched *watched)
{
    watched->answers++;
    if (watched->stops_at_answer)
        worker_stop(watched->worker);
    else if (watched->kills_at_answer)
        worker_kill(watched->worker, "the test wants it");
    else if (watched->answers == 1)
        worker_settle(watched->worker);
}

static void on_message(struct worker *worker, json_t *message, void *context)
{
    struct watched *watched = context;
    assert_ptr_equal(worker, watched->worker);
    assert_false(watched->is_done);
    watched->messages++;
    json_decref(watched->last);
    watched->last = json_incref(message);
    if (watched->has_hello) {
        on_answer(watched);
        return;
    }
    watched->has_hello = true;
    worker_settle(worker);
    if (watched->stops_at_hello)
        worker_stop(worker);
    if (watched->first != NULL)
        send_to(watched, watched->first);
}

static void on_done(struct worker *worker, const struct worker_end *end, void *context)
{
    struct watched *watched = context;
    assert_ptr_equal(worker, watched->worker);
    assert_false(watched->is_done);
    watched->end = *end;
    watched->is_done = true;
}

static void start_with(struct watched *watched, const struct worker_options *options)
{
    struct worker_callbacks callbacks = {on_message, on_done, watched};
    struct tune_error err = {0};
    if (watched->deadline_ms == 0)
        watched->deadline_ms = 20000;
    watched->worker = worker_start(test_loop(), options, &callbacks, &err);
    if (watched->worker == NULL)
        fail_msg("%s", err.text);
    assert_int_equal(watched->messages, 0);
    watched->pid = worker_pid(watched->worker);
}

static void start(struct watched *watched)
{
    const char *argv[] = {fake_worker(), "compile", NULL};
    struct worker_options options = {.argv = argv, .env = fake_env(), .hello_deadline_ms = 20000};
    start_with(watched, &options);
}

static void finish(struct watched *watched)
{
    run_until_true(&watched->is_done);
    json_decref(watched->last);
    json_decref(watched->echo);
    watched->last = watched->echo = NULL;
}

/* Runs a worker through one request to its end. */
static struct watched run_one(const char *first)
{
    static struct watched watched;
    watched = (struct watched){.first = first};
    start(&watched);
    finish(&watched);
    return watched;
}

static void expect_why(const struct watched *watched, const char *part)
{
    if (strstr(watched->end.why, part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, watched->end.why);
}

static bool has_answer(void *context)
{
    return ((struct watched *)context)->answers > 0;
}

static bool has_said_hello(void *context)
{
    return ((struct watched *)context)->has_hello;
}

static void a_worker_answers_and_is_stopped(void **state)
{
    (void)state;
    struct watched watched = {.first = "", .echo = json_string("x\ny\u20ac")};
    start(&watched);
    run_until(has_answer, &watched);
    assert_true(json_equal(json_object_get(watched.last, "echo"), watched.echo));
    worker_stop(watched.worker);
    worker_stop(watched.worker);
    finish(&watched);
    /* SIGTERM, or the end of the pipe where that is seen first. */
    assert_true(
        watched.end.signal == SIGTERM || (watched.end.signal == 0 && watched.end.exit_status == 0));
    assert_false(
        watched.end.missed_deadline || watched.end.broke_protocol || watched.end.over_memory);
}

static void a_program_that_is_missing_is_told_at_once(void **state)
{
    (void)state;
    const char *argv[] = {"/nowhere/tune-worker", "compile", NULL};
    struct worker_options options = {.argv = argv, .env = fake_env(), .hello_deadline_ms = 1000};
    struct watched watched = {0};
    struct worker_callbacks callbacks = {on_message, on_done, &watched};
    struct tune_error err = {0};
    assert_null(worker_start(test_loop(), &options, &callbacks, &err));
    assert_int_equal(err.code, TUNE_EIO);
    assert_non_null(strstr(err.text, "/nowhere/tune-worker: no such file"));
    run_turns(5);
    assert_false(watched.is_done);
}

static void a_crash_is_told_with_its_signal(void **state)
{
    (void)state;
    struct watched watched = run_one("crash");
    assert_int_equal(watched.end.signal, SIGKILL);
    assert_int_equal(watched.answers, 0);
    assert_false(watched.end.left_unread);
    watched = run_one("abort");
    assert_int_equal(watched.end.signal, SIGABRT);
    expect_why(&watched, "signal 6 (Aborted)");
    watched = run_one("exit");
    assert_int_equal(watched.end.signal, 0);
    assert_int_equal(watched.end.exit_status, 5);
    expect_why(&watched, "exited with status 5");
}

static void its_last_words_explain_the_death(void **state)
{
    (void)state;
    struct watched watched = {
        .first = "words", .echo = json_string("first\nout of \xe2\x82\xac beer\n")};
    start(&watched);
    finish(&watched);
    expect_why(&watched, "[out of ??? beer]");
    assert_int_equal(watched.end.exit_status, 3);
}

static void last_words_of_any_length_fit(void **state)
{
    (void)state;
    for (size_t length = 0; length < 5000; length += 311) {
        char *text = calloc(length + 1, 1);
        memset(text, 'w', length);
        struct watched watched = {.first = "words", .echo = json_string(text)};
        start(&watched);
        finish(&watched);
        free(text);
        assert_int_equal(watched.end.exit_status, 3);
        if (length > 0)
            expect_why(&watched, "[www");
    }
}

static void the_last_answer_before_a_death_is_never_lost(void **state)
{
    (void)state;
    struct watched many[30];
    for (size_t i = 0; i < 30; i++) {
        many[i] = (struct watched){.first = "answer_exit"};
        start(&many[i]);
    }
    for (size_t i = 0; i < 30; i++) {
        finish(&many[i]);
        assert_int_equal(many[i].answers, 1);
        assert_int_equal(many[i].end.signal, SIGKILL);
    }
}

static void a_hang_is_killed_at_the_deadline(void **state)
{
    (void)state;
    struct watched watched = {.first = "hang", .deadline_ms = 50};
    start(&watched);
    finish(&watched);
    assert_true(watched.end.missed_deadline);
    assert_int_equal(watched.end.signal, SIGKILL);
    expect_why(&watched, "deadline");
}

static void a_worker_without_hello_is_killed_at_the_start_limit(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_COMPILE=hang");
    const char *argv[] = {fake_worker(), "compile", NULL};
    struct worker_options options = {.argv = argv, .env = fake_env(), .hello_deadline_ms = 50};
    struct watched watched = {0};
    start_with(&watched, &options);
    finish(&watched);
    assert_true(watched.end.missed_deadline);
    assert_int_equal(watched.messages, 0);
}

static void a_settled_request_has_no_deadline_any_more(void **state)
{
    (void)state;
    struct watched watched = {.first = "", .deadline_ms = 20000};
    start(&watched);
    run_until(has_answer, &watched);
    /* Were the second request's deadline the first one's, it could not be answered. */
    send_to(&watched, "");
    watched.answers = 0;
    run_until(has_answer, &watched);
    worker_stop(watched.worker);
    finish(&watched);
    assert_false(watched.end.missed_deadline);
}

static void one_that_ignores_sigterm_is_killed(void **state)
{
    (void)state;
    set_fake("FAKE_STUBBORN=1");
    struct watched watched = {0};
    start(&watched);
    run_until(has_said_hello, &watched);
    worker_stop(watched.worker);
    finish(&watched);
    assert_int_equal(watched.end.signal, SIGKILL);
    assert_false(watched.end.missed_deadline);
}

static void nonsense_on_the_pipe_is_the_workers_death(void **state)
{
    (void)state;
    static const char *const ways[] = {"garbage", "array"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct watched watched = run_one(ways[i]);
        assert_true(watched.end.broke_protocol);
        assert_int_equal(watched.end.signal, SIGKILL);
        assert_int_equal(watched.answers, 0);
        expect_why(&watched, "no JSON object");
    }
}

static void half_a_line_at_the_end_is_no_message(void **state)
{
    (void)state;
    struct watched watched = run_one("half");
    assert_int_equal(watched.answers, 0);
    assert_int_equal(watched.end.exit_status, 0);
    assert_int_equal(watched.end.signal, 0);
}

static void a_message_without_end_is_cut_off_at_the_limit(void **state)
{
    (void)state;
    struct watched watched = run_one("huge");
    assert_true(watched.end.broke_protocol);
    expect_why(&watched, "without end");
}

static void a_long_request_arrives_whole(void **state)
{
    (void)state;
    size_t length = 3 << 20;
    char *text = calloc(length + 1, 1);
    for (size_t i = 0; i < length; i++)
        text[i] = (char)('a' + i % 26);
    struct watched watched = {.first = "", .echo = json_string(text)};
    free(text);
    start(&watched);
    run_until(has_answer, &watched);
    assert_true(json_equal(json_object_get(watched.last, "echo"), watched.echo));
    worker_stop(watched.worker);
    finish(&watched);
}

static void nothing_is_delivered_after_stop_or_kill(void **state)
{
    (void)state;
    /* Both answers are in the pipe at once; the first one ends the worker. */
    struct watched stopped = {.first = "twice", .stops_at_answer = true};
    start(&stopped);
    finish(&stopped);
    assert_int_equal(stopped.answers, 1);
    struct watched killed = {.first = "twice", .kills_at_answer = true};
    start(&killed);
    finish(&killed);
    assert_int_equal(killed.answers, 1);
    expect_why(&killed, "the test wants it");
}

static void a_request_after_stop_goes_nowhere(void **state)
{
    (void)state;
    struct watched watched = {.first = "", .stops_at_hello = true};
    start(&watched);
    finish(&watched);
    assert_int_equal(watched.answers, 0);
    assert_int_equal(noted("run"), 0);
}

static void a_worker_can_be_stopped_before_its_hello(void **state)
{
    (void)state;
    struct watched watched = {0};
    start(&watched);
    worker_stop(watched.worker);
    assert_false(watched.is_done); /* never from inside the call */
    finish(&watched);
    assert_int_equal(watched.messages, 0);
}

static void a_grandchild_that_holds_the_pipe_delays_but_does_not_block(void **state)
{
    (void)state;
    struct watched watched = run_one("grandchild");
    int grandchild = noted_number("grandchild ");
    assert_true(grandchild > 0);
    assert_int_equal(kill(grandchild, 0), 0); /* it lives, so the pipe has not ended by itself */
    kill(grandchild, SIGKILL);
    assert_int_equal(watched.answers, 1);
    assert_int_equal(watched.end.exit_status, 0);
}

/* A compiler that a killed worker waited for would go on and on. */
static void what_a_worker_started_ends_with_it(void **state)
{
    (void)state;
    int status = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    run_one("family");
    int grandchild = noted_number("grandchild ");
    assert_int_equal(waitpid(grandchild, &status, 0), grandchild);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    /* Not beyond this test: the leak sanitizer forks at a worker's exit, and what a worker that is
     * killed then leaves behind would pass for one of the module's own children. */
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static void one_that_closes_its_pipe_and_lives_on_is_killed(void **state)
{
    (void)state;
    struct watched watched = run_one("close");
    assert_int_equal(watched.end.signal, SIGKILL);
    assert_false(watched.end.missed_deadline);
    expect_why(&watched, "closed its pipe");
}

static void memory_above_the_limit_is_the_end(void **state)
{
    (void)state;
    const char *argv[] = {fake_worker(), "compile", NULL};
    struct worker_options options = {.argv = argv,
        .env = fake_env(),
        .hello_deadline_ms = 20000,
        .memory_limit_bytes = (size_t)200 << 20};
    struct watched watched = {.first = "eat", .echo = json_integer(400)};
    start_with(&watched, &options);
    finish(&watched);
    assert_true(watched.end.over_memory);
    assert_false(watched.end.missed_deadline);
    assert_int_equal(watched.end.signal, SIGKILL);
    expect_why(&watched, "memory");
}

static void memory_below_the_limit_is_left_alone(void **state)
{
    (void)state;
    const char *argv[] = {fake_worker(), "compile", NULL};
    struct worker_options options = {.argv = argv,
        .env = fake_env(),
        .hello_deadline_ms = 20000,
        .memory_limit_bytes = (size_t)400 << 20};
    struct watched watched = {.first = "eat", .echo = json_integer(20), .deadline_ms = 500};
    start_with(&watched, &options);
    finish(&watched);
    assert_false(watched.end.over_memory);
    assert_true(watched.end.missed_deadline);
}

static void find_request_pipe(uv_handle_t *handle, void *context)
{
    if (handle->type == UV_NAMED_PIPE && !uv_is_closing(handle) &&
        uv_is_writable((uv_stream_t *)handle))
        uv_fileno(handle, context);
}

/* Some systems tell of an exit before the process' end of the pipe is closed. */
static void wait_for_hangup(void)
{
    struct pollfd pipe = {.fd = -1};
    uv_walk(test_loop(), find_request_pipe, &pipe.fd);
    if (pipe.fd >= 0)
        for (int i = 0; i < 20 && !(pipe.revents & POLLHUP); i++)
            poll(&pipe, 1, 1000);
}

/* A death between two requests must not be blamed on the second. */
static void a_request_that_was_never_read_is_told_apart(void **state)
{
    (void)state;
    struct watched watched = {.first = "answer_exit"};
    start(&watched);
    run_until(has_answer, &watched);
    siginfo_t info; /* the process is gone; as a rule the loop has not seen it yet */
    int status = waitid(P_PID, (id_t)watched.pid, &info, WEXITED | WNOWAIT);
    assert_true(status == 0 || errno == ECHILD);
    wait_for_hangup();
    send_to(&watched, "");
    finish(&watched);
    assert_true(watched.end.left_unread);
    assert_int_equal(noted("run"), 1);
}

static void a_worker_has_its_own_descriptors_only(void **state)
{
    (void)state;
    FILE *open_here = fopen(path_in("secret"), "we");
    struct watched watched = {.first = "files"};
    struct watched other = {0};
    start(&other);
    start(&watched);
    run_until(has_answer, &watched);
    json_t *files = json_object_get(watched.last, "files");
    size_t i;
    json_t *file;
    json_array_foreach (files, i, file) {
        const char *text = json_string_value(file);
        if (atoi(text) > 3)
            fail_msg("inherited: %s", text);
        if (atoi(text) < 2)
            assert_non_null(strstr(text, "/dev/null"));
    }
    assert_int_equal(json_array_size(files), 4);
    fclose(open_here);
    worker_stop(watched.worker);
    worker_stop(other.worker);
    finish(&watched);
    finish(&other);
}

static void five_hundred_workers_that_crash_leave_nothing_behind(void **state)
{
    (void)state;
    set_fake("FAKE_HELLO_COMPILE=crash");
    static struct watched many[500];
    int before = open_descriptors();
    for (int batch = 0; batch < 5; batch++) {
        for (int i = 0; i < 100; i++) {
            many[batch * 100 + i] = (struct watched){0};
            start(&many[batch * 100 + i]);
        }
        for (int i = 0; i < 100; i++) {
            struct watched *watched = &many[batch * 100 + i];
            finish(watched);
            assert_int_equal(watched->end.signal, SIGKILL);
        }
        assert_false(has_children());
    }
    assert_in_range(open_descriptors(), before, before + 3); /* the loop's own, made at first use */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_start, support_finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_worker_answers_and_is_stopped),
        TEST(a_program_that_is_missing_is_told_at_once),
        TEST(a_crash_is_told_with_its_signal),
        TEST(its_last_words_explain_the_death),
        TEST(last_words_of_any_length_fit),
        TEST(the_last_answer_before_a_death_is_never_lost),
        TEST(a_hang_is_killed_at_the_deadline),
        TEST(a_worker_without_hello_is_killed_at_the_start_limit),
        TEST(a_settled_request_has_no_deadline_any_more),
        TEST(one_that_ignores_sigterm_is_killed),
        TEST(nonsense_on_the_pipe_is_the_workers_death),
        TEST(half_a_line_at_the_end_is_no_message),
        TEST(a_message_without_end_is_cut_off_at_the_limit),
        TEST(a_long_request_arrives_whole),
        TEST(nothing_is_delivered_after_stop_or_kill),
        TEST(a_request_after_stop_goes_nowhere),
        TEST(a_worker_can_be_stopped_before_its_hello),
        TEST(a_grandchild_that_holds_the_pipe_delays_but_does_not_block),
        TEST(what_a_worker_started_ends_with_it),
        TEST(one_that_closes_its_pipe_and_lives_on_is_killed),
        TEST(memory_above_the_limit_is_the_end),
        TEST(memory_below_the_limit_is_left_alone),
        TEST(a_request_that_was_never_read_is_told_apart),
        TEST(a_worker_has_its_own_descriptors_only),
        TEST(five_hundred_workers_that_crash_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
