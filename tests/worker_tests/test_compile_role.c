/* The compile role against the machine's NVRTC. */
#include "worker_driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static struct worker_process compiler;
static json_t *hello;

#define KERNEL "extern \"C\" __global__ void a(int *p) { *p = 3; }\n"

static json_t *compile(const char *source, const char *option, const char *entry)
{
    return compile_text(&compiler, source, "sm_90", option, entry);
}

static bool is_ok(const json_t *answer)
{
    if (!json_is_true(json_object_get(answer, "ok")))
        print_error("not ok: %s\n", text_of(answer, "error"));
    return json_is_true(json_object_get(answer, "ok"));
}

static void a_kernel_becomes_machine_code_with_its_resources(void **state)
{
    (void)state;
    json_t *answer = compile("extern \"C\" __global__ void a(int *p) { __shared__ int s[100];"
                             " s[threadIdx.x] = *p; __syncthreads(); p[N] = s[31 - threadIdx.x]; }",
        "-DN=3", "a");
    assert_true(is_ok(answer));
    size_t bytes;
    char *image = proto_base64_decode(text_of(answer, "image"), &bytes, NULL);
    assert_true(bytes > 500);
    assert_memory_equal(image, "\177ELF", 4);
    free(image);
    assert_string_equal(text_of(json_object_get(answer, "names"), "a"), "a");
    json_t *resources = json_object_get(json_object_get(answer, "resources"), "a");
    assert_int_equal(json_integer_value(json_object_get(resources, "static_shared_bytes")), 400);
    assert_true(json_integer_value(json_object_get(resources, "registers")) > 0);
    json_decref(answer);
}

static void a_virtual_architecture_gives_ptx(void **state)
{
    (void)state;
    json_t *answer = compile_text(&compiler, KERNEL, "compute_90", NULL, "a");
    size_t bytes;
    assert_true(is_ok(answer));
    assert_true(json_is_true(json_object_get(answer, "is_ptx")));
    char *image = proto_base64_decode(text_of(answer, "image"), &bytes, NULL);
    assert_non_null(memmem(image, bytes, ".entry a", 8));
    free(image);
    json_decref(answer);
}

static void names_of_every_kind_are_found(void **state)
{
    (void)state;
    static const char source[] = "template <class T, int N> __global__ void k(T *p) { p[N] = 1; }\n"
                                 "namespace ns { __global__ void c(int *p) { *p = 2; } }\n"
                                 "__global__ void b(int *p) { *p = 1; }\n" KERNEL;
    static const char *const names[][2] = {
        {"k<float,16>", "_Z1kIfLi16EEvPT_"}, {"ns::c", "_ZN2ns1cEPi"}, {"b", "_Z1bPi"}, {"a", "a"}};
    for (size_t i = 0; i < 4; i++) {
        json_t *answer = compile(source, NULL, names[i][0]);
        assert_true(is_ok(answer));
        assert_string_equal(text_of(json_object_get(answer, "names"), names[i][0]), names[i][1]);
        json_decref(answer);
    }
    json_t *answer = compile(source, NULL, "bb");
    assert_true(has_text(answer, "error", "no kernel \"bb\""));
    assert_true(has_text(answer, "error", "k, c, b, a"));
    json_decref(answer);
    answer = compile(source, NULL, "k<16");
    assert_true(has_text(answer, "error", "is no name of a kernel"));
    json_decref(answer);
}

static void standard_and_toolkit_headers_need_no_option(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "stdint.h", "cstdint", "stddef.h", "limits.h", "float.h", "cuda_fp16.h", "mma.h"};
    if (json_is_null(json_object_get(hello, "include")))
        skip();
    for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++) {
        char source[200];
        snprintf(source, sizeof(source), "#include <%s>\n" KERNEL, headers[i]);
        json_t *answer = compile(source, NULL, "a");
        assert_true(is_ok(answer));
        json_decref(answer);
    }
    json_t *answer = compile("#include <stdint.h>\n#include <cuda/std/cstdint>\n"
                             "extern \"C\" __global__ void a(uint64_t *p) { *p = UINT64_MAX; }",
        NULL, "a");
    assert_true(is_ok(answer));
    json_decref(answer);
}

