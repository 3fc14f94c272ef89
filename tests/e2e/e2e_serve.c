/* Serving many and fast: answers given again are the same bytes, and never old. */
#include "harness.h"

#include <sys/stat.h>
#include <unistd.h>

#define GET(id, n)                                                                                 \
    "{\"jsonrpc\":\"2.0\",\"id\":" #id                                                             \
    ",\"method\":\"get\",\"params\":{\"kernel\":\"tiny\",\"shape\":{\"N\":" #n "}}}\n"

static json_t *answer_to(int client, const char *request)
{
    raw_send(client, request, strlen(request));
    json_t *answer = raw_receive(client);
    assert_non_null(answer);
    return answer;
}

static int tag_of(const json_t *answer)
{
    return (int)number_at(answer, "result.config.TAG");
}

static void an_answer_given_again_is_the_same(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    tune_shape(harness, 64);
    int client = raw_connect(harness);
    json_t *first = answer_to(client, GET(1, 64)), *again = answer_to(client, GET(20, 64));
    json_t *other = answer_to(client, "{\"id\":1, \"jsonrpc\":\"2.0\",\"method\":\"get\","
                                      "\"params\":{\"kernel\":\"tiny\",\"shape\":{\"N\":64}}}\n");
    assert_int_equal(number_at(first, "id"), 1);
    assert_int_equal(number_at(again, "id"), 20);
    assert_true(json_equal(json_object_get(first, "result"), json_object_get(again, "result")));
    assert_true(json_equal(first, other));
    assert_int_equal(tag_of(first), 2);
    json_t *stats = ask(harness, "stats", NULL);
    assert_true(number_at(stats, "memo.hits") == 1);
    json_decref(stats);
    json_decref(first);
    json_decref(again);
    json_decref(other);
    close(client);
}

static void ids_that_are_no_plain_numbers_are_answered_as_they_are(void)
{
    static const char *const ids[] = {
        "-1", "\"1\"", "null", "123456789012345678", "1234567890123456789", "01", "1.5", ""};
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, "{}");
    int client = raw_connect(harness);
    json_decref(answer_to(client, GET(1, 64)));
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        char request[256];
        snprintf(request, sizeof request,
            "{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"get\",\"params\":{\"kernel\":\"tiny\","
            "\"shape\":{\"N\":64}}}\n",
            ids[i]);
        json_t *answer = answer_to(client, request);
        char *id = json_dumps(json_object_get(answer, "id"), JSON_ENCODE_ANY);
        if (i < 5)
            assert_string_equal(id, ids[i]);
        assert_int_equal(json_object_get(answer, "result") != NULL, i < 5);
        free(id);
        json_decref(answer);
    }
    close(client);
}

static bool knows_the_new_tag(void *context)
{
    int client = raw_connect(context);
    json_t *answer = answer_to(client, GET(1, 4096));
    bool knows = json_is_integer(at(answer, "result.config.MORE"));
    json_decref(answer);
    close(client);
    return knows;
}

static void add_a_param(struct harness *harness)
{
    write_tiny(harness, &(struct tiny){.tags = 4,
                            .params = ", {\"name\": \"MORE\", \"meaning\": \"m\", \"values\": [1]}",
                            .defaults = ", \"MORE\": 1"});
    kill(harness->daemon, SIGHUP);
    wait_for(knows_the_new_tag, harness, LIMIT_MS);
}

static void an_answer_is_not_given_again_when_it_has_changed(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    int client = raw_connect(harness);
    json_t *answer = answer_to(client, GET(1, 4096));
    assert_string_equal(text_at(answer, "result.origin"), "default");
    json_decref(answer);
    tune_shape(harness, 64);
    answer = answer_to(client, GET(2, 4096));
    assert_string_equal(text_at(answer, "result.origin"), "nearest");
    json_decref(answer);
    tune_shape(harness, 4096);
    answer = answer_to(client, GET(3, 4096));
    assert_string_equal(text_at(answer, "result.origin"), "exact");
    assert_int_equal(tag_of(answer), 2);
    json_decref(answer);
    close(client);
    add_a_param(harness);
}

