/* explain: facts made by hand, and what is put together from them. */
#include "../plugins_tests/support.h"
#include "explain/explain.h"
#include "explain/weigh.h"
#include "patched.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- facts ------------------------------------------------------------------------------------ */

static struct device_info device; /* an H200, as its driver describes it */
static struct manifest *manifest;

#define NAIVE                                                                                      \
    "{'VARIANT':0,'BM':64,'BN':64,'BK':8,'TM':4,'TN':4,'PAD':0,'SWIZZLE':0,'VEC':1,'STAGES':1,"    \
    "'SPLIT_K':1,'UNROLL':8,'MIN_BLOCKS':1}"
#define TILED                                                                                      \
    "{'VARIANT':1,'BM':64,'BN':64,'BK':16,'TM':4,'TN':4,'PAD':0,'SWIZZLE':1,'VEC':4,'STAGES':1,"   \
    "'SPLIT_K':2,'UNROLL':8,'MIN_BLOCKS':1}"

static int set_up(void **state)
{
    char path[4096];
    struct tune_error err = {0};
    (void)state;
    snprintf(path, sizeof path, "%s/plugins/gemm/gemm.json", getenv("TUNE_SOURCE_DIR"));
    char *text = read_text(path);
    manifest = manifest_create(text, strlen(text), path, &err);
    free(text);
    device = device_of("sm_90");
    strcpy(device.name, "NVIDIA H200");
    strcpy(device.uuid, "GPU-1");
    device.attributes[DEVICE_sms] = 132;
    device.attributes[DEVICE_clock_khz] = 1980000;
    device.attributes[DEVICE_memory_clock_khz] = 3201000;
    device.attributes[DEVICE_memory_bus_bits] = 6144;
    return manifest == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    manifest_destroy(manifest);
    return 0;
}

/* A gemm of 256 x 256 x 128; everything else is unknown. */
struct given {
    struct explain_facts facts;
    int64_t dims[MANIFEST_MAX_DIMS], values[MANIFEST_MAX_PARAMS];
    json_t *owned[4];
    size_t owned_count;
};

static json_t *keep(struct given *given, const char *text)
{
    return given->owned[given->owned_count++] = patched(text, "{}");
}

static void give(struct given *given, const char *config)
{
    *given = (struct given){.dims = {256, 256, 128}};
    json_t *json = patched(config, "{}");
    struct tune_error err = {0};
    if (manifest_config_from_json(manifest, json, given->values, &err))
        fail_msg("%s", err.text);
    json_decref(json);
    given->facts = (struct explain_facts){
        .manifest = manifest,
        .device = &device,
        .dims = given->dims,
        .values = given->values,
        .dtype = "f32",
        .mode = "cold",
        .origin = "given",
    };
}

static json_t *explained(struct given *given)
{
    struct tune_error err = {0};
    json_t *json = explain(&given->facts, &err);
    if (json == NULL)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < given->owned_count; i++)
        json_decref(given->owned[i]);
    return json;
}

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-6 * fabs(expected)))
        fail_msg("%.9g is not %.9g", value, expected);
}

static const json_t *part(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    assert_non_null(value);
    return value;
}

static double number(const json_t *json, const char *key)
{
    assert_true(json_is_number(part(json, key)));
    return explain_number(json, key);
}

static bool is_null(const json_t *json, const char *key)
{
    return json_is_null(part(json, key));
}

/* --- the device, filled ----------------------------------------------------------------------- */

