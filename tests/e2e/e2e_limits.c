/* Limits and bad input. Each limit has a number, an error that names it, and a test here; after
 * each the daemon still answers. */
#include "harness.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST_LIMIT_BYTES (1 << 20)
#define PING "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}"
#ifdef E2E_SANITIZED
#define ALLOWED_GROWTH_KIB (1024 * 1024) /* freed memory is kept from use for a while */
#else
#define ALLOWED_GROWTH_KIB (128 * 1024)
#endif
#define SLOW_LOADS                                                                                 \
    "{\"rules\": [{\"call\": \"cuModuleLoadData\", \"do\": \"delay_ms\", \"value\": 200}]}"

static void send_line(int client, const char *line)
{
    raw_send(client, line, strlen(line));
    raw_send(client, "\n", 1);
}

static void check_served(int client)
{
    send_line(client, PING);
    json_t *answer = raw_receive(client);
    assert_int_equal(number_at(answer, "id"), 7);
    assert_true(json_is_object(at(answer, "result")));
    json_decref(answer);
}

/* --- the size and form of a request ----------------------------------------------------------- */

/* A ping of exactly `bytes` without its line end. */
static char *padded_ping(size_t bytes)
{
    char *line = malloc(bytes + 1);
    assert_non_null(line);
    memset(line, ' ', bytes);
    memcpy(line, PING, sizeof PING - 1);
    line[bytes] = '\0';
    return line;
}

static void a_request_of_a_mebibyte_is_read_and_a_longer_one_ends_the_connection(void)
{
    struct harness *harness = start_tiny(&(struct tiny){0}, "{}");
    int client = raw_connect(harness);
    char *line = padded_ping(REQUEST_LIMIT_BYTES - 1);
    send_line(client, line);
    json_t *answer = raw_receive(client);
    assert_true(json_is_object(at(answer, "result")));
    json_decref(answer);
    free(line);
    line = padded_ping(REQUEST_LIMIT_BYTES + 1);
    send_line(client, line);
    answer = raw_receive(client);
    assert_string_equal(text_at(answer, "error.data.code"), "limit");
    assert_non_null(strstr(text_at(answer, "error.message"), "1048576"));
    json_decref(answer);
    assert_null(raw_receive(client)); /* the end */
    close(client);
    free(line);
    json_decref(ask(harness, "ping", NULL));
}

static json_t *nested_ping(int client, size_t depth, char open, char close)
{
    char *line = malloc(2 * depth + 200), *end = line;
    end += sprintf(end, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":{\"x\":");
    for (size_t i = 0; i < depth; i++)
        end += open == '{' ? sprintf(end, "{\"k\":") : sprintf(end, "[");
    end += sprintf(end, "1");
    memset(end, close, depth);
    strcpy(end + depth, "}}");
    send_line(client, line);
    free(line);
    return raw_receive(client);
}

/* F92. The request itself is two deep. */
static void nesting_beyond_32_is_refused_and_the_connection_lives(void)
{
    static const size_t depths[] = {31, 32, 33, 2048, 2049, 100000};
    struct harness *harness = start_tiny(&(struct tiny){0}, "{}");
    int client = raw_connect(harness);
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        json_t *answer = nested_ping(client, depths[i], '[', ']');
        assert_non_null(strstr(text_at(answer, "error.message"), "32"));
        json_decref(answer);
    }
    json_t *answer = nested_ping(client, 30, '[', ']'); /* 32: understood, whatever is said to it */
    assert_null(strstr(text_at(answer, "error.message"), "nest"));
    json_decref(answer);
    check_served(client);
    close(client);
}