/* Bytes that differ only where the parser refuses must not be taken for a question seen before. */
static void what_only_looks_like_a_question_is_refused(void)
{
    static const char *const tails[] = {
        ",\"method\":\"get\",\"params\":{\"kernel\":\"tiny\",\"shape\":{\"N\":64}},\"more\":1}\n",
        ",\"method\":\"get\",\"params\":{\"kernel\":\"tiny\",\"shape\":{\"N\":64}},\"id\":2}\n",
        ",\"method\":\"get\",\"params\":{\"kernel\":\"tiny\",\"shape\":{\"N\":64}}\n",
        ",\"method\":\"get\",\"params\":[]}\n"};
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, "{}");
    int client = raw_connect(harness);
    json_decref(answer_to(client, GET(1, 64)));
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
            char request[256];
            snprintf(request, sizeof request, "{\"jsonrpc\":\"2.0\",\"id\":7%s", tails[i]);
            json_t *answer = answer_to(client, request);
            assert_non_null(at(answer, "error.message"));
            json_decref(answer);
        }
    close(client);
}

static void a_thousand_clients_are_served_together(void)
{
    enum { COUNT = 1000 };
    static int clients[COUNT];
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, "{}");
    for (int i = 0; i < COUNT; i++)
        clients[i] = raw_connect(harness);
    for (int i = 0; i < COUNT; i++)
        raw_send(clients[i], GET(1, 64), strlen(GET(1, 64)));
    for (int i = 0; i < COUNT; i++) {
        json_t *answer = raw_receive(clients[i]);
        assert_string_equal(text_at(answer, "result.origin"), "default");
        json_decref(answer);
        close(clients[i]);
    }
}

/* --- sessions --------------------------------------------------------------------------------- */

static json_t *session_params(const char *session, const char *policy)
{
    return json_pack("{s:s, s:{s:i}, s:s*, s:s*}", "kernel", "tiny", "shape", "N", 64, "session",
        session, "policy", policy);
}

static void a_session_keeps_its_answer_when_a_better_one_comes_and_over_a_restart(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    json_t *first = ask(harness, "get", session_params("train-7", NULL));
    assert_string_equal(text_at(first, "origin"), "default");
    tune_shape(harness, 64);
    json_t *later = ask(harness, "get", session_params("train-7", "cached"));
    assert_true(json_equal(first, later));
    json_decref(later);
    json_t *other = ask(harness, "get", session_params("train-8", NULL));
    assert_string_equal(text_at(other, "origin"), "exact");
    assert_int_equal(number_at(other, "config.TAG"), 2);
    json_decref(other);
    harness_kill(harness);
    harness_start(harness);
    later = ask(harness, "get", session_params("train-7", NULL));
    assert_true(json_equal(first, later));
    json_decref(later);
    json_decref(first);
}

/* Also to those who ask before the restarted daemon knows its GPUs. */
static void a_session_by_architecture_keeps_its_answer_over_a_restart(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    json_t *params = session_params("train-9", NULL);
    json_object_set_new(params, "arch", json_string("cpu"));
    json_t *first = ask(harness, "get", json_incref(params));
    assert_string_equal(text_at(first, "origin"), "default");
    tune_shape(harness, 64);
    harness_stop(harness);
    harness_scenario(
        harness, "{\"rules\": [{\"call\": \"cuInit\", \"do\": \"delay_ms\", \"value\": 500}]}");
    harness_launch(harness);
    json_t *later = ask(harness, "get", params);
    assert_true(json_equal(first, later));
    json_decref(later);
    json_decref(first);
}

static void who_waits_is_not_told_that_gpus_are_missing_before_they_are_known(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 2});
    harness_scenario(
        harness, "{\"rules\": [{\"call\": \"cuInit\", \"do\": \"delay_ms\", \"value\": 500}]}");
    harness_launch(harness);
    json_t *answer = ask(harness, "get",
        json_pack("{s:s, s:{s:i}, s:s, s:s}", "kernel", "tiny", "shape", "N", 64, "arch", "cpu",
            "policy", "wait"));
    assert_string_equal(text_at(answer, "origin"), "exact");
    json_decref(answer);
}

/* The compiler may take its time, or never come. */
static void a_get_waits_for_the_gpus_and_for_nothing_else(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 2});
    harness_scenario(harness,
        "{\"rules\": [{\"call\": \"cuInit\", \"do\": \"delay_ms\", \"value\": 300},"
        "{\"call\": \"nvrtcVersion\", \"do\": \"delay_ms\", \"value\": 3000}]}");
    harness_launch(harness);
    json_t *answer = ask(harness, "get", session_params("s", NULL));
    assert_string_equal(text_at(answer, "origin"), "default");
    json_decref(answer);
    json_t *ping = ask(harness, "ping", NULL);
    assert_true(json_is_false(at(ping, "ready")));
    json_decref(ping);
}

