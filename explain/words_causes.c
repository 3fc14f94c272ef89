/* What is said of one cause: the fact with its place and figure, and the parameters that move it.
 */
#include "words.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define LEVERS_NAMED 3
#define REGISTERS_FULL 250 /* of the 255 that a thread can have */

/* --- parts of sentences ----------------------------------------------------------------------- */

void say_percent(FILE *text, double share)
{
    if (share > 0 && share < 0.01)
        fputs("less than 1 %", text);
    else
        fprintf(text, "%.0f %%", share * 100);
}

/* "load at gemm.cu:88" */
static void say_place(FILE *text, const json_t *item, const char *what)
{
    double line = explain_number(item, "line");
    fputs(what, text);
    if (line > 0)
        fprintf(text, " at %s:%.0f", explain_text(item, "file"), line);
}

static void say_value(FILE *text, const struct manifest_param *param, int64_t value)
{
    for (size_t i = 0; i < param->value_count; i++)
        if (param->values[i] == value && param->value_names[i] != NULL) {
            fputs(param->value_names[i], text);
            return;
        }
    fprintf(text, "%lld", (long long)value);
}

static int64_t value_now(const struct levers *levers, const struct manifest_param *param)
{
    return levers->values[param - levers->estimator.manifest->params];
}

/* ": SPLIT_K (1 to 4), BM (128 to 64)"; nothing where there are none. */
static void say_levers(const struct story *story, const struct lever *found, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fprintf(story->text, "%s%s (", i ? ", " : ": ", found[i].param->name);
        say_value(story->text, found[i].param, value_now(&story->levers, found[i].param));
        fputs(" to ", story->text);
        say_value(story->text, found[i].param, found[i].to);
        fputs(")", story->text);
    }
}

static void say_moves(const struct story *story, enum lever_quantity quantity, int direction)
{
    struct lever found[LEVERS_NAMED];
    if (story->has_levers)
        say_levers(
            story, found, levers_find(&story->levers, quantity, direction, found, LEVERS_NAMED));
}

/* True when the name or the meaning of a parameter has one of these words in it (lower case, ended
 * by NULL). */
