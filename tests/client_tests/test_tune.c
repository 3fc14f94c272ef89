/* libtune's handle: where its answers come from, and what becomes of them when the daemon stops,
 * hangs, comes back or publishes. Against a stand-in daemon and a snapshot of the test's own. */
#include "stand_in.h"

#include "client/snapshot.h"
#include "client/tune_rpc.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tune_dim dim_n = {"N", 7};
static const struct tune_query tiny = {.kernel = "tiny", .dims = &dim_n, .dim_count = 1};

/* Allocations of what this program links; the linker sends them here. */
static _Atomic long allocations;
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    allocations++;
    return __real_malloc(bytes);
}
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    allocations++;
    return __real_calloc(count, bytes);
}

static struct tune *open_at(const char *path)
{
    struct tune *tune;
    struct tune_error err = {0};
    if (tune_open(path, &tune, &err))
        fail_msg("%s", err.text);
    return tune;
}

static void get(struct tune *tune, const struct tune_query *query, struct tune_answer *answer)
{
    struct tune_error err = {0};
    if (tune_get(tune, query, answer, &err))
        fail_msg("%s", err.text);
}

static int64_t param(const struct tune_answer *answer, const char *name)
{
    int64_t value = -1;
    assert_int_equal(tune_answer_param(answer, name, &value, NULL), 0);
    return value;
}

/* Asks for tiny, N = n, and gives the answer's TAG. */
static int64_t ask_tag(struct tune *tune, int64_t n)
{
    struct tune_answer answer;
    struct tune_answer_info info;
    struct tune_dim dim = {"N", n};
    struct tune_query query = {.kernel = "tiny", .dims = &dim, .dim_count = 1};
    char shape[32];
    get(tune, &query, &answer);
    assert_false(answer.is_offline);
    tune_answer_info(&answer, &info);
    snprintf(shape, sizeof shape, "N=%lld", (long long)n);
    assert_string_equal(info.shape, shape);
    return param(&answer, "TAG");
}

static const char *refused(struct tune *tune, const struct tune_query *query, enum tune_code code)
{
    static struct tune_error err;
    struct tune_answer answer;
    err = (struct tune_error){0};
    assert_int_equal(tune_get(tune, query, &answer, &err), -1);
    assert_string_equal(tune_code_word(err.code), tune_code_word(code));
    return err.text;
}

/* --- nobody there ----------------------------------------------------------------------------- */

static struct tune_dim gemm_dims[] = {{"K", 33}, {"M", 48}, {"N", 40}};
static const struct tune_query gemm = {.kernel = "gemm", .dims = gemm_dims, .dim_count = 3};

static void without_a_daemon_the_manifests_default_is_answered(void **state)
{
    (void)state;
    struct tune_answer answer;
    struct tune_answer_info info;
    struct tune_launch launch;
    struct tune *tune = open_at("/nowhere/s");
    get(tune, &gemm, &answer);
    assert_true(answer.is_offline);
    tune_answer_info(&answer, &info);
    assert_int_equal(info.origin, TUNE_DEFAULT);
    assert_false(info.is_verified);
    assert_string_equal(info.shape, "M=48,N=40,K=33");
    assert_string_equal(info.dtype, "f32");
    assert_string_equal(info.arch, "sm_75"); /* nobody says which GPU: the smallest */
    assert_int_equal(info.param_count, 13);
    const char *word;
    int64_t value;
    assert_int_equal(tune_answer_param(&answer, "VARIANT", &value, &word), 0);
    assert_string_equal(word, "tiled");
    tune_answer_launch(&answer, 0, &launch);
    assert_string_equal(launch.entry, "gemm");
    assert_true(launch.shared_bytes <= 64 << 10);
    get(tune, &gemm, &answer); /* and again, from the table */
    assert_true(answer.is_offline);
    tune_close(tune);
}

static void without_a_daemon_an_asked_arch_is_planned_for(void **state)
{
    (void)state;
    struct tune_answer answer;
    struct tune_answer_info info;
    struct tune_query query = gemm;
    struct tune *tune = open_at("/nowhere/s");
    query.arch = "sm_90";
    get(tune, &query, &answer);
    tune_answer_info(&answer, &info);
    assert_string_equal(info.arch, "sm_90");
    assert_int_equal(info.sm, 90);
    query.arch = "cpu";
    get(tune, &query, &answer);
    tune_answer_info(&answer, &info);
    assert_string_equal(info.arch, "cpu");
    assert_int_equal(info.sm, 0);
    query.arch = "sm_1";
    assert_non_null(strstr(refused(tune, &query, TUNE_ENOTFOUND), "sm_1"));
    tune_close(tune);
}

