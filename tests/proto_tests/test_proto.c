#include "client/proto.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- lines ------------------------------------------------------------------------------------ */

static void feed(struct proto_reader *reader, const char *bytes, size_t count)
{
    struct tune_error err = {0};
    if (proto_reader_feed(reader, bytes, count, &err))
        fail_msg("%s", err.text);
}

static void expect_line(struct proto_reader *reader, const char *expected)
{
    size_t length = 0;
    char *line = proto_reader_next(reader, &length);
    if (line == NULL)
        fail_msg("no line where \"%s\" was expected", expected);
    assert_int_equal(length, strlen(expected));
    assert_string_equal(line, expected);
}

static void expect_no_line(struct proto_reader *reader)
{
    size_t length = 0;
    assert_null(proto_reader_next(reader, &length));
}

static void a_fresh_reader_has_no_line(void **state)
{
    (void)state;
    struct proto_reader reader;
    proto_reader_init(&reader, 100);
    expect_no_line(&reader);
    feed(&reader, NULL, 0);
    expect_no_line(&reader);
    assert_int_equal(proto_reader_pending(&reader), 0);
    proto_reader_finish(&reader);
}

static void a_line_comes_out_whole_however_it_is_cut(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":\"\u20ac\"}\r\n\n\r\nsecond\nthird\n";
    size_t length = sizeof text - 1;
    for (size_t first = 0; first <= length; first++)
        for (size_t second = first; second <= length; second++) {
            struct proto_reader reader;
            proto_reader_init(&reader, 100);
            static const char *const expected[] = {"{\"a\":\"\u20ac\"}", "second", "third"};
            size_t seen = 0, cuts[] = {0, first, second, length};
            for (size_t i = 0; i < 3; i++) {
                feed(&reader, text + cuts[i], cuts[i + 1] - cuts[i]);
                size_t got;
                char *line;
                while ((line = proto_reader_next(&reader, &got)) != NULL) {
                    assert_in_range(seen, 0, 2);
                    assert_string_equal(line, expected[seen++]);
                    assert_int_equal(got, strlen(line));
                }
            }
            assert_int_equal(seen, 3);
            assert_int_equal(proto_reader_pending(&reader), 0);
            proto_reader_finish(&reader);
        }
}

static void bytes_come_one_by_one(void **state)
{
    (void)state;
    struct proto_reader reader;
    proto_reader_init(&reader, 100);
    static const char text[] = "one\r\n\r\ntwo\n";
    size_t lines = 0, length;
    for (const char *at = text; *at != '\0'; at++) {
        feed(&reader, at, 1);
        char *line = proto_reader_next(&reader, &length);
        if (line != NULL)
            assert_string_equal(line, lines++ == 0 ? "one" : "two");
    }
    assert_int_equal(lines, 2);
    proto_reader_finish(&reader);
}

static void only_one_carriage_return_belongs_to_the_line_end(void **state)
{
    (void)state;
    struct proto_reader reader;
    proto_reader_init(&reader, 100);
    feed(&reader, "a\rb\r\r\n", 6);
    expect_line(&reader, "a\rb\r");
    proto_reader_finish(&reader);
}

static void a_nul_byte_does_not_end_a_line(void **state)
{
    (void)state;
    struct proto_reader reader;
    proto_reader_init(&reader, 100);
    feed(&reader, "a\0b\n", 4);
    size_t length = 0;
    char *line = proto_reader_next(&reader, &length);
    assert_int_equal(length, 3);
    assert_memory_equal(line, "a\0b", 4);
    struct tune_error err = {0};
    assert_null(proto_parse("[1]\0 ", 5, &err));
    assert_int_equal(err.code, TUNE_EPARSE);
    proto_reader_finish(&reader);
}

static void the_unfinished_part_is_counted_and_kept(void **state)
{
    (void)state;
    struct proto_reader reader;
    proto_reader_init(&reader, 100);
    feed(&reader, "whole\nhal", 9);
    expect_line(&reader, "whole");
    expect_no_line(&reader);
    assert_int_equal(proto_reader_pending(&reader), 3);
    feed(&reader, "f\n", 2);
    expect_line(&reader, "half");
    assert_int_equal(proto_reader_pending(&reader), 0);
    proto_reader_finish(&reader);
}

