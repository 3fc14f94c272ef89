#include "client/error.h"

#include <jansson.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void every_code_has_a_word_of_its_own(void **state)
{
    (void)state;
    for (int code = TUNE_OK; code <= TUNE_EINTERNAL; code++) {
        const char *word = tune_code_word((enum tune_code)code);
        assert_non_null(word);
        assert_int_not_equal(word[0], '\0');
        assert_int_equal(strspn(word, "abcdefghijklmnopqrstuvwxyz_"), strlen(word));
        for (int other = TUNE_OK; other < code; other++)
            assert_string_not_equal(word, tune_code_word((enum tune_code)other));
        if (code != TUNE_OK)
            assert_int_equal(tune_code_from_word(word), code);
    }
}

static void a_word_that_is_no_errors_is_internal(void **state)
{
    (void)state;
    static const char *const words[] = {NULL, "", "ok", "limits", "Busy"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        assert_int_equal(tune_code_from_word(words[i]), TUNE_EINTERNAL);
}

static void the_words_that_scripts_compare_stay(void **state)
{
    (void)state;
    assert_string_equal(tune_code_word(TUNE_ELIMIT), "limit");
    assert_string_equal(tune_code_word(TUNE_EPARSE), "parse_error");
    assert_string_equal(tune_code_word(TUNE_ENOTFOUND), "not_found");
    assert_string_equal(tune_code_word(TUNE_EBUSY), "busy");
    assert_string_equal(tune_code_word(TUNE_EMETHOD), "unknown_method");
}

static void a_code_out_of_range_is_internal(void **state)
{
    (void)state;
    assert_string_equal(tune_code_word((enum tune_code)9999), "internal");
    assert_string_equal(tune_code_word((enum tune_code) - 1), "internal");
}

static void failing_returns_minus_one_and_tells(void **state)
{
    (void)state;
    struct tune_error err = {0};
    assert_int_equal(tune_fail(&err, TUNE_ELIMIT, "at most %d", 7), -1);
    assert_int_equal(err.code, TUNE_ELIMIT);
    assert_string_equal(err.text, "at most 7");
}

static void the_first_cause_wins(void **state)
{
    (void)state;
    struct tune_error err = {0};
    tune_fail(&err, TUNE_EIO, "the disk is full");
    assert_int_equal(tune_fail(&err, TUNE_EINVAL, "it failed"), -1);
    errno = ENOENT;
    assert_int_equal(tune_fail_errno(&err, TUNE_EINVAL, "it failed"), -1);
    assert_int_equal(err.code, TUNE_EIO);
    assert_string_equal(err.text, "the disk is full");
}

static void nobody_needs_to_listen(void **state)
{
    (void)state;
    assert_int_equal(tune_fail(NULL, TUNE_EIO, "unheard"), -1);
    assert_int_equal(tune_fail_errno(NULL, TUNE_EIO, "unheard"), -1);
}

static void errnos_words_follow_the_sentence(void **state)
{
    (void)state;
    struct tune_error err = {0};
    errno = ENOENT;
    assert_int_equal(tune_fail_errno(&err, TUNE_EIO, "cannot open %s", "x.db"), -1);
    assert_string_equal(err.text, "cannot open x.db: No such file or directory");
}

static void errnos_words_survive_a_path_that_is_too_long(void **state)
{
    (void)state;
    char path[1000];
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    struct tune_error err = {0};
    errno = EACCES;
    tune_fail_errno(&err, TUNE_EIO, "cannot open %s", path);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    const char *end = ": Permission denied";
    assert_string_equal(err.text + strlen(err.text) - strlen(end), end);
}

/* The text goes into JSON, which takes whole characters only. */
static void check_cut(const char *character, size_t lead)
{
    char text[600];
    memset(text, 'x', lead);
    text[lead] = '\0';
    while (strlen(text) + strlen(character) < sizeof text)
        strcat(text, character);
    struct tune_error err = {0};
    tune_fail(&err, TUNE_EINVAL, "%s", text);
    assert_in_range(
        strlen(err.text), sizeof err.text - 1 - (strlen(character) - 1), sizeof err.text - 1);
    json_t *json = json_string(err.text);
    if (json == NULL)
        fail_msg("cut inside %s after %zu bytes", character, lead);
    json_decref(json);
    struct tune_error second = {0};
    errno = ENOENT;
    tune_fail_errno(&second, TUNE_EINVAL, "%s", text);
    json = json_string(second.text);
    assert_non_null(json);
    json_decref(json);
}

static void a_long_text_is_cut_between_characters(void **state)
{
    (void)state;
    static const char *const characters[] = {"y", "\u00e9", "\u20ac", "\U0001F600"};
    for (size_t i = 0; i < sizeof characters / sizeof characters[0]; i++)
        for (size_t lead = 0; lead < 8; lead++)
            check_cut(characters[i], lead);
}

static void a_text_that_fits_is_left_whole(void **state)
{
    (void)state;
    char text[240];
    memset(text, 'x', sizeof text);
    strcpy(text + 239 - 3, "\u20ac");
    assert_int_equal(strlen(text), 239);
    struct tune_error err = {0};
    tune_fail(&err, TUNE_EINVAL, "%s", text);
    assert_string_equal(err.text, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_word_of_its_own),
        cmocka_unit_test(a_word_that_is_no_errors_is_internal),
        cmocka_unit_test(the_words_that_scripts_compare_stay),
        cmocka_unit_test(a_code_out_of_range_is_internal),
        cmocka_unit_test(failing_returns_minus_one_and_tells),
        cmocka_unit_test(the_first_cause_wins),
        cmocka_unit_test(nobody_needs_to_listen),
        cmocka_unit_test(errnos_words_follow_the_sentence),
        cmocka_unit_test(errnos_words_survive_a_path_that_is_too_long),
        cmocka_unit_test(a_long_text_is_cut_between_characters),
        cmocka_unit_test(a_text_that_fits_is_left_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
