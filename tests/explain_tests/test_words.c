/* explain_words: each thing that limits is told where it weighs, with its parameter, and nothing is
 * told that is not so. */
#include "../plugins_tests/support.h"
#include "explain/explain.h"
#include "patched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct manifest *shipped(const char *name)
{
    char path[4096];
    struct tune_error err = {0};
    snprintf(path, sizeof path, "%s/plugins/%s/%s.json", getenv("TUNE_SOURCE_DIR"), name, name);
    char *text = read_text(path);
    struct manifest *manifest = manifest_create(text, strlen(text), path, &err);
    if (manifest == NULL)
        fail_msg("%s", err.text);
    free(text);
    return manifest;
}

/* One that states no traffic of its own, as many do. */
static struct manifest *silent(const char *name)
{
    struct manifest *manifest = shipped(name);
    expr_destroy(manifest->traffic_global);
    expr_destroy(manifest->traffic_shared);
    manifest->traffic_global = manifest->traffic_shared = NULL;
    return manifest;
}

/* A gemm that is measured at half of the peak of arithmetic and shows nothing wrong. */
static const char gemm_base[] =
    "{'kernel':'gemm','dtype':'f32','arch':'sm_90','shape':{'M':4096,'N':4096,'K':4096},"
    "'mode':'cold','origin':'given','device':'NVIDIA H200',"
    "'config':{'VARIANT':1,'BM':64,'BN':64,'BK':16,'TM':4,'TN':4,'PAD':0,'SWIZZLE':1,'VEC':4,"
    "'STAGES':1,'SPLIT_K':1,'UNROLL':8,'MIN_BLOCKS':1},"
    "'occupancy':{'blocks_per_sm':4,'warps_per_sm':32,'warps_max':64,'fraction':0.5,"
    "'limited_by':'registers','threads':256,'registers':64,'shared_bytes':8192},"
    "'blocks':4224,'waves':8.0,'tail_fill':1.0,'accesses':[],'branches':[],"
    "'traced':{'blocks':4,'of':4096},'intensity':8.0,"
    "'roofline':{'flops':137438953472,'bytes':201326592,'requested_bytes':201326592,"
    "'intensity_dram':680,'ceiling':'compute','attainable_ns':2500000,'share':0.5,"
    "'limits':{'dram_bytes_per_s':4e12,'flops':55e12,'from':'measured'}},"
    "'registers':64,'spill_bytes':0,"
    "'instructions':{'total':1000,'by_class':{'fp32':700,'global_load':20,'shared_load':70,"
    "'shared_store':10,'integer':150,'local':0}},"
    "'estimate':{'time_ns':5000000,'limited_by':'flops','ceilings_ns':{'flops':2500000,"
    "'issue':2600000,'memory_pipe':2400000,'l2':1500000,'dram':100000},'wait_ns':0,"
    "'launch_ns':1500},'median_ns':5000000,'interval_ns':[4990000,5010000],"
    "'measured_on':'NVIDIA H200','notes':[]}";

/* The words for the base with changes. Takes the manifest; NULL: none. */
static char *words_with(struct manifest *manifest, const char *changes)
{
    json_t *explanation = patched(gemm_base, changes);
    char *text = explain_words(explanation, manifest);
    assert_non_null(text);
    json_decref(explanation);
    manifest_destroy(manifest);
    return text;
}

/* The same; `kernel` NULL: no manifest. */
static char *words(const char *kernel, const char *changes)
{
    return words_with(kernel ? shipped(kernel) : NULL, changes);
}

/* Takes the text. Lists end with NULL. */
static void expect(char *text, const char *const *wanted, const char *const *unwanted)
{
    for (; *wanted != NULL; wanted++)
        if (strstr(text, *wanted) == NULL)
            fail_msg("\"%s\" is missing in: %s", *wanted, text);
    for (; *unwanted != NULL; unwanted++)
        if (strstr(text, *unwanted) != NULL)
            fail_msg("\"%s\" should not be in: %s", *unwanted, text);
    size_t sentences = 0;
    for (const char *c = text; *c != '\0'; c++)
        sentences += *c == '.' && (c[1] == ' ' || c[1] == '\0');
    assert_in_range(sentences, 1, 7);
    free(text);
}

