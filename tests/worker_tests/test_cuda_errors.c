#include "daemon/worker/cuda_errors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void each_code_says_whether_the_worker_stays(void **state)
{
    (void)state;
    static const unsigned keep[] = {1, 2, 200, 209, 222, 300, 400, 500, 600, 701, 720, 801};
    static const unsigned lost[] = {
        214, 304, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999, 4242};
    for (size_t i = 0; i < sizeof(keep) / sizeof(*keep); i++)
        assert_false(cuda_error_find(keep[i])->is_sticky);
    for (size_t i = 0; i < sizeof(lost) / sizeof(*lost); i++)
        assert_true(cuda_error_find(lost[i])->is_sticky);
}

static void the_device_is_blamed_for_what_no_candidate_can_do(void **state)
{
    (void)state;
    static const unsigned device[] = {46, 214, 304, 709, 999};
    for (size_t i = 0; i < sizeof(device) / sizeof(*device); i++)
        assert_int_equal(cuda_error_find(device[i])->blame, BLAME_DEVICE);
    assert_int_equal(cuda_error_find(700)->blame, BLAME_CANDIDATE);
    assert_int_equal(cuda_error_find(4242)->blame, BLAME_CANDIDATE);
}

static void a_launch_time_out_is_final_and_carries_the_hint(void **state)
{
    (void)state;
    struct verdict verdict = {.outcome = NULL};
    assert_int_equal(verdict_cuda(&verdict, 702, "gemm"), -1);
    assert_string_equal(verdict.outcome, "timeout");
    assert_false(verdict.is_retried);
    assert_non_null(strstr(verdict.text, "drives a screen"));
    assert_non_null(strstr(verdict.text, "702"));
}

static void the_first_cause_wins(void **state)
{
    (void)state;
    struct verdict verdict = {.outcome = NULL};
    verdict_set(&verdict, "wrong_result", "first %d", 1);
    verdict_cuda(&verdict, 700, "second");
    assert_string_equal(verdict.text, "first 1");
    assert_false(verdict.is_sticky);
}

static void an_unknown_code_is_fatal_and_named_by_its_number(void **state)
{
    (void)state;
    struct verdict verdict = {.outcome = NULL};
    verdict_cuda(&verdict, 4242, "gemm");
    json_t *answer = json_object();
    verdict_to_json(&verdict, answer);
    assert_true(json_is_true(json_object_get(answer, "sticky")));
    assert_int_equal(json_integer_value(json_object_get(answer, "code")), 4242);
    assert_string_equal(json_string_value(json_object_get(answer, "outcome")), "crashed");
    assert_non_null(strstr(json_string_value(json_object_get(answer, "error")), "4242"));
    json_decref(answer);
}

static void a_sentence_cut_inside_a_character_still_travels(void **state)
{
    (void)state;
    struct verdict verdict = {.outcome = NULL};
    char name[600];
    memset(name, 'x', sizeof(name));
    memcpy(name + sizeof(verdict.text) - 2, "\xc3\xa9", 2);
    name[sizeof(name) - 1] = '\0';
    verdict_set(&verdict, "invalid", "%s", name);
    json_t *answer = json_object();
    verdict_to_json(&verdict, answer);
    const char *told = json_string_value(json_object_get(answer, "error"));
    assert_non_null(told);
    assert_non_null(strstr(told, "xxxx")); /* and not "invalid" alone */
    json_decref(answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_code_says_whether_the_worker_stays),
        cmocka_unit_test(the_device_is_blamed_for_what_no_candidate_can_do),
        cmocka_unit_test(a_launch_time_out_is_final_and_carries_the_hint),
        cmocka_unit_test(the_first_cause_wins),
        cmocka_unit_test(an_unknown_code_is_fatal_and_named_by_its_number),
        cmocka_unit_test(a_sentence_cut_inside_a_character_still_travels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