static void lines_that_were_not_taken_wait(void **state)
{
    (void)state;
    struct proto_reader reader;
    proto_reader_init(&reader, 8);
    feed(&reader, "one\ntwo\n", 8);
    feed(&reader, "three\nfo", 8);
    expect_line(&reader, "one");
    feed(&reader, "ur\n", 3);
    expect_line(&reader, "two");
    expect_line(&reader, "three");
    expect_line(&reader, "four");
    expect_no_line(&reader);
    proto_reader_finish(&reader);
}

/* Feeds `count` times 'x' in pieces, then a newline; the code of the first failure. */
static enum tune_code feed_long(size_t count, size_t piece, const char *before)
{
    struct proto_reader reader;
    proto_reader_init(&reader, 1000);
    struct tune_error err = {0};
    char *bytes = malloc(strlen(before) + piece);
    memset(bytes + strlen(before), 'x', piece);
    memcpy(bytes, before, strlen(before));
    const char *from = bytes;
    size_t length;
    while (count > 0 && err.code == TUNE_OK) {
        size_t part = count < piece ? count : piece;
        proto_reader_feed(&reader, from, part + (size_t)(bytes + strlen(before) - from), &err);
        while (err.code == TUNE_OK && proto_reader_next(&reader, &length) != NULL)
            ;
        from = bytes + strlen(before);
        count -= part;
    }
    if (err.code == TUNE_OK)
        proto_reader_feed(&reader, "\n", 1, &err);
    free(bytes);
    proto_reader_finish(&reader);
    return err.code;
}

static void a_line_of_the_limit_passes_and_one_byte_more_does_not(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 7, 500, 1000, 1001, 4000};
    static const char *const befores[] = {"", "\n", "first\nsecond\n"};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        for (size_t j = 0; j < 3; j++) {
            assert_int_equal(feed_long(999, pieces[i], befores[j]), TUNE_OK);
            assert_int_equal(feed_long(1000, pieces[i], befores[j]), TUNE_OK);
            assert_int_equal(feed_long(1001, pieces[i], befores[j]), TUNE_ELIMIT);
        }
}

static void the_limit_is_named(void **state)
{
    (void)state;
    struct proto_reader reader;
    proto_reader_init(&reader, 4);
    struct tune_error err = {0};
    assert_int_equal(proto_reader_feed(&reader, "12345", 5, &err), -1);
    assert_non_null(strstr(err.text, " 4 bytes"));
    proto_reader_finish(&reader);
}

static void a_line_too_long_between_two_short_ones_is_refused(void **state)
{
    (void)state;
    struct proto_reader reader;
    proto_reader_init(&reader, 4);
    struct tune_error err = {0};
    assert_int_equal(proto_reader_feed(&reader, "12\n12345\n12\n", 12, &err), -1);
    assert_int_equal(err.code, TUNE_ELIMIT);
    proto_reader_finish(&reader);
}

static void memory_follows_the_traffic_not_the_total(void **state)
{
    (void)state;
    struct proto_reader reader;
    proto_reader_init(&reader, 1 << 20);
    char block[1000];
    memset(block, 'x', sizeof block);
    block[999] = '\n';
    size_t length;
    for (int i = 0; i < 10000; i++) {
        feed(&reader, block, sizeof block);
        assert_non_null(proto_reader_next(&reader, &length));
    }
    assert_in_range(reader.room, 0, 8192);
    proto_reader_finish(&reader);
}

static void the_buffer_of_a_long_line_is_given_back(void **state)
{
    (void)state;
    struct proto_reader reader;
    proto_reader_init(&reader, 2 << 20);
    char *block = malloc(1 << 20);
    memset(block, 'x', 1 << 20);
    block[(1 << 20) - 1] = '\n';
    feed(&reader, block, 1 << 20);
    size_t length;
    assert_non_null(proto_reader_next(&reader, &length));
    assert_int_equal(length, (1 << 20) - 1);
    feed(&reader, "short\n", 6);
    expect_line(&reader, "short");
    assert_in_range(reader.room, 6, 256 << 10);
    free(block);
    proto_reader_finish(&reader);
}