/* F91 */
static void ambiguous_json_is_refused_with_a_position_and_the_connection_lives(void)
{
    static const char *const lines[] = {
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"method\":\"stats\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"jobs\",\"params\":{\"job\":\"a\",\"job\":\"b\"}"
        "}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"m\\u0065thod\":\"stats\"}",
        PING " 1",
        PING "{}",
        "\xef\xbb\xbf" PING,
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"p\xffng\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"\\ud800\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\\u0000\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"a\\u0000b\":1}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\" /* why */}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"pi",
        "nonsense",
    };
    struct harness *harness = start_tiny(&(struct tiny){0}, "{}");
    int client = raw_connect(harness);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        send_line(client, lines[i]);
        json_t *answer = raw_receive(client);
        if (strcmp(text_at(answer, "error.data.code"), "parse_error") != 0)
            fail_msg("%s: %s", lines[i], text_at(answer, "error.data.code"));
        assert_int_equal(number_at(answer, "error.code"), -32700);
        json_decref(answer);
    }
    check_served(client);
    close(client);
}

static void what_is_no_request_is_refused_with_the_reason(void)
{
    static const struct {
        const char *line, *word, *names;
    } cases[] = {
        {"{}", "invalid_request", "jsonrpc"},
        {"{\"jsonrpc\":\"1.0\",\"id\":7,\"method\":\"ping\"}", "invalid_request", "2.0"},
        {"{\"jsonrpc\":\"2.0\",\"id\":7}", "invalid_request", "method"},
        {"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":5}", "invalid_request", "method"},
        {"{\"jsonrpc\":\"2.0\",\"id\":[],\"method\":\"ping\"}", "invalid_request", "id"},
        {"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"pong\"}", "unknown_method", "sweep"},
        {"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"jobs\",\"params\":[1]}", "invalid_request",
            "params"},
        {"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"jobs\",\"params\":{\"jop\":1}}",
            "invalid_request", "jop"},
        {"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"sweep\"}", "invalid_request", "kernel"},
        {"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"sweep\",\"params\":{\"kernel\":\"no\"}}",
            "not_found", "no"},
        {"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"records\",\"params\":{\"outcome\":\"bad\"}}",
            "invalid_request", "bad"},
        {"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"get\",\"params\":{\"kernel\":\"tiny\"}}",
            "invalid_request", "shape"},
        {"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"get\",\"params\":{\"kernel\":\"tiny\","
         "\"shape\":"
         "{\"M\":1}}}",
            "invalid_request", "M"},
        {"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"get\",\"params\":{\"kernel\":\"tiny\","
         "\"shape\":"
         "{\"N\":1},\"policy\":\"guess\"}}",
            "invalid_request", "cached"},
    };
    struct harness *harness = start_tiny(&(struct tiny){0}, "{}");
    int client = raw_connect(harness);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        send_line(client, cases[i].line);
        json_t *answer = raw_receive(client);
        if (strcmp(text_at(answer, "error.data.code"), cases[i].word) != 0 ||
            strstr(text_at(answer, "error.message"), cases[i].names) == NULL)
            fail_msg("%s: %s: %s", cases[i].line, text_at(answer, "error.data.code"),
                text_at(answer, "error.message"));
        json_decref(answer);
    }
    static const char *const values[] = {"[]", "1", "\"ping\"", "null"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        send_line(client, values[i]);
        json_t *answer = raw_receive(client);
        assert_true(json_is_object(at(answer, "error")));
        json_decref(answer);
    }
    send_line(client, "{\"jsonrpc\":\"2.0\",\"method\":\"ping\"}"); /* a notification: no answer */
    check_served(client);
    close(client);
}