static void occupancy_is_that_of_the_compiled_registers_and_all_shared_memory(void **state)
{
    (void)state;
    struct given given;
    struct occupancy expected;
    give(&given, TILED);
    given.facts.resources = keep(&given,
        "{'_Zgemm':{'registers':96,'spill_bytes':8,'static_shared_bytes':1024,'stack_bytes':0}}");
    given.facts.names = keep(&given, "{'gemm':'_Zgemm'}");
    json_t *json = explained(&given);
    const json_t *said = part(json, "occupancy");
    struct occupancy_use use = {256, 96, 4 * 16 * 128 + 1024};
    assert_int_equal(occupancy(&device, &use, &expected, NULL), 0);
    assert_int_equal(number(said, "blocks_per_sm"), expected.blocks_per_sm);
    assert_near(number(said, "fraction"), expected.fraction);
    assert_int_equal(number(said, "shared_bytes"), use.shared_bytes);
    assert_string_equal(explain_text(said, "limited_by"), "registers");
    assert_int_equal(number(json, "registers"), 96);
    assert_string_equal(explain_text(json, "registers_from"), "compiler");
    assert_int_equal(number(json, "spill_bytes"), 8);
    assert_int_equal(number(json, "static_shared_bytes"), 1024);
    assert_int_equal(number(json, "blocks"), 32);
    assert_near(number(json, "waves"), 32.0 / (132 * (double)expected.blocks_per_sm));
    json_decref(json);
}

static void without_a_compile_the_manifest_guesses_registers(void **state)
{
    (void)state;
    struct given given;
    give(&given, NAIVE);
    json_t *json = explained(&given);
    assert_int_equal(number(json, "registers"), 32);
    assert_string_equal(explain_text(json, "registers_from"), "manifest");
    assert_true(is_null(json, "spill_bytes") && is_null(json, "instructions"));
    assert_true(is_null(json, "median_ns") && is_null(json, "interval_ns"));
    assert_true(is_null(json, "traced") && is_null(part(json, "roofline"), "requested_bytes"));
    assert_int_equal(json_array_size(part(json, "accesses")), 0);
    assert_int_equal(json_array_size(part(json, "launches")), 1);
    assert_int_equal(json_array_size(part(json, "buffers")), 4);
    assert_true(strlen(explain_text(json, "words")) > 20);
    json_decref(json);
}

static void registers_of_the_emulator_are_called_so(void **state)
{
    (void)state;
    struct given given;
    give(&given, NAIVE);
    given.facts.resources = keep(&given, "{'gemm':{'registers':40}}");
    given.facts.is_emulated = true;
    json_t *json = explained(&given);
    assert_string_equal(explain_text(json, "registers_from"), "emulator");
    assert_int_equal(number(json, "registers"), 40);
    json_decref(json);
}

static void a_block_that_does_not_fit_is_an_error(void **state)
{
    (void)state;
    struct given given;
    struct tune_error err = {0};
    give(&given, TILED);
    json_t *resources = patched("{'gemm':{'registers':64,'static_shared_bytes':300000}}", "{}");
    given.facts.resources = resources;
    assert_null(explain(&given.facts, &err));
    assert_int_equal(err.code, TUNE_ELIMIT);
    json_decref(resources);
}

static void an_architecture_alone_has_no_waves_and_no_limits(void **state)
{
    (void)state;
    struct given given;
    struct device_info generic = device_of("sm_80");
    give(&given, NAIVE);
    given.facts.device = &generic;
    json_t *json = explained(&given);
    assert_true(is_null(json, "device") && is_null(json, "waves") && is_null(json, "tail_fill"));
    assert_string_equal(explain_text(json, "arch"), "sm_80");
    assert_true(is_null(part(json, "roofline"), "limits"));
    assert_true(is_null(part(json, "roofline"), "attainable_ns"));
    assert_string_equal(explain_text(part(json, "roofline"), "ceiling"), "compute");
    json_decref(json);
}

/* gemm's, without these fields. New. */
static struct manifest *manifest_without(const char *const *keys)
{
    char path[4096];
    struct tune_error err = {0};
    snprintf(path, sizeof path, "%s/plugins/gemm/gemm.json", getenv("TUNE_SOURCE_DIR"));
    char *text = read_text(path);
    json_t *json = parse_json(text);
    for (const char *const *key = keys; *key != NULL; key++)
        json_object_del(json, *key);
    free(text);
    text = json_dumps(json, 0);
    struct manifest *silent = manifest_create(text, strlen(text), "gemm.json", &err);
    assert_non_null(silent);
    json_decref(json);
    free(text);
    return silent;
}