static void without_a_daemon_what_needs_one_says_so(void **state)
{
    (void)state;
    struct tune_answer answer;
    struct tune_cubin cubin;
    struct tune_error err = {0};
    struct tune_query query = gemm;
    struct tune *tune = open_at("/nowhere/s");
    query.policy = TUNE_CACHED;
    assert_non_null(strstr(refused(tune, &query, TUNE_ENOTFOUND), "/nowhere/s"));
    query.policy = TUNE_WAIT;
    refused(tune, &query, TUNE_ENODAEMON);
    assert_int_equal(tune_get_cubin(tune, &gemm, &answer, &cubin, &err), -1);
    assert_int_equal(err.code, TUNE_ENODAEMON);
    assert_non_null(strstr(err.text, "does not compile"));
    tune_close(tune);
}

static void questions_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    struct tune *tune = open_at("/nowhere/s");
    struct tune_dim dims[] = {{"M", 1}, {"N", 2}, {"M", 3}, {NULL, 4}};
    struct tune_query query = {.kernel = "no_such", .dims = dims, .dim_count = 2};
    assert_non_null(strstr(refused(tune, &query, TUNE_ENOTFOUND), "no_such"));
    query.kernel = "../gemm";
    refused(tune, &query, TUNE_ENOTFOUND);
    query.kernel = "gemm";
    assert_non_null(strstr(refused(tune, &query, TUNE_EINVAL), "K")); /* the dim that lacks */
    query.dim_count = 3;
    assert_non_null(strstr(refused(tune, &query, TUNE_EINVAL), "twice"));
    query.dim_count = 4;
    refused(tune, &query, TUNE_EINVAL);
    query.dim_count = 17;
    refused(tune, &query, TUNE_EINVAL);
    query = gemm;
    query.dtype = "f99";
    refused(tune, &query, TUNE_EINVAL);
    query = gemm;
    query.mode = "tepid";
    refused(tune, &query, TUNE_EINVAL);
    query.kernel = NULL;
    refused(tune, &query, TUNE_EINVAL);
    tune_close(tune);
}

static void a_socket_path_that_is_too_long_opens_nothing(void **state)
{
    (void)state;
    char path[200];
    struct tune *tune;
    struct tune_error err = {0};
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_int_equal(tune_open(path, &tune, &err), -1);
    assert_null(tune);
    assert_int_equal(err.code, TUNE_EINVAL);
    assert_non_null(strstr(err.text, "107"));
}

/* --- the socket ------------------------------------------------------------------------------- */

static void an_answer_of_the_daemon_is_asked_once(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    publish_base(&daemon, 1, 1); /* N = 1 only: whose number tells that nothing is new */
    stand_in_start(&daemon);
    daemon.value = 5;
    struct tune *tune = open_at(daemon.path);
    assert_int_equal(ask_tag(tune, 7), 5);
    assert_int_equal(ask_tag(tune, 7), 5);
    assert_int_equal(daemon.gets, 1);
    assert_int_equal(ask_tag(tune, 8), 5);
    assert_int_equal(daemon.gets, 2);
    tune_close(tune);
    stand_in_finish(&daemon);
}

static void all_of_a_query_reaches_the_daemon(void **state)
{
    (void)state;
    struct stand_in daemon;
    struct tune_answer answer;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    struct tune *tune = open_at(daemon.path);
    struct tune_query query = {
        "tiny", &dim_n, 1, "f16", "warm", "sm_90", "NVIDIA H200", TUNE_TUNE, "job 7"};
    get(tune, &query, &answer);
    static const char *const parts[] = {"\"kernel\":\"tiny\"", "\"shape\":{\"N\":7}",
        "\"dtype\":\"f16\"", "\"mode\":\"warm\"", "\"arch\":\"sm_90\"", "\"gpu\":\"NVIDIA H200\"",
        "\"policy\":\"tune\"", "\"session\":\"job 7\""};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strstr(daemon.last, parts[i]) == NULL)
            fail_msg("%s is not in %s", parts[i], daemon.last);
    tune_close(tune);
    stand_in_finish(&daemon);
}

