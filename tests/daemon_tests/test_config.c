#include "daemon/config.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct config config;
static struct tune_error err;

/* Parses up to eight options, ended by NULL. */
static int parse(const char *first, ...)
{
    char program[] = "tunerd";
    char *argv[10] = {program};
    int argc = 1;
    va_list args;
    va_start(args, first);
    for (const char *at = first; at != NULL; at = va_arg(args, const char *))
        argv[argc++] = (char *)at;
    va_end(args);
    config_finish(&config);
    err = (struct tune_error){0};
    return config_parse(&config, argc, argv, &err);
}

static void expect_refused(enum tune_code code, const char *part)
{
    if (err.code != code || strstr(err.text, part) == NULL)
        fail_msg("%s: %s", tune_code_word(err.code), err.text);
}

static void parse_well(void)
{
    if (parse("--foreground", NULL))
        fail_msg("%s", err.text);
}

static int start(void **state)
{
    if (support_start(state))
        return -1;
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("TUNE_EMULATE");
    unsetenv("TUNE_CUDA_DIR");
    unsetenv("TUNE_PLUGIN_PATH");
    setenv("TUNE_WORKER", fake_worker(), 1);
    setenv("TUNE_SOCKET", path_in("s"), 1);
    setenv("HOME", path_in("home"), 1);
    setenv("XDG_DATA_HOME", path_in("data"), 1);
    return 0;
}

static int finish(void **state)
{
    config_finish(&config);
    return support_finish(state);
}

static void the_usual_needs_no_option(void **state)
{
    (void)state;
    parse_well();
    assert_string_equal(config.socket, path_in("s"));
    assert_string_equal(config.db, path_in("data/tunerd/db"));
    assert_string_equal(config.worker, fake_worker());
    assert_true(config.compile_workers >= 1);
    assert_int_equal(config.compile_deadline_ms, 60000);
    assert_true(config.compile_memory_limit_bytes == (size_t)4 << 30);
    assert_int_equal(config.idle_exit_ms, 0);
    assert_null(config.devices);
    assert_null(config.cuda);
    assert_non_null(strstr(config.records, "/share/tunerd/records"));
    assert_int_equal(config.plugin_count, 2);
    assert_string_equal(config.plugins[0], path_in("data/tunerd/plugins"));
    assert_null(config.plugins[2]);
    config_finish(&config);
    config_finish(&config); /* again does nothing */
}

static void options_are_taken(void **state)
{
    (void)state;
    assert_int_equal(parse("--compile-workers=3", "--compile-deadline=7", "--compile-memory=64",
                         "--devices=0,2", "--idle-exit=5", "--db=/x/db", "--debug", NULL),
        0);
    assert_int_equal(config.compile_workers, 3);
    assert_int_equal(config.compile_deadline_ms, 7000);
    assert_true(config.compile_memory_limit_bytes == (size_t)64 << 20);
    assert_string_equal(config.devices, "0,2");
    assert_int_equal(config.idle_exit_ms, 5000);
    assert_string_equal(config.db, "/x/db");
    assert_true(config.debug);
    assert_false(config.foreground || config.check || config.is_system);
}

static void a_number_must_be_whole_and_in_range(void **state)
{
    (void)state;
    static const char *const options[] = {"--compile-workers=0", "--compile-workers=257",
        "--compile-workers=2x", "--compile-workers=", "--compile-workers=1.5",
        "--compile-workers=-1", "--compile-deadline=0", "--compile-deadline=99999999999999999999",
        "--compile-memory=63", "--idle-exit=never"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        assert_int_equal(parse(options[i], NULL), -1);
        expect_refused(TUNE_EINVAL, "whole number from");
    }
}

static void usage_errors_say_where_help_is(void **state)
{
    (void)state;
    assert_int_equal(parse("--nonsense", NULL), -1);
    expect_refused(TUNE_EINVAL, "--help");
    assert_int_equal(parse("--db", NULL), -1);
    expect_refused(TUNE_EINVAL, "--help");
    assert_int_equal(parse("start", NULL), -1);
    expect_refused(TUNE_EINVAL, "\"start\"");
    assert_int_equal(parse("--devices=a,b", NULL), -1);
    expect_refused(TUNE_EINVAL, "ordinals");
}

