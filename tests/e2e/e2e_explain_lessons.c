/* explain on a user's own kernels, the ones of the lessons (tests/data/lessons): sectors,
 * conflicts, divergence and intensity by their textbook figures, and words that say so though the
 * manifests state no traffic. */
#include "harness.h"

#include <math.h>

static char folder[4096];

/* Options that stand later win: the kernels are in the source tree. */
static struct harness *start_lessons(void)
{
    struct harness *harness = harness_new();
    snprintf(folder, sizeof folder, "%s/tests/data/lessons", getenv("TUNE_SOURCE_DIR"));
    harness->args[0] = "--plugins";
    harness->args[1] = folder;
    harness_start(harness);
    return harness;
}

/* Takes the configuration. */
static json_t *explain(struct harness *harness, const char *kernel, int n, json_t *config)
{
    return ask(harness, "explain",
        json_pack("{s:s, s:s, s:{s:i}, s:o}", "kernel", kernel, "arch", "sm_90", "shape", "N", n,
            "config", config));
}

/* The one access of that kind whose line has this text. */
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

static void assert_says(const json_t *answer, const char *part)
{
    if (strstr(text_at(answer, "words"), part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, text_at(answer, "words"));
}

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * expected))
        fail_msg("%.9g is not %.9g", value, expected);
}

static void a_tile_of_t_does_a_quarter_of_t_flop_per_byte(void)
{
    static const struct {
        const char *tiled;
        int tile;
        double intensity;
    } cases[] = {{"naive", 16, 0.25}, {"naive", 32, 0.25}, {"tiled", 16, 4}, {"tiled", 32, 8}};
    struct harness *harness = start_lessons();
    for (size_t i = 0; i < 4; i++) {
        json_t *config = json_pack("{s:s, s:i}", "TILED", cases[i].tiled, "TILE", cases[i].tile);
        json_t *answer = explain(harness, "mm", 128, config);
        assert_near(number_at(answer, "intensity"), cases[i].intensity);
        bool is_naive = cases[i].intensity < 1;
        assert_string_equal(
            text_at(answer, "estimate.limited_by"), is_naive ? "l2" : "memory_pipe");
        assert_says(answer, "Threads ask global memory for ");
        assert_says(answer, "a matter of TILE");
        json_decref(answer);
    }
}

/* A warp of 32 x 1 reads one element of A and a row of B. */
static void a_naive_product_reads_one_operand_as_a_broadcast(void)
{
    struct harness *harness = start_lessons();
    json_t *answer =
        explain(harness, "mm", 128, json_pack("{s:s, s:i}", "TILED", "naive", "TILE", 32));
    const json_t *a = access_at(answer, "global", "load", "= A[row * n + k]");
    const json_t *b = access_at(answer, "global", "load", "= B[k * n + column]");
    assert_near(number_at(a, "sectors_per_request"), 1);
    assert_near(number_at(b, "sectors_per_request"), 4);
    json_decref(answer);
}

static void lanes_that_reach_apart_touch_a_sector_each(void)
{
    static const struct {
        int stride, shift, sectors;
    } cases[] = {
        {1, 0, 4}, {1, 1, 5}, {2, 0, 8}, {4, 0, 16}, {8, 0, 32}, {32, 0, 32}, {0, 0, 1}, {0, 1, 1}};
    struct harness *harness = start_lessons();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *answer = explain(harness, "reach", 65536,
            json_pack(
                "{s:i, s:i, s:i}", "STRIDE", cases[i].stride, "SHIFT", cases[i].shift, "BANKS", 1));
        const json_t *load = access_at(answer, "global", "load", "= x[");
        assert_near(number_at(load, "sectors_per_request"), cases[i].sectors);
        assert_near(number_at(load, "requests"), 65536 / 32);
        if (cases[i].sectors > 4) {
            assert_says(answer, "Uncoalesced: the load at reach.cu:27 touches ");
            assert_says(answer, cases[i].shift ? "a matter of SHIFT." : "a matter of STRIDE.");
        } else {
            assert_null(strstr(text_at(answer, "words"), "Uncoalesced"));
        }
        json_decref(answer);
    }
}

static int gcd(int a, int b)
{
    return b == 0 ? a : gcd(b, a % b);
}

static void a_stride_in_shared_memory_conflicts_by_its_divisor_of_32(void)
{
    static const int strides[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 31, 32, 33};
    struct harness *harness = start_lessons();
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        int degree = strides[i] == 0 ? 1 : gcd(strides[i], 32);
        char said[64];
        snprintf(said, sizeof said, "is %d-way", degree);
        json_t *answer = explain(harness, "reach", 65536,
            json_pack("{s:i, s:i, s:i}", "STRIDE", 1, "SHIFT", 0, "BANKS", strides[i]));
        const json_t *load = access_at(answer, "shared", "load", "staged[(31");
        const json_t *store = access_at(answer, "shared", "store", "= value");
        assert_near(number_at(load, "conflict_degree"), degree);
        assert_near(number_at(store, "conflict_degree"), degree);
        if (degree > 1)
            assert_says(answer, said);
        else
            assert_null(strstr(text_at(answer, "words"), "onflict"));
        json_decref(answer);
    }
}

static void a_tree_touches_47_warps_or_12(void)
{
    static const struct {
        const char *order;
        int warps;
    } cases[] = {{"interleaved", 47}, {"sequential", 12}};
    struct harness *harness = start_lessons();
    double estimated_ns[2];
    for (size_t i = 0; i < 2; i++) {
        json_t *answer = explain(harness, "tree", 64, json_pack("{s:s}", "ORDER", cases[i].order));
        const json_t *store = access_at(answer, "shared", "store", "+= sums[t + step]");
        const json_t *branch = json_array_get(at(answer, "branches"), 0);
        assert_near(number_at(store, "requests"), cases[i].warps * 64);
        assert_near(number_at(branch, "warps"), cases[i].warps * 64);
        assert_near(number_at(branch, "active_fraction"), 255.0 / (32 * cases[i].warps));
        assert_near(number_at(store, "conflict_degree"), 1);
        estimated_ns[i] = number_at(answer, "estimate.time_ns");
        json_decref(answer);
    }
    assert_true(estimated_ns[0] > 2 * estimated_ns[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(a_tile_of_t_does_a_quarter_of_t_flop_per_byte),
        HARNESS_TEST(a_naive_product_reads_one_operand_as_a_broadcast),
        HARNESS_TEST(lanes_that_reach_apart_touch_a_sector_each),
        HARNESS_TEST(a_stride_in_shared_memory_conflicts_by_its_divisor_of_32),
        HARNESS_TEST(a_tree_touches_47_warps_or_12),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
