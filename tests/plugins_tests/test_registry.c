/* plugins/registry: folders of plugins made for each test in a temporary place. */
#include "support.h"

#include "plugins/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/test_registry_XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *status, int flag, struct FTW *walk)
{
    (void)status, (void)flag, (void)walk;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* root/NAME; from a ring of buffers, so that a call may use a few. */
static const char *at(const char *name)
{
    static char paths[8][256];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

/* Writes root/NAME and makes the folders on the way. */
static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s", at(name));
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* The manifest of `small` under another name. */
static void put_manifest(const char *name, const char *kernel)
{
    char *text = read_text(data_path("valid/small/manifest.json"));
    json_t *json = parse_json(text);
    json_object_set_new(json, "name", json_string(kernel));
    char *changed = json_dumps(json, JSON_INDENT(1));
    put(name, changed);
    json_decref(json);
    free(changed);
    free(text);
}

static struct plugin *load(const char *manifest_path)
{
    struct tune_error err = {0};
    struct plugin *plugin = plugin_load(manifest_path, at("kernels_src"), &err);
    if (plugin == NULL)
        fail_msg("%s: %s", manifest_path, err.text);
    return plugin;
}

static void expect_failure(const char *sentence)
{
    struct tune_error err = {0};
    struct plugin *plugin = plugin_load(at("plugins/k/k.json"), at("kernels_src"), &err);
    plugin_unref(plugin);
    if (plugin != NULL || strstr(err.text, sentence) == NULL)
        fail_msg("got \"%s\", expected \"%s\"", err.text, sentence);
    if (strlen(err.text) >= sizeof err.text - 1)
        fail_msg("cut short: \"%s\"", err.text);
}

static void a_plugin_has_its_source_and_all_headers(void **state)
{
    (void)state;
    put_manifest("plugins/k/k.json", "k");
    put("kernels_src/small.cu", "not this one");
    put("kernels_src/k.cu", "#include \"a.cuh\"\n#include <cuda_fp16.h>\n");
    put("kernels_src/a.cuh", "#include \"sub/b.cuh\"\n#include <cuda_fp16.h>\n#include <mma.h>\n");
    put("kernels_src/sub/b.cuh", "#include \"a.cuh\"\n#include \"own.cuh\"\n");
    put("plugins/k/own.cuh", "int own;\n");
    struct plugin *plugin = load(at("plugins/k/k.json"));
    assert_string_equal(plugin->source_name, "k.cu");
    assert_non_null(strstr(plugin->source, "cuda_fp16"));
    assert_int_equal(plugin->header_count, 3);
    assert_string_equal(plugin->headers[0].name, "a.cuh");
    assert_string_equal(plugin->headers[1].name, "sub/b.cuh");
    assert_string_equal(plugin->headers[2].name, "own.cuh");
    assert_string_equal(plugin->headers[2].text, "int own;\n");
    assert_string_equal(plugin->toolkit_headers[0], "cuda_fp16.h");
    assert_string_equal(plugin->toolkit_headers[1], "mma.h");
    assert_null(plugin->toolkit_headers[2]);
    assert_null(plugin->hooks);
    assert_int_equal(strlen(plugin->fingerprint), 32);
    assert_int_equal(strlen(plugin->content), 32);
    plugin_unref(plugin);

    put("plugins/k/k.cu", "int beside;"); /* the plugin's own folder comes first */
    put("plugins/k/k.so", "");
    plugin = load(at("plugins/k/k.json"));
    assert_string_equal(plugin->source, "int beside;");
    assert_non_null(strstr(plugin->hooks, "/plugins/k/k.so"));
    plugin_unref(plugin);
}

/* The fingerprint (or content hash) after each change, against the one before all changes. */
struct change {
    const char *file, *text;
    bool fingerprint_changes, content_changes;
};

static void fingerprints_follow_the_tokens_and_content_hashes_the_bytes(void **state)
{
    (void)state;
    static const struct change changes[] = {
        {"kernels_src/k.cu", "#include \"h.cuh\"\n// said\nint   a=1;\n", false, true},
        {"kernels_src/k.cu", "#include \"h.cuh\"\nint a = 2;\n", true, true},
        {"kernels_src/h.cuh", "int h ; /* said */", false, true},
        {"kernels_src/h.cuh", "int i;", true, true},
        {"plugins/k/k.c", "int  hook; // said", false, false},
        {"plugins/k/k.c", "int hooks;", true, false},
        {"plugins/k/unrelated.txt", "text", false, false},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        put_manifest("plugins/k/k.json", "k");
        put("kernels_src/k.cu", "#include \"h.cuh\"\nint a = 1;\n");
        put("kernels_src/h.cuh", "int h;");
        put("plugins/k/k.c", "int hook;");
        struct plugin *before = load(at("plugins/k/k.json"));
        put(changes[i].file, changes[i].text);
        struct plugin *after = load(at("plugins/k/k.json"));
        if ((strcmp(before->fingerprint, after->fingerprint) != 0) !=
            changes[i].fingerprint_changes)
            fail_msg("change %zu: fingerprint", i);
        if ((strcmp(before->content, after->content) != 0) != changes[i].content_changes)
            fail_msg("change %zu: content", i);
        plugin_unref(before);
        plugin_unref(after);
    }
}

static void hooks_without_a_source_count_by_their_bytes(void **state)
{
    (void)state;
    put_manifest("plugins/k/k.json", "k");
    put("kernels_src/k.cu", "int a;");
    struct plugin *none = load(at("plugins/k/k.json"));
    put("plugins/k/k.so", "one");
    struct plugin *one = load(at("plugins/k/k.json"));
    put("plugins/k/k.so", "two");
    struct plugin *two = load(at("plugins/k/k.json"));
    assert_string_not_equal(none->fingerprint, one->fingerprint);
    assert_string_not_equal(one->fingerprint, two->fingerprint);
    plugin_unref(none);
    plugin_unref(one);
    plugin_unref(two);
}

static void the_way_to_a_plugin_does_not_count(void **state)
{
    (void)state;
    put_manifest("plugins/k/k.json", "k");
    put("kernels_src/k.cu", "#include \"h.cuh\"\nint a;");
    put("kernels_src/h.cuh", "int h;");
    put("else/where/readme", "");
    struct plugin *plain = load(at("plugins/k/k.json"));
    assert_int_equal(symlink(at("plugins"), at("else/link")), 0);
    assert_int_equal(symlink(at("plugins/k/k.json"), at("else/where/k.json")), 0);
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, at("kernels_src/k.cu"), old, 0), 0);
    char *here = getcwd(NULL, 0);
    const char *ways[] = {at("else/link/k/k.json"), at("else/where/k.json"),
        at("plugins/../plugins//k/k.json"), "k/k.json"};
    assert_int_equal(chdir(at("plugins")), 0);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct plugin *other = load(ways[i]);
        assert_string_equal(other->fingerprint, plain->fingerprint);
        assert_string_equal(other->content, plain->content);
        assert_string_equal(other->folder, plain->folder);
        plugin_unref(other);
    }
    assert_int_equal(chdir(here), 0);
    free(here);
    plugin_unref(plain);
}