static void a_header_in_memory_is_used_and_a_missing_one_named(void **state)
{
    (void)state;
    json_t *answer = worker_ask(&compiler,
        json_pack("{ss,ss,ss,ss,s[{ss,ss}],s[s]}", "op", "compile", "name", "t.cu", "source",
            "#include \"mine.cuh\"\nextern \"C\" __global__ void a(int *p) { *p = MINE; }", "arch",
            "sm_90", "headers", "name", "mine.cuh", "text", "#define MINE 4\n", "entries", "a"));
    assert_true(is_ok(answer));
    json_decref(answer);
    answer = compile("#include <nope.h>\n" KERNEL, NULL, "a");
    assert_true(has_text(answer, "error", "nope.h"));
    assert_true(has_text(answer, "error", "searched"));
    json_decref(answer);
}

static void a_decoy_header_in_the_working_folder_is_not_found(void **state)
{
    (void)state;
    FILE *decoy = fopen("cuda_fp16.h", "w");
    fputs("#error decoy\n", decoy);
    fclose(decoy);
    struct worker_process other;
    worker_start(&other, "compile", NULL);
    json_decref(worker_read(&other));
    json_t *answer = compile_text(&other, "#include \"cuda_fp16.h\"\n" KERNEL, "sm_90", NULL, "a");
    unlink("cuda_fp16.h");
    assert_false(json_is_string(json_object_get(answer, "error")) &&
                 strstr(text_of(answer, "error"), "decoy"));
    json_decref(answer);
    worker_end(&other);
}

static void text_that_is_no_macro_is_refused_before_the_compiler(void **state)
{
    (void)state;
    static const char *const options[] = {"-DX=16;}", "-DX=16\n", "-DX=1\"2", "-DX=a'b", "-DX=#",
        "--include-path=/etc", "-I/etc", "-D", "-D1X=2", "-include", "", "-DX=1\\2",
        "--fmad=false -DY"};
    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
        json_t *answer = compile(KERNEL, options[i], "a");
        assert_true(has_text(answer, "error", "refused"));
        assert_string_equal(text_of(answer, "log"), "");
        json_decref(answer);
    }
    static const char *const good[] = {"-DX=16", "-DTUNE_T=unsigned char", "-DX", "--fmad=false"};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        json_t *answer = compile(KERNEL, good[i], "a");
        assert_true(is_ok(answer));
        json_decref(answer);
    }
}

/* A parameter of a manifest becomes such a macro. */
static void a_macro_that_breaks_the_compilers_own_header_is_told_as_such(void **state)
{
    (void)state;
    json_t *answer = compile(KERNEL, "-DT=16", "a");
    assert_true(has_text(answer, "error", "give that parameter another name"));
    json_decref(answer);
}

static void an_architecture_out_of_range_says_which_are_known(void **state)
{
    (void)state;
    json_t *answer = compile_text(&compiler, KERNEL, "sm_20", NULL, "a");
    assert_true(has_text(answer, "error", "sm_20"));
    assert_true(has_text(answer, "error", "older CUDA toolkit"));
    json_decref(answer);
    answer = compile_text(&compiler, KERNEL, "sm_137", NULL, "a");
    assert_true(has_text(answer, "error", "newer CUDA toolkit"));
    json_decref(answer);
    answer = compile_text(&compiler, KERNEL, "cpu", NULL, "a");
    assert_true(has_text(answer, "error", "emulator"));
    json_decref(answer);
    answer = compile_text(&compiler, KERNEL, "sm_90 -I/etc", NULL, "a");
    assert_true(has_text(answer, "error", "must be like sm_90"));
    json_decref(answer);
}

static void a_failed_static_assert_is_told_apart(void **state)
{
    (void)state;
    json_t *answer = compile("static_assert(BM == 2, \"BM must be 2\");\n" KERNEL, "-DBM=1", "a");
    assert_true(json_is_true(json_object_get(answer, "static_assert")));
    assert_true(has_text(answer, "error", "BM must be 2"));
    json_decref(answer);
    answer = compile("__device__ int x = y;\n" KERNEL, NULL, "a");
    assert_true(json_is_false(json_object_get(answer, "static_assert")));
    assert_true(has_text(answer, "error", "identifier \"y\" is undefined"));
    json_decref(answer);
}

