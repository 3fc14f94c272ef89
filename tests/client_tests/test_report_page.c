/* The page of a report: parts and numbers in one file, whatever texts the numbers bring. */
#include "client/tunectl/report.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char frame[] = "<style>/*TUNERD:CSS*/</style><script id=\"data\">/*TUNERD:DATA*/"
                            "</script><script>/*TUNERD:LIBRARY*/</script><script>"
                            "/*TUNERD:BASE*/ /*TUNERD:EXPLORE*/ /*TUNERD:RESULTS*/ "
                            "/*TUNERD:SCRIPT*/</script>\n";

static char folder[] = "/tmp/tune-page-XXXXXX";

static const char *path_in(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(path_in(name), "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int make_parts(void **state)
{
    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    write_file("page.html", frame);
    write_file("page.css", "p { margin: 0 }");
    write_file("echarts.min.js", "var echarts;");
    write_file("base.js", "one();");
    write_file("explore.js", "two();");
    write_file("results.js", "three();");
    write_file("page.js", "draw();");
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    return rmdir(folder);
}

static void assert_page(json_t *model, const char *expected)
{
    struct tune_error err = {0};
    size_t length;
    char *page = report_page_text(model, folder, &length, &err);
    if (page == NULL)
        fail_msg("%s", err.text);
    assert_int_equal(length, strlen(page));
    assert_string_equal(page, expected);
    free(page);
    json_decref(model);
}

static void refuse_page(const char *part_of_text)
{
    struct tune_error err = {0};
    size_t length;
    json_t *model = json_object();
    assert_null(report_page_text(model, folder, &length, &err));
    if (strstr(err.text, part_of_text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, part_of_text);
    json_decref(model);
}

static void every_part_is_put_in_its_place(void **state)
{
    (void)state;
    assert_page(json_pack("{s:i}", "a", 1),
        "<style>p { margin: 0 }</style><script id=\"data\">{\"a\":1}</script>"
        "<script>var echarts;</script><script>one(); two(); three(); draw();</script>\n");
}

static void numbers_have_six_digits(void **state)
{
    (void)state;
    write_file("page.html", "/*TUNERD:CSS*/ /*TUNERD:LIBRARY*/ /*TUNERD:BASE*/ /*TUNERD:EXPLORE*/ "
                            "/*TUNERD:RESULTS*/ /*TUNERD:SCRIPT*/ /*TUNERD:DATA*/");
    assert_page(json_pack("[f, f, I]", 1.0 / 3, 0.000123456789, (json_int_t)1796075037846),
        "p { margin: 0 } var echarts; one(); two(); three(); draw(); "
        "[0.333333,0.000123457,1796075037846]");
}

static void no_text_can_end_the_script_it_stands_in(void **state)
{
    (void)state;
    assert_page(json_pack("{s:s, s:s}", "</script><script>alert(1)</script>", "<!--", "control",
                    "\x01\x1f\n"),
        "<style>p { margin: 0 }</style><script id=\"data\">{\"\\u003c/script>\\u003cscript>"
        "alert(1)\\u003c/script>\":\"\\u003c!--\",\"control\":\"\\u0001\\u001F\\n\"}</script>"
        "<script>var echarts;</script><script>one(); two(); three(); draw();</script>\n");
}

static void a_mark_in_a_text_or_a_part_stays_a_text(void **state)
{
    (void)state;
    write_file("page.css", "/*TUNERD:DATA*/");
    assert_page(json_pack("[s]", "/*TUNERD:SCRIPT*/"),
        "<style>/*TUNERD:DATA*/</style><script id=\"data\">[\"/*TUNERD:SCRIPT*/\"]</script>"
        "<script>var echarts;</script><script>one(); two(); three(); draw();</script>\n");
}

static void a_missing_part_is_named(void **state)
{
    (void)state;
    static const char *const parts[] = {"page.html", "page.css", "base.js", "explore.js",
        "results.js", "page.js", "echarts.min.js"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        assert_int_equal(remove_folder(NULL), 0);
        assert_int_equal(make_parts(NULL), 0);
        assert_int_equal(unlink(path_in(parts[i])), 0);
        refuse_page(parts[i]);
    }
}

static void a_frame_without_a_place_is_refused(void **state)
{
    (void)state;
    write_file("page.html", "/*TUNERD:CSS*/ /*TUNERD:DATA*/ /*TUNERD:SCRIPT*/");
    refuse_page("page.html must have /*TUNERD:LIBRARY*/ once, and has it not at all");
}

static void a_frame_with_a_place_twice_is_refused(void **state)
{
    (void)state;
    char twice[sizeof frame + 32];
    snprintf(twice, sizeof twice, "%s/*TUNERD:DATA*/", frame);
    write_file("page.html", twice);
    refuse_page("page.html must have /*TUNERD:DATA*/ once, and has it more often");
}

static void the_parts_of_the_program_make_a_page(void **state)
{
    (void)state;
    struct tune_error err = {0};
    char bytes[16] = "";
    json_t *model = json_pack("{s:[]}", "groups");
    if (report_page(model, path_in("out.html"), &err))
        fail_msg("%s", err.text);
    json_decref(model);
    FILE *file = fopen(path_in("out.html"), "r");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, 15, file), 15);
    fclose(file);
    assert_string_equal(bytes, "<!DOCTYPE html>");
}

static void a_page_that_cannot_be_written_is_a_failure(void **state)
{
    (void)state;
    struct tune_error err = {0};
    json_t *model = json_object();
    assert_int_equal(report_page(model, path_in("no/such/folder.html"), &err), -1);
    assert_int_equal(err.code, TUNE_EIO);
    json_decref(model);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_parts, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_part_is_put_in_its_place),
        TEST(numbers_have_six_digits),
        TEST(no_text_can_end_the_script_it_stands_in),
        TEST(a_mark_in_a_text_or_a_part_stays_a_text),
        TEST(a_missing_part_is_named),
        TEST(a_frame_without_a_place_is_refused),
        TEST(a_frame_with_a_place_twice_is_refused),
        TEST(the_parts_of_the_program_make_a_page),
        TEST(a_page_that_cannot_be_written_is_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