static void what_cannot_be_loaded_says_why(void **state)
{
    (void)state;
    expect_failure("cannot find");
    put("plugins/k/k.json", "{");
    expect_failure("k.json: not valid JSON");
    put_manifest("plugins/k/k.json", "other");
    expect_failure("the kernel is named \"other\", so its manifest must be other.json");
    put_manifest("plugins/k/k.json", "k");
    expect_failure("source k.cu is neither in ");
    put("kernels_src/k.cu", "#include \"none.cuh\"\n");
    expect_failure("header \"none.cuh\" is neither in ");
    put("kernels_src/k.cu", "#include \"../../../etc/passwd\"\n");
    expect_failure("lies beside the source or below");
    put("kernels_src/k.cu", "#include \"/etc/passwd\"\n");
    expect_failure("lies beside the source or below");
    put("kernels_src/k.cu", "#include </etc/passwd>\n");
    expect_failure("lies beside the source or below");
    put("kernels_src/k.cu", "#define P \"/etc/passwd\"\n#include P\n");
    expect_failure("k.cu: #include P: the name must stand in quotes or <>");
}

static void special_files_are_not_waited_for(void **state)
{
    (void)state;
    put_manifest("plugins/k/k.json", "k");
    put("kernels_src/readme", "");
    assert_int_equal(mkfifo(at("kernels_src/k.cu"), 0600), 0);
    expect_failure("source k.cu is neither in ");
    assert_int_equal(unlink(at("plugins/k/k.json")), 0);
    assert_int_equal(mkfifo(at("plugins/k/k.json"), 0600), 0);
    expect_failure("is not a regular file");
}

