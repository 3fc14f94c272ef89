/* Records that come from elsewhere and go elsewhere: what is taken, what is refused and why, that a
 * file comes in as a whole or not at all, and that two machines come to hold the same. */
#include "exchange_support.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct harness *start(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, "{}");
    use_fingerprint_of(harness);
    return harness;
}

/* `get` for an H200 at N = n, which is not attached. New. */
static json_t *get(struct harness *harness, const char *arch, int n)
{
    return ask(harness, "get",
        json_pack("{s:s, s:{s:i}, s:s}", "kernel", "tiny", "shape", "N", n, "arch", arch));
}

static void assert_served(
    struct harness *harness, const char *arch, int n, const char *origin, int tag)
{
    json_t *answer = get(harness, arch, n);
    if (strcmp(text_at(answer, "origin"), origin) != 0)
        fail_msg("N=%d on %s is %s, not %s", n, arch, text_at(answer, "origin"), origin);
    assert_int_equal(number_at(answer, "config.TAG"), tag);
    json_decref(answer);
}

static size_t samples_in(struct harness *harness)
{
    json_t *stats = ask(harness, "stats", NULL);
    size_t samples = (size_t)number_at(stats, "database.samples");
    json_decref(stats);
    return samples;
}

/* --- validators too strict (F06) -------------------------------------------------------------- */

/* With a header of these bytes: the report of a file with one record, which has another field. */
static json_t *import_with_header(struct harness *harness, const char *header, const char *extra)
{
    struct text text = {0};
    text_line(&text, header);
    add_record(&text, &(struct spec){.extra = extra, .run = extra ? "other/search" : NULL});
    json_t *report = import_text(harness, NULL, text.bytes);
    text_finish(&text);
    return report;
}

static void unknown_fields_are_taken_and_told_once(void)
{
    struct harness *harness = start();
    json_t *report = import_with_header(
        harness, "{\"format\":\"tunerd-records\",\"version\":[1,0],\"made_by\":\"hand\"}", NULL);
    assert_int_equal(count_in(report, "added"), 1);
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(report, "unknown_fields"), 0)), "made_by");
    json_decref(report);
    report = import_with_header(harness, "{\"format\":\"tunerd-records\",\"version\":[1,7]}",
        "{\"joules\":12.5,\"note\":{\"who\":\"me\"}}");
    assert_int_equal(count_in(report, "refused"), 0);
    assert_int_equal(json_array_size(json_object_get(report, "unknown_fields")), 2);
    json_decref(report);
    char *text = export_text(harness, NULL);
    assert_int_equal(count_records(text), 2);
    assert_non_null(strstr(text, "\"joules\":12.5,\"note\":{\"who\":\"me\"}"));
    free(text);
}

static void another_major_version_or_none_is_refused_as_a_whole(void)
{
    struct harness *harness = start();
    struct text text = {0};
    text_line(&text, "{\"format\":\"tunerd-records\",\"version\":[2,0]}");
    add_record(&text, &(struct spec){0});
    const char *sentence = import_fails(harness, text.bytes, TUNE_EVERSION);
    assert_non_null(strstr(sentence, "2"));
    assert_non_null(strstr(sentence, "1"));
    text_finish(&text);
    add_record(&text, &(struct spec){0});
    sentence = import_fails(harness, text.bytes, TUNE_EVERSION);
    assert_non_null(strstr(sentence, "no header"));
    text_finish(&text);
    text_line(&text, "{\"format\":\"tunerd-records\"}");
    add_record(&text, &(struct spec){0});
    import_fails(harness, text.bytes, TUNE_EVERSION);
    text_finish(&text);
    assert_int_equal(samples_in(harness), 0);
}

/* --- empty success (F07) ---------------------------------------------------------------------- */

static void nothing_to_export_is_a_failure_and_leaves_no_file(void)
{
    struct harness *harness = harness_new();
    const char *output, *path = file_in(harness, "out.jsonl");
    write_tiny(harness, &(struct tiny){.body = "if (i < n) y[i] += 1.0f;"}); /* wrong, always */
    harness_start(harness);
    assert_int_equal(TUNECTL(harness, &output, "export", "-o", path), 1);
    assert_non_null(strstr(output, "nothing to export"));
    assert_int_not_equal(TUNECTL(harness, &output, "sweep", "tiny"), 0);
    assert_int_equal(
        TUNECTL(harness, &output, "export", "--kernel", "tiny", "--arch", "cpu", "-o", path), 1);
    assert_non_null(strstr(output, "nothing to export"));
    assert_non_null(strstr(output, "failed"));
    assert_int_equal(access(path, F_OK), -1);
}