/* Each field is part of the key: nothing is answered with what belongs to another question. */
static void questions_that_differ_anywhere_are_asked_apart(void **state)
{
    (void)state;
    struct stand_in daemon;
    struct tune_answer answer;
    struct tune_dim other = {"N", 8}, renamed = {"M", 7};
    stand_in_init(&daemon);
    publish_base(&daemon, 1, 1);
    stand_in_start(&daemon);
    struct tune *tune = open_at(daemon.path);
    const struct tune_query queries[] = {
        tiny,
        {.kernel = "other", .dims = &dim_n, .dim_count = 1},
        {.kernel = "tiny", .dims = &other, .dim_count = 1},
        {.kernel = "tiny", .dims = &renamed, .dim_count = 1},
        {.kernel = "tiny", .dims = &dim_n, .dim_count = 1, .dtype = "f16"},
        {.kernel = "tiny", .dims = &dim_n, .dim_count = 1, .mode = "f16"},
        {.kernel = "tiny", .dims = &dim_n, .dim_count = 1, .arch = "f16"},
        {.kernel = "tiny", .dims = &dim_n, .dim_count = 1, .gpu = "f16"},
        {.kernel = "tiny", .dims = &dim_n, .dim_count = 1, .session = "f16"},
        {.kernel = "tiny", .dims = &dim_n, .dim_count = 1, .policy = TUNE_TUNE},
    };
    const int count = sizeof queries / sizeof queries[0];
    for (int i = 0; i < count; i++) {
        daemon.value = i;
        get(tune, &queries[i], &answer);
        assert_int_equal(daemon.gets, i + 1);
    }
    for (int i = 0; i < count; i++) {
        get(tune, &queries[i], &answer);
        assert_int_equal(param(&answer, "TAG"), i);
    }
    assert_int_equal(daemon.gets, count);
    tune_close(tune);
    stand_in_finish(&daemon);
}

static void the_daemons_refusal_is_handed_on(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    daemon.refusal = "no_device";
    struct tune *tune = open_at(daemon.path);
    assert_string_equal(refused(tune, &tiny, TUNE_ENODEVICE), "refused");
    tune_close(tune);
    stand_in_finish(&daemon);
}

static void an_answer_that_is_too_large_is_an_error(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    daemon.is_huge = true;
    struct tune *tune = open_at(daemon.path);
    refused(tune, &tiny, TUNE_ELIMIT);
    daemon.is_huge = false;
    assert_int_equal(ask_tag(tune, 7), 0); /* the handle is as good as before */
    tune_close(tune);
    stand_in_finish(&daemon);
}

static void a_request_whose_connection_breaks_is_sent_again(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    struct tune *tune = open_at(daemon.path);
    daemon.drops = 1;
    assert_int_equal(ask_tag(tune, 7), 0);
    assert_int_equal(daemon.gets, 2);
    tune_close(tune);
    stand_in_finish(&daemon);
}

struct later {
    struct stand_in *daemon;
    pthread_t thread;
};

static void *start_later(void *context)
{
    struct later *later = context;
    poll(NULL, 0, 100); /* the asker is to find nobody first */
    stand_in_start(later->daemon);
    return NULL;
}

static void a_daemon_that_restarts_is_waited_for(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    struct tune *tune = open_at(daemon.path);
    assert_int_equal(ask_tag(tune, 7), 0);
    stand_in_stop(&daemon);
    daemon.value = 3;
    struct later later = {.daemon = &daemon};
    pthread_create(&later.thread, NULL, start_later, &later);
    assert_int_equal(ask_tag(tune, 8), 3); /* not offline: ask_tag checks */
    pthread_join(later.thread, NULL);
    tune_close(tune);
    stand_in_finish(&daemon);
}

/* What is known is not waited with: the stand-in never comes back. */
static void what_is_known_is_answered_when_the_daemon_is_gone(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    publish_base(&daemon, 1, 1);
    daemon.value = 4;
    struct tune *tune = open_at(daemon.path);
    assert_int_equal(ask_tag(tune, 7), 4);
    stand_in_stop(&daemon);
    publish_delta(&daemon, 1, 2); /* news: what is known has to be asked again, in vain */
    assert_int_equal(ask_tag(tune, 7), 4);
    assert_int_equal(ask_tag(tune, 1), 2);
    tune_close(tune);
    stand_in_finish(&daemon);
}