static void put_bytes(const char *name, size_t count)
{
    char *text = malloc(count + 1);
    memset(text, ' ', count);
    text[count] = '\0';
    put(name, text);
    free(text);
}

static void source_and_headers_share_their_limit(void **state)
{
    (void)state;
    put_manifest("plugins/k/k.json", "k");
    const char *source = "#include \"h.cuh\"\n";
    put("kernels_src/k.cu", source);
    put_bytes("kernels_src/h.cuh", PLUGIN_SOURCE_LIMIT_BYTES - strlen(source));
    plugin_unref(load(at("plugins/k/k.json")));
    put_bytes("kernels_src/h.cuh", PLUGIN_SOURCE_LIMIT_BYTES - strlen(source) + 1);
    expect_failure("h.cuh is too large");
}

static void headers_have_a_limit_of_their_own(void **state)
{
    (void)state;
    char source[4096], name[64];
    size_t used = 0;
    put_manifest("plugins/k/k.json", "k");
    for (int i = 0; i <= PLUGIN_HEADER_LIMIT; i++) {
        snprintf(name, sizeof name, "kernels_src/h%d.cuh", i);
        put(name, "");
        used += (size_t)sprintf(source + used, "#include \"h%d.cuh\"\n", i);
    }
    put("kernels_src/k.cu", source);
    expect_failure("k.cu includes more than 64 headers");
    source[used - strlen("#include \"h64.cuh\"\n")] = '\0';
    put("kernels_src/k.cu", source);
    plugin_unref(load(at("plugins/k/k.json")));
}

static void the_registry_finds_sorts_and_keeps_failures_apart(void **state)
{
    (void)state;
    struct tune_error err = {0}, broken = {0};
    const char *name, *reason;
    put_manifest("plugins/zeta/zeta.json", "zeta");
    put_manifest("plugins/alpha/alpha.json", "alpha");
    put("plugins/broken/broken.json", "{}");
    put("plugins/.hidden/x", "");
    put("plugins/tune_plugin.h", "");
    put("kernels_src/zeta.cu", "int z;");
    put("kernels_src/alpha.cu", "int a;");
    const char *folders[] = {at("missing"), at("plugins"), NULL};
    struct registry *registry = registry_create(folders);
    assert_int_equal(registry_count(registry), 0);
    assert_int_equal(registry_reload(registry), 2);
    assert_string_equal(registry_at(registry, 0)->manifest->name, "alpha");
    assert_string_equal(registry_at(registry, 1)->manifest->name, "zeta");
    assert_null(registry_at(registry, 2));
    assert_ptr_equal(registry_find(registry, "zeta", NULL), registry_at(registry, 1));
    assert_null(registry_find(registry, "gamma", &err));
    assert_string_equal(err.text, "there is no kernel \"gamma\"; there are alpha, zeta");
    assert_null(registry_find(registry, "broken", &broken));
    assert_non_null(strstr(broken.text, "field \"tunerd\" is missing"));
    assert_true(registry_failure(registry, 0, &name, &reason));
    assert_string_equal(name, "broken");
    assert_string_equal(reason, broken.text);
    assert_false(registry_failure(registry, 1, &name, &reason));
    registry_destroy(registry);
    registry_destroy(NULL);
}