static void a_huge_log_is_cut_and_keeps_its_first_error(void **state)
{
    (void)state;
    char *source = malloc(20000 * 12 + 100), *at = source;
    for (int i = 0; i < 20000; i++)
        at += sprintf(at, "#warning x\n");
    sprintf(at, "__device__ int x = late_error;\n");
    json_t *answer = compile(source, NULL, NULL);
    assert_true(strlen(text_of(answer, "log")) <= 65536);
    assert_true(json_integer_value(json_object_get(answer, "log_bytes")) > 1000000);
    assert_true(has_text(answer, "error", "late_error"));
    assert_true(strstr(text_of(answer, "log"), "late_error") != NULL);
    json_decref(answer);
    free(source);
}

static void too_much_static_shared_memory_says_how_much(void **state)
{
    (void)state;
    json_t *answer = compile("extern \"C\" __global__ void a(int *p) { __shared__ int s[20000];"
                             " s[threadIdx.x] = p[0]; __syncthreads(); p[1] = s[7]; }",
        NULL, "a");
    assert_true(json_is_false(json_object_get(answer, "ok")));
    assert_true(has_text(answer, "error", "shared"));
    json_decref(answer);
}

static void the_same_text_gives_the_same_image_and_log(void **state)
{
    (void)state;
    json_t *first = compile(KERNEL, "-DX=1", "a"), *second = compile(KERNEL, "-DX=1", "a");
    assert_string_equal(text_of(first, "image"), text_of(second, "image"));
    assert_string_equal(text_of(first, "log"), text_of(second, "log"));
    json_decref(first);
    json_decref(second);
}

static void other_requests_are_refused_and_the_worker_lives(void **state)
{
    (void)state;
    json_t *answer = worker_ask(&compiler, json_pack("{ss}", "op", "bench"));
    assert_true(has_text(answer, "error", "compile"));
    json_decref(answer);
    answer = worker_ask(&compiler, json_pack("{ss}", "op", "compile"));
    assert_true(has_text(answer, "error", "name"));
    json_decref(answer);
    answer = compile(KERNEL, NULL, "a");
    assert_true(is_ok(answer));
    json_decref(answer);
}

static void every_compute_architecture_takes_the_harness(void **state)
{
    (void)state;
    json_t *archs = json_object_get(hello, "archs"), *arch;
    char *source = read_text(TUNE_KERNELS_SRC "/harness.cu");
    size_t index;
    json_array_foreach (archs, index, arch) {
        char name[32];
        if (index != 0 && index + 1 != json_array_size(archs))
            continue; /* the oldest and the newest */
        snprintf(name, sizeof(name), "sm_%d", (int)json_integer_value(arch));
        json_t *answer = compile_text(&compiler, source, name, NULL, NULL);
        assert_true(is_ok(answer));
        assert_int_equal(json_object_size(json_object_get(answer, "resources")), 4);
        json_decref(answer);
    }
    free(source);
}

static int stop(void **state)
{
    (void)state;
    json_decref(hello);
    return worker_end(&compiler) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_becomes_machine_code_with_its_resources),
        cmocka_unit_test(a_virtual_architecture_gives_ptx),
        cmocka_unit_test(names_of_every_kind_are_found),
        cmocka_unit_test(standard_and_toolkit_headers_need_no_option),
        cmocka_unit_test(a_header_in_memory_is_used_and_a_missing_one_named),
        cmocka_unit_test(a_decoy_header_in_the_working_folder_is_not_found),
        cmocka_unit_test(text_that_is_no_macro_is_refused_before_the_compiler),
        cmocka_unit_test(a_macro_that_breaks_the_compilers_own_header_is_told_as_such),
        cmocka_unit_test(an_architecture_out_of_range_says_which_are_known),
        cmocka_unit_test(a_failed_static_assert_is_told_apart),
        cmocka_unit_test(a_huge_log_is_cut_and_keeps_its_first_error),
        cmocka_unit_test(too_much_static_shared_memory_says_how_much),
        cmocka_unit_test(the_same_text_gives_the_same_image_and_log),
        cmocka_unit_test(other_requests_are_refused_and_the_worker_lives),
        cmocka_unit_test(every_compute_architecture_takes_the_harness),
    };
    use_emulator(false);
    worker_start(&compiler, "compile", NULL);
    hello = worker_read(&compiler);
    if (!hello || json_object_get(hello, "error")) {
        printf("skipped: no NVRTC here: %s\n", hello ? text_of(hello, "error") : "no hello");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, stop);
}