static void help_and_version_need_nothing_else(void **state)
{
    (void)state;
    setenv("TUNE_SOCKET", "", 1);
    unsetenv("HOME");
    unsetenv("XDG_DATA_HOME");
    assert_int_equal(parse("--help", NULL), 0);
    assert_true(config.show_help);
    assert_int_equal(parse("--version", NULL), 0);
    assert_true(config.show_version);
    setenv("TUNE_SOCKET", path_in("s"), 1);
    for (const char *option = config_help; (option = strstr(option, "\n  --")) != NULL; option++) {
        char name[64] = "";
        sscanf(option + 3, "%60[-a-z]", name);
        const char *value = strpbrk(option + 3 + strlen(name), " ,");
        bool takes_value = value != NULL && value[0] == ' ' && value[1] >= 'A' && value[1] <= 'Z';
        parse(name, takes_value ? "1" : NULL, NULL); /* each option of the help exists */
        if (strstr(err.text, "unknown") != NULL)
            fail_msg("%s is in the help and unknown", name);
    }
}

static void without_a_home_the_database_must_be_named(void **state)
{
    (void)state;
    unsetenv("HOME");
    unsetenv("XDG_DATA_HOME");
    assert_int_equal(parse("--foreground", NULL), -1);
    expect_refused(TUNE_EINVAL, "--db");
    assert_int_equal(parse("--db", "/x", NULL), 0);
}

static void kernels_are_searched_in_the_order_named(void **state)
{
    (void)state;
    setenv("TUNE_PLUGIN_PATH", "/p1::/p2:", 1);
    assert_int_equal(parse("--plugins", "/a", "--plugins", "/b", NULL), 0);
    static const char *const first[] = {"/a", "/b", "/p1", "/p2"};
    assert_int_equal(config.plugin_count, 6);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(config.plugins[i], first[i]);
    char many[200] = "";
    for (int i = 0; i < 20; i++)
        strcat(many, "/folder:");
    setenv("TUNE_PLUGIN_PATH", many, 1);
    assert_int_equal(parse("--foreground", NULL), -1);
    expect_refused(TUNE_ELIMIT, "16");
}

static void a_system_daemon_takes_no_users_folders(void **state)
{
    (void)state;
    setenv("TUNE_PLUGIN_PATH", "/p1", 1);
    assert_int_equal(parse("--system", "--check", "--socket", path_in("s"), NULL), 0);
    assert_int_equal(config.plugin_count, 1);
    assert_null(strstr(config.plugins[0], path_in("data")));
    assert_string_equal(config.db, "/var/lib/tunerd");
}

static int count_in(char *const *env, const char *prefix, const char *whole)
{
    int count = 0;
    for (size_t i = 0; env[i] != NULL; i++) {
        if (strncmp(env[i], prefix, strlen(prefix)) != 0)
            continue;
        count++;
        assert_string_equal(env[i], whole);
    }
    return count;
}

static int count_in_env(const char *prefix, const char *whole)
{
    return count_in(config.worker_env, prefix, whole);
}

static void workers_get_our_environment_with_two_changes(void **state)
{
    (void)state;
    setenv("CUDA_MODULE_LOADING", "LAZY", 1);
    setenv("TUNE_CUDA_DIR", "/from/environment", 1);
    setenv("OURS", "kept", 1);
    assert_int_equal(parse("--cuda", "/from/option", NULL), 0);
    assert_int_equal(count_in_env("CUDA_MODULE_LOADING=", "CUDA_MODULE_LOADING=EAGER"), 1);
    assert_int_equal(count_in_env("TUNE_CUDA_DIR=", "TUNE_CUDA_DIR=/from/option"), 1);
    assert_int_equal(count_in_env("OURS=", "OURS=kept"), 1);
}