static bool mentions(const struct manifest_param *param, const char *const *words)
{
    char text[512];
    snprintf(text, sizeof text, "%s %s", param->name, param->meaning ? param->meaning : "");
    for (char *c = text; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    for (; *words != NULL; words++)
        if (strstr(text, *words) != NULL)
            return true;
    return false;
}

/* Keeps the first levers whose parameters mention one of the words. */
static size_t only_of(struct lever *found, size_t count, const char *const *words)
{
    size_t kept = 0;
    for (size_t i = 0; i < count && kept < LEVERS_NAMED; i++)
        if (mentions(found[i].param, words))
            found[kept++] = found[i];
    return kept;
}

/* Where the manifest does not state that traffic, nothing tells which values make less of it; the
 * parameters that it describes by these words are named all the same. */
static void say_by_meaning(
    const struct story *story, const struct expr *stated, const char *const *words)
{
    const struct manifest *manifest = story->levers.estimator.manifest;
    size_t named = 0;
    for (size_t i = 0; stated == NULL && i < manifest->param_count && named < LEVERS_NAMED; i++)
        if (manifest->params[i].value_count > 1 && mentions(&manifest->params[i], words))
            fprintf(story->text, "%s%s", named++ ? ", " : "; by the manifest's words, a matter of ",
                manifest->params[i].name);
}

/* --- causes ----------------------------------------------------------------------------------- */

/* What takes registers, and what keeps the compiler from giving more: a parameter of the launch
 * bounds, which is no matter where it gives all that a thread can have. */
static size_t register_levers(const struct story *story, struct lever found[LEVERS_NAMED])
{
    static const char *const bounds[] = {
        "min_blocks", "leaves registers", "launch_bounds", "launch bounds", NULL};
    const struct manifest *manifest = story->levers.estimator.manifest;
    size_t count = 0;
    struct lever rest[MANIFEST_MAX_PARAMS];
    bool is_full = explain_number(story->explanation, "registers") >= REGISTERS_FULL;
    for (size_t i = 0; i < manifest->param_count && !is_full && count < LEVERS_NAMED; i++)
        if (mentions(&manifest->params[i], bounds))
            count += levers_lower(&story->levers, &manifest->params[i], &found[count]);
    size_t more = levers_find(&story->levers, LEVER_REGISTERS, -1, rest, MANIFEST_MAX_PARAMS);
    for (size_t i = 0; i < more && count < LEVERS_NAMED; i++)
        if (!mentions(rest[i].param, bounds))
            found[count++] = rest[i];
    return count;
}

static void tell_spills(const struct story *story)
{
    fprintf(story->text, " Registers spill: %.0f bytes per thread go through local memory",
        explain_number(story->explanation, "spill_bytes"));
    if (story->weighed.local_share > 0) {
        fputs(", ", story->text);
        say_percent(story->text, story->weighed.local_share);
        fputs(" of the instructions that access memory", story->text);
    }
    fputs("; less to keep in registers, or more registers per thread, cures that", story->text);
    struct lever found[LEVERS_NAMED];
    if (story->has_levers)
        say_levers(story, found, register_levers(story, found));
}

static void say_degree(FILE *text, double degree)
{
    bool is_whole = fabs(degree - round(degree)) < 0.05;
    fprintf(text, is_whole ? "%.0f-way" : "%.1f-way on average", degree);
}

static void tell_conflicts(const struct story *story)
{
    static const char *const remedies[] = {"pad", "swizzle", "layout", "bank", NULL};
    const struct weighed *weighed = &story->weighed;
    const json_t *worst = explain_worst(story->explanation, CAUSE_CONFLICTS);
    fputs(" Bank conflicts: the ", story->text);
    say_place(story->text, worst, explain_text(worst, "kind"));
    fputs(" is ", story->text);
    say_degree(story->text, explain_number(worst, "conflict_degree"));
    fputs(", and ", story->text);
    say_percent(story->text, weighed->wasted_wavefronts / weighed->wavefronts);
    fputs(" of all passes over shared memory are wasted; padding or a swizzle of what lies there"
          " cures that",
        story->text);
    struct lever found[MANIFEST_MAX_PARAMS];
    if (!story->has_levers)
        return;
    size_t count =
        levers_find(&story->levers, LEVER_SHARED_TRAFFIC, -1, found, MANIFEST_MAX_PARAMS);
    say_levers(story, found, only_of(found, count, remedies));
    say_by_meaning(story, story->levers.estimator.manifest->traffic_shared, remedies);
}

/* Of global memory. */
static void say_traffic_moves(const struct story *story, const char *const *words)
{
    say_moves(story, LEVER_TRAFFIC, -1);
    if (story->has_levers)
        say_by_meaning(story, story->levers.estimator.manifest->traffic_global, words);
}

static void tell_sectors(const struct story *story)
{
    static const char *const strides[] = {"stride", "layout", "coalesc", NULL};
    static const char *const beginnings[] = {"shift", "offset", "align", "pad", NULL};
    const struct weighed *weighed = &story->weighed;
    const json_t *worst = explain_worst(story->explanation, CAUSE_SECTORS);
    double sectors = explain_number(worst, "sectors_per_request");
    double ideal = explain_number(worst, "ideal_sectors");
    fputs(" Uncoalesced: the ", story->text);
    say_place(story->text, worst, explain_text(worst, "kind"));
    fprintf(
        story->text, " touches %.3g sectors per request where %.3g would do, and ", sectors, ideal);
    say_percent(story->text, weighed->wasted_sectors / weighed->sectors);
    fputs(" of all sectors carry what the request does not ask for", story->text);
    bool is_shifted = sectors - ideal <= 1.01;
    fputs(is_shifted ? "; rows that begin at a multiple of 32 bytes cure that"
                     : "; neighbouring lanes should ask for neighbouring addresses",
        story->text);
    say_traffic_moves(story, is_shifted ? beginnings : strides);
}

static void tell_traffic(const struct story *story)
{
    static const char *const tiles[] = {"tile", "staged in", "per thread", "per block", NULL};
    const json_t *roofline = json_object_get(story->explanation, "roofline");
    double intensity = explain_number(story->explanation, "intensity");
    fprintf(story->text, " Threads ask global memory for %.3g x the bytes of the operands",
        explain_number(roofline, "requested_bytes") / explain_number(roofline, "bytes"));
    if (intensity > 0)
        fprintf(story->text, ", which is %.3g flop per byte", intensity);
    if (explain_number(roofline, "intensity_dram") > 2 * intensity && intensity > 0)
        fputs("; a larger tile uses each byte more often (a T x T tile of a product of f32: T/4"
              " flop per byte)",
            story->text);
    else
        fputs("; to keep what was read, in registers or shared memory, saves that", story->text);
    say_traffic_moves(story, tiles);
}

static void tell_ceiling(const struct story *story)
{
    static const struct {
        const char *name, *cure;
        enum lever_quantity quantity;
    } sides[ESTIMATE_CEILING_COUNT] = {
        [ESTIMATE_ISSUE] = {"issuing instructions takes", "wider accesses take fewer of them",
            LEVER_SHARED_TRAFFIC},
        [ESTIMATE_PIPE] = {"moving data from shared memory and L1 to registers takes",
            "more work per thread on what it holds in registers moves less", LEVER_SHARED_TRAFFIC},
        [ESTIMATE_L2] = {"the traffic between L2 and the multiprocessors takes",
            "larger tiles make less of it", LEVER_TRAFFIC},
    };
    const double *share = story->weighed.share;
    enum estimate_ceiling side = story->weighed.side;
    bool is_memory = share[ESTIMATE_DRAM] > share[ESTIMATE_FLOPS];
    fprintf(story->text, " By the estimate %s ", sides[side].name);
    say_percent(story->text, share[side]);
    fprintf(story->text, " of the time, where %s ",
        is_memory ? "device memory needs" : "the arithmetic needs");
    say_percent(story->text, share[is_memory ? ESTIMATE_DRAM : ESTIMATE_FLOPS]);
    /* Without a trace, conflicts may be a part of it. */
    bool is_traced = json_is_object(json_object_get(story->explanation, "traced"));
    bool is_unseen = side == ESTIMATE_PIPE && !is_traced;
    fprintf(
        story->text, "; %s%s", sides[side].cure, is_unseen ? ", and so do fewer conflicts" : "");
    say_moves(story, sides[side].quantity, -1);
}

static void tell_divergence(const struct story *story)
{
    const json_t *worst = explain_worst(story->explanation, CAUSE_DIVERGENCE);
    fputs(" Divergence: the ", story->text);
    say_place(story->text, worst, "branch");
    fputs(" is reached with ", story->text);
    say_percent(story->text, explain_number(worst, "active_fraction"));
    fputs(" of the lanes active, and over all branches ", story->text);
    say_percent(story->text, story->weighed.idle_lanes);
    fputs(" idle; work dealt out to whole warps, lane by lane, cures that", story->text);
}

static void tell_few_blocks(const struct story *story)
{
    fprintf(story->text, " Too few blocks: %.0f for %.0f multiprocessors, so that ",
        explain_number(story->explanation, "blocks"), story->weighed.sms);
    say_percent(story->text, story->weighed.idle_sms);
    fputs(
        " of them have nothing to do; smaller tiles or a split of the work make more", story->text);
    say_moves(story, LEVER_BLOCKS, 1);
}

static void tell_tail(const struct story *story)
{
    double waves = explain_number(story->explanation, "waves");
    if (waves > 1) {
        fprintf(story->text, " Tail: the blocks make %.2f waves, and the last one fills ", waves);
        say_percent(story->text, explain_number(story->explanation, "tail_fill"));
        fputs(" of the device", story->text);
    } else {
        fputs(" Tail: the blocks do not come out even on the multiprocessors", story->text);
    }
    fputs(", which costs up to ", story->text);
    say_percent(story->text, story->weighed.tail_loss);
    fputs("; another number of blocks comes out more even", story->text);
    if (!story->has_levers)
        return;
    struct lever found[2 * LEVERS_NAMED];
    size_t count = levers_find(&story->levers, LEVER_BLOCKS, 1, found, LEVERS_NAMED);
    count += levers_find(&story->levers, LEVER_BLOCKS, -1, found + count, LEVERS_NAMED);
    size_t kept = 0;
    for (size_t i = 0; i < count && kept < LEVERS_NAMED; i++)
        if (found[i].time_ns < story->levers.time_ns * (1 - story->weighed.tail_loss / 4))
            found[kept++] = found[i];
    say_levers(story, found, kept);
}

static void tell_waits(const struct story *story)
{
    fputs(" Waits: by the estimate ", story->text);
    say_percent(story->text, story->weighed.weight[CAUSE_WAITS]);
    fputs(" of the time passes in round trips to memory that no other block covers; loads further"
          " ahead, or more blocks per multiprocessor, cover them",
        story->text);
    say_moves(story, LEVER_ROUND_TRIPS, -1);
}

static void tell_occupancy(const struct story *story)
{
    static const struct {
        const char *word, *limit, *cure;
    } limits[] = {
        {"threads", "threads per multiprocessor", "another block size fits more"},
        {"blocks", "blocks per multiprocessor", "larger blocks bring more"},
        {"registers", "registers", "fewer registers per thread make room for more"},
        {"shared_memory", "shared memory", "less shared memory per block makes room for more"},
    };
    const json_t *occupancy = json_object_get(story->explanation, "occupancy");
    const char *limit = explain_text(occupancy, "limited_by");
    double fraction = explain_number(occupancy, "fraction");
    bool is_grid = story->weighed.resident_fraction < fraction * 0.99;
    fprintf(story->text, " Few warps: a multiprocessor %s %.0f of %.0f",
        is_grid ? "gets about" : "holds",
        is_grid ? story->weighed.resident_fraction * explain_number(occupancy, "warps_max")
                : explain_number(occupancy, "warps_per_sm"),
        explain_number(occupancy, "warps_max"));
    if (is_grid)
        fputs(", since the grid has no more blocks, perhaps too few to hide latencies; more blocks "
              "help",
            story->text);
    for (size_t i = 0; !is_grid && i < sizeof limits / sizeof limits[0]; i++)
        if (strcmp(limits[i].word, limit) == 0)
            fprintf(story->text, ", limited by %s, perhaps too few to hide latencies; %s",
                limits[i].limit, limits[i].cure);
    say_moves(story, is_grid ? LEVER_BLOCKS : LEVER_WARPS, 1);
}

static const struct {
    void (*tell)(const struct story *story);
    const char *name; /* where it is little; NULL: then it is not worth a word */
} tellers[CAUSE_COUNT] = {
    [CAUSE_SPILLS] = {tell_spills, "spilled registers"},
    [CAUSE_CONFLICTS] = {tell_conflicts, "bank conflicts"},
    [CAUSE_SECTORS] = {tell_sectors, "uncoalesced accesses"},
    [CAUSE_TRAFFIC] = {tell_traffic, "repeated reads of operands"},
    [CAUSE_CEILING] = {tell_ceiling, NULL},
    [CAUSE_DIVERGENCE] = {tell_divergence, "divergence"},
    [CAUSE_FEW_BLOCKS] = {tell_few_blocks, "idle multiprocessors"},
    [CAUSE_TAIL] = {tell_tail, "the tail of the last wave"},
    [CAUSE_WAITS] = {tell_waits, "waits for round trips to memory"},
    [CAUSE_OCCUPANCY] = {tell_occupancy, "the low occupancy"},
};

void tell_cause(const struct story *story, enum explain_cause cause)
{
    tellers[cause].tell(story);
    fputs(".", story->text);
}

const char *cause_name(enum explain_cause cause)
{
    return tellers[cause].name;
}