static void a_manifest_that_states_no_work_still_tells_how_the_device_is_filled(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "flops", "bytes", "traffic_global", "traffic_shared", "flops_done", "round_trips", NULL};
    struct manifest *silent = manifest_without(keys);
    struct given given;
    give(&given, NAIVE);
    given.facts.manifest = silent;
    given.facts.resources = keep(&given, "{'gemm':{'registers':32}}");
    json_t *json = explained(&given);
    assert_true(is_null(json, "estimate") && is_null(json, "roofline"));
    assert_true(is_null(json, "intensity"));
    assert_int_equal(number(json, "blocks"), 256);
    assert_near(number(json, "waves"), 256.0 / (132 * 8));
    assert_int_equal(number(part(json, "occupancy"), "blocks_per_sm"), 8);
    json_decref(json);
    manifest_destroy(silent);
}

/* --- what was traced -------------------------------------------------------------------------- */

/* 4 of 256 blocks; half of the loads were recorded. */
#define TRACE                                                                                      \
    "[{'entry':'x','block':[256,1,1],'blocks':256,'blocks_traced':4,'accesses':["                  \
    "{'file':'gemm.cu','line':2,'space':'global','kind':'load','atomic':false,'bytes':4,"          \
    "'requests':100,'lanes':3200,'sectors':500,'wavefronts':0,'parts':0,'degrees':0,"              \
    "'degree_max':0,'lane_accesses':6400},"                                                        \
    "{'file':'gemm.cu','line':3,'space':'shared','kind':'load','atomic':false,'bytes':16,"         \
    "'requests':10,'lanes':320,'sectors':0,'wavefronts':80,'parts':40,'degrees':20,"               \
    "'degree_max':4,'lane_accesses':320}],"                                                        \
    "'branches':[{'file':'common.cuh','line':1,'warps':10,'lanes':80}],"                           \
    "'global_load_bytes':1048576,'global_store_bytes':4096,'shared_bytes':0}]"

static const struct explain_source sources[] = {
    {"gemm.cu", "// head\n   \tc += a[i] * b[i];  \r\nx = 1;\n"},
    {"inc/common.cuh", "if (lane < 8)"},
};

static json_t *traced(const char *config, const char *trace)
{
    struct given given;
    give(&given, config);
    given.facts.sources = sources;
    given.facts.source_count = 2;
    given.facts.trace = keep(&given, trace);
    return explained(&given);
}

static void bytes_of_a_launch_that_was_cut_are_not_known(void **state)
{
    (void)state;
    struct given given;
    give(&given, NAIVE);
    json_t *trace = keep(&given, TRACE);
    json_object_set_new(json_array_get(trace, 0), "is_cut", json_true());
    given.facts.trace = trace;
    json_t *json = explained(&given);
    assert_true(is_null(part(json, "roofline"), "requested_bytes"));
    assert_false(is_null(json, "traced"));
    assert_true(json_array_size(part(json, "accesses")) > 0);
    json_decref(json);
}

static void accesses_are_ratios_per_request_with_their_line(void **state)
{
    (void)state;
    json_t *json = traced(NAIVE, TRACE);
    const json_t *load = json_array_get(part(json, "accesses"), 0);
    const json_t *shared = json_array_get(part(json, "accesses"), 1);
    assert_string_equal(explain_text(load, "entry"), "gemm"); /* as the launch calls it */
    assert_string_equal(explain_text(load, "text"), "c += a[i] * b[i];");
    assert_near(number(load, "sectors_per_request"), 5);
    assert_near(number(load, "ideal_sectors"), 4);
    assert_near(number(load, "active_lanes"), 32);
    assert_int_equal(number(load, "requests"), 100 * 2 * 64); /* of all turns, of all blocks */
    assert_true(is_null(load, "conflict_degree") && is_null(load, "wavefronts_per_request"));
    assert_near(number(shared, "conflict_degree"), 2);
    assert_int_equal(number(shared, "conflict_degree_max"), 4);
    assert_near(number(shared, "wavefronts_per_request"), 8);
    assert_true(is_null(shared, "sectors_per_request") && is_null(shared, "ideal_sectors"));
    assert_string_equal(explain_text(shared, "text"), "x = 1;");
    assert_int_equal(number(part(json, "traced"), "blocks"), 4);
    assert_int_equal(number(part(json, "traced"), "of"), 256);
    json_decref(json);
}