static void a_finished_reader_can_be_used_again(void **state)
{
    (void)state;
    struct proto_reader reader;
    proto_reader_init(&reader, 10);
    feed(&reader, "half", 4);
    proto_reader_finish(&reader);
    assert_int_equal(proto_reader_pending(&reader), 0);
    feed(&reader, "new\n", 4);
    expect_line(&reader, "new");
    proto_reader_finish(&reader);
    proto_reader_finish(&reader);
}

/* --- parsing ---------------------------------------------------------------------------------- */

static void expect_parse(const char *text, const char *expected)
{
    struct tune_error err = {0};
    json_t *value = proto_parse(text, strlen(text), &err);
    if (value == NULL)
        fail_msg("%s: %s", text, err.text);
    size_t length = 0;
    char *line = proto_line(value, &length);
    assert_non_null(line);
    assert_int_equal(line[length - 1], '\n');
    line[length - 1] = '\0';
    assert_string_equal(line, expected);
    free(line);
    json_decref(value);
}

static void expect_refused(const char *text, size_t length, enum tune_code code)
{
    struct tune_error err = {0};
    json_t *value = proto_parse(text, length, &err);
    if (value != NULL)
        fail_msg("taken: %s", text);
    if (err.code != code)
        fail_msg(
            "%s: %s, not %s: %s", text, tune_code_word(err.code), tune_code_word(code), err.text);
    if (strstr(err.text, "byte") == NULL)
        fail_msg("no position in: %s", err.text);
}

static void strict_json_is_taken_as_it_stands(void **state)
{
    (void)state;
    expect_parse("{\"b\":1,\"a\":[true,false,null]}", "{\"b\":1,\"a\":[true,false,null]}");
    expect_parse(" { } ", "{}");
    expect_parse("1", "1");
    expect_parse("null", "null");
    expect_parse("\"\\u20ac\\n\"", "\"\u20ac\\n\"");
    expect_parse("\"\\ud83d\\ude00\"", "\"\U0001F600\"");
    expect_parse("[9007199254740993,9223372036854775807,-9223372036854775808]",
        "[9007199254740993,9223372036854775807,-9223372036854775808]");
    expect_parse("-0", "0");
}

static void ambiguous_json_is_refused_with_a_position(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "nul",
        "tru",
        "[1 2]",
        "01",
        "+1",
        ".5",
        "1.",
        "0x10",
        "1e",
        "--1",
        "NaN",
        "Infinity",
        "-Infinity",
        "[nan]",
        "{\"a\":1,\"a\":2}",
        "{\"a\":1,\"\\u0061\":2}",
        "{\"x\":{\"k\":1,\"k\":1}}",
        "[{\"k\":1,\"b\":2,\"k\":3}]",
        "{} {}",
        "1 2",
        "[1]x",
        "{}}",
        "\"a\" \"b\"",
        "\xEF\xBB\xBF{}",
        "{}\xEF\xBB\xBF",
        "\"\xff\"",
        "\"\xc3\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf5\x80\x80\x80\"",
        "{\"\x80\":1}",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\\ud800x\"",
        "\"\\u0000\"",
        "{\"\\u0000\":1}",
        "{\"a\\u0000b\":1}",
        "\"\\x41\"",
        "\"\\u12\"",
        "\"unfinished",
        "\"tab\there\"",
        "/* comment */ {}",
        "{} // comment",
        "# comment",
        "9223372036854775808",
        "-9223372036854775809",
        "1e999",
        "-1e999",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        expect_refused(texts[i], strlen(texts[i]), TUNE_EPARSE);
    expect_refused("{}\0", 3, TUNE_EPARSE);
    expect_refused("\0{}", 3, TUNE_EPARSE);
    expect_refused("\"a\0b\"", 5, TUNE_EPARSE);
}