/* --- unlike things (F09, F10) ----------------------------------------------------------------- */

static void unlike_keys_are_kept_side_by_side(void)
{
    struct harness *harness = start();
    struct text text = {0};
    add_header(&text);
    add_record(&text, &(struct spec){.n = 64, .config = "TAG=1", .median_ns = 9000});
    add_record(&text, &(struct spec){.n = 96, .config = "TAG=2", .median_ns = 8000});
    add_record(&text, &(struct spec){.config = "TAG=3",
                          .fingerprint = "0123456789abcdef0123456789abcdef",
                          .median_ns = 1000});
    add_record(&text, &(struct spec){.config = "TAG=3,UNROLL=2",
                          .fingerprint = "fedcba9876543210fedcba9876543210",
                          .median_ns = 1000});
    json_t *report = import_text(harness, NULL, text.bytes);
    assert_int_equal(count_in(report, "added"), 4);
    assert_int_equal(count_in(report, "keys"), 4);
    assert_int_equal(count_in(report, "set_aside"), 2);
    assert_int_equal(count_in(report, "refused"), 0);
    json_decref(report);
    report = import_text(harness, NULL, text.bytes);
    assert_int_equal(count_in(report, "added"), 0);
    assert_int_equal(count_in(report, "equal"), 4);
    json_decref(report);
    assert_served(harness, "sm_90", 64, "exact", 1); /* not the other text's faster one */
    assert_served(harness, "sm_90", 96, "exact", 2);
    text_finish(&text);
}

static void records_of_other_kernels_do_not_change_the_fallback(void)
{
    struct harness *harness = start();
    json_t *before = get(harness, "sm_90", 4096);
    struct text text = {0};
    add_header(&text);
    for (int i = 0; i < 50; i++)
        add_record(&text,
            &(struct spec){.kernel = i % 2 ? "other" : "tine", .n = 4096 + i, .config = "TAG=3"});
    json_t *report = import_text(harness, NULL, text.bytes);
    assert_int_equal(count_in(report, "set_aside"), 50);
    json_decref(report);
    json_t *after = get(harness, "sm_90", 4096);
    json_object_del(before, "generation");
    json_object_del(after, "generation");
    assert_true(json_equal(before, after));
    assert_string_equal(text_at(after, "origin"), "default");
    json_decref(before);
    json_decref(after);
    text_finish(&text);
}

/* --- what is refused (F11, F13) --------------------------------------------------------------- */

static void add_five(struct text *text)
{
    /* An empty configuration cannot be formatted: a line as somebody else might write it. */
    static const char *const configs[] = {"TAG=1", "OTHER=1", "TAG=1,UNROLL=2", "TAG=77", "TAG=2"};
    add_header(text);
    for (size_t i = 0; i < 5; i++)
        add_record(text, &(struct spec){.config = configs[i]});
    char *config = strstr(text->bytes, "{\"TAG\":1}");
    memmove(config + 2, config + 8, strlen(config + 8) + 1); /* "{}": the sum does not fit either */
    memcpy(config, "{}", 2);
    text->length = strlen(text->bytes);
}

static void of_five_records_the_good_one_is_taken_and_strict_takes_none(void)
{
    struct harness *harness = start();
    struct text text = {0};
    add_five(&text);
    json_t *report = import_text(harness, json_pack("{s:b}", "strict", 1), text.bytes);
    assert_int_equal(count_in(report, "refused"), 4);
    assert_true(json_is_false(at(report, "stored")));
    json_decref(report);
    assert_int_equal(samples_in(harness), 0);
    report = import_text(harness, NULL, text.bytes);
    assert_int_equal(count_in(report, "rows"), 5);
    assert_int_equal(count_in(report, "refused"), 4);
    assert_int_equal(count_in(report, "added"), 1);
    assert_true(is_refused(report, 2, ""));
    assert_true(is_refused(report, 3, "no param \"OTHER\""));
    assert_true(is_refused(report, 4, "no param \"UNROLL\""));
    assert_true(is_refused(report, 5, "TAG"));
    json_decref(report);
    assert_served(harness, "sm_90", 64, "exact", 2);
    text_finish(&text);
}

