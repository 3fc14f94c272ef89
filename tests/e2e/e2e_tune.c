/* libtune's handle with the real daemon: news, restarts, a daemon that stands still, events. */
#include "harness.h"

#include "client/tune.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static struct tune *open_handle(const char *path)
{
    struct tune *tune;
    struct tune_error err = {0};
    if (tune_open(path, &tune, &err))
        fail_msg("%s", err.text);
    return tune;
}

static int get(struct tune *tune, int64_t n, struct tune_answer *answer, struct tune_error *err)
{
    struct tune_dim dim = {"N", n};
    struct tune_query query = {.kernel = "tiny", .dims = &dim, .dim_count = 1};
    return tune_get(tune, &query, answer, err);
}

/* --- news ------------------------------------------------------------------------------------- */

struct expected {
    struct tune *tune;
    int64_t n;
    enum tune_origin origin;
    int64_t tag;
};

static bool is_answered(void *context)
{
    const struct expected *expected = context;
    struct tune_answer answer;
    struct tune_answer_info info;
    struct tune_error err = {0};
    int64_t tag;
    if (get(expected->tune, expected->n, &answer, &err))
        fail_msg("%s", err.text);
    tune_answer_info(&answer, &info);
    return !answer.is_offline && info.origin == expected->origin &&
           tune_answer_param(&answer, "TAG", &tag, NULL) == 0 && tag == expected->tag;
}

static void an_open_handle_sees_a_new_best(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    struct tune *tune = open_handle(harness->socket);
    struct expected first = {tune, 64, TUNE_DEFAULT, 0}, then = {tune, 64, TUNE_EXACT, 2};
    assert_true(is_answered(&first));
    tune_shape(harness, 64);
    wait_for(is_answered, &then, LIMIT_MS);
    struct expected near = {tune, 96, TUNE_NEAR, 2};
    wait_for(is_answered, &near, LIMIT_MS);
    tune_close(tune);
}

/* A handle at a path where nobody listens, beside which lies the same published folder: what it
 * answers exactly comes from there. */
static void open_alias(struct harness *harness, char path[160])
{
    char link[176], target[176];
    snprintf(path, 160, "%s/nobody", harness->folder);
    snprintf(link, sizeof link, "%s.served", path);
    snprintf(target, sizeof target, "%s.served", harness->socket);
    assert_int_equal(symlink(target, link), 0);
}

static bool is_published(void *context)
{
    struct tune_answer answer;
    struct tune_dim dim = {"N", 64};
    struct tune_query query = {
        .kernel = "tiny", .dims = &dim, .dim_count = 1, .policy = TUNE_CACHED};
    struct tune *tune = open_handle(context);
    bool is_there = tune_get(tune, &query, &answer, NULL) == 0;
    tune_close(tune);
    return is_there;
}

static void what_is_published_is_answered_while_the_daemon_stands_still(void)
{
    char alias[160];
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    tune_shape(harness, 64);
    open_alias(harness, alias);
    wait_for(is_published, alias, LIMIT_MS);
    assert_int_equal(kill(harness->daemon, SIGSTOP), 0);
    struct expected expected = {open_handle(harness->socket), 64, TUNE_EXACT, 2};
    tune_set_limit(expected.tune, LIMIT_MS * 10); /* a request would outlast the test */
    assert_true(is_answered(&expected));
    tune_close(expected.tune);
    assert_int_equal(kill(harness->daemon, SIGCONT), 0);
}

/* --- restarts --------------------------------------------------------------------------------- */

#define CROWD 8

struct crowd {
    struct tune *tune;
    _Atomic bool is_over;
    _Atomic long asked, failed, offline;
    _Atomic int64_t next;
    char sentence[240];
};

/* Always another shape: each is a request of its own. */
static void *ask_on(void *context)
{
    struct crowd *crowd = context;
    while (!crowd->is_over) {
        struct tune_answer answer;
        struct tune_error err = {0};
        if (get(crowd->tune, ++crowd->next, &answer, &err)) {
            if (crowd->failed++ == 0)
                memcpy(crowd->sentence, err.text, sizeof crowd->sentence);
        } else {
            crowd->offline += answer.is_offline;
        }
        crowd->asked++;
    }
    return NULL;
}

struct progress {
    struct crowd *crowd;
    long asked;
};

static bool has_asked(void *context)
{
    const struct progress *progress = context;
    return progress->crowd->asked >= progress->asked;
}

static void wait_for_more(struct crowd *crowd)
{
    struct progress progress = {crowd, crowd->asked + 10 * CROWD};
    wait_for(has_asked, &progress, LIMIT_MS);
}