static void every_refusal_can_be_sent_as_an_answer(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\"\xff\"", "{\"\xc3\xc3\":", "\xEF\xBB\xBF{}", "[\xe2\x82"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct tune_error err = {0};
        assert_null(proto_parse(texts[i], strlen(texts[i]), &err));
        json_t *message = proto_error_new(NULL, &err);
        size_t length;
        char *line = proto_line(message, &length);
        assert_non_null(line);
        free(line);
        json_decref(message);
    }
}

/* Nested `depth` times; kind 0: arrays, 1: objects, 2: by turns. */
static char *nested(size_t depth, int kind)
{
    char *text = malloc(depth * 6 + 2), *at = text;
    for (size_t i = 0; i < depth; i++) {
        bool is_object = kind == 1 || (kind == 2 && i % 2 == 1);
        at = stpcpy(at, is_object ? (i + 1 < depth ? "{\"a\":" : "{") : "[");
    }
    for (size_t i = depth; i-- > 0;)
        *at++ = kind == 1 || (kind == 2 && i % 2 == 1) ? '}' : ']';
    *at = '\0';
    return text;
}

static void *parse_on_a_small_stack(void *unused)
{
    static const size_t depths[] = {10, 31, 32, 33, 2048, 2049, 100000};
    (void)unused;
    for (int kind = 0; kind < 3; kind++)
        for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
            char *text = nested(depths[i], kind);
            if (depths[i] <= PROTO_DEPTH_LIMIT)
                expect_parse(text, text);
            else
                expect_refused(text, strlen(text), TUNE_ELIMIT);
            free(text);
        }
    return NULL;
}