static void a_block_beyond_the_space_is_refused(void)
{
    struct harness *harness = harness_new();
    const char *output, *path = file_in(harness, "in.jsonl");
    write_tiny(harness,
        &(struct tiny){
            .params = ", {\"name\": \"BLOCK\", \"meaning\": \"threads\", \"values\": [512, 1024, "
                      "2048]}",
            .defaults = ", \"BLOCK\": 512",
            .constraints = "{\"expr\": \"BLOCK <= 1024\", \"message\": \"a block has 1024 threads "
                           "at most\"}"});
    harness_start(harness);
    use_fingerprint_of(harness);
    struct text text = {0};
    add_header(&text);
    add_record(&text, &(struct spec){.config = "TAG=1,BLOCK=2048"});
    add_record(&text, &(struct spec){.config = "TAG=1,BLOCK=4096"});
    write_file(path, text.bytes, text.length);
    assert_int_equal(TUNECTL(harness, &output, "import", path), 1);
    assert_non_null(strstr(output, "line 2: tiny: a block has 1024 threads at most"));
    assert_non_null(strstr(output, "line 3: "));
    assert_non_null(strstr(output, "2 refused"));
    json_t *answer = get(harness, "sm_90", 64);
    assert_string_equal(text_at(answer, "origin"), "default");
    json_decref(answer);
    text_finish(&text);
}

/* What reads the device cannot be judged when a row comes in. */
static void a_row_that_is_not_valid_here_does_not_hide_the_good_one(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness,
        &(struct tiny){.constraints = "{\"expr\": \"TAG < 3 || max_threads < 1\", \"message\": "
                                      "\"that many do not fit\"}"});
    harness_start(harness);
    use_fingerprint_of(harness);
    struct text text = {0};
    add_header(&text);
    add_record(
        &text, &(struct spec){
                   .config = "TAG=1", .run = "1/confirm", .median_ns = 9000, .is_confirmed = true});
    add_record(&text, &(struct spec){.config = "TAG=2", .median_ns = 9500, .is_confirmed = true});
    add_record(
        &text, &(struct spec){
                   .config = "TAG=3", .run = "2/confirm", .median_ns = 1000, .is_confirmed = true});
    json_decref(import_text(harness, NULL, text.bytes));
    assert_served(harness, "sm_90", 64, "exact", 1);
    json_decref(ask(harness, "refuse", json_pack("{s:s}", "run", "1/confirm")));
    assert_served(harness, "sm_90", 64, "exact", 2); /* though the best row is the same */
    json_t *answer = ask(harness, "get",
        json_pack("{s:s, s:{s:i}, s:s, s:s}", "kernel", "tiny", "shape", "N", 64, "arch", "sm_90",
            "policy", "cached"));
    assert_string_equal(text_at(answer, "origin"), "exact");
    assert_int_equal(number_at(answer, "config.TAG"), 2);
    json_decref(answer);
    text_finish(&text);
}

static void a_failed_import_says_so_whatever_the_file_is_called(void)
{
    static const char newer[] = "{\"format\":\"tunerd-records\",\"version\":[9,0]}\n";
    struct harness *harness = start();
    const char *output, *path = file_in(harness, "in\xFF.jsonl");
    write_file(path, newer, strlen(newer));
    assert_int_equal(TUNECTL(harness, &output, "import", path), 1);
    assert_non_null(strstr(output, "in?.jsonl: nothing is imported"));
    assert_int_equal(TUNECTL(harness, &output, "import", "--json", path), 1);
    assert_non_null(strstr(output, "\"version\""));
    assert_int_equal(TUNECTL(harness, &output, "import", file_in(harness, "none\xFF")), 1);
    assert_non_null(strstr(output, "cannot open"));
}

