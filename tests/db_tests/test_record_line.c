/* Records as text: what comes back from a line is what went in, to the bit; what is not a line of a
 * record is refused with the field that is wrong; which of two rows stands does not depend on how
 * they meet. */
#include "fixture.h"
#include "rows.h"
#include "tuning_db/record_number.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define CASES 10000

/* --- helpers ---------------------------------------------------------------------------------- */

static char *line_of(const struct sample *sample)
{
    struct tune_error err = {0};
    size_t length = 0;
    char *line = record_line_format(sample, &length, &err);
    if (line == NULL)
        fail_msg("no line: %s", err.text);
    assert_int_equal(length, strlen(line));
    return line;
}

static void take(const char *line, struct sample *sample)
{
    struct tune_error err = {0};
    if (record_line_parse(line, strlen(line), sample, &err))
        fail_msg("refused: %s\n%s", err.text, line);
}

/* Puts the right checksum at the end of `body`, which is a line up to its "sum". */
static char *seal(const char *body)
{
    char *line = malloc(strlen(body) + 40);
    sprintf(
        line, "%s,\"sum\":\"%016" PRIx64 "\"}", body, (uint64_t)XXH3_64bits(body, strlen(body)));
    return line;
}

static void refuse(const char *line, size_t length, enum tune_code code, const char *part)
{
    struct tune_error err = {0};
    struct sample sample;
    assert_int_equal(record_line_parse(line, length, &sample, &err), -1);
    if (err.code != code || strstr(err.text, part) == NULL)
        fail_msg("%s (%s) instead of %s with \"%s\"\n%s", tune_code_word(err.code), err.text,
            tune_code_word(code), part, line);
    assert_null(sample.storage);
}

static void refuse_body(const char *body, enum tune_code code, const char *part)
{
    char *line = seal(body);
    refuse(line, strlen(line), code, part);
    free(line);
}

/* The full row's line without its sum, with one field's value exchanged (NULL: the field left out),
 * or, when it has no such field, with the field at its end. */
static char *body_with(const char *name, const char *value)
{
    struct sample sample = full_row();
    char *line = line_of(&sample), *body = malloc(strlen(line) + strlen(name) + (32 << 10));
    char wanted[80];
    *strstr(line, ",\"sum\":") = '\0';
    snprintf(wanted, sizeof wanted, "\"%s\":", name);
    char *found = strstr(line, wanted);
    if (found == NULL) {
        sprintf(body, "%s,%s%s", line, wanted, value);
    } else {
        char *end = strstr(found, ",\""); /* where the next field begins, but in objects */
        if (strcmp(name, "shape") == 0 || strcmp(name, "config") == 0)
            end = strchr(found, '}') + 1;
        if (value == NULL)
            sprintf(body, "%.*s%s", (int)(found - line), line, end == NULL ? "" : end + 1);
        else
            sprintf(body, "%.*s%s%s%s", (int)(found - line), line, wanted, value,
                end == NULL ? "" : end);
    }
    free(line);
    return body;
}

static void refuse_value(const char *name, const char *value, enum tune_code code)
{
    char *body = body_with(name, value), part[80];
    snprintf(part, sizeof part, "field \"%s\"", name);
    refuse_body(body, code, part);
    free(body);
}

static void accept_value(const char *name, const char *value, struct sample *sample)
{
    char *body = body_with(name, value), *line = seal(body);
    take(line, sample);
    free(body);
    free(line);
}

static bool is_same(const char *a, const char *b)
{
    return strcmp(a == NULL ? "" : a, b == NULL ? "" : b) == 0;
}

/* By the stored form, which has every field to the bit; NaN has one form in a line. */
static void assert_equal_rows(const struct sample *a, const struct sample *b)
{
    struct sample left = *a, right = *b;
    size_t a_length, b_length;
    assert_true(isnan(left.max_error) == isnan(right.max_error));
    if (isnan(left.max_error))
        left.max_error = right.max_error = 0;
    void *a_bytes = sample_encode(&left, &a_length), *b_bytes = sample_encode(&right, &b_length);
    assert_int_equal(a_length, b_length);
    assert_memory_equal(a_bytes, b_bytes, a_length);
    free(a_bytes);
    free(b_bytes);
}