/* Sectors and passes of the whole call at the rates of the estimate; the same at all shapes. */
static void the_trace_stands_in_for_traffic_that_the_manifest_does_not_state(void **state)
{
    (void)state;
    static const char *const keys[] = {"traffic_global", "traffic_shared", NULL};
    struct manifest *silent = manifest_without(keys);
    double pipe_ns[2], l2_ns[2];
    for (int i = 0; i < 2; i++) {
        struct given given;
        give(&given, NAIVE);
        given.facts.manifest = silent;
        if (i == 1)
            given.facts.trace = keep(&given, TRACE);
        json_t *json = explained(&given);
        const json_t *ceilings = part(part(json, "estimate"), "ceilings_ns");
        pipe_ns[i] = number(ceilings, "memory_pipe");
        l2_ns[i] = number(ceilings, "l2");
        json_decref(json);
    }
    manifest_destroy(silent);
    double operands = (256 * 128 + 128 * 256 + 256 * 256) * 4, sectors = 500 * 2 * 64 * 32;
    assert_near(l2_ns[1] / l2_ns[0], sectors / operands);
    /* Clocks are as many as passes; warps that wait less for arithmetic stretch both. */
    assert_true(pipe_ns[1] / pipe_ns[0] > (sectors + 80 * 64 * 128) / operands);
    json_t *stated = traced(NAIVE, TRACE);
    json_t *untraced = traced(NAIVE, "[]");
    assert_true(json_equal(part(stated, "estimate"), part(untraced, "estimate")));
    json_decref(stated);
    json_decref(untraced);
}

static void branches_tell_the_share_of_active_lanes(void **state)
{
    (void)state;
    json_t *json = traced(NAIVE, TRACE);
    const json_t *branch = json_array_get(part(json, "branches"), 0);
    assert_near(number(branch, "active_fraction"), 80.0 / 320);
    assert_int_equal(number(branch, "warps"), 10 * 64);
    assert_string_equal(explain_text(branch, "text"), "if (lane < 8)");
    json_decref(json);
}

/* 48 threads are a warp of 32 and one of 16. */
static void a_warp_that_is_not_full_counts_as_what_it_has(void **state)
{
    (void)state;
    json_t *json = traced(NAIVE, "[{'entry':'gemm','block':[16,3,1],'blocks':1,'blocks_traced':1,"
                                 "'accesses':[],'branches':[{'file':'f','line':9,'warps':2,"
                                 "'lanes':24}],'global_load_bytes':0,'global_store_bytes':0}]");
    const json_t *branch = json_array_get(part(json, "branches"), 0);
    assert_near(number(branch, "active_fraction"), 0.5);
    assert_string_equal(explain_text(branch, "text"), "");
    json_decref(json);
}

static void a_broadcast_is_ideal_with_one_sector(void **state)
{
    (void)state;
    json_t *json =
        traced(NAIVE, "[{'entry':'gemm','block':[32,1,1],'blocks':1,'blocks_traced':1,'accesses':["
                      "{'file':'f','line':9,'space':'global','kind':'load','atomic':false,"
                      "'bytes':4,'requests':2,'lanes':64,'sectors':2,'lane_accesses':64}],"
                      "'branches':[],'global_load_bytes':256,'global_store_bytes':0}]");
    const json_t *load = json_array_get(part(json, "accesses"), 0);
    assert_near(number(load, "sectors_per_request"), 1);
    assert_near(number(load, "ideal_sectors"), 1);
    json_decref(json);
}