/* What others say is wrong comes back cut: an answer is for people to read. */
static void a_long_reason_is_cut(void)
{
    struct harness *harness = start();
    char *reason = malloc(100001);
    memset(reason, 'x', 100000);
    reason[100000] = '\0';
    json_t *answer = ask(harness, "import", json_pack("{s:{}}", "begin"));
    json_int_t import = json_integer_value(json_object_get(answer, "import"));
    json_decref(answer);
    json_decref(ask(harness, "import",
        json_pack("{s:I, s:s, s:i, s:[{s:i, s:s}]}", "import", import, "lines",
            "{\"format\":\"tunerd-records\",\"version\":[1,0]}", "first_line", 1, "refused", "line",
            2, "reason", reason)));
    json_t *report = ask(harness, "import", json_pack("{s:I, s:b}", "import", import, "end", 1));
    assert_int_equal(count_in(report, "refused"), 1);
    assert_true(is_refused(report, 2, "xxx"));
    assert_false(is_refused(report, 2, reason));
    json_decref(report);
    free(reason);
}

static void ambiguous_lines_are_refused_with_a_position(void)
{
    static const char *const lines[] = {
        "{\"kernel\":\"tiny\",\"kernel\":\"other\"}",
        "{\"shape\":{\"N\":1,\"N\":2}}",
        "{\"kernel\":\"tiny\",\"k\\u0065rnel\":\"other\"}",
        "{} {}",
        "\xEF\xBB\xBF{}",
        "{\"kernel\":\"\\ud800\"}",
        "{\"kernel\":\"a\\u0000b\"}",
        "{\"a\\u0000b\":1}",
        "/* no */ {}",
        "{}",
        "[]",
        "1",
        "{\"kernel\":NaN}",
        "nonsense",
    };
    struct harness *harness = start();
    struct text text = {0};
    const size_t count = sizeof lines / sizeof lines[0];
    add_header(&text);
    for (size_t i = 0; i < count; i++)
        text_line(&text, lines[i]);
    text_line(&text, ""); /* counts, and is nothing */
    add_record(&text, &(struct spec){0});
    json_t *report = import_text(harness, NULL, text.bytes);
    assert_int_equal(count_in(report, "refused"), count);
    assert_int_equal(count_in(report, "added"), 1);
    for (size_t i = 0; i < count; i++)
        assert_true(is_refused(report, (int)i + 2, ""));
    assert_true(is_refused(report, 2, "near") || is_refused(report, 2, "column") ||
                is_refused(report, 2, "byte") || is_refused(report, 2, "position"));
    json_decref(report);
    /* The file's own bytes: what cannot go into a request is refused by its line all the same. */
    const char *output, *path = file_in(harness, "in.jsonl");
    text.length -= 1;
    text_add(&text, "\nnot \xFF UTF-8\n\0\n", 16);
    write_file(path, text.bytes, text.length);
    assert_int_equal(TUNECTL(harness, &output, "import", path), 1);
    assert_non_null(strstr(output, "UTF-8"));
    assert_non_null(strstr(output, "NUL"));
    assert_non_null(strstr(output, "1 equal"));
    text_finish(&text);
}

/* --- results from elsewhere (F100) ------------------------------------------------------------ */

static void only_records_of_the_asked_arch_are_exact_and_origins_can_be_taken_out(void)
{
    static const char *const archs[] = {"sm_75", "sm_80", "sm_90", "sm_90a"};
    struct harness *harness = start();
    struct text text = {0};
    add_header(&text);
    for (int i = 0; i < 4; i++)
        add_record(
            &text, &(struct spec){.arch = archs[i],
                       .config = (const char *const[]){"TAG=0", "TAG=1", "TAG=2", "TAG=3"}[i],
                       .median_ns = 10000 - 1000 * i});
    add_record(&text,
        &(struct spec){.host = "liar", .run = "lies/search", .config = "TAG=3", .median_ns = 5000});
    json_t *report = import_text(harness, NULL, text.bytes);
    assert_int_equal(count_in(report, "added") + count_in(report, "refused"), 5);
    assert_true(count_in(report, "added") >= 4);
    json_decref(report);
    assert_served(harness, "sm_80", 64, "exact", 1);
    assert_served(harness, "sm_90", 64, "exact", 3); /* the liar's */
    const char *output;
    assert_int_equal(TUNECTL(harness, &output, "refuse", "--host", "liar", "--dry-run"), 0);
    assert_served(harness, "sm_90", 64, "exact", 3);
    assert_int_equal(TUNECTL(harness, &output, "refuse", "--host", "liar"), 0);
    assert_non_null(strstr(output, "1 records refused"));
    assert_served(harness, "sm_90", 64, "exact", 2);
    assert_served(harness, "sm_86", 64, "transferred", 2);
    report = import_text(harness, NULL, text.bytes); /* they do not come back */
    assert_int_equal(count_in(report, "kept"), 1);
    json_decref(report);
    assert_served(harness, "sm_90", 64, "exact", 2);
    assert_int_equal(TUNECTL(harness, &output, "refuse", "--host", "nobody"), 1);
    assert_int_equal(TUNECTL(harness, &output, "refuse"), 2);
    assert_int_equal(TUNECTL(harness, &output, "refuse", "--before", "tomorrow"), 2);
    assert_int_equal(TUNECTL(harness, &output, "refuse", "--before", "2020-01-01"), 1);
    assert_int_equal(TUNECTL(harness, &output, "refuse", "--run", "20260101-000000-abcd"), 0);
    json_t *answer = get(harness, "sm_90", 64);
    assert_string_equal(text_at(answer, "origin"), "default");
    json_decref(answer);
    text_finish(&text);
}