/* --- round trips ------------------------------------------------------------------------------ */

static void test_a_row_has_one_line_and_its_fields_stand_in_order(void **state)
{
    (void)state;
    struct sample sample = full_row();
    char *line = line_of(&sample);
    const char *wanted =
        "{\"kernel\":\"gemm\",\"dtype\":\"f32\",\"arch\":\"sm_90\",\"shape\":{\"M\":64,\"N\":48},"
        "\"mode\":\"cold\",\"config\":{\"BM\":64,\"PAD\":-1},\"gpu\":\"NVIDIA H200\","
        "\"uuid\":\"GPU-1\",\"run\":\"7/search\","
        "\"fingerprint\":\"0123456789abcdef0123456789abcdef\",\"outcome\":\"ok\",\"final\":true,"
        "\"confirmed\":true,\"default\":true,\"refused\":true,\"attempts\":2,\"method\":\"graph\","
        "\"median_ns\":10.5,\"interval_ns\":[10.25,1e20],"
        "\"samples_ns\":[63213.438,0.1,1000000000],\"registers\":128,\"spill_bytes\":16,"
        "\"static_shared_bytes\":1024,\"dynamic_shared_bytes\":49152,\"same_as\":\"BM=32,PAD=0\","
        "\"detail\":\"12 of 64 \\\"values\\\" differ,\\n\\tZeile \xC3\xBC\\u0001\","
        "\"log\":\"00112233445566778899aabbccddeeff\",\"host\":\"node-1\",\"nvrtc\":\"13.0\","
        "\"method_note\":\"note\",\"driver\":13000,\"via_ptx\":true,\"time\":-5,"
        "\"sm_clock_mhz\":1980,\"memory_clock_mhz\":3201,\"temperature_c\":40,"
        "\"throttle_reasons\":\"0xffffffffffffffff\",\"seed\":\"0x123456789abcdef0\","
        "\"max_error\":1e-7,\"sms\":132";
    char *sealed = seal(wanted);
    assert_string_equal(line, sealed);
    assert_int_equal(record_line_hash(&sample), XXH3_64bits(line, strlen(line)));
    free(sealed);
    free(line);
}

static void test_random_rows_come_back_to_the_bit(void **state)
{
    (void)state;
    struct rng rng = {1};
    for (int i = 0; i < CASES; i++) {
        struct row_room room;
        struct sample sample = random_row(&rng, &room), parsed;
        char *line = line_of(&sample);
        assert_null(strchr(line, '\n'));
        take(line, &parsed);
        assert_equal_rows(&sample, &parsed);
        char *again = line_of(&parsed);
        assert_string_equal(line, again);
        free(again);
        free(line);
        sample_finish(&parsed);
    }
}

static void test_a_row_survives_the_database_with_its_unknown_fields(void **state)
{
    (void)state;
    struct sample sample = full_row(), decoded;
    size_t length;
    sample.extra = "{\"later\":1.50}";
    void *bytes = sample_encode(&sample, &length);
    assert_int_equal(sample_decode(bytes, length, &decoded, NULL), 0);
    assert_string_equal(decoded.extra, "{\"later\":1.50}");
    assert_equal_rows(&sample, &decoded);
    sample_finish(&decoded);
    free(bytes);
}

/* Shortest: no decimal of one digit less reads back. */
static void check_number(double value)
{
    char text[NUMBER_TEXT_BYTES], shorter[64];
    size_t length = number_text(value, text);
    assert_int_equal(length, strlen(text));
    assert_true(strtod(text, NULL) == value);
    size_t digits = 0;
    const char *at = text;
    while (*at == '0' || *at == '.')
        at++;
    for (; *at != '\0' && *at != 'e'; at++)
        digits += *at != '.';
    if (value >= 9007199254740992.0 || floor(value) != value) {
        snprintf(shorter, sizeof shorter, "%.*e", digits > 1 ? (int)digits - 2 : 0, value);
        assert_true(digits == 1 || strtod(shorter, NULL) != value || strchr(text, 'e') == NULL);
        assert_true(digits <= 17);
    }
}