/* F93: exact, or refused with the field's name. */
static void numbers_are_exact_or_refused_with_the_fields_name(void)
{
    static const struct {
        const char *name, *before, *after;
    } fields[] = {{"seed", "\"seed\":", ""}, {"evals", "\"budget\":{\"evals\":", "}"},
        {"deadline_ms", "\"deadline_ms\":", ""}, {"N", "\"shapes\":[{\"N\":", "}]"}};
    static const char *const values[] = {
        "1.0", "1e3", "\"1\"", "true", "-1", "1e999", "NaN", "9223372036854775808", "[]", "{}"};
    struct harness *harness = start_tiny(&(struct tiny){0}, "{}");
    int client = raw_connect(harness);
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < sizeof values / sizeof values[0]; j++) {
            char line[300];
            snprintf(line, sizeof line,
                "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"sweep\",\"params\":{\"kernel\":"
                "\"tiny\","
                "%s%s%s}}",
                fields[i].before, values[j], fields[i].after);
            send_line(client, line);
            json_t *answer = raw_receive(client);
            bool is_parse = strcmp(text_at(answer, "error.data.code"), "parse_error") == 0;
            if (!json_is_object(at(answer, "error")) ||
                (!is_parse && strstr(text_at(answer, "error.message"), fields[i].name) == NULL))
                fail_msg("%s: %s", line, text_at(answer, "error.message"));
            json_decref(answer);
        }
    /* Beyond a double's 53 bits, and kept. */
    send_line(client,
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"sweep\",\"params\":{\"kernel\":\"tiny\","
        "\"seed\":9007199254740993}}");
    json_decref(raw_receive(client));
    json_t *jobs = ask(harness, "jobs", NULL);
    const json_t *seed = at(json_array_get(jobs, 0), "request.seed");
    assert_true(json_integer_value(seed) == 9007199254740993);
    json_decref(jobs);
    close(client);
}

static void random_bytes_in_requests_never_end_the_daemon(void)
{
    static const char *const seeds[] = {PING,
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"get\",\"params\":{\"kernel\":\"tiny\","
        "\"shape\":{\"N\":64},"
        "\"policy\":\"nearest\",\"arch\":\"sm_90\"}}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"records\",\"params\":{\"kernel\":\"tiny\","
        "\"limit\":5}}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"watch\",\"params\":{\"job\":\"j\"}}"};
    struct harness *harness = start_tiny(&(struct tiny){0}, "{}");
    uint64_t random = test_seed();
    for (int i = 0; i < 1500; i++) {
        char line[512];
        snprintf(line, sizeof line, "%s", seeds[next_random(&random) % 4]);
        size_t length = strlen(line);
        for (uint64_t changes = next_random(&random) % 4 + 1; changes > 0; changes--)
            line[next_random(&random) % length] = (char)next_random(&random);
        int client = raw_connect(harness);
        raw_send(client, line, length);
        raw_send(client, "\n", 1);
        close(client);
    }
    json_decref(ask(harness, "ping", NULL));
}

/* --- how many --------------------------------------------------------------------------------- */

static void the_1025th_client_is_told_busy_and_the_others_are_served(void)
{
    struct harness *harness = start_tiny(&(struct tiny){0}, "{}");
    static int clients[1024];
    for (int i = 0; i < 1023; i++) { /* and the harness's own */
        clients[i] = raw_connect(harness);
        check_served(clients[i]);
    }
    clients[1023] = raw_connect(harness);
    json_t *answer = raw_receive(clients[1023]);
    assert_string_equal(text_at(answer, "error.data.code"), "busy");
    assert_non_null(strstr(text_at(answer, "error.message"), "1024"));
    json_decref(answer);
    check_served(clients[1022]);
    for (int i = 0; i < 1024; i++)
        close(clients[i]);
}

static long resident_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    fclose(file);
    return kib;
}

static void a_client_that_does_not_read_is_dropped_at_16_mebibytes(void)
{
    static const char request[] =
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"describe\",\"params\":{\"kernel\":"
        "\"gemm\"}}\n";
    struct harness *harness = start_tiny(&(struct tiny){0}, "{}");
    long before_kib = resident_kib(harness->daemon);
    int client = raw_connect(harness);
    bool is_dropped = false;
    for (int i = 0; i < 200000 && !is_dropped; i++)
        is_dropped = send(client, request, sizeof request - 1, MSG_NOSIGNAL) < 0;
    assert_true(is_dropped);
    close(client);
    assert_true(resident_kib(harness->daemon) - before_kib < ALLOWED_GROWTH_KIB);
    assert_true(harness_log_has(harness, "16777216") || harness_log_has(harness, "does not read"));
    json_decref(ask(harness, "ping", NULL));
}