static void impossible_times_are_refused(void)
{
    struct harness *harness = start();
    struct text text = {0};
    add_header(&text);
    for (int i = 0; i < 20; i++)
        add_record(&text, &(struct spec){.n = 64 + i, .median_ns = 1e-9});
    add_record(&text, &(struct spec){.n = 2000000000, .median_ns = 300}); /* 5e19 bytes/s */
    json_t *report = import_text(harness, NULL, text.bytes);
    assert_int_equal(count_in(report, "refused"), 21);
    assert_int_equal(count_in(report, "added"), 0);
    json_decref(report);
    json_t *answer = get(harness, "sm_90", 64);
    assert_string_equal(text_at(answer, "origin"), "default");
    json_decref(answer);
    text_finish(&text);
}

/* More lines than an import may have, none of them a record. */
static void a_flood_ends_at_the_limit_and_takes_no_memory(void)
{
    struct harness *harness = start();
    json_t *answer = ask(harness, "import", json_pack("{s:{}}", "begin"));
    json_int_t import = json_integer_value(json_object_get(answer, "import"));
    json_decref(answer);
    const size_t lines = 250000;
    char *junk = malloc(2 * lines);
    for (size_t i = 0; i < 2 * lines; i++)
        junk[i] = i % 2 ? '\n' : 'x';
    json_t *params =
        json_pack("{s:I, s:s%, s:i}", "import", import, "lines", junk, 2 * lines, "first_line", 1);
    for (int i = 0; i < 4; i++)
        json_decref(ask(harness, "import", json_incref(params)));
    ask_fail(harness, "import", json_incref(params), TUNE_ELIMIT);
    ask_fail(harness, "import", json_incref(params), TUNE_ENOTFOUND); /* it is gone */
#ifndef E2E_SANITIZED
    assert_in_range(resident_kib(harness), 0, 256 << 10);
#endif
    json_decref(params);
    free(junk);
    json_decref(get(harness, "sm_90", 64));
}

static bool can_begin(void *context)
{
    struct tune_error err = {0};
    int status = tune_request(context, "import", json_pack("{s:{}}", "begin"), NULL, &err);
    return status == 0;
}

static void imports_are_few_and_belong_to_their_connection(void)
{
    struct harness *harness = start();
    struct tune_client *others[4];
    json_t *answer = NULL;
    struct tune_error err = {0};
    for (int i = 0; i < 4; i++) {
        others[i] = connect_more(harness);
        assert_int_equal(tune_request(others[i], "import", json_pack("{s:{}}", "begin"),
                             i ? NULL : &answer, &err),
            0);
    }
    assert_non_null(
        strstr(ask_fail(harness, "import", json_pack("{s:{}}", "begin"), TUNE_EBUSY), "4 imports"));
    json_int_t import = json_integer_value(json_object_get(answer, "import"));
    ask_fail(harness, "import", json_pack("{s:I, s:b}", "import", import, "end", 1),
        TUNE_ENOTFOUND); /* another's */
    assert_int_equal(
        tune_request(others[0], "import", json_pack("{s:{}}", "begin"), NULL, &err), -1);
    assert_int_equal(err.code, TUNE_EBUSY);
    err = (struct tune_error){0};
    assert_int_equal(tune_request(others[0], "import",
                         json_pack("{s:I, s:b}", "import", import, "abort", 1), NULL, &err),
        0);
    json_decref(answer);
    answer = ask(harness, "import", json_pack("{s:{}}", "begin"));
    json_decref(ask(harness, "import",
        json_pack("{s:O, s:b}", "import", json_object_get(answer, "import"), "abort", 1)));
    json_decref(answer);
    for (int round = 0; round < 2; round++) { /* those of clients that leave end with them */
        for (int i = 0; i < 4; i++) {
            tune_disconnect(others[i]);
            others[i] = connect_more(harness);
            wait_for(can_begin, others[i], LIMIT_MS);
        }
    }
    for (int i = 0; i < 4; i++)
        tune_disconnect(others[i]);
}