#define LIST(...)                                                                                  \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

#define SHARED_LOAD(degree, wavefronts)                                                            \
    "{'file':'gemm.cu','line':88,'space':'shared','kind':'load','bytes':4,"                        \
    "'sectors_per_request':null,'conflict_degree':" degree ",'wavefronts_per_request':" wavefronts \
    ",'requests':1000,'active_lanes':32}"
#define GLOBAL(kind, sectors, ideal, requests)                                                     \
    "{'file':'gemm.cu','line':41,'space':'global','kind':'" kind "','bytes':4,"                    \
    "'sectors_per_request':" sectors ",'ideal_sectors':" ideal ",'conflict_degree':null,"          \
    "'wavefronts_per_request':null,'requests':" requests ",'active_lanes':32}"

static void nothing_wrong_is_not_made_up(void **state)
{
    (void)state;
    expect(words("gemm", "{}"),
        LIST("reaches 50 %", "peak of arithmetic", "Nothing that is seen here accounts"),
        LIST("onflict", "Uncoalesced", "spill", "Divergence", "Tail", "Few", "Waits", "not traced",
            "Nothing is measured"));
}

static void bank_conflicts_are_told_with_line_degree_and_remedy(void **state)
{
    (void)state;
    expect(words("gemm", "{'config':{'SWIZZLE':0},'accesses':[" SHARED_LOAD("8.0", "8.0") "]}"),
        LIST("Bank conflicts: the load at gemm.cu:88 is 8-way", "88 % of all passes", "padding",
            "SWIZZLE (none to xor)"),
        LIST("BM (", "VEC (", "Uncoalesced"));
}

static void without_stated_traffic_parameters_are_named_by_what_the_manifest_says_of_them(
    void **state)
{
    (void)state;
    expect(words_with(silent("gemm"),
               "{'config':{'SWIZZLE':0},'accesses':[" SHARED_LOAD("8.0", "8.0") "]}"),
        LIST("cures that; by the manifest's words, a matter of PAD, SWIZZLE."),
        LIST("to xor", "BM"));
    expect(words_with(silent("gemm"), "{'roofline':{'requested_bytes':4e9}}"),
        LIST("; by the manifest's words, a matter of BM, BN, BK."), LIST("VEC"));
    expect(words("gemm", "{'roofline':{'requested_bytes':4e9}}"), LIST("Threads ask"),
        LIST("by the manifest"));
}

static void what_is_little_is_not_nothing(void **state)
{
    (void)state;
    expect(words("gemm", "{'median_ns':null,'roofline':{'share':null},"
                         "'estimate':{'ceilings_ns':{'memory_pipe':200000}},"
                         "'accesses':[" SHARED_LOAD("8.0", "8.0") "]}"),
        LIST("Little is lost to bank conflicts"), LIST("Nothing wasteful"));
}

static void a_broadcast_is_no_conflict(void **state)
{
    (void)state;
    expect(words("gemm", "{'accesses':[" SHARED_LOAD("1.0", "1.0") "]}"), LIST("reaches 50 %"),
        LIST("onflict", "padding", "swizzle"));
    /* 16 bytes per lane take four passes without any conflict. */
    expect(words("gemm", "{'accesses':[" SHARED_LOAD("1.0", "4.0") "]}"), LIST("reaches 50 %"),
        LIST("onflict", "padding", "swizzle"));
}

static void conflicts_where_shared_memory_is_idle_are_little(void **state)
{
    (void)state;
    expect(
        words("gemm", "{'estimate':{'ceilings_ns':{'memory_pipe':100000}},'accesses':[" SHARED_LOAD(
                          "2.0", "2.0") "]}"),
        LIST("Little is lost to bank conflicts"), LIST("Bank conflicts:", "SWIZZLE"));
}