static void nesting_is_refused_above_32_levels_before_anything_is_built(void **state)
{
    (void)state;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    pthread_attr_setstacksize(&attributes, 1 << 20); /* what the sanitizers add */
#else
    pthread_attr_setstacksize(&attributes, 64 << 10);
#endif
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, &attributes, parse_on_a_small_stack, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

static void brackets_in_strings_and_side_by_side_are_no_nesting(void **state)
{
    (void)state;
    char text[400] = "\"";
    for (int i = 0; i < 100; i++)
        strcat(text, "[{");
    strcat(text, "\\\"[[\\\\\"");
    struct tune_error err = {0};
    json_t *value = proto_parse(text, strlen(text), &err);
    assert_true(json_is_string(value));
    json_decref(value);
    strcpy(text, "[");
    for (int i = 0; i < 60; i++)
        strcat(text, i ? ",[]" : "[]");
    strcat(text, "]");
    value = proto_parse(text, strlen(text), &err);
    assert_int_equal(json_array_size(value), 60);
    json_decref(value);
}

static void a_line_without_a_value_is_not_made(void **state)
{
    (void)state;
    size_t length = 0;
    assert_null(proto_line(NULL, &length));
}

/* --- messages --------------------------------------------------------------------------------- */

static void expect_message(json_t *message, const char *expected)
{
    size_t length = 0;
    char *line = proto_line(message, &length);
    assert_non_null(line);
    assert_int_equal(strlen(line), length);
    assert_string_equal(line, expected);
    free(line);
    json_decref(message);
}

static void messages_are_json_rpc_on_one_line(void **state)
{
    (void)state;
    expect_message(
        proto_request_new(7, "ping", NULL), "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n");
    expect_message(proto_request_new(8, "get", json_pack("{s:s}", "kernel", "a\nb")),
        "{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"get\",\"params\":{\"kernel\":\"a\\nb\"}}\n");
    expect_message(proto_notification_new("done", NULL),
        "{\"jsonrpc\":\"2.0\",\"method\":\"done\",\"params\":{}}\n");
    expect_message(proto_result_new(json_string("x"), json_integer(1)),
        "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":1}\n");
    expect_message(
        proto_result_new(NULL, NULL), "{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":null}\n");
}

static void an_error_carries_number_sentence_and_word(void **state)
{
    (void)state;
    static const struct {
        enum tune_code code;
        int number;
    } cases[] = {
        {TUNE_EPARSE, -32700},
        {TUNE_EMETHOD, -32601},
        {TUNE_EINVAL, -32602},
        {TUNE_EINTERNAL, -32603},
        {TUNE_ELIMIT, -32000},
        {TUNE_EBUSY, -32000},
        {TUNE_ENOTFOUND, -32000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tune_error err = {cases[i].code, "what is wrong"};
        json_t *message = proto_error_new(json_integer(5), &err);
        const char *text, *word;
        int id, number;
        assert_int_equal(json_unpack(message, "{s:i, s:{s:i, s:s, s:{s:s}}}", "id", &id, "error",
                             "code", &number, "message", &text, "data", "code", &word),
            0);
        assert_int_equal(id, 5);
        assert_int_equal(number, cases[i].number);
        assert_string_equal(text, "what is wrong");
        assert_string_equal(word, tune_code_word(cases[i].code));
        json_decref(message);
    }
}

static void an_error_with_broken_bytes_still_becomes_a_message(void **state)
{
    (void)state;
    struct tune_error err = {TUNE_EINVAL, "no field \"\xc3\xff\" here"};
    json_t *message = proto_error_new(NULL, &err);
    const char *text = NULL;
    assert_int_equal(json_unpack(message, "{s:{s:s}}", "error", "message", &text), 0);
    assert_string_equal(text, "no field \"??\" here");
    json_decref(message);
}

/* --- fields ----------------------------------------------------------------------------------- */

static json_t *object; /* of the fields tests */

static int make_object(void **state)
{
    (void)state;
    object = json_pack("{s:s, s:i, s:f, s:b, s:n, s:[i], s:{s:i}, s:I, s:s}", "text", "T", "int", 5,
        "real", 1.0, "bool", 1, "null", "array", 1, "object", "k", 1, "big",
        (json_int_t)9007199254740993, "digits", "1");
    return object == NULL;
}

static int drop_object(void **state)
{
    (void)state;
    json_decref(object);
    return 0;
}

static void expect_complaint(int status, struct tune_error *err, const char *field)
{
    assert_int_equal(status, -1);
    assert_int_equal(err->code, TUNE_EINVAL);
    char quoted[40];
    snprintf(quoted, sizeof quoted, "\"%s\"", field);
    if (strstr(err->text, quoted) == NULL)
        fail_msg("the field %s is not named: %s", field, err->text);
    *err = (struct tune_error){0};
}

static void strings_are_strings(void **state)
{
    (void)state;
    struct tune_error err = {0};
    const char *text = "before";
    assert_int_equal(proto_string_opt(object, "absent", &text, &err), 0);
    assert_string_equal(text, "before");
    assert_int_equal(proto_string_opt(object, "null", &text, &err), 0);
    assert_string_equal(text, "before");
    assert_int_equal(proto_string_opt(NULL, "text", &text, &err), 0);
    assert_string_equal(text, "before");
    assert_int_equal(proto_string(object, "text", &text, &err), 0);
    assert_string_equal(text, "T");
    expect_complaint(proto_string(object, "int", &text, &err), &err, "int");
    expect_complaint(proto_string_opt(object, "array", &text, &err), &err, "array");
    expect_complaint(proto_string(object, "absent", &text, &err), &err, "absent");
    expect_complaint(proto_string(object, "null", &text, &err), &err, "null");
    expect_complaint(proto_string(NULL, "text", &text, &err), &err, "text");
}

static void integers_are_exact_or_refused(void **state)
{
    (void)state;
    struct tune_error err = {0};
    int64_t number = 42;
    assert_int_equal(proto_int_opt(object, "absent", 0, 10, &number, &err), 0);
    assert_int_equal(proto_int_opt(object, "null", 0, 10, &number, &err), 0);
    assert_int_equal(number, 42);
    assert_int_equal(proto_int(object, "int", 5, 5, &number, &err), 0);
    assert_int_equal(number, 5);
    assert_int_equal(proto_int(object, "big", INT64_MIN, INT64_MAX, &number, &err), 0);
    assert_true(number == INT64_C(9007199254740993));
    number = 42;
    static const char *const wrong[] = {"real", "digits", "bool", "text", "array", "object"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect_complaint(
            proto_int(object, wrong[i], INT64_MIN, INT64_MAX, &number, &err), &err, wrong[i]);
        expect_complaint(
            proto_int_opt(object, wrong[i], INT64_MIN, INT64_MAX, &number, &err), &err, wrong[i]);
    }
    expect_complaint(proto_int(object, "int", 6, 10, &number, &err), &err, "int");
    expect_complaint(proto_int(object, "int", 0, 4, &number, &err), &err, "int");
    expect_complaint(proto_int(object, "absent", 0, 4, &number, &err), &err, "absent");
    expect_complaint(proto_int(object, "null", 0, 4, &number, &err), &err, "null");
    assert_int_equal(number, 42);
}

static void a_number_out_of_range_is_told_its_range(void **state)
{
    (void)state;
    struct tune_error err = {0};
    int64_t number;
    proto_int(object, "int", 6, 10, &number, &err);
    assert_string_equal(err.text, "field \"int\" is 5; it must be 6 to 10");
}

static void truth_is_not_a_number(void **state)
{
    (void)state;
    struct tune_error err = {0};
    bool flag = false;
    assert_int_equal(proto_bool_opt(object, "bool", &flag, &err), 0);
    assert_true(flag);
    assert_int_equal(proto_bool_opt(object, "absent", &flag, &err), 0);
    assert_int_equal(proto_bool_opt(object, "null", &flag, &err), 0);
    assert_true(flag);
    expect_complaint(proto_bool_opt(object, "int", &flag, &err), &err, "int");
    expect_complaint(proto_bool_opt(object, "text", &flag, &err), &err, "text");
}

static void a_number_may_be_whole_or_real(void **state)
{
    (void)state;
    struct tune_error err = {0};
    double number = 0.5;
    assert_int_equal(proto_number_opt(object, "absent", &number, &err), 0);
    assert_int_equal(proto_number_opt(object, "null", &number, &err), 0);
    assert_true(number == 0.5);
    assert_int_equal(proto_number_opt(object, "real", &number, &err), 0);
    assert_true(number == 1.0);
    assert_int_equal(proto_number_opt(object, "int", &number, &err), 0);
    assert_true(number == 5.0);
    expect_complaint(proto_number_opt(object, "digits", &number, &err), &err, "digits");
    expect_complaint(proto_number_opt(object, "bool", &number, &err), &err, "bool");
}

static void arrays_and_objects_are_told_apart(void **state)
{
    (void)state;
    struct tune_error err = {0};
    json_t *out = NULL;
    assert_int_equal(proto_array_opt(object, "array", &out, &err), 0);
    assert_true(json_is_array(out));
    assert_int_equal(proto_array_opt(object, "absent", &out, &err), 0);
    assert_null(out);
    assert_int_equal(proto_object_opt(object, "object", &out, &err), 0);
    assert_true(json_is_object(out));
    assert_int_equal(proto_object_opt(object, "null", &out, &err), 0);
    assert_null(out);
    expect_complaint(proto_array_opt(object, "object", &out, &err), &err, "object");
    expect_complaint(proto_object_opt(object, "array", &out, &err), &err, "array");
}

static void unknown_fields_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const some[] = {"text", "int", NULL};
    static const char *const all[] = {
        "text", "int", "real", "bool", "null", "array", "object", "big", "digits", NULL};
    struct tune_error err = {0};
    assert_int_equal(proto_known_keys(object, all, "a test", &err), 0);
    assert_int_equal(proto_known_keys(NULL, some, "a test", &err), 0);
    assert_int_equal(proto_known_keys(object, some, "a test", &err), -1);
    assert_int_equal(err.code, TUNE_EINVAL);
    assert_string_equal(err.text, "a test has no field \"real\"");
}

/* --- base64 ----------------------------------------------------------------------------------- */

static void base64_of_the_rfcs_examples(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char *text = proto_base64_encode(pairs[i][0], strlen(pairs[i][0]));
        assert_string_equal(text, pairs[i][1]);
        struct tune_error err = {0};
        size_t count = 99;
        void *bytes = proto_base64_decode(text, &count, &err);
        assert_non_null(bytes);
        assert_int_equal(count, strlen(pairs[i][0]));
        assert_memory_equal(bytes, pairs[i][0], count);
        free(bytes);
        free(text);
    }
}

