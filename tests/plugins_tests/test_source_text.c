/* plugins/source_text: which texts are the same to a compiler, and what they include. */
#include "plugins/source_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect(const char *a, const char *b, int is_same)
{
    char *first = source_tokens(a, strlen(a)), *second = source_tokens(b, strlen(b));
    if ((strcmp(first, second) == 0) != is_same)
        fail_msg(
            "expected %s:\n%s\n--- and\n%s", is_same ? "the same" : "a difference", first, second);
    free(first);
    free(second);
}

static void layout_and_comments_make_no_difference(void **state)
{
    (void)state;
    expect("int a = 1;", "int\ta=1 ;\r\n\n", 1);
    expect("a+b", "a + b", 1);
    expect("a + b", "a /* one */ + // two\n b", 1);
    expect("int/**/a;", "int a;", 1);
    expect("f(x);", "f ( x ) ;", 1);
    expect("a = b", "a = \\\n b", 1);
    expect("#define N 1\nint a;", "#  define   N\t1 // one\n\n\nint a;", 1);
    expect("#if 1 /* two\nlines */ && 2\n", "#if 1 && 2\n", 1);
    expect("x\n#define N 1", "x\n\n  #define N 1\n", 1);
    expect("#include <a.h>\nb", "# include<a.h> // c\n\nb", 1);
    expect("#define N \\\n 1", "#define N 1", 1);
    expect("k<<<1, 2>>>()", "k <<< 1,2 >>> ( )", 1);
}

static void one_character_of_code_makes_a_difference(void **state)
{
    (void)state;
    expect("int a = 1;", "int a = 2;", 0);
    expect("a+ +b", "a++b", 0);
    expect("a - -b", "a--b", 0);
    expect("a > > b", "a >> b", 0);
    expect("int a;", "inta;", 0);
    expect("1 .5", "1.5", 0);
    expect("1e+5", "1e +5", 0);
    expect("x = \"a b\";", "x = \"a  b\";", 0);
    expect("x = \"/* a */\";", "x = \"\";", 0);
    expect("x = \"// a\";", "x = \"// b\";", 0);
    expect("c = '\"'; // a", "c = '\"'; d", 0);
    expect("c = '\\''; /* a */ b", "c = '\\''; b", 1);
    expect("x = \"\\\"/*\"; a", "x = \"\\\"/*\"; b", 0);
    expect("#define F(x) x", "#define F (x) x", 0);
    expect("#define A\nB", "#define A B", 0);
    expect("a\n#b\n", "a #b\n", 0);
    expect("R\"(/* a */)\"", "R\"()\"", 0);
    expect("R\"x(\" // a\n)x\" b", "R\"x(\" // a\n)x\" c", 0);
    expect("#include <a/b.h>", "#include <a/ b.h>", 0);
    expect("1'000 + 'a'", "1'000 + 'b'", 0);
}

static void unfinished_texts_come_to_an_end(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "\\", "\"", "'", "/*", "//", "/", "#", "#define",
        "#include", "#include <", "#include \"a", "R\"", "R\"x(", "a\\\n", "0x", ".", "#define F(",
        "u8R\"(\n", "/*/", "\"\\"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        /* An exact copy on the heap: reading past it is seen by the sanitizer. */
        size_t length = strlen(texts[i]);
        char *copy = malloc(length + 1);
        memcpy(copy, texts[i], length);
        char *tokens = source_tokens(copy, length);
        assert_non_null(tokens);
        free(tokens);
        free(copy);
    }
}

/* Noise of every kind of byte that the scanner looks at. */
static void noise_does_no_harm(void **state)
{
    (void)state;
    static const char alphabet[] = "#\"'/*\\\n\r <>()R.+-=&|eu81 include define_\t";
    uint64_t random = 1;
    for (int round = 0; round < 20000; round++) {
        char text[48];
        for (size_t i = 0; i < sizeof text; i++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            text[i] = alphabet[(random >> 33) % (sizeof alphabet - 1)];
        }
        char *tokens = source_tokens(text, (size_t)(round % 49));
        struct source_include include;
        for (const char *at = tokens; (at = source_next_include(at, &include)) != NULL;)
            assert_true(include.name + include.length <= at + strlen(at));
        free(tokens);
    }
}

static void includes_are_found_where_the_compiler_finds_them(void **state)
{
    (void)state;
    const char *text = "#include \"one.cuh\" // \"not.cuh\"\n"
                       "// #include \"comment.cuh\"\n"
                       "/*\n#include \"comment.cuh\"\n*/\n"
                       "const char *s = \"#include <string.h>\";\n"
                       "  #  include   <cuda_fp16.h>\n"
                       "#define X \"two.cuh\"\n"
                       "#include X\n"
                       "#include_next <three.h>\n"
                       "x #include \"middle.cuh\"\n"
                       "#include \"sub/four.cuh\"";
    static const struct {
        enum include_form form;
        const char *name;
    } expected[] = {
        {INCLUDE_QUOTED, "one.cuh"},
        {INCLUDE_ANGLED, "cuda_fp16.h"},
        {INCLUDE_COMPUTED, "X"},
        {INCLUDE_COMPUTED, "include_next < three . h >"},
        {INCLUDE_QUOTED, "sub/four.cuh"},
    };
    char *tokens = source_tokens(text, strlen(text));
    const char *at = tokens;
    struct source_include include;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        at = source_next_include(at, &include);
        assert_non_null(at);
        assert_int_equal(include.form, expected[i].form);
        assert_int_equal(include.length, strlen(expected[i].name));
        assert_memory_equal(include.name, expected[i].name, include.length);
    }
    assert_null(source_next_include(at, &include));
    free(tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_and_comments_make_no_difference),
        cmocka_unit_test(one_character_of_code_makes_a_difference),
        cmocka_unit_test(unfinished_texts_come_to_an_end),
        cmocka_unit_test(noise_does_no_harm),
        cmocka_unit_test(includes_are_found_where_the_compiler_finds_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