static void no_parameter_is_named_without_a_manifest_or_when_none_bears_on_it(void **state)
{
    (void)state;
    const char *conflict = "{'config':{'SWIZZLE':0},'accesses':[" SHARED_LOAD("8.0", "8.0") "]}";
    expect(words(NULL, conflict), LIST("is 8-way", "padding"), LIST("SWIZZLE", "PAD", " to "));
    /* The swizzle is on already: none of the parameters makes less traffic of shared memory. */
    expect(words("gemm", "{'accesses':[" SHARED_LOAD("8.0", "8.0") "]}"), LIST("is 8-way"),
        LIST("SWIZZLE (", "PAD ("));
    /* A configuration of another manifest. */
    expect(words("reduce", conflict), LIST("is 8-way"), LIST("SWIZZLE", "BLOCK ("));
}

static void uncoalesced_accesses_are_told_with_sectors_and_variant(void **state)
{
    (void)state;
    expect(words("transpose", "{'kernel':'transpose','shape':{'M':4096,'N':4096,'K':null},"
                              "'roofline':{'ceiling':'memory','share':0.2},"
                              "'estimate':{'ceilings_ns':{'l2':4000000}},"
                              "'accesses':[" GLOBAL("load", "4", "4", "1000") "," GLOBAL(
                                  "store", "32", "4", "1000") "]}"),
        LIST("Uncoalesced: the store at gemm.cu:41 touches 32 sectors per request where 4 would do",
            "78 % of all sectors", "neighbouring addresses", "bandwidth of device memory"),
        LIST("onflict", "multiple of 32 bytes"));
}

static void a_request_that_takes_less_than_its_bytes_makes_up_for_no_other(void **state)
{
    (void)state;
    /* One address for all lanes beside a stride: 28 of 33 sectors are wasted. */
    expect(words("gemm", "{'estimate':{'ceilings_ns':{'l2':4000000}},'accesses':[" GLOBAL(
                             "load", "1", "4", "1000") "," GLOBAL("store", "32", "4", "1000") "]}"),
        LIST("85 % of all sectors"), LIST("76 %"));
}

static void a_clock_near_the_peak_makes_every_cause_little(void **state)
{
    (void)state;
    expect(words("gemm", "{'roofline':{'share':0.97},'accesses':[" SHARED_LOAD("8.0", "8.0") "]}"),
        LIST("reaches 97 %", "Little is lost to bank conflicts", "So near to the peak"),
        LIST("Bank conflicts:"));
}

static void a_shift_by_one_element_is_told_as_alignment(void **state)
{
    (void)state;
    expect(words("gemm", "{'estimate':{'ceilings_ns':{'l2':4000000}},"
                         "'accesses':[" GLOBAL("load", "5", "4", "1000") "]}"),
        LIST("5 sectors per request where 4 would do", "20 % of all sectors",
            "multiple of 32 bytes"),
        LIST("neighbouring addresses"));
    expect(words("gemm", "{'accesses':[" GLOBAL("load", "1", "4", "1000") "]}"),
        LIST("reaches 50 %"), LIST("Uncoalesced", "uncoalesced"));
}

static void spills_come_first_and_name_what_takes_registers(void **state)
{
    (void)state;
    expect(words("gemm",
               "{'config':{'TM':8,'TN':8,'BM':128,'BN':128,'MIN_BLOCKS':2},'spill_bytes':512,"
               "'registers':128,'instructions':{'by_class':{'local':300}}}"),
        LIST("Registers spill: 512 bytes per thread", "75 % of the instructions",
            "MIN_BLOCKS (2 to 1)", "TM (8 to 4)"),
        LIST("MIN_BLOCKS (1 to 2)"));
}