static void no_question_is_lost_over_restarts(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    struct crowd crowd = {.tune = open_handle(harness->socket)};
    pthread_t threads[CROWD];
    tune_shape(harness, 64);
    for (int i = 0; i < CROWD; i++)
        pthread_create(&threads[i], NULL, ask_on, &crowd);
    for (int i = 0; i < 4; i++) {
        wait_for_more(&crowd);
        if (i % 2 == 0)
            harness_kill(harness);
        else
            harness_stop(harness);
        harness_launch(harness);
    }
    wait_for_more(&crowd);
    crowd.is_over = true;
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    if (crowd.failed > 0)
        fail_msg("%ld of %ld failed: %s", crowd.failed, crowd.asked, crowd.sentence);
    assert_int_equal(crowd.offline, 0);
    tune_close(crowd.tune);
}

/* --- events ----------------------------------------------------------------------------------- */

static void subscribe(struct tune *tune, int64_t n)
{
    struct tune_error err = {0};
    struct tune_dim dim = {"N", n};
    struct tune_query query = {.kernel = "tiny", .dims = &dim, .dim_count = 1};
    if (tune_subscribe(tune, &query, &err))
        fail_msg("%s", err.text);
}

static void expect_event(struct tune *tune, const char *shape)
{
    struct tune_event event;
    struct tune_error err = {0};
    assert_int_equal(tune_next_event(tune, LIMIT_MS, &event, &err), 1);
    assert_string_equal(event.kernel, "tiny");
    assert_string_equal(event.shape, shape);
    assert_string_equal(event.dtype, "f32");
}

static bool is_readable(struct tune *tune, int limit_ms)
{
    struct pollfd news = {.fd = tune_event_descriptor(tune), .events = POLLIN};
    return poll(&news, 1, limit_ms) == 1;
}

static void who_subscribed_is_told_and_nobody_else(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    struct tune *tune = open_handle(harness->socket), *other = open_handle(harness->socket);
    struct tune_event event;
    subscribe(tune, 64);
    subscribe(tune, 96);
    subscribe(other, 128);
    assert_int_equal(tune_next_event(tune, 0, &event, NULL), 0);
    assert_false(is_readable(tune, 0));
    tune_shape(harness, 64);
    assert_true(is_readable(tune, LIMIT_MS));
    expect_event(tune, "N=64");
    assert_int_equal(tune_next_event(tune, 0, &event, NULL), 0);
    tune_shape(harness, 96);
    expect_event(tune, "N=96");
    assert_int_equal(tune_next_event(other, 0, &event, NULL), 0);
    tune_close(tune);
    tune_close(other);
}

/* With an event loop's means: nothing but the descriptor says when to call. */
static void a_subscription_outlives_a_restart(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    struct tune *tune = open_handle(harness->socket);
    struct tune_event event;
    int got = 0, descriptor = tune_event_descriptor(tune);
    subscribe(tune, 64);
    assert_int_equal(tune_next_event(tune, 0, &event, NULL), 0);
    harness_kill(harness);
    harness_start(harness);
    tune_shape(harness, 64);
    for (int i = 0; i < 10000 && got == 0 && is_readable(tune, LIMIT_MS); i++)
        got = tune_next_event(tune, 0, &event, NULL);
    assert_int_equal(got, 1);
    assert_string_equal(event.shape, "N=64");
    assert_int_equal(tune_event_descriptor(tune), descriptor);
    tune_close(tune);
}

/* The sweep ends while nobody listens to this connection: the question itself tells. */
static void what_ended_while_the_handle_did_not_look_is_told(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    struct tune *tune = open_handle(harness->socket);
    struct tune_event event;
    subscribe(tune, 64);
    harness_kill(harness);
    assert_int_equal(tune_next_event(tune, 0, &event, NULL), 0); /* notices the loss */
    harness_start(harness);
    tune_shape(harness, 64);
    harness_kill(harness);
    harness_start(harness); /* whatever watched that daemon is gone */
    expect_event(tune, "N=64");
    tune_close(tune);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(an_open_handle_sees_a_new_best),
        HARNESS_TEST(what_is_published_is_answered_while_the_daemon_stands_still),
        HARNESS_TEST(no_question_is_lost_over_restarts),
        HARNESS_TEST(who_subscribed_is_told_and_nobody_else),
        HARNESS_TEST(a_subscription_outlives_a_restart),
        HARNESS_TEST(what_ended_while_the_handle_did_not_look_is_told),
    };
    return cmocka_run_group_tests_name("tune", tests, NULL, NULL);
}