static void test_numbers_are_exact_and_short(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } known[] = {{0, "0"}, {1, "1"}, {0.1, "0.1"}, {1e-5, "0.00001"}, {1e-6, "1e-6"},
        {100000, "100000"}, {9007199254740991.0, "9007199254740991"},
        {9007199254740992.0, "9.007199254740992e15"}, {1e16, "1e16"}, {1e17, "1e17"},
        {1.25e300, "1.25e300"}, {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e308"},
        {0.30000000000000004, "0.30000000000000004"}, {123456.789, "123456.789"},
        {0.000123, "0.000123"}, {63213.4375, "63213.4375"}};
    char text[NUMBER_TEXT_BYTES];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        number_text(known[i].value, text);
        assert_string_equal(text, known[i].text);
    }
    number_text_float(0.1f, text);
    assert_string_equal(text, "0.1");
    number_text_float(3.4028235e38f, text);
    assert_string_equal(text, "3.4028235e38");
    struct rng rng = {2};
    for (int i = 0; i < CASES; i++) {
        double value;
        uint64_t bits = rng_next(&rng) >> 1;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value))
            check_number(value);
        check_number((double)rng_below(&rng, 1u << 30) / 1024);
        check_number((double)rng_below(&rng, 1u << 30) / 1000);
    }
}

/* Takes an installed locale with a decimal comma, or makes one. */
static bool set_comma_locale(void)
{
    char command[600];
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL) {
        snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >&2",
            fixture_dir());
        if (system(command) != 0)
            return false;
        setenv("LOCPATH", fixture_dir(), 1);
    }
    return setlocale(LC_ALL, "de_DE.UTF-8") != NULL &&
           strcmp(localeconv()->decimal_point, ",") == 0;
}

static void test_a_decimal_comma_changes_nothing(void **state)
{
    (void)state;
    struct sample sample = full_row(), parsed;
    sample.median_ns = 0.30000000000000004;
    sample.lo_ns = 1e-9;
    char *line = line_of(&sample);
    if (!set_comma_locale()) {
        free(line);
        print_message("no locale with a decimal comma is here, nor can one be made\n");
        skip();
    }
    char *again = line_of(&sample);
    assert_string_equal(line, again);
    take(line, &parsed);
    assert_equal_rows(&sample, &parsed);
    setlocale(LC_ALL, "C");
    sample_finish(&parsed);
    free(again);
    free(line);
}

/* --- what is written otherwise ---------------------------------------------------------------- */

static void test_another_writer_may_order_and_space_as_it_likes(void **state)
{
    (void)state;
    struct sample parsed;
    char *line = seal(" { \"config\" : {\"BM\": 64}, \"outcome\":\"ok\",\"run\":\"r\", "
                      "\"median_ns\":1.050e1,\"interval_ns\":[ 10, 11.0 ],\"shape\":{\"M\":1},"
                      "\"mode\":\"cold\",\"kernel\":\"gemm\",\"dtype\":\"f32\",\"uuid\":\"\","
                      "\"arch\":\"sm_90\",\"spill_bytes\":0,\"confirmed\":false,"
                      "\"b\":1 ,\"a\":[1, 2],\"fingerprint\":\"x\"");
    take(line, &parsed);
    char *canonical = line_of(&parsed);
    char *wanted = seal("{\"kernel\":\"gemm\",\"dtype\":\"f32\",\"arch\":\"sm_90\","
                        "\"shape\":{\"M\":1},\"mode\":\"cold\",\"config\":{\"BM\":64},"
                        "\"uuid\":\"\",\"run\":\"r\",\"fingerprint\":\"x\",\"outcome\":\"ok\","
                        "\"median_ns\":10.5,\"interval_ns\":[10,11],\"a\":[1, 2],\"b\":1");
    assert_string_equal(canonical, wanted);
    assert_string_equal(parsed.extra, "{\"a\":[1, 2],\"b\":1}");
    sample_finish(&parsed);
    free(line);
    free(canonical);
    free(wanted);
}