/* 0: refused as not permitted. In a child, which becomes another user. */
static int ask_as_stranger(const struct harness *harness, const char *method)
{
    char request[200];
    int status, length = snprintf(request, sizeof request,
                    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{}}\n", method);
    pid_t pid = fork();
    if (pid == 0) {
        if (setgid(65534) != 0 || setuid(65534) != 0)
            _exit(9);
        int descriptor = raw_connect(harness);
        raw_send(descriptor, request, (size_t)length);
        json_t *answer = raw_receive(descriptor);
        _exit(strcmp(text_at(answer, "error.data.code"), "not_permitted") != 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void on_a_system_daemon_others_may_not_change_records(void)
{
    struct harness *harness = harness_new();
    if (geteuid() != 0) {
        skip();
        return;
    }
    harness->args[0] = "--system";
    harness_start(harness);
    assert_int_equal(chmod(harness->folder, 0711) | chmod(harness->socket, 0666), 0);
    assert_int_equal(ask_as_stranger(harness, "import"), 0);
    assert_int_equal(ask_as_stranger(harness, "refuse"), 0);
    assert_int_equal(ask_as_stranger(harness, "export"), 1);
    json_decref(ask(harness, "import", json_pack("{s:{}}", "begin")));
}

/* --- all or nothing (F70) --------------------------------------------------------------------- */

static void add_many(struct text *text, int from, int count)
{
    static const char *const configs[] = {"TAG=0", "TAG=1", "TAG=2", "TAG=3"};
    char run[32];
    for (int i = from; i < from + count; i++) {
        snprintf(run, sizeof run, "job-%d/search", i);
        add_record(text, &(struct spec){.n = 32 + i / 4,
                             .config = configs[i % 4],
                             .run = run,
                             .host = i / 100 == 2 ? "gone" : NULL,
                             .median_ns = 5000 + i});
    }
}

static void limit_files(void)
{
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){8 << 20, 8 << 20});
}

static void an_import_that_meets_a_limit_stores_nothing_and_can_be_repeated(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 4});
    harness->before_exec = limit_files;
    harness_start(harness);
    use_fingerprint_of(harness);
    struct text text = {0};
    add_header(&text);
    add_many(&text, 0, 20000);
    /* A write that is cut short: "io" where the limit falls inside of it. */
    assert_non_null(strstr(import_fails(harness, text.bytes, TUNE_OK), "database"));
    assert_int_equal(samples_in(harness), 0);
    struct text small = {0};
    add_header(&small);
    add_many(&small, 0, 100); /* it goes on */
    json_t *report = import_text(harness, NULL, small.bytes);
    assert_int_equal(count_in(report, "added"), 100);
    json_decref(report);
    harness_stop(harness);
    harness->before_exec = NULL;
    harness_start(harness);
    report = import_text(harness, NULL, text.bytes);
    assert_int_equal(count_in(report, "added"), 19900);
    assert_int_equal(count_in(report, "equal"), 100);
    assert_int_equal(count_in(report, "keys"), 5000);
    json_decref(report);
    assert_int_equal(samples_in(harness), 20000);
    text_finish(&text);
    text_finish(&small);
}

static bool has_no_clients_but_ours(void *context)
{
    json_t *stats = ask(context, "stats", NULL);
    bool is_alone = number_at(stats, "clients") == 1;
    json_decref(stats);
    return is_alone;
}