static void all_ranks_that_ask_at_once_get_one_answer(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    static const char *const policies[] = {"nearest", "tune", "wait"};
    char request[256];
    int ranks[30];
    json_t *first = NULL;
    for (int i = 0; i < 30; i++) {
        ranks[i] = raw_connect(harness);
        int length = snprintf(request, sizeof request,
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"get\",\"params\":{\"kernel\":\"tiny\","
            "\"shape\":{\"N\":64},\"session\":\"job\",\"policy\":\"%s\"}}\n",
            policies[i % 3]);
        raw_send(ranks[i], request, (size_t)length);
    }
    for (int i = 0; i < 30; i++) {
        json_t *answer = raw_receive(ranks[i]);
        json_t *config = json_object_get(json_object_get(answer, "result"), "config");
        assert_non_null(config);
        if (first == NULL)
            first = json_incref(config);
        assert_true(json_equal(first, config));
        json_decref(answer);
        close(ranks[i]);
    }
    json_decref(first);
}

static void a_changed_kernel_ends_its_sessions(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    json_decref(ask(harness, "get", session_params("s", NULL)));
    add_a_param(harness);
    tune_shape(harness, 64);
    json_t *answer = ask(harness, "get", session_params("s", NULL));
    assert_string_equal(text_at(answer, "origin"), "exact");
    json_decref(answer);
}

static void names_of_sessions_are_checked(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, "{}");
    char longest[102];
    memset(longest, 'a', sizeof longest);
    longest[101] = '\0';
    ask_fail(harness, "get", session_params("", NULL), TUNE_EINVAL);
    ask_fail(harness, "get", session_params("a/b", NULL), TUNE_EINVAL);
    ask_fail(harness, "get", session_params("a b", NULL), TUNE_EINVAL);
    ask_fail(harness, "get", session_params(longest, NULL), TUNE_EINVAL);
    longest[100] = '\0';
    json_decref(ask(harness, "get", session_params(longest, NULL)));
}

static void the_code_of_a_sessions_answer_is_that_of_its_configuration(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    json_decref(ask(harness, "get", session_params("s", NULL)));
    tune_shape(harness, 64);
    json_t *params = session_params("s", NULL);
    json_object_set_new(params, "cubin", json_true());
    json_t *kept = ask(harness, "get", params);
    params = json_pack("{s:s, s:{s:i}, s:b}", "kernel", "tiny", "shape", "N", 64, "cubin", 1);
    json_t *best = ask(harness, "get", params);
    assert_int_equal(number_at(kept, "config.TAG"), 0);
    assert_int_equal(number_at(best, "config.TAG"), 2);
    assert_string_not_equal(text_at(kept, "cubin"), "");
    assert_string_not_equal(text_at(kept, "cubin"), text_at(best, "cubin"));
    json_decref(kept);
    json_decref(best);
}

/* --- in the background ------------------------------------------------------------------------ */

static void use_nvml_stand_in(void)
{
    setenv("LD_LIBRARY_PATH", NVML_FOLDER, 1);
}

static bool has_looked_three_times(void *context)
{
    const struct harness *harness = context;
    char path[128];
    struct stat status;
    snprintf(path, sizeof path, "%s/nvml-looks", harness->folder);
    return stat(path, &status) == 0 && status.st_size >= 3;
}

static const char *job_state(struct harness *harness, const char *job)
{
    static char state[32];
    json_t *json = ask(harness, "jobs", json_pack("{s:s}", "job", job));
    snprintf(state, sizeof state, "%s", text_at(json, "state"));
    json_decref(json);
    return state;
}

static void start_with_nvml(struct harness *harness, const char *load)
{
    write_tiny(harness, &(struct tiny){.tags = 4});
    harness_scenario(harness, TAG_WINS(2));
    harness_write(harness, "nvml-load", "%s", load);
    harness->before_exec = use_nvml_stand_in;
    harness_start(harness);
}

