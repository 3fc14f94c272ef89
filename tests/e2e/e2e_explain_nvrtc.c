/* explain with the real compiler, for GPUs that need not be here: the shipped kernels on sm_90.
 * Exits 77, "skipped", where there is no NVRTC. */
#include "harness.h"

#include "plugins/occupancy.h"

#include <math.h>

#define SKIPPED 77

static struct harness *start_real(void)
{
    struct harness *harness = harness_new();
    harness->is_real = true;
    harness_start(harness);
    return harness;
}

/* Texts are JSON with ' for ". */
static json_t *quoted(const char *text)
{
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *c = copy; *c != '\0'; c++)
        if (*c == '\'')
            *c = '"';
    json_t *json = json_loads(copy, 0, NULL);
    assert_non_null(json);
    return json;
}

static json_t *explain(struct harness *harness, const char *kernel, const char *arch,
    const char *shape, const char *config)
{
    return ask(harness, "explain",
        json_pack("{s:s, s:s, s:o, s:o*}", "kernel", kernel, "arch", arch, "shape", quoted(shape),
            "config", config ? quoted(config) : NULL));
}

static const json_t *access_at(
    const json_t *answer, const char *space, const char *kind, const char *text)
{
    size_t i;
    json_t *access;
    json_array_foreach (at(answer, "accesses"), i, access)
        if (strcmp(text_at(access, "space"), space) == 0 &&
            strcmp(text_at(access, "kind"), kind) == 0 &&
            strstr(text_at(access, "text"), text) != NULL)
            return access;
    fail_msg("no %s %s of \"%s\"", space, kind, text);
    return NULL;
}

/* The calculator, with what the compile says. */
static void check_occupancy(const json_t *answer, const char *arch)
{
    struct device_info device;
    struct occupancy expected;
    struct tune_error err = {0};
    const json_t *launch = json_array_get(at(answer, "launches"), 0);
    assert_string_equal(text_at(answer, "registers_from"), "compiler");
    struct occupancy_use use = {
        .threads = json_integer_value(json_array_get(at(launch, "block"), 0)),
        .registers = (int64_t)number_at(answer, "registers"),
        .shared_bytes =
            (int64_t)(number_at(launch, "shared_bytes") + number_at(answer, "static_shared_bytes")),
    };
    assert_true(use.registers > 8);
    assert_int_equal(device_generic(arch, &device, &err), 0);
    assert_int_equal(occupancy(&device, &use, &expected, &err), 0);
    assert_int_equal(number_at(answer, "occupancy.blocks_per_sm"), expected.blocks_per_sm);
    assert_int_equal(number_at(answer, "occupancy.warps_per_sm"), expected.warps_per_sm);
    assert_true(number_at(answer, "occupancy.fraction") == expected.fraction);
    assert_string_equal(
        text_at(answer, "occupancy.limited_by"), occupancy_resource_word(expected.limited_by));
}

static void a_product_is_explained_for_a_gpu_that_is_not_here(void)
{
    static const char *const archs[] = {"sm_80", "sm_90"};
    struct harness *harness = start_real();
    for (size_t i = 0; i < 2; i++) {
        json_t *answer = explain(harness, "gemm", archs[i], "{'M':256,'N':256,'K':128}", NULL);
        check_occupancy(answer, archs[i]);
        assert_true(number_at(answer, "instructions.total") > 100);
        assert_true(number_at(answer, "instructions.by_class.fp32") > 10);
        assert_true(json_array_size(at(answer, "accesses")) >= 4);
        assert_true(number_at(answer, "intensity") > 0.25);
        assert_true(strlen(text_at(answer, "words")) > 50);
        json_decref(answer);
    }
}

/* Each operation pair of a naive product loads two floats. */
static void a_naive_product_does_a_quarter_flop_per_byte(void)
{
    struct harness *harness = start_real();
    json_t *answer = explain(harness, "gemm", "sm_90", "{'M':64,'N':64,'K':32}",
        "{'VARIANT':'naive','BM':64,'BN':64,'BK':8,'TM':4,'TN':4,'PAD':0,'SWIZZLE':'none','VEC':1,"
        "'STAGES':1,'SPLIT_K':1,'UNROLL':8,'MIN_BLOCKS':1}");
    assert_true(fabs(number_at(answer, "intensity") - 0.25) < 1e-9);
    json_decref(answer);
}