static void a_daemon_that_comes_back_is_found_again(void **state)
{
    (void)state;
    struct stand_in daemon;
    struct tune_answer answer;
    struct tune_dim dims[] = {{"M", 48}, {"N", 40}, {"K", 33}};
    struct tune_query query = {.kernel = "gemm", .dims = dims, .dim_count = 3};
    stand_in_init(&daemon);
    struct tune *tune = open_at(daemon.path);
    get(tune, &query, &answer);
    assert_true(answer.is_offline);
    stand_in_start(&daemon);
    for (int i = 0; i < 1000 && answer.is_offline; i++) {
        poll(NULL, 0, 10);
        get(tune, &query, &answer);
    }
    assert_false(answer.is_offline);
    tune_close(tune);
    stand_in_finish(&daemon);
}

static void a_daemon_that_hangs_costs_the_limit_and_no_more(void **state)
{
    (void)state;
    struct stand_in daemon;
    struct tune_answer answer;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    struct tune *tune = open_at(daemon.path);
    tune_set_limit(tune, 50);
    daemon.is_mute = true;
    get(tune, &gemm, &answer);
    assert_true(answer.is_offline);
    tune_close(tune);
    stand_in_finish(&daemon);
}

/* A sweep may outlast any limit: that is no sign of a daemon that hangs. */
static void waiting_in_vain_says_so_and_harms_no_other_question(void **state)
{
    (void)state;
    struct stand_in daemon;
    struct tune_query query = tiny;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    struct tune *tune = open_at(daemon.path);
    assert_int_equal(ask_tag(tune, 7), 0);
    daemon.is_mute = true;
    tune_set_limit(tune, 50);
    query.policy = TUNE_WAIT;
    refused(tune, &query, TUNE_ETIMEOUT);
    daemon.is_mute = false;
    tune_set_limit(tune, 30000);
    assert_int_equal(ask_tag(tune, 8), 0);
    tune_close(tune);
    stand_in_finish(&daemon);
}

/* Asks for the code of tiny, N = n; how often the daemon was asked for it. */
static int ask_code(struct stand_in *daemon, struct tune *tune, int64_t n)
{
    struct tune_answer answer;
    struct tune_cubin cubin;
    struct tune_error err = {0};
    struct tune_dim dim = {"N", n};
    struct tune_query query = {.kernel = "tiny", .dims = &dim, .dim_count = 1};
    int before = daemon->gets;
    if (tune_get_cubin(tune, &query, &answer, &cubin, &err))
        fail_msg("%s", err.text);
    assert_int_equal(param(&answer, "TAG"), daemon->value);
    return daemon->gets - before;
}

static void code_of_any_number_of_questions_takes_bounded_memory(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    publish_base(&daemon, 1, 1); /* so that what is asked stays known */
    struct tune *tune = open_at(daemon.path);
    int again = 0, count = 6000;
    for (int64_t n = 1; n <= count; n++)
        assert_int_equal(ask_code(&daemon, tune, n), 1);
    assert_int_equal(ask_code(&daemon, tune, count), 0);
    for (int64_t n = 1; n <= count; n++)
        again += ask_code(&daemon, tune, n);
    assert_in_range(again, 2000, count);
    tune_close(tune);
    stand_in_finish(&daemon);
}

static void code_is_asked_once_and_stays_where_it_is(void **state)
{
    (void)state;
    struct stand_in daemon;
    struct tune_answer answer;
    struct tune_cubin first, second;
    struct tune_dim other = {"N", 8};
    struct tune_query eight = {.kernel = "tiny", .dims = &other, .dim_count = 1};
    stand_in_init(&daemon);
    publish_base(&daemon, 1, 1);
    stand_in_start(&daemon);
    struct tune *tune = open_at(daemon.path);
    assert_int_equal(tune_get_cubin(tune, &tiny, &answer, &first, NULL), 0);
    assert_int_equal(first.length, 4);
    assert_string_equal(first.bytes, "code");
    assert_int_equal(first.sm, 90);
    assert_int_equal(tune_get_cubin(tune, &tiny, &answer, &second, NULL), 0);
    assert_int_equal(daemon.gets, 1);
    assert_ptr_equal(first.bytes, second.bytes);
    assert_int_equal(tune_get_cubin(tune, &eight, &answer, &second, NULL), 0);
    assert_ptr_equal(first.bytes, second.bytes); /* equal code of another question */
    stand_in_stop(&daemon);
    publish_delta(&daemon, 1, 2);
    assert_int_equal(tune_get_cubin(tune, &tiny, &answer, &second, NULL), 0);
    assert_ptr_equal(first.bytes, second.bytes); /* the daemon is away: what was loaded before */
    tune_close(tune);
    stand_in_finish(&daemon);
}