static void an_importer_that_dies_half_way_leaves_nothing(void)
{
    struct harness *harness = start();
    struct tune_client *other = connect_more(harness);
    struct text text = {0};
    struct tune_error err = {0};
    json_t *answer = NULL;
    add_header(&text);
    add_many(&text, 0, 500);
    assert_int_equal(tune_request(other, "import", json_pack("{s:{}}", "begin"), &answer, &err), 0);
    assert_int_equal(tune_request(other, "import",
                         json_pack("{s:O, s:s, s:i}", "import", json_object_get(answer, "import"),
                             "lines", text.bytes, "first_line", 1),
                         NULL, &err),
        0);
    json_decref(answer);
    tune_disconnect(other);
    wait_for(has_no_clients_but_ours, harness, LIMIT_MS);
    assert_int_equal(samples_in(harness), 0);
    json_t *report = import_text(harness, NULL, text.bytes);
    assert_int_equal(count_in(report, "added"), 500);
    json_decref(report);
    text_finish(&text);
}

/* --- out and in again (F23) ------------------------------------------------------------------- */

static void an_export_comes_back_byte_for_byte_and_all_goes_on(void)
{
    struct harness *first = start(), *second = harness_new();
    struct text text = {0};
    const char *output, *a = file_in(first, "a.jsonl"), *b = file_in(first, "b.jsonl.zst");
    add_header(&text);
    add_many(&text, 0, 10000);
    write_file(a, text.bytes, text.length);
    assert_int_equal(TUNECTL(first, &output, "import", a, "--strict"), 0);
    assert_int_equal(TUNECTL(first, &output, "export", "-o", a), 0);
    assert_int_equal(TUNECTL(first, &output, "export", "-o", b), 0);
    write_tiny(second, &(struct tiny){.tags = 4});
    harness_start(second);
    assert_int_equal(TUNECTL(second, &output, "import", b), 0);
    assert_non_null(strstr(output, "10000 added"));
    const char *again = file_in(second, "again.jsonl");
    assert_int_equal(TUNECTL(second, &output, "export", "-o", again), 0);
    char *before = read_file(a), *after = read_file(again);
    assert_int_equal(count_records(before), 10000);
    assert_string_equal(before, after);
    free(before);
    free(after);
    /* Store, replace and take out 100 each. */
    text_finish(&text);
    add_header(&text);
    add_many(&text, 10000, 100);
    for (int i = 0; i < 100; i++) {
        char run[32];
        snprintf(run, sizeof run, "job-%d/search", i);
        add_record(
            &text, &(struct spec){.n = 32 + i / 4,
                       .config = (const char *const[]){"TAG=0", "TAG=1", "TAG=2", "TAG=3"}[i % 4],
                       .run = run,
                       .median_ns = 4000 + i,
                       .attempts = 2});
    }
    json_t *report = import_text(second, NULL, text.bytes);
    assert_int_equal(count_in(report, "added"), 100);
    assert_int_equal(count_in(report, "replaced"), 100);
    json_decref(report);
    report = ask(second, "refuse", json_pack("{s:s}", "host", "gone"));
    assert_int_equal(count_in(report, "refused"), 100);
    json_decref(report);
    assert_served(second, "sm_90", 32, "exact", 0);
    assert_int_equal(samples_in(second), 10100);
    text_finish(&text);
}

static void only_the_best_derive_the_same_best(void)
{
    struct harness *first = start(), *second = harness_new();
    struct text text = {0};
    const char *output, *path = file_in(first, "best.jsonl");
    add_header(&text);
    add_many(&text, 0, 400);
    json_decref(import_text(first, NULL, text.bytes));
    assert_int_equal(TUNECTL(first, &output, "export", "--best", "--anonymous", "-o", path), 0);
    char *best = read_file(path);
    assert_null(strstr(best, "\"host\""));
    assert_in_range(count_records(best), 100, 200);
    write_tiny(second, &(struct tiny){.tags = 4});
    harness_start(second);
    assert_int_equal(TUNECTL(second, &output, "import", path, "--strict"), 0);
    for (int n = 32; n < 132; n += 33) {
        json_t *here = get(first, "sm_90", n), *there = get(second, "sm_90", n);
        json_object_del(here, "generation");
        json_object_del(there, "generation");
        assert_true(json_equal(here, there));
        assert_string_equal(text_at(here, "origin"), "exact");
        json_decref(here);
        json_decref(there);
    }
    free(best);
    text_finish(&text);
}