static void the_65th_request_under_way_of_a_connection_is_refused(void)
{
    static const char request[] =
        "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"get\",\"params\":{\"kernel\":"
        "\"tiny\",\"shape\":{\"N\":64},\"policy\":\"wait\"}}";
    struct harness *harness = start_tiny(&(struct tiny){.tags = 20}, SLOW_LOADS);
    int client = raw_connect(harness);
    for (int i = 0; i < 65; i++)
        send_line(client, request);
    json_t *answer = raw_receive(client); /* the others wait */
    assert_string_equal(text_at(answer, "error.data.code"), "busy");
    assert_non_null(strstr(text_at(answer, "error.message"), "64"));
    json_decref(answer);
    close(client);
}

static void the_257th_sweep_is_refused_and_256_of_them_stop_cleanly(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 64}, SLOW_LOADS);
    for (int i = 0; i < 256; i++)
        sweep(harness, sweep_params("tiny"));
    const char *sentence = ask_fail(harness, "sweep", sweep_params("tiny"), TUNE_ELIMIT);
    assert_non_null(strstr(sentence, "256"));
    json_t *jobs = ask(harness, "jobs", NULL);
    assert_int_equal(json_array_size(jobs), 256);
    json_decref(jobs);
}

static void a_sweep_of_257_shapes_is_refused_with_the_limit(void)
{
    struct harness *harness = start_tiny(&(struct tiny){0}, "{}");
    json_t *params = sweep_params("tiny"), *shapes = json_array();
    for (int n = 1; n <= 257; n++)
        json_array_append_new(shapes, json_pack("{s:i}", "N", n));
    json_object_set_new(params, "shapes", shapes);
    assert_non_null(strstr(ask_fail(harness, "sweep", params, TUNE_ELIMIT), "256"));
}

static void a_space_beyond_the_limit_is_refused_with_the_number(void)
{
    struct harness *harness = harness_new();
    char params[8192] = "", *end = params;
    char defaults[256] = "", *more = defaults;
    for (int p = 0; p < 4; p++) {
        end += sprintf(end, ", {\"name\": \"P%d\", \"meaning\": \"nothing\", \"values\": [", p);
        for (int v = 0; v < 60; v++)
            end += sprintf(end, "%s%d", v ? "," : "", v);
        end += sprintf(end, "]}");
        more += sprintf(more, ", \"P%d\": 0", p);
    }
    write_tiny(harness, &(struct tiny){.params = params, .defaults = defaults});
    harness_start(harness);
    json_t *job = wait_job(harness, sweep(harness, sweep_params("tiny")));
    assert_string_equal(text_at(job, "state"), "failed");
    assert_string_equal(text_at(job, "code"), "limit");
    assert_non_null(strpbrk(text_at(job, "error"), "0123456789"));
    json_decref(job);
}

/* --- how long and how much -------------------------------------------------------------------- */

static void a_compile_that_does_not_end_is_ended_at_its_deadline(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){0});
    harness_scenario(harness, "{\"rules\": [{\"call\": \"nvrtcCompileProgram\", \"when\": "
                              "{\"defines\": {\"TAG\": 2}}, \"do\": "
                              "\"hang\"}]}");
    harness->args[0] = "--compile-deadline";
    harness->args[1] = "2";
    harness_start(harness);
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(count_of(result, "ok"), 3);
    assert_string_equal(text_at(row_of(rows, 2), "outcome"), "compile_failed");
    assert_non_null(strstr(text_at(row_of(rows, 2), "detail"), "deadline"));
    json_decref(rows);
    json_decref(result);
}