/* --- the snapshot ----------------------------------------------------------------------------- */

static void a_published_answer_needs_no_socket_and_no_allocation(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    publish_base(&daemon, 100, 6);
    struct tune *tune = open_at(daemon.path);
    assert_int_equal(ask_tag(tune, 1), 6); /* takes up the files */
    long before = allocations;
    for (int64_t n = 1; n <= 100; n++)
        assert_int_equal(ask_tag(tune, n), 6);
    for (int64_t n = 1; n <= 100; n++)
        assert_int_equal(ask_tag(tune, n), 6);
    assert_int_equal(allocations, before);
    assert_int_equal(daemon.accepted, 0);
    tune_close(tune);
    stand_in_finish(&daemon);
}

static void news_is_seen_by_an_open_handle(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    publish_base(&daemon, 3, 1);
    struct tune *tune = open_at(daemon.path);
    for (int64_t tag = 2; tag < 6; tag++) {
        uint64_t generation = tune_generation(tune);
        assert_int_equal(ask_tag(tune, 2), tag - 1);
        assert_true(tune_generation(tune) == generation);
        publish_delta(&daemon, 2, tag);
        assert_true(tune_generation(tune) != generation);
        assert_int_equal(ask_tag(tune, 2), tag);
        assert_int_equal(ask_tag(tune, 3), 1);
    }
    tune_close(tune);
    stand_in_finish(&daemon);
}

static void a_snapshot_that_comes_later_is_found(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    daemon.value = 1;
    struct tune *tune = open_at(daemon.path);
    assert_int_equal(ask_tag(tune, 7), 1);
    publish_base(&daemon, 7, 2);
    for (int i = 0; i < 1000 && ask_tag(tune, 7) == 1; i++)
        poll(NULL, 0, 10);
    assert_int_equal(ask_tag(tune, 7), 2);
    tune_close(tune);
    stand_in_finish(&daemon);
}

/* The next question may be of the old page, one of the second after is not. */
static void expect_tag_soon(struct tune *tune, int64_t n, int64_t tag)
{
    for (int i = 0; i < 300 && ask_tag(tune, n) != tag; i++)
        poll(NULL, 0, 10);
    assert_int_equal(ask_tag(tune, n), tag);
}

/* A command of the shell, in the folder of what is published. */
static void run(const struct stand_in *daemon, const char *command)
{
    char line[384];
    snprintf(line, sizeof line, "cd %s && %s", daemon->served, command);
    assert_int_equal(system(line), 0);
}

static void a_page_made_anew_is_found_by_who_asks_the_same_again_and_again(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    publish_base(&daemon, 7, 1);
    struct tune *tune = open_at(daemon.path);
    assert_int_equal(ask_tag(tune, 7), 1);
    uint64_t generation = tune_generation(tune);
    run(&daemon, "rm -r $PWD");
    publish_base(&daemon, 7, 2);
    expect_tag_soon(tune, 7, 2);
    assert_true(tune_generation(tune) != generation);
    generation = tune_generation(tune); /* and without any question */
    run(&daemon, "rm -r $PWD");
    publish_base(&daemon, 7, 3);
    for (int i = 0; i < 300 && tune_generation(tune) == generation; i++)
        poll(NULL, 0, 10);
    assert_true(tune_generation(tune) != generation);
    tune_close(tune);
    stand_in_finish(&daemon);
}