static void low_occupancy_far_from_ceilings_names_the_resource(void **state)
{
    (void)state;
    static const char low[] =
        "{'arch':'sm_80','config':{'BM':256,'BN':128,'BK':32,'TM':8,'TN':8,'STAGES':2},"
        "'occupancy':{'fraction':0.25,'warps_per_sm':16,'blocks_per_sm':1,"
        "'limited_by':'shared_memory','shared_bytes':98304,'threads':512},'blocks':1056,"
        "'registers':64,'roofline':{'share':%s}}";
    char changes[512];
    snprintf(changes, sizeof changes, low, "0.25");
    expect(words("gemm", changes),
        LIST("Few warps: a multiprocessor holds 16 of 64, limited by shared memory",
            "less shared memory per block", "BK (32 to 16)"),
        LIST("grid has no more", "So near"));
    /* The same occupancy near the peak is none of our business. */
    snprintf(changes, sizeof changes, low, "0.95");
    expect(words("gemm", changes), LIST("reaches 95 %", "So near to the peak", "fewer operations"),
        LIST("Few warps"));
}

static void a_full_memory_ceiling_leaves_only_fewer_bytes(void **state)
{
    (void)state;
    expect(words(NULL, "{'roofline':{'ceiling':'memory','share':0.93}}"),
        LIST("reaches 93 %", "bandwidth of device memory", "moving fewer bytes"),
        LIST("dtype that", "Nothing that is seen"));
}

static void few_blocks_leave_multiprocessors_idle_and_ask_for_a_split(void **state)
{
    (void)state;
    expect(words("gemm",
               "{'shape':{'M':512,'N':512},'blocks':64,'waves':0.12121212,'tail_fill':0.1212}"),
        LIST("Too few blocks: 64 for 132 multiprocessors", "52 % of them have nothing to do",
            "SPLIT_K (1 to "),
        LIST("Tail", "Few warps"));
    /* A device that is not known has no number of multiprocessors. */
    expect(words("gemm", "{'device':null,'blocks':64,'waves':64,'occupancy':{'blocks_per_sm':1}}"),
        LIST("reaches"), LIST("Too few", "Tail"));
}

static void a_bad_tail_is_told_with_its_waves(void **state)
{
    (void)state;
    expect(words("gemm", "{'blocks':1082,'waves':2.0492,'tail_fill':0.0492}"),
        LIST("Tail: the blocks make 2.05 waves", "last one fills 5 %"), LIST("Too few"));
    expect(words("gemm", "{'blocks':21100,'waves':39.96,'tail_fill':0.96}"), LIST("reaches"),
        LIST("Tail:"));
}

static void divergence_is_told_with_its_line(void **state)
{
    (void)state;
    expect(words("gemm", "{'branches':["
                         "{'file':'reduce.cu','line':57,'active_fraction':0.2,'warps':470},"
                         "{'file':'reduce.cu','line':60,'active_fraction':1.0,'warps':100}]}"),
        LIST("Divergence: the branch at reduce.cu:57 is reached with 20 % of the lanes active",
            "66 % idle"),
        LIST("reduce.cu:60"));
}

static void repeated_reads_ask_for_a_larger_tile(void **state)
{
    (void)state;
    expect(words("gemm", "{'config':{'BM':32,'BN':32},'intensity':4.0,"
                         "'roofline':{'requested_bytes':34359738368},"
                         "'estimate':{'ceilings_ns':{'l2':4000000}}}"),
        LIST("171 x the bytes of the operands", "4 flop per byte", "T/4", "BM (32 to 64)",
            "BN (32 to 64)"),
        LIST("BM (32 to 16)"));
}

static void what_is_not_measured_or_not_traced_is_said(void **state)
{
    (void)state;
    expect(words("gemm", "{'median_ns':null,'roofline':{'share':null},'traced':null,"
                         "'intensity':null}"),
        LIST("Nothing is measured",
            "by the estimate, an order and no forecast, the limit is arithmetic", "not traced",
            "not known"),
        LIST("reaches", "Nothing that is seen", "Nothing wasteful"));
    expect(words("gemm", "{'roofline':{'share':null,'limits':null}}"),
        LIST("no limits of that device are known"), LIST("reaches", "Nothing is measured"));
    expect(words(NULL, "{'median_ns':null,'roofline':null,'estimate':null,'occupancy':null,"
                       "'accesses':[],'branches':[],'instructions':null,'traced':null}"),
        LIST("Nothing is measured", "not traced"), LIST("estimate", "nan", "inf", "wasteful"));
}