static void an_empty_registry_tells_how_to_give_a_folder(void **state)
{
    (void)state;
    struct tune_error err = {0};
    const char *folders[] = {at("missing"), NULL};
    struct registry *registry = registry_create(folders);
    assert_int_equal(registry_reload(registry), 0);
    assert_null(registry_find(registry, "gemm", &err));
    assert_int_equal(err.code, TUNE_ENOTFOUND);
    assert_non_null(strstr(err.text, "--plugins"));
    registry_destroy(registry);
}

static void the_first_folder_wins_even_when_its_plugin_is_broken(void **state)
{
    (void)state;
    struct tune_error err = {0};
    put_manifest("plugins/k/k.json", "k");
    put("kernels_src/k.cu", "int installed;");
    put_manifest("mine/k/k.json", "k");
    put("mine/k/k.cu", "int mine;");
    const char *folders[] = {at("mine"), at("plugins"), NULL};
    struct registry *registry = registry_create(folders);
    assert_int_equal(registry_reload(registry), 1);
    assert_string_equal(registry_find(registry, "k", NULL)->source, "int mine;");
    put("mine/k/k.json", "{}");
    assert_int_equal(registry_reload(registry), 0);
    assert_null(registry_find(registry, "k", &err));
    assert_non_null(strstr(err.text, "mine/k/k.json"));
    registry_destroy(registry);
}

static void a_users_folder_shares_the_installed_headers(void **state)
{
    (void)state;
    put("share/plugins/readme", "");
    put("share/kernels_src/common.cuh", "int common;");
    put_manifest("home/deep/mine/k/k.json", "k");
    put("home/deep/mine/k/k.cu", "#include \"common.cuh\"\n");
    const char *folders[] = {at("home/deep/mine"), at("share/plugins"), NULL};
    struct registry *registry = registry_create(folders);
    assert_int_equal(registry_reload(registry), 1);
    assert_string_equal(registry_at(registry, 0)->headers[0].text, "int common;");
    registry_destroy(registry);
}

/* A sweep holds its plugin over reloads, and over the removal of the files. */
static void a_reload_leaves_held_plugins_as_they_are(void **state)
{
    (void)state;
    put_manifest("plugins/k/k.json", "k");
    put("kernels_src/k.cu", "int old;");
    const char *folders[] = {at("plugins"), NULL};
    struct registry *registry = registry_create(folders);
    registry_reload(registry);
    struct plugin *held = plugin_ref(registry_find(registry, "k", NULL));
    put("kernels_src/k.cu", "int new;");
    for (int i = 0; i < 200; i++)
        assert_int_equal(registry_reload(registry), 1);
    struct plugin *fresh = registry_find(registry, "k", NULL);
    assert_string_equal(held->source, "int old;");
    assert_string_equal(fresh->source, "int new;");
    assert_string_not_equal(held->fingerprint, fresh->fingerprint);
    assert_int_equal(unlink(at("kernels_src/k.cu")), 0);
    assert_int_equal(registry_reload(registry), 0);
    assert_string_equal(held->source, "int old;");
    registry_destroy(registry);
    assert_string_equal(held->manifest->name, "k");
    plugin_unref(held);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_plugin_has_its_source_and_all_headers),
        TEST(fingerprints_follow_the_tokens_and_content_hashes_the_bytes),
        TEST(hooks_without_a_source_count_by_their_bytes),
        TEST(the_way_to_a_plugin_does_not_count),
        TEST(what_cannot_be_loaded_says_why),
        TEST(special_files_are_not_waited_for),
        TEST(source_and_headers_share_their_limit),
        TEST(headers_have_a_limit_of_their_own),
        TEST(the_registry_finds_sorts_and_keeps_failures_apart),
        TEST(an_empty_registry_tells_how_to_give_a_folder),
        TEST(the_first_folder_wins_even_when_its_plugin_is_broken),
        TEST(a_users_folder_shares_the_installed_headers),
        TEST(a_reload_leaves_held_plugins_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
