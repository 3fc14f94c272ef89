/* Serving many and fast: answers given again are the same bytes, and never old. */
#include "harness.h"

#include <unistd.h>

#define TAG_WINS(tag)                                                                              \
    "{\"rules\": [{\"call\": \"cuLaunchKernel\", \"do\": \"time_ns\", \"value\": 100000},"         \
    "{\"call\": \"cuLaunchKernel\", \"when\": {\"defines\": {\"TAG\": " #tag                       \
    "}}, \"do\": \"time_ns\", \"value\": 50000}]}"

static struct harness *start_tiny(int tags, const char *scenario)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = tags});
    harness_scenario(harness, scenario);
    harness_start(harness);
    return harness;
}

static void tune_shape(struct harness *harness, int n)
{
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "shapes", json_pack("[{s:i}]", "N", n));
    json_decref(sweep_result(harness, params));
}

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
    struct harness *harness = start_tiny(4, TAG_WINS(2));
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
    struct harness *harness = start_tiny(2, "{}");
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

static void an_answer_is_not_given_again_when_it_has_changed(void)
{
    struct harness *harness = start_tiny(4, TAG_WINS(2));
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
    write_tiny(harness, &(struct tiny){.tags = 4,
                            .params = ", {\"name\": \"MORE\", \"meaning\": \"m\", \"values\": [1]}",
                            .defaults = ", \"MORE\": 1"});
    kill(harness->daemon, SIGHUP);
    wait_for(knows_the_new_tag, harness, LIMIT_MS);
}

/* Bytes that differ only where the parser refuses must not be taken for a question seen before. */
static void what_only_looks_like_a_question_is_refused(void)
{
    static const char *const tails[] = {
        ",\"method\":\"get\",\"params\":{\"kernel\":\"tiny\",\"shape\":{\"N\":64}},\"more\":1}\n",
        ",\"method\":\"get\",\"params\":{\"kernel\":\"tiny\",\"shape\":{\"N\":64}},\"id\":2}\n",
        ",\"method\":\"get\",\"params\":{\"kernel\":\"tiny\",\"shape\":{\"N\":64}}\n",
        ",\"method\":\"get\",\"params\":[]}\n"};
    struct harness *harness = start_tiny(2, "{}");
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
    struct harness *harness = start_tiny(2, "{}");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(an_answer_given_again_is_the_same),
        HARNESS_TEST(ids_that_are_no_plain_numbers_are_answered_as_they_are),
        HARNESS_TEST(an_answer_is_not_given_again_when_it_has_changed),
        HARNESS_TEST(what_only_looks_like_a_question_is_refused),
        HARNESS_TEST(a_thousand_clients_are_served_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
