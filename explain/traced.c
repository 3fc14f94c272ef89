/* What the emulator saw of the launches, in the form of explain.h: sums become ratios per request,
 * and counts of what was recorded in some blocks become counts of the whole call. */
#include "parts.h"

#include "client/proto.h"
#include "weigh.h"

#include "access.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX 160

/* --- texts of lines --------------------------------------------------------------------------- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *find_source(const struct explain_facts *facts, const char *file)
{
    for (size_t i = 0; i < facts->source_count; i++)
        if (strcmp(base_name(facts->sources[i].name), file) == 0)
            return facts->sources[i].text;
    return NULL;
}

static json_t *trimmed(const char *line, size_t length)
{
    char text[TEXT_BYTES_MAX + 1];
    for (; length > 0 && strchr(" \t", *line) != NULL; length--)
        line++;
    while (length > 0 && strchr(" \t\r", line[length - 1]) != NULL)
        length--;
    if (length > TEXT_BYTES_MAX)
        length = TEXT_BYTES_MAX;
    memcpy(text, line, length);
    text[length] = '\0';
    return proto_text(text);
}

/* "" for a file that is not the kernel's, or a line that it does not have. */
static json_t *line_text(const struct explain_facts *facts, const char *file, double number)
{
    const char *at = find_source(facts, file);
    for (double line = 1; at != NULL && line < number; line++) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    return at != NULL && number >= 1 ? trimmed(at, strcspn(at, "\n")) : json_string("");
}

/* --- rows of several launches ----------------------------------------------------------------- */

/* Rows that stand for one line of one entry, summed; figures of the whole call. */
struct row {
    const char *entry;
    const json_t *as; /* the first of them: what they have in common */
    double requests, lanes, sectors, wavefronts, degrees, degree_max; /* of accesses */
    double warps, warp_lanes; /* of branches; warp_lanes: if all lanes had come */
};

struct rows {
    struct row *rows;
    size_t count;
};

static bool is_same(const struct row *row, const char *entry, const json_t *item)
{
    static const char *const keys[] = {"file", "line", "space", "kind", "atomic", "bytes"};
    if (strcmp(row->entry, entry) != 0)
        return false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *a = json_object_get(row->as, keys[i]), *b = json_object_get(item, keys[i]);
        if (a != b && !json_equal(a, b))
            return false;
    }
    return true;
}

static struct row *row_for(struct rows *rows, const char *entry, const json_t *item)
{
    for (size_t i = 0; i < rows->count; i++)
        if (is_same(&rows->rows[i], entry, item))
            return &rows->rows[i];
    struct row *row = &rows->rows[rows->count++];
    *row = (struct row){.entry = entry, .as = item};
    return row;
}

/* Only the first turns of a loop are recorded, and only some blocks run. */
static void add_access(
    struct row *row, const json_t *item, double blocks_scale, struct explain_traffic *traffic)
{
    double lanes = explain_number(item, "lanes"), all = explain_number(item, "lane_accesses");
    double scale = blocks_scale * (lanes > 0 && all > lanes ? all / lanes : 1);
    row->requests += scale * explain_number(item, "requests");
    row->lanes += scale * lanes;
    row->sectors += scale * explain_number(item, "sectors");
    row->wavefronts += scale * explain_number(item, "wavefronts");
    row->degrees += scale * explain_number(item, "degrees");
    row->degree_max = fmax(row->degree_max, explain_number(item, "degree_max"));
    traffic->sector_bytes += scale * explain_number(item, "sectors") * ACCESS_SECTOR_BYTES;
    traffic->pass_bytes +=
        scale * explain_number(item, "wavefronts") * ACCESS_BANKS * ACCESS_BANK_BYTES;
}

static double threads_of(const json_t *launch)
{
    const json_t *block = json_object_get(launch, "block");
    double threads = 1;
    for (size_t i = 0; i < json_array_size(block); i++)
        threads *= json_number_value(json_array_get(block, i));
    return threads;
}

/* The last warp of a block may have fewer than 32 threads: what a warp has on average counts. */
static void add_branch(struct row *row, const json_t *item, const json_t *launch, double scale)
{
    double threads = threads_of(launch);
    double warps = scale * explain_number(item, "warps");
    row->warps += warps;
    row->warp_lanes += warps * threads / ceil(threads / ACCESS_LANES);
    row->lanes += scale * explain_number(item, "lanes");
}

/* --- launches --------------------------------------------------------------------------------- */

/* Kernel launch `index`, counting repeats; NULL past the last one. */
static const json_t *launch_at(const json_t *launches, size_t index)
{
    size_t i;
    json_t *launch;
    json_array_foreach ((json_t *)launches, i, launch) {
        const json_t *entry = json_object_get(launch, "entry");
        size_t repeat = (size_t)json_integer_value(json_object_get(launch, "repeat"));
        if (entry == NULL)
            continue;
        if (index < repeat)
            return launch;
        index -= repeat;
    }
    return NULL;
}

static double blocks_scale(const json_t *launch)
{
    double traced = explain_number(launch, "blocks_traced");
    return traced > 0 ? explain_number(launch, "blocks") / traced : 0;
}