static void the_layout_of_a_tile_decides_its_bank_conflicts(void)
{
    static const struct {
        const char *layout;
        double degree;
    } cases[] = {{"none", 32}, {"pad", 1}, {"xor", 1}};
    struct harness *harness = start_real();
    for (size_t i = 0; i < 3; i++) {
        char config[200];
        snprintf(config, sizeof config,
            "{'VARIANT':'tiled','TILE_M':32,'TILE_N':32,'ROWS':8,'VEC':1,'PACK':1,'LAYOUT':'%s',"
            "'ORDER':'rows','STREAM':'none','MIN_BLOCKS':1}",
            cases[i].layout);
        json_t *answer = explain(harness, "transpose", "sm_90", "{'M':256,'N':256}", config);
        const json_t *across = access_at(answer, "shared", "load", "column.word = tile[");
        const json_t *along = access_at(answer, "shared", "store", "= column.word;");
        assert_true(number_at(across, "conflict_degree") == cases[i].degree);
        assert_true(number_at(along, "conflict_degree") == 1);
        bool is_told = strstr(text_at(answer, "words"), "32-way") != NULL;
        assert_int_equal(is_told, cases[i].degree == 32);
        check_occupancy(answer, "sm_90");
        json_decref(answer);
    }
}

static void a_naive_transpose_touches_a_sector_per_lane(void)
{
    struct harness *harness = start_real();
    json_t *answer = explain(harness, "transpose", "sm_90", "{'M':256,'N':256}",
        "{'VARIANT':'naive','TILE_M':32,'TILE_N':32,'ROWS':4,'VEC':1,'PACK':1,'LAYOUT':'none',"
        "'ORDER':'rows','STREAM':'none','MIN_BLOCKS':1}");
    const json_t *load = access_at(answer, "global", "load", "= in[index]");
    const json_t *store = access_at(answer, "global", "store", "= in[index]");
    assert_true(number_at(load, "sectors_per_request") == 4);
    assert_true(number_at(store, "sectors_per_request") == 32);
    assert_true(number_at(store, "ideal_sectors") == 4);
    assert_non_null(strstr(text_at(answer, "words"), "Uncoalesced"));
    json_decref(answer);
}

static void use_no_host_compiler(void)
{
    setenv("TUNE_HOST_CXX", "/nonexistent", 1);
}

static void without_a_host_compiler_only_accesses_are_missing(void)
{
    struct harness *harness = harness_new();
    harness->is_real = true;
    harness->before_exec = use_no_host_compiler;
    harness_start(harness);
    json_t *answer = explain(harness, "transpose", "sm_90", "{'M':256,'N':256}", NULL);
    check_occupancy(answer, "sm_90");
    assert_int_equal(json_array_size(at(answer, "accesses")), 0);
    assert_non_null(strstr(json_string_value(json_array_get(
                               at(answer, "notes"), json_array_size(at(answer, "notes")) - 1)),
        "accesses and branches are not known"));
    assert_true(number_at(answer, "instructions.total") > 0);
    json_decref(answer);
}

/* The same code as `get` gives, but for its lines. */
static void the_code_that_is_explained_can_be_had(void)
{
    struct harness *harness = start_real();
    json_t *answer = ask(harness, "explain",
        json_pack("{s:s, s:s, s:{s:i, s:i}, s:b, s:b}", "kernel", "transpose", "arch", "sm_90",
            "shape", "M", 256, "N", 256, "cubin", 1, "trace", 0));
    assert_memory_equal(text_at(answer, "cubin"), "f0VMR", 5); /* ELF */
    assert_string_equal(text_at(answer, "names.transpose"), "transpose");
    json_decref(answer);
}

static bool has_nvrtc(void)
{
    char command[400];
    snprintf(command, sizeof command, "'%s/bin/tune-worker' probe", build_folder());
    FILE *pipe = popen(command, "re");
    json_t *told = pipe != NULL ? json_loadf(pipe, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    if (pipe != NULL)
        pclose(pipe);
    bool works = json_is_true(at(told, "nvrtc.works"));
    json_decref(told);
    return works;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(a_product_is_explained_for_a_gpu_that_is_not_here),
        HARNESS_TEST(a_naive_product_does_a_quarter_flop_per_byte),
        HARNESS_TEST(the_layout_of_a_tile_decides_its_bank_conflicts),
        HARNESS_TEST(a_naive_transpose_touches_a_sector_per_lane),
        HARNESS_TEST(without_a_host_compiler_only_accesses_are_missing),
        HARNESS_TEST(the_code_that_is_explained_can_be_had),
    };
    if (!has_nvrtc()) {
        printf("skipped: no NVRTC works here\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