static void test_unknown_fields_survive_as_they_came(void **state)
{
    (void)state;
    struct sample parsed;
    accept_value("power_w", "{\"x\":[0.10,-0,1e2,\"\\u00fc\"]}", &parsed);
    assert_string_equal(parsed.extra, "{\"power_w\":{\"x\":[0.10,-0,1e2,\"\\u00fc\"]}}");
    char *line = line_of(&parsed);
    assert_non_null(
        strstr(line, ",\"sms\":132,\"power_w\":{\"x\":[0.10,-0,1e2,\"\\u00fc\"]},\"sum"));
    sample_finish(&parsed);
    free(line);

    char big[20000];
    memset(big, '1', sizeof big);
    memcpy(big, "\"", 1);
    memcpy(big + RECORD_LINE_EXTRA_LIMIT_BYTES, "\"", 2);
    struct sample sample = full_row();
    char *whole = line_of(&sample), *body = malloc(strlen(whole) + sizeof big + 40);
    *strstr(whole, ",\"sum\":") = '\0';
    sprintf(body, "%s,\"later\":%s", whole, big);
    refuse_body(body, TUNE_ELIMIT, "does not know");
    free(body);
    free(whole);
}

/* A version that does not know "sms" kept it among the unknown fields of a stored row. */
static void test_a_field_learned_later_takes_its_place(void **state)
{
    (void)state;
    struct sample known = full_row(), stored = full_row();
    stored.sms = 0;
    stored.extra = "{\"sms\":132}";
    assert_true(record_line_hash(&known) == record_line_hash(&stored));
    assert_int_equal(sample_precedence(&known, &stored), 0);
    stored.sms = 7; /* measured by a version that does know it */
    known.sms = 7;
    assert_true(record_line_hash(&known) == record_line_hash(&stored));
}

static void test_texts_for_people_are_mended_and_others_refused(void **state)
{
    (void)state;
    char detail[1100];
    memset(detail, 'x', sizeof detail);
    strcpy(detail + 1023, "\xC3\xBC and more"); /* its limit cuts this character */
    struct sample sample = full_row(), parsed;
    sample.detail = detail;
    sample.host = "h\xFF\xC3";
    char *line = line_of(&sample);
    take(line, &parsed);
    assert_int_equal(strlen(parsed.detail), 1023);
    assert_string_equal(parsed.host, "h??");
    assert_true(record_line_hash(&sample) == record_line_hash(&parsed));
    sample_finish(&parsed);
    free(line);

    struct tune_error err = {0};
    size_t length;
    sample.run = "r\xFF";
    assert_null(record_line_format(&sample, &length, &err));
    assert_int_equal(err.code, TUNE_EINVAL);
    assert_non_null(strstr(err.text, "\"run\""));
    assert_true(record_line_hash(&sample) == 0);
}

/* --- refusals --------------------------------------------------------------------------------- */

static const char *const integers[] = {"attempts", "registers", "spill_bytes",
    "static_shared_bytes", "dynamic_shared_bytes", "driver", "sm_clock_mhz", "memory_clock_mhz",
    "temperature_c", "sms", "time"};
static const char *const times[] = {"median_ns", "interval_ns", "samples_ns", "max_error"};
static const char *const texts[] = {"kernel", "dtype", "arch", "mode", "gpu", "uuid", "run",
    "fingerprint", "outcome", "method", "same_as", "detail", "log", "host", "nvrtc", "method_note",
    "throttle_reasons", "seed"};