#define ROW(scale)                                                                                 \
    "{'file':'f','line':9,'space':'global','kind':'load','atomic':false,'bytes':4,"                \
    "'requests':1,'lanes':32,'sectors':" scale ",'lane_accesses':32}"
#define LAUNCH(sectors)                                                                            \
    "{'entry':'?','block':[32,1,1],'blocks':1,'blocks_traced':1,'accesses':[" ROW(                 \
        sectors) "],"                                                                              \
                 "'branches':[],'global_load_bytes':128,'global_store_bytes':0}"

static void launches_keep_their_entries_and_one_entry_is_summed(void **state)
{
    (void)state;
    json_t *json = traced(TILED, "[" LAUNCH("4") "," LAUNCH("8") "]"); /* SPLIT_K: two launches */
    const json_t *accesses = part(json, "accesses");
    assert_int_equal(json_array_size(accesses), 2);
    assert_string_equal(explain_text(json_array_get(accesses, 0), "entry"), "gemm");
    assert_string_equal(explain_text(json_array_get(accesses, 1), "entry"), "gemm_sum");
    assert_near(number(part(json, "roofline"), "requested_bytes"), 256);
    json_decref(json);
    json = traced(NAIVE, "[" LAUNCH("4") "," LAUNCH("8") "," LAUNCH("12") "]");
    accesses = part(json, "accesses");
    assert_int_equal(json_array_size(accesses), 2); /* the plan's, and two more of '?' */
    assert_near(number(json_array_get(accesses, 1), "sectors_per_request"), 10);
    json_decref(json);
}

/* --- roofline --------------------------------------------------------------------------------- */

#define FLOPS (2.0 * 256 * 256 * 128)
#define BYTES (4.0 * (256 * 128 + 128 * 256 + 256 * 256))

/* A naive product loads 8 bytes for 2 operations. */
static void intensity_counts_what_threads_load(void **state)
{
    (void)state;
    json_t *json =
        traced(NAIVE, "[{'entry':'gemm','block':[256,1,1],'blocks':256,'blocks_traced':2,"
                      "'accesses':[],'branches':[],'global_load_bytes':524288,"
                      "'global_store_bytes':2048}]");
    assert_near(number(json, "intensity"), 0.25);
    assert_near(number(part(json, "roofline"), "requested_bytes"), 128 * (524288.0 + 2048));
    assert_near(number(part(json, "roofline"), "intensity_dram"), FLOPS / BYTES);
    json_decref(json);
}

static void without_a_trace_intensity_is_the_manifests(void **state)
{
    (void)state;
    struct given given;
    give(&given, NAIVE);
    json_t *json = explained(&given);
    assert_near(number(json, "intensity"), FLOPS / ((4.0 * 256 * 256 + 256.0 * 256 / 8) * 128));
    json_decref(json);
}

static json_t *measured(const char *on, const char *dtype, const char *limits)
{
    struct given given;
    give(&given, NAIVE);
    given.facts.dtype = dtype;
    given.facts.median_ns = 10000;
    given.facts.lo_ns = 9900;
    given.facts.hi_ns = 10100;
    given.facts.measured_on = on;
    if (limits != NULL)
        given.facts.limits = keep(&given, limits);
    return explained(&given);
}

#define LIMITS "{'dram_bytes_per_s':1e12,'flops_f32':5e13,'from':'measured','device':'NVIDIA H200'}"

