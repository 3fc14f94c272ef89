/* Exports that were damaged on their way (T07): 2,000 of them into one running daemon, each
 * followed by questions. It must live, answer, stay small, and hold nothing but valid records.
 * E2E_SEED repeats a run; an input that ended the daemon is left in the build folder. */
#include "exchange_support.h"

#include <unistd.h>

#define EXPORTS 2000
#define RECORDS 12

static uint64_t seed, state;

static size_t dice(size_t sides)
{
    return (size_t)(next_random(&state) % sides);
}

/* --- a sound export --------------------------------------------------------------------------- */

static void make_export(struct text *text)
{
    static const char *const configs[] = {"TAG=0", "TAG=1", "TAG=2", "TAG=3"};
    static const char *const archs[] = {"sm_80", "sm_90", "cpu"};
    char run[32];
    text_finish(text);
    add_header(text);
    for (size_t i = 0; i < RECORDS; i++) {
        snprintf(run, sizeof run, "job-%zu/search", dice(40));
        add_record(text, &(struct spec){.n = 32 * (int)(1 + dice(4)),
                             .config = configs[dice(4)],
                             .arch = archs[dice(3)],
                             .run = run,
                             .outcome = dice(5) == 0 ? OUTCOME_TIMEOUT : OUTCOME_OK,
                             .attempts = 1 + (uint32_t)dice(2),
                             .median_ns = 1000 + (double)dice(5000),
                             .is_confirmed = dice(2) != 0,
                             .extra = dice(4) == 0 ? "{\"later\":[1,{\"x\":null}]}" : NULL});
    }
}

/* --- damage ----------------------------------------------------------------------------------- */

/* Where line `index` begins, and how long it is with its end. */
static size_t find_line(const struct text *text, size_t index, size_t *length)
{
    const char *at = text->bytes, *end = text->bytes + text->length;
    while (index-- > 0)
        at = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
    *length = (size_t)((const char *)memchr(at, '\n', (size_t)(end - at)) + 1 - at);
    return (size_t)(at - text->bytes);
}

static void splice(struct text *text, size_t at, size_t taken, const char *bytes, size_t count)
{
    struct text result = {0};
    text_add(&result, text->bytes, at);
    text_add(&result, bytes, count);
    text_add(&result, text->bytes + at + taken, text->length - at - taken);
    text_finish(text);
    *text = result;
}

static void flip_bits(struct text *text)
{
    for (size_t i = 0; i <= dice(4); i++)
        text->bytes[dice(text->length)] ^= (char)(1 << dice(8));
}

static void cut(struct text *text)
{
    size_t at = dice(text->length);
    splice(text, at, dice(2) ? text->length - at : dice(text->length - at), "", 0);
}

static void swap_lines(struct text *text)
{
    size_t length, from = find_line(text, dice(RECORDS + 1), &length);
    char *line = strndup(text->bytes + from, length);
    splice(text, from, length, "", 0);
    size_t ignored, to = find_line(text, dice(RECORDS), &ignored);
    splice(text, to, 0, line, length);
    free(line);
}

static void double_line(struct text *text)
{
    size_t length, from = find_line(text, dice(RECORDS + 1), &length);
    char *line = strndup(text->bytes + from, length);
    splice(text, from, 0, line, length);
    free(line);
}

/* A field of one record, name and value, in the place of one of another. */
static void take_field_from_another(struct text *text)
{
    size_t fields[2][2];
    for (int i = 0; i < 2; i++) {
        size_t length, from = find_line(text, 1 + dice(RECORDS), &length);
        size_t at = from + 1 + dice(length - 20);
        while (at > from + 1 && !(text->bytes[at] == '"' && text->bytes[at - 1] == ','))
            at--;
        fields[i][0] = at;
        fields[i][1] = strcspn(text->bytes + at, ",}\n");
    }
    char *field = strndup(text->bytes + fields[1][0], fields[1][1]);
    splice(text, fields[0][0], fields[0][1], field, strlen(field));
    free(field);
}

static void put_a_huge_number(struct text *text)
{
    static const char *const numbers[] = {"18446744073709551616", "9007199254740993", "1e999", "-1",
        "1e-320", "4294967296", "0.1", "null", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "\"\"", "{}",
        "-0", "NaN", "true"};
    size_t at = dice(text->length);
    while (at > 0 && text->bytes[at] != ':')
        at--;
    const char *number = numbers[dice(sizeof numbers / sizeof numbers[0])];
    if (at > 0)
        splice(text, at + 1, strcspn(text->bytes + at + 1, ",}\n"), number, strlen(number));
}

/* Changed by somebody who knows the form: the sum fits, so that what it guards is judged. */
static void sum_anew(struct text *text)
{
    size_t length, from = find_line(text, 1 + dice(RECORDS), &length);
    char *sum = memmem(text->bytes + from, length, ",\"sum\":", 7), hex[17];
    if (sum == NULL)
        return;
    static const char *const changes[][2] = {{"\"attempts\":1", "\"attempts\":0"},
        {"\"config\":{\"TAG\":1}", "\"config\":{}       "}, {"\"lo\"", "\"hi\""},
        {"\"median_ns\":1", "\"median_ns\":9"}, {"\"TAG\":3", "\"TAG\":8"},
        {"\"N\":64", "\"N\":-4"}, {"sm_90", "sm_00"}, {"\"final\":true", "\"final\":null"},
        {"\"ok\"", "\"oK\""}, {"tiny", "t\\ny"}};
    size_t which = dice(sizeof changes / sizeof changes[0]);
    size_t bytes = (size_t)(sum - (text->bytes + from));
    char *place = memmem(text->bytes + from, bytes, changes[which][0], strlen(changes[which][0]));
    if (place == NULL)
        return;
    memcpy(place, changes[which][1], strlen(changes[which][1]));
    struct tune_error err = {0};
    struct sample sample;
    /* The parser tells the sum that it wants. */
    if (record_line_parse(text->bytes + from, length - 1, &sample, &err) == 0) {
        sample_finish(&sample);
        return;
    }
    const char *wanted = strstr(err.text, "its bytes have \"");
    if (wanted == NULL)
        return;
    snprintf(hex, sizeof hex, "%.16s", wanted + 16);
    memcpy(sum + 8, hex, 16);
}

