#include "daemon/worker/compile_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char ptxas_log[] =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'b' for 'sm_90'\n"
    "ptxas info    : Function properties for b\n"
    "ptxas         .     16 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads\n"
    "ptxas info    : Used 255 registers, used 1 barriers, 400 bytes smem, 16 bytes stack\n"
    "ptxas info    : Compile time = 1.688 ms\n"
    "ptxas info    : Function properties for helper\n"
    "    96 bytes stack frame, 7 bytes spill stores, 7 bytes spill loads\n"
    "ptxas info    : Compiling entry function 'a' for 'sm_90'\n"
    "ptxas info    : Function properties for a\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 10 registers\n"
    "ptxas info    : Compile time = 1.558 ms\n";

static json_int_t number(json_t *resources, const char *entry, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(resources, entry), key));
}

static void resources_are_read_for_each_entry(void **state)
{
    (void)state;
    json_t *resources = compile_log_resources(ptxas_log);
    assert_int_equal(json_object_size(resources), 2);
    assert_int_equal(number(resources, "b", "registers"), 255);
    assert_int_equal(number(resources, "b", "spill_bytes"), 64);
    assert_int_equal(number(resources, "b", "stack_bytes"), 16);
    assert_int_equal(number(resources, "b", "static_shared_bytes"), 400);
    assert_int_equal(number(resources, "a", "registers"), 10);
    assert_int_equal(number(resources, "a", "spill_bytes"), 0);
    assert_int_equal(number(resources, "a", "static_shared_bytes"), 0);
    json_decref(resources);
}

static void two_compiles_of_one_text_leave_the_same_log(void **state)
{
    (void)state;
    char log[sizeof(ptxas_log)];
    memcpy(log, ptxas_log, sizeof(log));
    size_t length = compile_log_strip(log);
    assert_int_equal(length, strlen(log));
    assert_null(strstr(log, "Compile time"));
    assert_non_null(strstr(log, "Used 10 registers\n"));
    char without_end[] = "one\nptxas info : Compile time = 2 ms";
    assert_int_equal(compile_log_strip(without_end), 4);
}

static void the_first_error_is_found_in_every_compilers_form(void **state)
{
    (void)state;
    static const char *const lines[] = {"gemm.cu(12): error: expected a \";\"",
        "gemm.cu(12): error #20-D: identifier \"x\" is undefined",
        "gemm.cu(1): catastrophic error: cannot open source file \"nope.h\"",
        "ptxas error   : Entry function 'a' uses too much shared data", "nvrtc: error: bad option",
        "t.cu:3:5: error: 'y' was not declared in this scope", "fatal error: x.h: No such file"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        char log[300];
        size_t length;
        snprintf(log, sizeof(log), "t.cu(1): warning: no errors: here\n%s\nmore\n", lines[i]);
        const char *error = compile_log_error(log, &length);
        assert_non_null(error);
        assert_int_equal(length, strlen(lines[i]));
        assert_memory_equal(error, lines[i], length);
    }
}

static void a_log_without_errors_has_none(void **state)
{
    (void)state;
    size_t length;
    assert_null(compile_log_error("", &length));
    assert_null(compile_log_error(ptxas_log, &length));
    assert_null(compile_log_error("2 errors: detected\nterror: x\nerror_count: 3\n", &length));
}

static void a_long_log_is_cut_with_its_first_error_and_its_length(void **state)
{
    (void)state;
    const size_t lines = 20000, limit = 65536;
    char *log = malloc(lines * 40 + 100), *at = log;
    for (size_t i = 0; i < lines; i++)
        at += sprintf(at, "t.cu(%zu): warning: hello \xc3\xa9\n", i);
    sprintf(at, "t.cu(1): error: the one that matters\n");
    char expected[60];
    char *cut = compile_log_cut(log, limit);
    snprintf(expected, sizeof(expected), " of %zu bytes shown]", strlen(log));
    assert_true(strlen(cut) <= limit);
    assert_non_null(strstr(cut, expected));
    assert_non_null(strstr(cut, "error: the one that matters"));
    assert_memory_equal(cut, log, 60000);
    free(cut);
    free(log);
}

static void a_short_log_is_kept_whole(void **state)
{
    (void)state;
    char *cut = compile_log_cut(ptxas_log, sizeof(ptxas_log) - 1);
    assert_string_equal(cut, ptxas_log);
    free(cut);
}

static void globals_are_listed_behind_any_attributes(void **state)
{
    (void)state;
    char names[64];
    compile_log_globals(
        "extern \"C\" __global__ void __launch_bounds__(BM * (4), 2) gemm(int *p) {}\n"
        "template <class T> __global__ void k(T *p);\n"
        "__launch_bounds__(3) __global__ __attribute__((used)) void last(void) {}",
        names, sizeof(names));
    assert_string_equal(names, "gemm, k, last");
    compile_log_globals("__global__", names, sizeof(names));
    assert_string_equal(names, "none");
    char small[8];
    compile_log_globals("__global__ void abc(); __global__ void defghi();", small, sizeof(small));
    assert_string_equal(small, "abc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resources_are_read_for_each_entry),
        cmocka_unit_test(two_compiles_of_one_text_leave_the_same_log),
        cmocka_unit_test(the_first_error_is_found_in_every_compilers_form),
        cmocka_unit_test(a_log_without_errors_has_none),
        cmocka_unit_test(a_long_log_is_cut_with_its_first_error_and_its_length),
        cmocka_unit_test(a_short_log_is_kept_whole),
        cmocka_unit_test(globals_are_listed_behind_any_attributes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