static void those_that_trace_get_the_emulator_and_no_scenario(void **state)
{
    (void)state;
    char emulator[4200];
    setenv("TUNE_SCENARIO", "/faults.json", 1);
    setenv("OURS", "kept", 1);
    assert_int_equal(parse("--cuda", "/from/option", NULL), 0);
    assert_non_null(config.emulator);
    snprintf(emulator, sizeof emulator, "TUNE_CUDA_DIR=%s", config.emulator);
    assert_int_equal(count_in(config.trace_env, "TUNE_CUDA_DIR=", emulator), 1);
    assert_int_equal(count_in(config.trace_env, "TUNE_SCENARIO=", ""), 0);
    assert_int_equal(count_in(config.trace_env, "OURS=", "OURS=kept"), 1);
    assert_int_equal(count_in_env("TUNE_SCENARIO=", "TUNE_SCENARIO=/faults.json"), 1);
    assert_int_equal(parse("--emulate", NULL), 0);
    assert_string_equal(config.cuda, config.emulator);
    assert_int_equal(count_in(config.trace_env, "TUNE_SCENARIO=", "TUNE_SCENARIO=/faults.json"), 1);
    unsetenv("TUNE_SCENARIO");
}

static void a_socket_path_that_is_too_long_is_refused(void **state)
{
    (void)state;
    char path[300];
    memset(path, 'p', sizeof path - 1);
    path[0] = '/';
    path[299] = '\0';
    assert_int_equal(parse("--socket", path, NULL), -1);
    assert_non_null(strstr(err.text, "107"));
}

static void the_sockets_folder_is_made_private(void **state)
{
    (void)state;
    struct stat status;
    assert_int_equal(parse("--socket", path_in("new/s"), NULL), 0);
    assert_int_equal(stat(path_in("new"), &status), 0);
    assert_int_equal(status.st_mode & 07777, 0700);
    assert_int_equal(parse("--check", "--socket", path_in("unmade/s"), NULL), 0);
    assert_int_equal(access(path_in("unmade"), F_OK), -1); /* --check changes nothing */
}

static void a_folder_that_others_may_write_is_refused(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path_in("open"), 0700), 0);
    chmod(path_in("open"), 0777);
    assert_int_equal(parse("--socket", path_in("open/s"), NULL), -1);
    expect_refused(TUNE_EPERM, "others may write");
    chmod(path_in("open"), 0700);
    assert_int_equal(parse("--socket", path_in("open/s"), NULL), 0);
    FILE *file = fopen(path_in("file"), "we");
    fclose(file);
    assert_int_equal(parse("--socket", path_in("file/s"), NULL), -1);
}

static void a_strangers_folder_is_refused_even_when_sticky(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path_in("theirs"), 0700), 0);
    if (geteuid() != 0 || chown(path_in("theirs"), 12345, 12345) != 0)
        skip();
    chmod(path_in("theirs"), 01777);
    assert_int_equal(parse("--socket", path_in("theirs/s"), NULL), -1);
    expect_refused(TUNE_EPERM, "others may write");
    assert_int_equal(symlink("theirs", path_in("link")), 0);
    assert_int_equal(lchown(path_in("link"), 12345, 12345), 0);
    assert_int_equal(parse("--socket", path_in("link/s"), NULL), -1);
}

static void a_link_of_our_own_is_followed(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path_in("real"), 0700), 0);
    assert_int_equal(symlink("real", path_in("link")), 0);
    if (parse("--socket", path_in("link/s"), NULL))
        fail_msg("%s", err.text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_usual_needs_no_option),
        TEST(options_are_taken),
        TEST(a_number_must_be_whole_and_in_range),
        TEST(usage_errors_say_where_help_is),
        TEST(help_and_version_need_nothing_else),
        TEST(without_a_home_the_database_must_be_named),
        TEST(kernels_are_searched_in_the_order_named),
        TEST(a_system_daemon_takes_no_users_folders),
        TEST(workers_get_our_environment_with_two_changes),
        TEST(those_that_trace_get_the_emulator_and_no_scenario),
        TEST(a_socket_path_that_is_too_long_is_refused),
        TEST(the_sockets_folder_is_made_private),
        TEST(a_folder_that_others_may_write_is_refused),
        TEST(a_strangers_folder_is_refused_even_when_sticky),
        TEST(a_link_of_our_own_is_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