static void all_bytes_survive_base64(void **state)
{
    (void)state;
    unsigned char bytes[256 + 2];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7);
    for (size_t length = 0; length <= sizeof bytes; length++) {
        char *text = proto_base64_encode(bytes, length);
        size_t count = 0;
        void *back = proto_base64_decode(text, &count, NULL);
        assert_int_equal(count, length);
        assert_memory_equal(back, bytes, length);
        free(back);
        free(text);
    }
}

static void wrong_base64_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"Z", "Zg", "Zg=", "Zg==Zg==", "Z===", "====", "Zm9v\n",
        "Zm 9v", "Zm9-", "Zm9_", "=m9v", "Zm=v", "Zm9\x80"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct tune_error err = {0};
        size_t count = 0;
        void *bytes = proto_base64_decode(texts[i], &count, &err);
        if (bytes != NULL)
            fail_msg("taken: %s", texts[i]);
        assert_int_equal(err.code, TUNE_EPARSE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fresh_reader_has_no_line),
        cmocka_unit_test(a_line_comes_out_whole_however_it_is_cut),
        cmocka_unit_test(bytes_come_one_by_one),
        cmocka_unit_test(only_one_carriage_return_belongs_to_the_line_end),
        cmocka_unit_test(a_nul_byte_does_not_end_a_line),
        cmocka_unit_test(the_unfinished_part_is_counted_and_kept),
        cmocka_unit_test(lines_that_were_not_taken_wait),
        cmocka_unit_test(a_line_of_the_limit_passes_and_one_byte_more_does_not),
        cmocka_unit_test(the_limit_is_named),
        cmocka_unit_test(a_line_too_long_between_two_short_ones_is_refused),
        cmocka_unit_test(memory_follows_the_traffic_not_the_total),
        cmocka_unit_test(the_buffer_of_a_long_line_is_given_back),
        cmocka_unit_test(a_finished_reader_can_be_used_again),
        cmocka_unit_test(strict_json_is_taken_as_it_stands),
        cmocka_unit_test(ambiguous_json_is_refused_with_a_position),
        cmocka_unit_test(every_refusal_can_be_sent_as_an_answer),
        cmocka_unit_test(nesting_is_refused_above_32_levels_before_anything_is_built),
        cmocka_unit_test(brackets_in_strings_and_side_by_side_are_no_nesting),
        cmocka_unit_test(a_line_without_a_value_is_not_made),
        cmocka_unit_test(messages_are_json_rpc_on_one_line),
        cmocka_unit_test(an_error_carries_number_sentence_and_word),
        cmocka_unit_test(an_error_with_broken_bytes_still_becomes_a_message),
        cmocka_unit_test_setup_teardown(strings_are_strings, make_object, drop_object),
        cmocka_unit_test_setup_teardown(integers_are_exact_or_refused, make_object, drop_object),
        cmocka_unit_test_setup_teardown(
            a_number_out_of_range_is_told_its_range, make_object, drop_object),
        cmocka_unit_test_setup_teardown(truth_is_not_a_number, make_object, drop_object),
        cmocka_unit_test_setup_teardown(a_number_may_be_whole_or_real, make_object, drop_object),
        cmocka_unit_test_setup_teardown(
            arrays_and_objects_are_told_apart, make_object, drop_object),
        cmocka_unit_test_setup_teardown(
            unknown_fields_are_refused_by_name, make_object, drop_object),
        cmocka_unit_test(base64_of_the_rfcs_examples),
        cmocka_unit_test(all_bytes_survive_base64),
        cmocka_unit_test(wrong_base64_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
