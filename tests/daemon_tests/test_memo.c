/* Answers kept ready. */
#include "daemon/memo.h"
#include "support.h"

#include <stdio.h>
#include <string.h>

static void put(struct memo *memo, uint64_t version, const char *question, const char *answer)
{
    memo_put(memo, version, question, strlen(question), answer, strlen(answer));
}

static void expect(struct memo *memo, uint64_t version, const char *question, const char *answer)
{
    size_t length = 0;
    const char *found = memo_get(memo, version, question, strlen(question), &length);
    if (answer == NULL) {
        assert_null(found);
        return;
    }
    assert_non_null(found);
    assert_int_equal(length, strlen(answer));
    assert_memory_equal(found, answer, length);
}

static void an_answer_is_found_by_all_bytes_of_its_question(void **state)
{
    (void)state;
    struct memo *memo = memo_create(1 << 20);
    expect(memo, 1, "a", NULL);
    put(memo, 1, "a", "one");
    put(memo, 1, "ab", "two");
    put(memo, 1, "", "three");
    expect(memo, 1, "a", "one");
    expect(memo, 1, "ab", "two");
    expect(memo, 1, "", "three");
    expect(memo, 1, "b", NULL);
    put(memo, 1, "a", "four");
    expect(memo, 1, "a", "four");
    memo_destroy(memo);
}

static void answers_of_another_version_are_none(void **state)
{
    (void)state;
    struct memo *memo = memo_create(1 << 20);
    put(memo, 1, "a", "old");
    expect(memo, 2, "a", NULL);
    put(memo, 2, "a", "new");
    expect(memo, 2, "a", "new");
    expect(memo, 1, "a", NULL);
    put(memo, 1, "a", "begun before"); /* an answer that was under way meanwhile */
    expect(memo, 2, "a", NULL);
    memo_destroy(memo);
}

static void the_limit_holds_and_the_newest_is_kept(void **state)
{
    (void)state;
    enum { LIMIT = 4096 };
    struct memo *memo = memo_create(LIMIT);
    char question[16], answer[100];
    memset(answer, 'x', sizeof answer - 1);
    answer[sizeof answer - 1] = '\0';
    for (int i = 0; i < 1000; i++) {
        snprintf(question, sizeof question, "%d", i);
        put(memo, 1, question, answer);
        assert_in_range(memo_bytes(memo), 1, LIMIT);
        expect(memo, 1, question, answer);
    }
    static char large[LIMIT + 1];
    memset(large, 'y', LIMIT);
    put(memo, 1, "large", large);
    expect(memo, 1, "large", NULL);
    memo_destroy(memo);
    memo_destroy(NULL);
}

/* With a place for each and no more, some 700 of them would be lost. */
static void many_questions_keep_out_of_each_others_way(void **state)
{
    (void)state;
    enum { QUESTIONS = 10000 };
    struct memo *memo = memo_create(64 << 20);
    char question[16];
    size_t length, found = 0;
    for (int i = 0; i < QUESTIONS; i++) {
        snprintf(question, sizeof question, "%d", i);
        put(memo, 1, question, "answer");
    }
    for (int i = 0; i < QUESTIONS; i++) {
        snprintf(question, sizeof question, "%d", i);
        found += memo_get(memo, 1, question, strlen(question), &length) != NULL;
    }
    assert_in_range(found, QUESTIONS - 20, QUESTIONS);
    memo_destroy(memo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_found_by_all_bytes_of_its_question),
        cmocka_unit_test(answers_of_another_version_are_none),
        cmocka_unit_test(the_limit_holds_and_the_newest_is_kept),
        cmocka_unit_test(many_questions_keep_out_of_each_others_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