static const char *const booleans[] = {"final", "confirmed", "default", "refused", "via_ptx"};
static const char *const objects[] = {"shape", "config"};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void refuse_all(const char *const *names, size_t name_count, const char *const *values,
    size_t value_count, enum tune_code code)
{
    for (size_t i = 0; i < name_count; i++) {
        for (size_t j = 0; j < value_count; j++)
            refuse_value(names[i], values[j], code);
    }
}

static void test_numbers_are_taken_exactly_or_refused_by_name(void **state)
{
    (void)state;
    static const char *const no_integer[] = {"9007199254740993", "-9007199254740993", "1.0", "1e3",
        "-0", "\"1\"", "true", "null", "[]", "{}"};
    static const char *const no_time[] = {"9007199254740993", "-1", "-0", "-0.0", "\"1\"", "true",
        "null", "{}", "[-0]", "[1,-0.0]", "[null]", "[1,9007199254740993]"};
    static const char *const no_json[] = {"1e999", "NaN", "Infinity", "-Infinity", "01", "1.", "+1",
        "0x1", "9223372036854775808", "-9223372036854775809"};
    static const char *const no_object[] = {"{}", "{\"M\":1.0}", "{\"M\":-0}", "{\"M\":\"1\"}",
        "{\"M\":null}", "{\"M=1,N\":1}", "{\"\":1}", "{\"1M\":1}", "[]", "null", "1", "\"M=1\"",
        "{\"M\":true}", "{\"M\":{\"N\":1}}"};
    static const char *const no_text[] = {"1", "null", "true", "[]", "{}"};
    static const char *const no_boolean[] = {"1", "0", "null", "\"true\"", "[]", "{}"};
    refuse_all(integers, COUNT(integers), no_integer, COUNT(no_integer), TUNE_EINVAL);
    refuse_all(times, COUNT(times), no_time, COUNT(no_time), TUNE_EINVAL);
    refuse_all(objects, COUNT(objects), no_object, COUNT(no_object), TUNE_EINVAL);
    refuse_all(texts, COUNT(texts), no_text, COUNT(no_text), TUNE_EINVAL);
    refuse_all(booleans, COUNT(booleans), no_boolean, COUNT(no_boolean), TUNE_EINVAL);
    refuse_all(integers, COUNT(integers), no_json, COUNT(no_json), TUNE_EPARSE);
    refuse_all(times, COUNT(times), no_json, COUNT(no_json), TUNE_EPARSE);
    refuse_value("sms", "4294967296", TUNE_EINVAL);
    refuse_value("sms", "-1", TUNE_EINVAL);
    refuse_value("samples_ns", "[1e39]", TUNE_EINVAL); /* no float */
    refuse_value("samples_ns", "[1,[2]]", TUNE_EINVAL);
    struct sample parsed;
    accept_value("config", "{\"BM\":9007199254740993}", &parsed);
    assert_string_equal(parsed.config, "BM=9007199254740993");
    sample_finish(&parsed);
    accept_value("samples_ns", "[1e-3,5E-1]", &parsed);
    assert_int_equal(parsed.sample_count, 2);
    sample_finish(&parsed);
}