static void add_launch(
    struct explained *explained, size_t index, const json_t *launch, struct rows rows[2])
{
    const json_t *planned = launch_at(explained->launches, index);
    const char *entry = explain_text(planned ? planned : launch, "entry");
    double scale = blocks_scale(launch);
    size_t i;
    json_t *item;
    if (json_object_get(planned, "once") != NULL) /* no call pays for it */
        return;
    explained->traffic.load_bytes += scale * explain_number(launch, "global_load_bytes");
    explained->traffic.store_bytes += scale * explain_number(launch, "global_store_bytes");
    if (scale == 0)
        return;
    json_array_foreach (json_object_get(launch, "accesses"), i, item)
        add_access(row_for(&rows[0], entry, item), item, scale, &explained->traffic);
    json_array_foreach (json_object_get(launch, "branches"), i, item)
        add_branch(row_for(&rows[1], entry, item), item, launch, scale);
}

static struct rows rows_for(const json_t *trace, const char *key)
{
    size_t room = 1;
    for (size_t i = 0; i < json_array_size(trace); i++)
        room += json_array_size(json_object_get(json_array_get(trace, i), key));
    return (struct rows){.rows = calloc(room, sizeof(struct row))};
}

/* --- the form --------------------------------------------------------------------------------- */

static json_t *number_or_null(bool is_known, double value)
{
    return is_known ? json_real(value) : json_null();
}

static json_t *access_json(const struct row *row, const struct explain_facts *facts)
{
    const char *file = explain_text(row->as, "file");
    bool is_shared = strcmp(explain_text(row->as, "space"), "shared") == 0;
    double lanes = row->lanes / row->requests, sectors = row->sectors / row->requests;
    double bytes = explain_number(row->as, "bytes");
    double ideal = fmin(sectors, fmax(1, ceil(lanes * bytes / ACCESS_SECTOR_BYTES)));
    return json_pack("{s:s, s:s, s:O, s:o, s:O, s:O, s:b, s:O, s:o, s:o, s:o, s:o, s:o, s:I, s:f}",
        "entry", row->entry, "file", file, "line", json_object_get(row->as, "line"), "text",
        line_text(facts, file, explain_number(row->as, "line")), "space",
        json_object_get(row->as, "space"), "kind", json_object_get(row->as, "kind"), "atomic",
        json_is_true(json_object_get(row->as, "atomic")), "bytes",
        json_object_get(row->as, "bytes"), "sectors_per_request",
        number_or_null(!is_shared, sectors), "ideal_sectors", number_or_null(!is_shared, ideal),
        "conflict_degree", number_or_null(is_shared, row->degrees / row->requests),
        "conflict_degree_max", is_shared ? json_integer((json_int_t)row->degree_max) : json_null(),
        "wavefronts_per_request", number_or_null(is_shared, row->wavefronts / row->requests),
        "requests", (json_int_t)llround(row->requests), "active_lanes", lanes);
}

static json_t *branch_json(const struct row *row, const struct explain_facts *facts)
{
    const char *file = explain_text(row->as, "file");
    return json_pack("{s:s, s:s, s:O, s:o, s:f, s:I}", "entry", row->entry, "file", file, "line",
        json_object_get(row->as, "line"), "text",
        line_text(facts, file, explain_number(row->as, "line")), "active_fraction",
        fmin(1, row->lanes / row->warp_lanes), "warps", (json_int_t)llround(row->warps));
}

/* Takes the rows. */
static json_t *list_of(struct rows *rows, const struct explain_facts *facts, bool are_branches)
{
    json_t *list = json_array();
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->rows[i];
        if (are_branches && row->warps > 0)
            json_array_append_new(list, branch_json(row, facts));
        else if (!are_branches && row->requests > 0)
            json_array_append_new(list, access_json(row, facts));
    }
    free(rows->rows);
    return list;
}

static json_t *traced_json(const json_t *trace)
{
    const json_t *first = json_array_get(trace, 0);
    return json_pack("{s:O, s:O}", "blocks", json_object_get(first, "blocks_traced"), "of",
        json_object_get(first, "blocks"));
}

/* Bytes of one that was left before its end would be too few. */
static bool has_cut(const json_t *trace)
{
    for (size_t i = 0; i < json_array_size(trace); i++)
        if (json_is_true(json_object_get(json_array_get(trace, i), "is_cut")))
            return true;
    return false;
}

void explain_traced(struct explained *explained, json_t *form)
{
    const struct explain_facts *facts = explained->facts;
    const json_t *trace = facts->trace;
    struct rows rows[2] = {rows_for(trace, "accesses"), rows_for(trace, "branches")};
    bool has_room = rows[0].rows != NULL && rows[1].rows != NULL;
    for (size_t i = 0; has_room && i < json_array_size(trace); i++)
        add_launch(explained, i, json_array_get(trace, i), rows);
    bool is_traced = has_room && json_array_size(trace) > 0;
    explained->traffic.is_known = is_traced && !has_cut(trace);
    json_object_set_new(form, "accesses", list_of(&rows[0], facts, false));
    json_object_set_new(form, "branches", list_of(&rows[1], facts, true));
    json_object_set_new(form, "traced", is_traced ? traced_json(trace) : json_null());
}