static void where_nothing_is_published_any_more_the_daemon_is_asked_again(void **state)
{
    (void)state;
    struct stand_in daemon;
    struct snapshot_page nothing = {.generation = 2};
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    publish_base(&daemon, 7, 1);
    struct tune *tune = open_at(daemon.path);
    assert_int_equal(ask_tag(tune, 7), 1);
    assert_int_equal(snapshot_publish(daemon.served, &nothing, NULL), 0);
    for (daemon.value = 2; daemon.value < 5; daemon.value++)
        expect_tag_soon(tune, 7, daemon.value);
    tune_close(tune);
    stand_in_finish(&daemon);
}

/* As where this user's daemon has ended, and the system's answers now. */
static void what_is_published_counts_while_it_is_of_the_daemon_that_answers(void **state)
{
    (void)state;
    struct stand_in ended, other;
    stand_in_init(&ended);
    stand_in_init(&other);
    publish_base(&ended, 7, 1);
    setenv("TUNE_SOCKET", ended.path, 1);
    struct tune *tune = open_at(NULL);
    assert_int_equal(ask_tag(tune, 7), 1);
    stand_in_start(&other);
    setenv("TUNE_SOCKET", other.path, 1);
    for (other.value = 2; other.value < 4; other.value++)
        expect_tag_soon(tune, 8, other.value);
    expect_tag_soon(tune, 7, 4);
    publish_base(&other, 7, 5);
    expect_tag_soon(tune, 7, 5);
    stand_in_start(&ended);
    stand_in_stop(&other);
    setenv("TUNE_SOCKET", ended.path, 1);
    expect_tag_soon(tune, 9, 0);
    expect_tag_soon(tune, 7, 1);
    unsetenv("TUNE_SOCKET");
    tune_close(tune);
    stand_in_finish(&ended);
    stand_in_finish(&other);
}

static void a_page_of_another_release_ends_what_was_published_before(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    publish_base(&daemon, 7, 1);
    struct tune *tune = open_at(daemon.path);
    assert_int_equal(ask_tag(tune, 7), 1);
    daemon.value = 2;
    run(&daemon, "cp page p && printf '\\377' | dd of=p bs=1 seek=8 conv=notrunc status=none && "
                 "mv p page"); /* its version */
    expect_tag_soon(tune, 7, 2);
    daemon.value = 3;
    expect_tag_soon(tune, 7, 3);
    publish_base(&daemon, 7, 4);
    expect_tag_soon(tune, 7, 4);
    tune_close(tune);
    stand_in_finish(&daemon);
}

/* Who asks by TUNE_TUNE is told of the sweep's end by the connection that asked. */
static void what_comes_by_idle_connections_does_not_pile_up(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    struct tune *tune = open_at(daemon.path);
    ask_tag(tune, 1);
    size_t before = mallinfo2().uordblks;
    for (int64_t n = 2; n < 52; n++) {
        for (int i = 0; i < 50; i++)
            stand_in_tell(&daemon, n);
        ask_tag(tune, n);
    }
    assert_int_equal(daemon.accepted, 1);
    assert_true(mallinfo2().uordblks < before + 500000);
    tune_close(tune);
    stand_in_finish(&daemon);
}

/* --- news ------------------------------------------------------------------------------------- */

static void subscribe(struct tune *tune, const struct tune_query *query)
{
    struct tune_error err = {0};
    if (tune_subscribe(tune, query, &err))
        fail_msg("%s", err.text);
}

static int next_event(struct tune *tune, int limit_ms)
{
    struct tune_event event;
    struct tune_error err = {0};
    int got = tune_next_event(tune, limit_ms, &event, &err);
    if (got < 0)
        fail_msg("%s", err.text);
    return got;
}

static void who_subscribed_before_the_daemon_came_is_told_what_it_knows(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    daemon.value = 1;
    struct tune *tune = open_at(daemon.path);
    subscribe(tune, &gemm); /* a default, of the manifest */
    assert_int_equal(next_event(tune, 0), 0);
    stand_in_start(&daemon);
    assert_int_equal(next_event(tune, 5000), 1);
    assert_int_equal(next_event(tune, 300), 0);
    tune_close(tune);
    stand_in_finish(&daemon);
}