static void the_share_is_of_the_measured_limits(void **state)
{
    (void)state;
    json_t *json = measured("NVIDIA H200", "f32", LIMITS);
    const json_t *roofline = part(json, "roofline");
    double attainable_ns = BYTES / 1e12 * 1e9;
    assert_string_equal(explain_text(roofline, "ceiling"), "memory");
    assert_near(number(roofline, "attainable_ns"), attainable_ns);
    assert_near(number(roofline, "attainable_flops_per_s"), FLOPS / attainable_ns * 1e9);
    assert_near(number(roofline, "share"), attainable_ns / 10000);
    assert_near(number(roofline, "achieved_flops_per_s"), FLOPS / 1e-5);
    assert_near(number(roofline, "achieved_bytes_per_s"), BYTES / 1e-5);
    assert_string_equal(explain_text(part(roofline, "limits"), "from"), "measured");
    assert_near(number(json, "median_ns"), 10000);
    assert_near(json_number_value(json_array_get(part(json, "interval_ns"), 1)), 10100);
    json_decref(json);
    json = measured("NVIDIA H100", "f32", LIMITS);
    assert_true(is_null(part(json, "roofline"), "share")); /* of another model */
    json_decref(json);
}

static void the_peak_is_that_of_the_dtype(void **state)
{
    (void)state;
    json_t *json = measured("NVIDIA H200", "f16", LIMITS);
    assert_near(number(part(part(json, "roofline"), "limits"), "flops"), 5e13 * 16);
    json_decref(json);
}

static void without_measured_limits_the_data_sheet_speaks(void **state)
{
    (void)state;
    json_t *json = measured("NVIDIA H200", "f32", NULL);
    const json_t *limits = part(part(json, "roofline"), "limits");
    assert_string_equal(explain_text(limits, "from"), "data sheet");
    assert_near(number(limits, "flops"), 2.0 * 128 * 132 * 1.98e9);
    assert_near(number(limits, "dram_bytes_per_s"), 2 * 3.201e9 * 768);
    json_decref(json);
}

/* --- notes ------------------------------------------------------------------------------------ */

static void what_is_missing_has_a_note(void **state)
{
    (void)state;
    static const char *const notes[] = {"first", "second", NULL};
    struct given given;
    give(&given, NAIVE);
    given.facts.notes = notes;
    given.facts.cubin = "no ELF file at all";
    given.facts.cubin_bytes = 18;
    json_t *json = explained(&given);
    const json_t *said = part(json, "notes");
    assert_int_equal(json_array_size(said), 3);
    assert_string_equal(json_string_value(json_array_get(said, 1)), "second");
    assert_non_null(strstr(json_string_value(json_array_get(said, 2)), "mix of instructions"));
    assert_true(is_null(json, "instructions"));
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(occupancy_is_that_of_the_compiled_registers_and_all_shared_memory),
        cmocka_unit_test(without_a_compile_the_manifest_guesses_registers),
        cmocka_unit_test(registers_of_the_emulator_are_called_so),
        cmocka_unit_test(a_block_that_does_not_fit_is_an_error),
        cmocka_unit_test(an_architecture_alone_has_no_waves_and_no_limits),
        cmocka_unit_test(a_manifest_that_states_no_work_still_tells_how_the_device_is_filled),
        cmocka_unit_test(bytes_of_a_launch_that_was_cut_are_not_known),
        cmocka_unit_test(accesses_are_ratios_per_request_with_their_line),
        cmocka_unit_test(the_trace_stands_in_for_traffic_that_the_manifest_does_not_state),
        cmocka_unit_test(branches_tell_the_share_of_active_lanes),
        cmocka_unit_test(a_warp_that_is_not_full_counts_as_what_it_has),
        cmocka_unit_test(a_broadcast_is_ideal_with_one_sector),
        cmocka_unit_test(launches_keep_their_entries_and_one_entry_is_summed),
        cmocka_unit_test(intensity_counts_what_threads_load),
        cmocka_unit_test(without_a_trace_intensity_is_the_manifests),
        cmocka_unit_test(the_share_is_of_the_measured_limits),
        cmocka_unit_test(the_peak_is_that_of_the_dtype),
        cmocka_unit_test(without_measured_limits_the_data_sheet_speaks),
        cmocka_unit_test(what_is_missing_has_a_note),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