static void a_compile_that_eats_memory_is_ended_at_its_limit(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness,
        &(struct tiny){.top = "#if TAG == 2\n__device__ char big[60 << 20] = { 1 };\n#endif",
            .body = "if (TAG == 2 && n < -7) y[0] = 3;"});
    harness->args[0] = "--compile-memory";
    harness->args[1] = "100";
    harness_start(harness);
    json_t *result = sweep_result(harness, sweep_params("tiny"));
    json_t *rows = records_of(harness, NULL);
    assert_int_equal(count_of(result, "ok"), 3);
    assert_string_equal(text_at(row_of(rows, 2), "outcome"), "compile_failed");
    if (strstr(text_at(row_of(rows, 2), "detail"), "memory") == NULL)
        fail_msg("%s", text_at(row_of(rows, 2), "detail"));
    json_decref(rows);
    json_decref(result);
}

static void a_compile_log_is_cut_at_64_kibibytes(void)
{
    struct harness *harness = harness_new();
    size_t room = 3000 * 64;
    char *top = malloc(room), *end = top;
    end += sprintf(end, "#if TAG == 2\n");
    for (int i = 0; i < 2000; i++)
        end += sprintf(end, "#error planted %d, and some more words\n", i);
    sprintf(end, "#endif");
    write_tiny(harness, &(struct tiny){.top = top});
    free(top);
    harness_start(harness);
    json_decref(sweep_result(harness, sweep_params("tiny")));
    json_t *rows =
        ask(harness, "records", json_pack("{s:s, s:b}", "outcome", "compile_failed", "log", 1));
    assert_int_equal(json_array_size(rows), 1);
    const char *log = text_at(json_array_get(rows, 0), "log");
    assert_in_range(strlen(log), 32000, 65536);
    assert_non_null(strstr(log, "planted 0,"));
    assert_non_null(strstr(text_at(json_array_get(rows, 0), "detail"), "planted 0"));
    json_decref(rows);
}

static void a_kernel_that_does_not_end_is_ended_at_its_deadline(void)
{
    struct harness *harness = start_tiny(
        &(struct tiny){.body = "while (TAG == 2 && *(volatile float *)&y[0] > -1e30f) ;"}, "{}");
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "deadline_ms", json_integer(300));
    uint64_t start_ms = now_ms();
    json_t *result = sweep_result(harness, params);
    assert_int_equal(count_of(result, "ok"), 3);
    assert_int_equal(count_of(result, "timeout"), 1);
    assert_true(now_ms() - start_ms < LIMIT_MS);
    json_decref(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(a_request_of_a_mebibyte_is_read_and_a_longer_one_ends_the_connection),
        HARNESS_TEST(nesting_beyond_32_is_refused_and_the_connection_lives),
        HARNESS_TEST(ambiguous_json_is_refused_with_a_position_and_the_connection_lives),
        HARNESS_TEST(what_is_no_request_is_refused_with_the_reason),
        HARNESS_TEST(numbers_are_exact_or_refused_with_the_fields_name),
        HARNESS_TEST(random_bytes_in_requests_never_end_the_daemon),
        HARNESS_TEST(the_1025th_client_is_told_busy_and_the_others_are_served),
        HARNESS_TEST(a_client_that_does_not_read_is_dropped_at_16_mebibytes),
        HARNESS_TEST(the_65th_request_under_way_of_a_connection_is_refused),
        HARNESS_TEST(the_257th_sweep_is_refused_and_256_of_them_stop_cleanly),
        HARNESS_TEST(a_sweep_of_257_shapes_is_refused_with_the_limit),
        HARNESS_TEST(a_space_beyond_the_limit_is_refused_with_the_number),
        HARNESS_TEST(a_compile_that_does_not_end_is_ended_at_its_deadline),
        HARNESS_TEST(a_compile_that_eats_memory_is_ended_at_its_limit),
        HARNESS_TEST(a_compile_log_is_cut_at_64_kibibytes),
        HARNESS_TEST(a_kernel_that_does_not_end_is_ended_at_its_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