static void waits_name_what_loads_ahead(void **state)
{
    (void)state;
    expect(words("gemm", "{'estimate':{'wait_ns':1500000},'roofline':{'share':0.4}}"),
        LIST("Waits: by the estimate 30 % of the time", "STAGES (1 to 2)"), LIST("STAGES (2"));
}

static void too_few_blocks_to_fill_the_warps_are_not_taken_for_a_resource(void **state)
{
    (void)state;
    expect(words("gemm", "{'shape':{'M':512,'N':1024},'blocks':132,'waves':0.25,'tail_fill':0.25,"
                         "'roofline':{'share':0.3}}"),
        LIST("Few warps: a multiprocessor gets about 8 of 64", "grid has no more blocks",
            "SPLIT_K (1 to 2)"),
        LIST("Tail", "Too few blocks", "registers"));
}

static void a_ceiling_beside_the_work_is_told_from_the_estimate(void **state)
{
    (void)state;
    expect(words("gemm",
               "{'estimate':{'ceilings_ns':{'memory_pipe':4000000}},'accesses':[" SHARED_LOAD(
                   "1.0", "1.0") "]}"),
        LIST("By the estimate moving data from shared memory and L1 to registers takes 80 %",
            "the arithmetic needs 50 %", "TM (4 to 8)", "TN (4 to 8)"),
        LIST("onflict", "Nothing"));
    expect(words("gemm", "{'traced':null,'estimate':{'ceilings_ns':{'memory_pipe':4000000}}}"),
        LIST("takes 80 %", "and so do fewer conflicts: "), LIST("Bank conflicts", "Nothing"));
    /* Traced, and shared memory is not accessed at all. */
    expect(words("gemm", "{'estimate':{'ceilings_ns':{'memory_pipe':4000000}}}"),
        LIST("takes 80 %"), LIST("onflict"));
    /* The traffic of L2 is told as repeated reads, and all that is below it is hidden by it. */
    expect(words("gemm", "{'estimate':{'ceilings_ns':{'memory_pipe':4000000,'l2':4500000}},"
                         "'roofline':{'requested_bytes':4e9}}"),
        LIST("Threads ask global memory"), LIST("By the estimate moving"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_wrong_is_not_made_up),
        cmocka_unit_test(bank_conflicts_are_told_with_line_degree_and_remedy),
        cmocka_unit_test(
            without_stated_traffic_parameters_are_named_by_what_the_manifest_says_of_them),
        cmocka_unit_test(what_is_little_is_not_nothing),
        cmocka_unit_test(a_broadcast_is_no_conflict),
        cmocka_unit_test(conflicts_where_shared_memory_is_idle_are_little),
        cmocka_unit_test(no_parameter_is_named_without_a_manifest_or_when_none_bears_on_it),
        cmocka_unit_test(uncoalesced_accesses_are_told_with_sectors_and_variant),
        cmocka_unit_test(a_request_that_takes_less_than_its_bytes_makes_up_for_no_other),
        cmocka_unit_test(a_clock_near_the_peak_makes_every_cause_little),
        cmocka_unit_test(a_shift_by_one_element_is_told_as_alignment),
        cmocka_unit_test(spills_come_first_and_name_what_takes_registers),
        cmocka_unit_test(low_occupancy_far_from_ceilings_names_the_resource),
        cmocka_unit_test(a_full_memory_ceiling_leaves_only_fewer_bytes),
        cmocka_unit_test(few_blocks_leave_multiprocessors_idle_and_ask_for_a_split),
        cmocka_unit_test(a_bad_tail_is_told_with_its_waves),
        cmocka_unit_test(divergence_is_told_with_its_line),
        cmocka_unit_test(repeated_reads_ask_for_a_larger_tile),
        cmocka_unit_test(what_is_not_measured_or_not_traced_is_said),
        cmocka_unit_test(too_few_blocks_to_fill_the_warps_are_not_taken_for_a_resource),
        cmocka_unit_test(a_ceiling_beside_the_work_is_told_from_the_estimate),
        cmocka_unit_test(waits_name_what_loads_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