static void test_values_out_of_their_range_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
    } wrong[] = {{"kernel", "\"\""}, {"kernel", "\"a b\""}, {"arch", "\"sm/90\""},
        {"dtype", "\"\\u00fc\""}, {"mode", "\"hot\""}, {"outcome", "\"good\""}, {"run", "\"\""},
        {"shape", "{\"M\":0}"}, {"shape", "{\"M\":4611686018427387905}"},
        {"shape", "{\"A\":1,\"B\":1,\"C\":1,\"D\":1,\"E\":1,\"F\":1,\"G\":1,\"H\":1,\"I\":1,"
                  "\"J\":1,\"K\":1,\"L\":1,\"M\":1,\"N\":1,\"O\":1,\"P\":1,\"Q\":1}"},
        {"same_as", "\"BM\""}, {"same_as", "\"BM=1,BM=2\""}, {"same_as", "\"BM=01\""},
        {"same_as", "\"BM=-0\""}, {"same_as", "\"BM=1,\""}, {"same_as", "\",BM=1\""},
        {"same_as", "\"BM=9223372036854775808\""}, {"same_as", "\"B M=1\""},
        {"interval_ns", "[11,12]"}, {"interval_ns", "[9,10]"}, {"interval_ns", "[10]"},
        {"interval_ns", "[10,11,12]"}, {"max_error", "\"-inf\""}, {"max_error", "\"Inf\""},
        {"seed", "\"12\""}, {"seed", "\"0x\""}, {"seed", "\"0xG\""}, {"seed", "\"0xAB\""},
        {"seed", "\"0x10000000000000000\""}, {"log", "\"../../etc/passwd\""}, {"median_ns", "0"},
        {"median_ns", NULL}, {"interval_ns", NULL}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char *body = body_with(wrong[i].name, wrong[i].value);
        const char *named = strcmp(wrong[i].name, "median_ns") == 0 ? "_ns\"" : wrong[i].name;
        refuse_body(body, TUNE_EINVAL, named);
        free(body);
    }
    static const char *const required[] = {"kernel", "dtype", "arch", "shape", "mode", "config",
        "uuid", "run", "fingerprint", "outcome"};
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++)
        refuse_value(required[i], NULL, TUNE_EINVAL);
    char *text = malloc(2000);
    memset(text, 'x', 2000);
    text[0] = '"';
    strcpy(text + 1500, "\"");
    refuse_value("detail", text, TUNE_EINVAL);
    refuse_value("gpu", text, TUNE_EINVAL);
    refuse_value("run", text, TUNE_EINVAL);
    free(text);
}

static void test_what_is_no_line_of_a_record_is_refused(void **state)
{
    (void)state;
    refuse("", 0, TUNE_EPARSE, "not valid JSON");
    refuse("[1]", 3, TUNE_EPARSE, "object");
    refuse("{}", 2, TUNE_EDAMAGED, "sum");
    refuse("{\"sum\":\"\"}", 10, TUNE_EDAMAGED, "sum");
    refuse("{\"a\":1,\"a\":2}", 13, TUNE_EPARSE, "duplicate");
    refuse("{\"a\":\"\xFF\"}", 9, TUNE_EPARSE, "0xff");
    refuse("{\"a\":\"\\u0000\"}", 14, TUNE_EPARSE, "NUL");
    refuse_body("{\"a b\":1", TUNE_EINVAL, "a b");
    refuse_body("{\"k\\u0065rnel\":1", TUNE_EINVAL, "names");
    char *body = body_with("format", "1");
    refuse_body(body, TUNE_EINVAL, "\"format\"");
    free(body);
    char *deep = malloc(200);
    memset(deep, '[', 100);
    deep[100] = '\0';
    refuse(deep, 100, TUNE_ELIMIT, "deeper");
    free(deep);
    char *many = malloc(300 * 12);
    size_t used = (size_t)sprintf(many, "{\"x\":1");
    for (int i = 0; i < 260; i++)
        used += (size_t)sprintf(many + used, ",\"x%d\":1", i);
    refuse_body(many, TUNE_ELIMIT, "256");
    free(many);
    char *large = calloc(1, RECORD_LINE_LIMIT_BYTES + 2);
    memset(large, ' ', RECORD_LINE_LIMIT_BYTES + 1);
    refuse(large, RECORD_LINE_LIMIT_BYTES + 1, TUNE_ELIMIT, "65536");
    free(large);
}

/* Numbers may be shorter in a foreign line than in ours: what is taken must be a line again. */
static void test_a_line_that_could_not_be_written_again_is_refused(void **state)
{
    (void)state;
    char *numbers = malloc(5 * 4096 + 2), *at = numbers;
    for (int i = 0; i < 4096; i++)
        at = stpcpy(at, i == 0 ? "[1e15" : ",1e15");
    strcpy(at, "]");
    char *body = body_with("samples_ns", numbers);
    refuse_body(body, TUNE_ELIMIT, "65536");
    free(body);
    free(numbers);
}