static void check_busy(const char *load)
{
    struct harness *harness = harness_new();
    start_with_nvml(harness, load);
    json_t *answer = ask(harness, "get",
        json_pack("{s:s, s:{s:i}, s:s}", "kernel", "tiny", "shape", "N", 64, "policy", "tune"));
    char job[64];
    snprintf(job, sizeof job, "%s", text_at(answer, "job"));
    json_decref(answer);
    wait_for(has_looked_three_times, harness, LIMIT_MS);
    assert_string_equal(job_state(harness, job), "queued");
    tune_shape(harness, 32); /* somebody waits for this one: it does not ask whether it may */
    assert_string_equal(job_state(harness, job), "queued");
    harness_write(harness, "nvml-load", "3 20");
    struct job_name name;
    snprintf(name.text, sizeof name.text, "%s", job);
    json_t *done = wait_job(harness, name);
    assert_string_equal(text_at(done, "state"), "done");
    json_decref(done);
}

static void a_background_sweep_waits_while_the_gpu_is_at_work(void)
{
    check_busy("90 20");
}

static void a_background_sweep_waits_while_memory_is_short(void)
{
    check_busy("0 80");
}

static void who_waits_hurries_a_background_sweep(void)
{
    struct harness *harness = harness_new();
    start_with_nvml(harness, "90 20");
    json_t *params =
        json_pack("{s:s, s:{s:i}, s:s}", "kernel", "tiny", "shape", "N", 64, "policy", "tune");
    json_decref(ask(harness, "get", json_incref(params)));
    json_object_set_new(params, "policy", json_string("wait"));
    json_t *answer = ask(harness, "get", params);
    assert_string_equal(text_at(answer, "origin"), "exact");
    json_decref(answer);
    json_t *jobs = ask(harness, "jobs", NULL);
    assert_int_equal(json_array_size(jobs), 1);
    json_decref(jobs);
}

static void who_waits_for_a_changed_kernel_is_not_given_the_sweep_of_the_old_one(void)
{
    struct harness *harness = harness_new();
    start_with_nvml(harness, "90 20");
    json_t *params =
        json_pack("{s:s, s:{s:i}, s:s}", "kernel", "tiny", "shape", "N", 64, "policy", "tune");
    json_decref(ask(harness, "get", json_incref(params)));
    add_a_param(harness);
    json_object_set_new(params, "policy", json_string("wait"));
    json_t *answer = ask(harness, "get", params);
    assert_string_equal(text_at(answer, "origin"), "exact");
    json_decref(answer);
}

static void who_asked_is_told_when_the_background_sweep_has_ended(void)
{
    static const char request[] =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"get\",\"params\":{\"kernel\":"
        "\"tiny\",\"shape\":{\"N\":64},\"policy\":\"tune\"}}\n";
    struct harness *harness = harness_new();
    harness->args[0] = "--background-evals";
    harness->args[1] = "3";
    write_tiny(harness, &(struct tiny){.tags = 40});
    harness_start(harness);
    int askers[2] = {raw_connect(harness), raw_connect(harness)};
    char job[64] = "";
    double generation = 0;
    for (int i = 0; i < 2; i++) {
        raw_send(askers[i], request, sizeof request - 1);
        json_t *answer = raw_receive(askers[i]);
        if (i == 1)
            assert_string_equal(job, text_at(answer, "result.job"));
        snprintf(job, sizeof job, "%s", text_at(answer, "result.job"));
        generation = number_at(answer, "result.generation");
        json_decref(answer);
    }
    for (int i = 0; i < 2; i++) {
        json_t *event = raw_receive(askers[i]);
        assert_string_equal(text_at(event, "method"), "done"); /* no progress before it */
        assert_string_equal(text_at(event, "params.job"), job);
        json_t *result =
            json_array_get(json_object_get(json_object_get(event, "params"), "results"), 0);
        assert_true(number_at(result, "evaluations") == 3); /* the budget */
        json_decref(event);
        json_t *answer = answer_to(askers[i], request);
        assert_string_equal(text_at(answer, "result.origin"), "exact");
        assert_true(number_at(answer, "result.generation") > generation);
        json_decref(answer);
        close(askers[i]);
    }
}

struct ended {
    struct harness *harness;
    double before, asked; /* requests that had ended, and those for counting them */
};