static void damage(struct text *text)
{
    static void (*const ways[])(struct text * text) = {flip_bits, cut, swap_lines, double_line,
        take_field_from_another, put_a_huge_number, sum_anew};
    /* One way more may follow where the lines are whole. */
    size_t way = dice(sizeof ways / sizeof ways[0]);
    if (dice(3) == 0)
        ways[2 + dice(2)](text);
    ways[way](text);
}

/* --- the daemon ------------------------------------------------------------------------------- */

/* One import with the protocol, as tunectl does it; what cannot stand in a request is left out.
 * false: the daemon does not answer. */
static bool import_damaged(struct harness *harness, const struct text *text, size_t *added)
{
    struct tune_error err = {0};
    json_t *answer = NULL, *report = NULL;
    json_t *lines = json_stringn(text->bytes, text->length);
    if (lines == NULL || memchr(text->bytes, '\0', text->length) != NULL) {
        json_decref(lines);
        struct text plain = {0};
        for (size_t i = 0; i < text->length; i++) {
            unsigned char c = (unsigned char)text->bytes[i];
            text_add(&plain, c == 0 || c >= 0x80 ? "?" : (const char *)&text->bytes[i], 1);
        }
        lines = json_stringn(plain.bytes, plain.length);
        text_finish(&plain);
    }
    if (tune_request(harness->client, "import", json_pack("{s:{}}", "begin"), &answer, &err))
        return false;
    json_t *import = json_object_get(answer, "import");
    int status = tune_request(harness->client, "import",
        json_pack("{s:O, s:o, s:i}", "import", import, "lines", lines, "first_line", 1), NULL,
        &err);
    if (status == 0)
        status = tune_request(harness->client, "import",
            json_pack("{s:O, s:b}", "import", import, "end", 1), &report, &err);
    json_decref(answer);
    if (status == 0)
        *added += count_in(report, "added");
    json_decref(report);
    return status == 0 || (err.code != TUNE_EIO && err.code != TUNE_ETIMEOUT);
}

static bool ask_about(struct harness *harness)
{
    static const char *const archs[] = {"sm_80", "sm_90", "sm_75", "cpu"};
    for (int i = 0; i < 20; i++) {
        json_t *answer = NULL;
        struct tune_error err = {0};
        int status = tune_request(harness->client, "get",
            json_pack("{s:s, s:{s:i}, s:s}", "kernel", "tiny", "shape", "N",
                (int)(32 * (1 + dice(6))), "arch", archs[dice(4)]),
            &answer, &err);
        double tag = status == 0 ? number_at(answer, "config.TAG") : -1;
        json_decref(answer);
        if (status != 0 || tag < 0 || tag > 3)
            return false;
    }
    return true;
}

static void keep_input(const struct text *text, size_t number)
{
    char path[300];
    snprintf(path, sizeof path, "%s/damaged-export-%llu-%zu.jsonl", build_folder(),
        (unsigned long long)seed, number);
    write_file(path, text->bytes, text->length);
    fail_msg("the daemon did not stand export %zu of seed %llu, kept at %s", number,
        (unsigned long long)seed, path);
}

/* Every record that came in is one that the form and the kernel allow. */
static void check_records(struct harness *harness, const char *arch)
{
    char *text = export_text(harness, arch), *rest = text, *line = strsep(&rest, "\n");
    while ((line = strsep(&rest, "\n")) != NULL && *line != '\0') {
        struct tune_error err = {0};
        struct sample sample;
        if (record_line_parse(line, strlen(line), &sample, &err))
            fail_msg("%s: %s", err.text, line);
        if (strcmp(sample.key.kernel, "tiny") == 0 &&
            strcmp(sample.key.fingerprint, fingerprint_of(harness, "tiny")) == 0) {
            assert_int_equal(strlen(sample.config), 5);
            assert_memory_equal(sample.config, "TAG=", 4);
            assert_in_range(sample.config[4], '0', '3');
        }
        sample_finish(&sample);
    }
    free(text);
}

static void damaged_exports_do_no_harm(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, "{}");
    struct text text = {0};
    size_t added = 0;
    seed = state = test_seed();
    use_fingerprint_of(harness);
    for (size_t i = 0; i < EXPORTS; i++) {
        make_export(&text);
        damage(&text);
        if (!import_damaged(harness, &text, &added) || !ask_about(harness))
            keep_input(&text, i);
    }
    text_finish(&text);
    assert_in_range(added, 100, EXPORTS * RECORDS); /* it was not all refused */
    check_records(harness, NULL);
    check_records(harness, "cpu");
#ifndef E2E_SANITIZED
    assert_in_range(resident_kib(harness), 0, 256 << 10);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(damaged_exports_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