static void test_a_flipped_bit_is_noticed_wherever_it_is(void **state)
{
    (void)state;
    struct sample sample = full_row(), parsed;
    char *line = line_of(&sample);
    size_t length = strlen(line);
    for (size_t bit = 0; bit < 8 * length; bit++) {
        line[bit / 8] ^= (char)(1 << bit % 8);
        if (record_line_parse(line, length, &parsed, NULL) == 0)
            fail_msg("bit %zu of byte %zu: %s", bit % 8, bit / 8, line);
        line[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (size_t cut = 0; cut < length; cut++)
        assert_int_equal(record_line_parse(line, cut, &parsed, NULL), -1);
    free(line);
}

static void test_rows_that_no_reader_would_take_have_no_line(void **state)
{
    (void)state;
    struct sample wrong[8];
    for (size_t i = 0; i < 8; i++)
        wrong[i] = full_row();
    static const float no_times[] = {1, NAN};
    wrong[0].median_ns = (double)NAN;
    wrong[1].hi_ns = (double)INFINITY;
    wrong[2].samples_ns = no_times;
    wrong[2].sample_count = 2;
    wrong[3].key.shape = "M";
    wrong[4].config = "";
    wrong[5].key.kernel = NULL;
    wrong[6].max_error = -1;
    wrong[7].extra = "{\"sum\":1}";
    for (size_t i = 0; i < 8; i++) {
        size_t length;
        struct tune_error err = {0};
        assert_null(record_line_format(&wrong[i], &length, &err));
        assert_int_equal(err.code, TUNE_EINVAL);
        assert_true(record_line_hash(&wrong[i]) == 0);
        assert_int_equal(sample_precedence(&wrong[i], &wrong[i]), 0);
        struct sample whole = full_row();
        int order = sample_precedence(&wrong[i], &whole);
        assert_true(order != 0 && (order < 0) == (sample_precedence(&whole, &wrong[i]) > 0));
    }
}

/* --- headers ---------------------------------------------------------------------------------- */

static void check_header(
    const char *line, enum tune_code code, const char *part, const char *wanted_unknown)
{
    struct tune_error err = {0};
    char *unknown;
    int status = record_header_check(line, strlen(line), &unknown, &err);
    assert_int_equal(err.code, code);
    assert_int_equal(status, code == TUNE_OK ? 0 : -1);
    if (part != NULL && strstr(err.text, part) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", err.text, part);
    assert_true((unknown == NULL) == (wanted_unknown == NULL));
    if (unknown != NULL)
        assert_string_equal(unknown, wanted_unknown);
    free(unknown);
}

static void test_a_header_tells_its_version_and_newer_ones_are_refused_whole(void **state)
{
    (void)state;
    char *own = record_header_format();
    assert_string_equal(own, "{\"format\":\"tunerd-records\",\"version\":[1,0]}");
    check_header(own, TUNE_OK, NULL, NULL);
    assert_true(record_line_is_header(own, strlen(own)));
    free(own);
    check_header("{\"format\":\"tunerd-records\",\"version\":[1,7],\"a\":1,\"b\":[]}", TUNE_OK,
        NULL, "a, b");
    check_header("{\"format\":\"tunerd-records\",\"version\":[2,0]}", TUNE_EVERSION, "[2,0]", NULL);
    check_header("{\"format\":\"tunerd-records\",\"version\":[2,0]}", TUNE_EVERSION, "[1,x]", NULL);
    check_header("{\"format\":\"tunerd-records\",\"version\":[0,9]}", TUNE_EVERSION, "[0,9]", NULL);
    check_header("{\"format\":\"tunerd-records\"}", TUNE_EVERSION, "version", NULL);
    check_header("{\"format\":\"tunerd-records\",\"version\":1}", TUNE_EVERSION, "version", NULL);
    check_header("{\"format\":\"tunerd-records\",\"version\":[1.0,0]}", TUNE_EVERSION, "", NULL);
    check_header("{\"format\":\"other\",\"version\":[1,0]}", TUNE_EINVAL, "\"other\"", NULL);
    check_header("{\"format\":1}", TUNE_EINVAL, "format", NULL);
    check_header("{\"version\":[1,0]}", TUNE_EINVAL, "format", NULL);
    check_header("nonsense", TUNE_EPARSE, "JSON", NULL);
    assert_false(record_line_is_header("{\"a\":\"format\"}", 14));
    assert_false(record_line_is_header("{\"a\":{\"format\":1}}", 18));
    assert_false(record_line_is_header("\"format\"", 8));
}

/* --- precedence and merging ------------------------------------------------------------------- */

static int sign(int order)
{
    return (order > 0) - (order < 0);
}

static void test_precedence_is_a_total_order(void **state)
{
    (void)state;
    struct rng rng = {3};
    for (int i = 0; i < CASES; i++) {
        struct row_room rooms[3];
        struct sample rows[3];
        for (size_t j = 0; j < 3; j++)
            rows[j] = rng_below(&rng, 4) == 0 && j > 0 ? rows[j - 1] : random_row(&rng, &rooms[j]);
        int ab = sign(sample_precedence(&rows[0], &rows[1]));
        int bc = sign(sample_precedence(&rows[1], &rows[2]));
        int ac = sign(sample_precedence(&rows[0], &rows[2]));
        assert_int_equal(ab, -sign(sample_precedence(&rows[1], &rows[0])));
        if (ab == bc)
            assert_int_equal(ac, ab);
        if (ab == 0)
            assert_int_equal(ac, bc);
        char *a = line_of(&rows[0]), *b = line_of(&rows[1]);
        assert_true((ab == 0) == is_same(a, b));
        free(a);
        free(b);
    }
}

static void test_the_order_of_precedence_is_the_documented_one(void **state)
{
    (void)state;
    struct sample weak = full_row(), strong = full_row();
    weak.is_refused = strong.is_refused = false;
    weak.max_error = 1;
    strong.max_error = 2; /* sorts last */
    assert_true(sample_precedence(&strong, &weak) < 0);
    weak.attempts = 3;
    assert_true(sample_precedence(&weak, &strong) < 0);
    weak.is_final = false;
    assert_true(sample_precedence(&strong, &weak) < 0);
    weak.is_refused = true;
    assert_true(sample_precedence(&weak, &strong) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_row_has_one_line_and_its_fields_stand_in_order),
        cmocka_unit_test(test_random_rows_come_back_to_the_bit),
        cmocka_unit_test(test_a_row_survives_the_database_with_its_unknown_fields),
        cmocka_unit_test(test_numbers_are_exact_and_short),
        cmocka_unit_test_setup_teardown(
            test_a_decimal_comma_changes_nothing, fixture_setup, fixture_teardown),
        cmocka_unit_test(test_another_writer_may_order_and_space_as_it_likes),
        cmocka_unit_test(test_unknown_fields_survive_as_they_came),
        cmocka_unit_test(test_a_field_learned_later_takes_its_place),
        cmocka_unit_test(test_texts_for_people_are_mended_and_others_refused),
        cmocka_unit_test(test_numbers_are_taken_exactly_or_refused_by_name),
        cmocka_unit_test(test_values_out_of_their_range_are_refused_by_name),
        cmocka_unit_test(test_what_is_no_line_of_a_record_is_refused),
        cmocka_unit_test(test_a_line_that_could_not_be_written_again_is_refused),
        cmocka_unit_test(test_a_flipped_bit_is_noticed_wherever_it_is),
        cmocka_unit_test(test_rows_that_no_reader_would_take_have_no_line),
        cmocka_unit_test(test_a_header_tells_its_version_and_newer_ones_are_refused_whole),
        cmocka_unit_test(test_precedence_is_a_total_order),
        cmocka_unit_test(test_the_order_of_precedence_is_the_documented_one),
    };
    return cmocka_run_group_tests_name("record_line", tests, NULL, NULL);
}