static void what_was_told_is_not_told_again_after_a_restart(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    daemon.value = 1;
    struct tune *tune = open_at(daemon.path);
    subscribe(tune, &tiny);
    assert_int_equal(next_event(tune, 0), 0);
    daemon.value = 2;
    stand_in_tell(&daemon, 7);
    assert_int_equal(next_event(tune, 5000), 1);
    stand_in_stop(&daemon);
    assert_int_equal(next_event(tune, 0), 0);
    stand_in_start(&daemon);
    assert_int_equal(next_event(tune, 500), 0);
    daemon.value = 3;
    stand_in_stop(&daemon);
    stand_in_start(&daemon);
    assert_int_equal(next_event(tune, 5000), 1);
    tune_close(tune);
    stand_in_finish(&daemon);
}

/* A child that goes on without exec has the connection open too. */
static void a_lost_connection_is_no_news_though_a_child_has_it_open(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    stand_in_start(&daemon);
    struct tune *tune = open_at(daemon.path);
    subscribe(tune, &tiny);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < STAND_IN_CONNECTIONS; i++)
            close(daemon.connections[i]); /* the daemon's ends */
        poll(NULL, 0, 60000);
        _exit(0);
    }
    stand_in_stop(&daemon);
    struct pollfd news = {.fd = tune_event_descriptor(tune), .events = POLLIN};
    int woken = 0;
    for (int i = 0; i < 20; i++) { /* a second, in which it looks for a daemon five times */
        woken += poll(&news, 1, 50);
        assert_int_equal(next_event(tune, 0), 0);
    }
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_in_range(woken, 1, 10);
    tune_close(tune);
    stand_in_finish(&daemon);
}

/* --- threads and processes -------------------------------------------------------------------- */

#define CROWD 8
#define CROWD_KEYS 3000 /* more than the table holds */

struct crowd {
    struct tune *tune;
    _Atomic int64_t newest; /* published */
    _Atomic bool is_over;
    _Atomic long asked, wrong;
};

static void *ask_at_random(void *context)
{
    struct crowd *crowd = context;
    uint64_t random = (uint64_t)pthread_self();
    while (!crowd->is_over) {
        struct tune_answer answer;
        struct tune_launch launch;
        random = random * 6364136223846793005u + 1442695040888963407u;
        struct tune_dim dim = {"N", 1 + (int64_t)(random >> 33) % CROWD_KEYS};
        struct tune_query query = {.kernel = "tiny", .dims = &dim, .dim_count = 1};
        int64_t tag = -1, oldest = crowd->newest;
        if (tune_get(crowd->tune, &query, &answer, NULL) == 0 &&
            tune_answer_param(&answer, "TAG", &tag, NULL) == 0)
            tune_answer_launch(&answer, 0, &launch);
        crowd->wrong += tag < oldest || launch.grid[0] != dim.value;
        crowd->asked++;
    }
    return NULL;
}

static void threads_get_the_newest_answer_to_their_own_question(void **state)
{
    (void)state;
    struct stand_in daemon;
    struct crowd crowd = {.newest = 1};
    pthread_t threads[CROWD];
    stand_in_init(&daemon);
    publish_base(&daemon, CROWD_KEYS, 1);
    crowd.tune = open_at(daemon.path);
    for (int i = 0; i < CROWD; i++)
        pthread_create(&threads[i], NULL, ask_at_random, &crowd);
    for (int64_t tag = 2; tag <= 7; tag++) {
        long asked = crowd.asked;
        publish_base(&daemon, CROWD_KEYS, tag);
        crowd.newest = tag;
        while (crowd.asked < asked + 5000)
            sched_yield();
    }
    crowd.is_over = true;
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(crowd.wrong, 0);
    tune_close(crowd.tune);
    stand_in_finish(&daemon);
}