static void two_machines_that_exchange_hold_the_same(void)
{
    struct harness *harnesses[2] = {start(), harness_new()};
    write_tiny(harnesses[1], &(struct tiny){.tags = 4});
    harness_start(harnesses[1]);
    struct text text = {0};
    for (int i = 0; i < 2; i++) {
        text_finish(&text);
        add_header(&text);
        add_many(&text, 150 * i, 200); /* 50 in common */
        json_decref(import_text(harnesses[i], NULL, text.bytes));
        tune_shape(harnesses[i], 64);
    }
    json_decref(ask(harnesses[0], "refuse", json_pack("{s:s}", "run", "job-160")));
    char *texts[2];
    for (int i = 0; i < 2; i++)
        texts[i] = export_text(harnesses[i], NULL);
    assert_string_not_equal(texts[0], texts[1]);
    for (int i = 0; i < 2; i++) {
        json_decref(import_text(harnesses[i], NULL, texts[1 - i]));
        char *emulated = export_text(harnesses[1 - i], "cpu");
        json_decref(import_text(harnesses[i], NULL, emulated));
        free(emulated);
    }
    static const char *const archs[] = {NULL, "cpu"};
    for (int j = 0; j < 2; j++) {
        char *a = export_text(harnesses[0], archs[j]), *b = export_text(harnesses[1], archs[j]);
        assert_string_equal(a, b);
        free(a);
        free(b);
    }
    assert_int_equal(samples_in(harnesses[0]), samples_in(harnesses[1]));
    free(texts[0]);
    free(texts[1]);
    text_finish(&text);
}

/* What is sent in parts to the daemon has its own line numbers, conflict marks of git included. */
static void a_file_is_reported_by_its_own_lines(void)
{
    struct harness *harness = start();
    struct text text = {0};
    const char *output, *path = file_in(harness, "in.jsonl");
    add_header(&text);
    text_line(&text, "<<<<<<< HEAD");
    add_many(&text, 0, 1500);
    for (int i = 0; i < 3000; i++)
        text_line(&text, "");
    text_line(&text, "=======");
    text_line(&text, "nonsense");
    add_many(&text, 1500, 1500);
    write_file(path, text.bytes, text.length);
    assert_int_equal(TUNECTL(harness, &output, "import", path, "--dry-run"), 1);
    assert_non_null(strstr(output, "line 2: "));
    assert_non_null(strstr(output, "line 4503: "));
    assert_non_null(strstr(output, "line 4504: "));
    assert_non_null(strstr(output, "3000 added"));
    assert_non_null(strstr(output, "3 refused"));
    assert_int_equal(samples_in(harness), 0);
    assert_int_equal(TUNECTL(harness, &output, "import", "/nowhere/at/all", path), 1);
    assert_non_null(strstr(output, "/nowhere/at/all"));
    assert_int_equal(samples_in(harness), 3000);
    text_finish(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(unknown_fields_are_taken_and_told_once),
        HARNESS_TEST(another_major_version_or_none_is_refused_as_a_whole),
        HARNESS_TEST(nothing_to_export_is_a_failure_and_leaves_no_file),
        HARNESS_TEST(unlike_keys_are_kept_side_by_side),
        HARNESS_TEST(records_of_other_kernels_do_not_change_the_fallback),
        HARNESS_TEST(of_five_records_the_good_one_is_taken_and_strict_takes_none),
        HARNESS_TEST(a_block_beyond_the_space_is_refused),
        HARNESS_TEST(a_row_that_is_not_valid_here_does_not_hide_the_good_one),
        HARNESS_TEST(a_failed_import_says_so_whatever_the_file_is_called),
        HARNESS_TEST(a_long_reason_is_cut),
        HARNESS_TEST(ambiguous_lines_are_refused_with_a_position),
        HARNESS_TEST(only_records_of_the_asked_arch_are_exact_and_origins_can_be_taken_out),
        HARNESS_TEST(impossible_times_are_refused),
        HARNESS_TEST(a_flood_ends_at_the_limit_and_takes_no_memory),
        HARNESS_TEST(on_a_system_daemon_others_may_not_change_records),
        HARNESS_TEST(imports_are_few_and_belong_to_their_connection),
        HARNESS_TEST(an_import_that_meets_a_limit_stores_nothing_and_can_be_repeated),
        HARNESS_TEST(an_importer_that_dies_half_way_leaves_nothing),
        HARNESS_TEST(an_export_comes_back_byte_for_byte_and_all_goes_on),
        HARNESS_TEST(only_the_best_derive_the_same_best),
        HARNESS_TEST(two_machines_that_exchange_hold_the_same),
        HARNESS_TEST(a_file_is_reported_by_its_own_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