static bool have_four_ended(void *context)
{
    struct ended *ended = context;
    json_t *stats = ask(ended->harness, "stats", NULL);
    double count = number_at(stats, "requests") - ended->before - ended->asked++;
    json_decref(stats);
    return count >= 4;
}

/* Their requests would be kept for as long as the sweep lasts, those of each try anew. */
static void who_has_left_is_not_waited_for(void)
{
    static const char request[] =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"get\",\"params\":{\"kernel\":"
        "\"tiny\",\"shape\":{\"N\":64},\"policy\":\"wait\"}}\n"
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n";
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2},
        "{\"rules\": [{\"call\": \"nvrtcCompileProgram\", "
        "\"when\": {\"defines\": {\"TAG\": 0}}, \"do\": \"hang\"}]}");
    json_t *stats = ask(harness, "stats", NULL);
    struct ended ended = {harness, number_at(stats, "requests") + 1, 0};
    json_decref(stats);
    for (int i = 0; i < 2; i++) {
        int client = raw_connect(harness);
        json_decref(answer_to(client, request)); /* of the ping */
        close(client);
    }
    wait_for(have_four_ended, &ended, 20000);
}

static void a_background_sweep_that_found_nothing_is_not_repeated_at_once(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2},
        "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": "
        "{\"TAG\": 0}}, \"do\": \"error\", \"code\": 701}, {\"call\": "
        "\"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": 1}}, \"do\": "
        "\"error\", \"code\": 701}]}");
    json_t *params =
        json_pack("{s:s, s:{s:i}, s:s}", "kernel", "tiny", "shape", "N", 64, "policy", "tune");
    json_t *answer = ask(harness, "get", json_incref(params));
    struct job_name name;
    snprintf(name.text, sizeof name.text, "%s", text_at(answer, "job"));
    json_decref(answer);
    json_decref(wait_job(harness, name));
    answer = ask(harness, "get", params);
    assert_string_equal(text_at(answer, "origin"), "default");
    assert_null(at(answer, "job"));
    json_decref(answer);
}

static void without_a_budget_nothing_is_tuned_on_the_side(void)
{
    struct harness *harness = harness_new();
    harness->args[0] = "--background-evals";
    harness->args[1] = "0";
    write_tiny(harness, &(struct tiny){.tags = 2});
    harness_start(harness);
    json_t *answer = ask(harness, "get",
        json_pack("{s:s, s:{s:i}, s:s}", "kernel", "tiny", "shape", "N", 64, "policy", "tune"));
    assert_string_equal(text_at(answer, "origin"), "default");
    assert_null(at(answer, "job"));
    json_decref(answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(an_answer_given_again_is_the_same),
        HARNESS_TEST(ids_that_are_no_plain_numbers_are_answered_as_they_are),
        HARNESS_TEST(an_answer_is_not_given_again_when_it_has_changed),
        HARNESS_TEST(what_only_looks_like_a_question_is_refused),
        HARNESS_TEST(a_thousand_clients_are_served_together),
        HARNESS_TEST(a_session_keeps_its_answer_when_a_better_one_comes_and_over_a_restart),
        HARNESS_TEST(a_session_by_architecture_keeps_its_answer_over_a_restart),
        HARNESS_TEST(who_waits_is_not_told_that_gpus_are_missing_before_they_are_known),
        HARNESS_TEST(a_get_waits_for_the_gpus_and_for_nothing_else),
        HARNESS_TEST(all_ranks_that_ask_at_once_get_one_answer),
        HARNESS_TEST(a_changed_kernel_ends_its_sessions),
        HARNESS_TEST(names_of_sessions_are_checked),
        HARNESS_TEST(the_code_of_a_sessions_answer_is_that_of_its_configuration),
        HARNESS_TEST(a_background_sweep_waits_while_the_gpu_is_at_work),
        HARNESS_TEST(a_background_sweep_waits_while_memory_is_short),
        HARNESS_TEST(who_waits_hurries_a_background_sweep),
        HARNESS_TEST(who_waits_for_a_changed_kernel_is_not_given_the_sweep_of_the_old_one),
        HARNESS_TEST(who_asked_is_told_when_the_background_sweep_has_ended),
        HARNESS_TEST(who_has_left_is_not_waited_for),
        HARNESS_TEST(a_background_sweep_that_found_nothing_is_not_repeated_at_once),
        HARNESS_TEST(without_a_budget_nothing_is_tuned_on_the_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