static void a_forked_child_is_told_to_open_its_own(void **state)
{
    (void)state;
    struct stand_in daemon;
    stand_in_init(&daemon);
    publish_base(&daemon, 7, 1);
    struct tune *tune = open_at(daemon.path);
    assert_int_equal(ask_tag(tune, 7), 1);
    pid_t child = fork();
    if (child == 0) {
        struct tune_answer answer;
        struct tune_cubin cubin;
        struct tune_error err = {0};
        struct tune *own;
        bool is_right = tune_get(tune, &tiny, &answer, &err) == -1 && err.code == TUNE_EINVAL &&
                        strstr(err.text, "fork") != NULL &&
                        tune_get_cubin(tune, &tiny, &answer, &cubin, NULL) == -1 &&
                        tune_subscribe(tune, &tiny, NULL) == -1;
        tune_close(tune);
        is_right = is_right && tune_open(daemon.path, &own, NULL) == 0 &&
                   tune_get(own, &tiny, &answer, NULL) == 0;
        _exit(is_right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ask_tag(tune, 7), 1); /* the parent's goes on */
    tune_close(tune);
    stand_in_finish(&daemon);
}

/* The matrix of test_sparse.c. */
static void a_matrix_is_described_in_dims(void **state)
{
    static const int32_t offsets[] = {0, 3, 3, 4}, columns_of[] = {0, 1, 3, 1};
    static const char *const names[] = {
        "ROWS", "COLUMNS", "NONZEROS", "SPREAD", "LONGEST", "BANDWIDTH", "SKEW"};
    static const int64_t values[] = {3, 4, 4, 150, 3, 4, 120};
    struct tune_dim dims[TUNE_SPARSE_DIMS];
    struct tune_error err = {.code = TUNE_OK};
    (void)state;
    assert_int_equal(tune_sparse_describe_csr(3, 4, offsets, 4, columns_of, dims, &err), 0);
    for (int i = 0; i < TUNE_SPARSE_DIMS; i++) {
        assert_string_equal(dims[i].name, names[i]);
        assert_int_equal(dims[i].value, values[i]);
    }
    assert_int_equal(tune_sparse_describe_csr(3, 4, offsets, 2, columns_of, dims, &err), -1);
    assert_int_equal(err.code, TUNE_EINVAL);
}

int main(void)
{
    char plugins[512];
    const char *source = getenv("TUNE_SOURCE_DIR");
    snprintf(plugins, sizeof plugins, "%s/plugins", source ? source : ".");
    setenv("TUNE_PLUGIN_PATH", plugins, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_daemon_the_manifests_default_is_answered),
        cmocka_unit_test(without_a_daemon_an_asked_arch_is_planned_for),
        cmocka_unit_test(without_a_daemon_what_needs_one_says_so),
        cmocka_unit_test(questions_that_make_no_sense_are_refused),
        cmocka_unit_test(a_socket_path_that_is_too_long_opens_nothing),
        cmocka_unit_test(an_answer_of_the_daemon_is_asked_once),
        cmocka_unit_test(a_matrix_is_described_in_dims),
        cmocka_unit_test(all_of_a_query_reaches_the_daemon),
        cmocka_unit_test(questions_that_differ_anywhere_are_asked_apart),
        cmocka_unit_test(the_daemons_refusal_is_handed_on),
        cmocka_unit_test(an_answer_that_is_too_large_is_an_error),
        cmocka_unit_test(a_request_whose_connection_breaks_is_sent_again),
        cmocka_unit_test(a_daemon_that_restarts_is_waited_for),
        cmocka_unit_test(what_is_known_is_answered_when_the_daemon_is_gone),
        cmocka_unit_test(a_daemon_that_comes_back_is_found_again),
        cmocka_unit_test(a_daemon_that_hangs_costs_the_limit_and_no_more),
        cmocka_unit_test(waiting_in_vain_says_so_and_harms_no_other_question),
        cmocka_unit_test(code_is_asked_once_and_stays_where_it_is),
        cmocka_unit_test(code_of_any_number_of_questions_takes_bounded_memory),
        cmocka_unit_test(a_published_answer_needs_no_socket_and_no_allocation),
        cmocka_unit_test(news_is_seen_by_an_open_handle),
        cmocka_unit_test(a_snapshot_that_comes_later_is_found),
        cmocka_unit_test(a_page_made_anew_is_found_by_who_asks_the_same_again_and_again),
        cmocka_unit_test(where_nothing_is_published_any_more_the_daemon_is_asked_again),
        cmocka_unit_test(what_is_published_counts_while_it_is_of_the_daemon_that_answers),
        cmocka_unit_test(a_page_of_another_release_ends_what_was_published_before),
        cmocka_unit_test(what_comes_by_idle_connections_does_not_pile_up),
        cmocka_unit_test(who_subscribed_before_the_daemon_came_is_told_what_it_knows),
        cmocka_unit_test(what_was_told_is_not_told_again_after_a_restart),
        cmocka_unit_test(a_lost_connection_is_no_news_though_a_child_has_it_open),
        cmocka_unit_test(threads_get_the_newest_answer_to_their_own_question),
        cmocka_unit_test(a_forked_child_is_told_to_open_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
