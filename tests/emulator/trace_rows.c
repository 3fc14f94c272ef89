/* Sums by line, and the JSON form of a launch. */
#include "trace_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROW_LIMIT 4096 /* of a launch */

/* --- rows of accesses ------------------------------------------------------------------------- */

static uint32_t width_of(const struct trace_row *row)
{
    for (size_t i = 0; i < trace.width_count; i++) {
        const struct trace_width *width = &trace.widths[i];
        if (width->line == row->place.line && width->kind == row->kind &&
            width->what == row->what && strcmp(width->file, row->place.file) == 0)
            return width->bytes;
    }
    return 0;
}

static bool is_width(uint32_t bytes)
{
    return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
}

static struct trace_row *new_row(const struct trace_row *from)
{
    struct trace_row *row = malloc(sizeof *row);
    if (!row)
        return NULL;
    *row = *from;
    row->width_bytes = width_of(row);
    if (row->width_bytes > row->bytes && is_width(row->bytes))
        row->chains = calloc(TRACE_CHAINS, sizeof *row->chains);
    row->next = trace.rows;
    return trace.rows = row;
}

static bool is_same_place(const struct trace_place *a, const struct trace_place *b)
{
    return a->line == b->line && strcmp(a->file, b->file) == 0;
}

static void find_place(struct trace_site *site)
{
    if (!site->has_place)
        site->place = trace_place(site->pc);
    site->has_place = true;
}

struct trace_row *trace_row_of(struct trace_site *site)
{
    if (site->row)
        return site->row;
    find_place(site);
    struct trace_row *row = trace.rows;
    while (row && !(is_same_place(&row->place, &site->place) && row->kind == site->kind &&
                      row->what == site->what && row->bytes == site->bytes))
        row = row->next;
    if (!row)
        row = new_row(&(struct trace_row){
            .place = site->place, .kind = site->kind, .what = site->what, .bytes = site->bytes});
    return site->row = row;
}

void trace_rows_free(void)
{
    for (struct trace_row *next; trace.rows; trace.rows = next) {
        next = trace.rows->next;
        free(trace.rows->chains);
        free(trace.rows);
    }
}

/* --- what is written -------------------------------------------------------------------------- */

struct line {
    struct trace_place place;
    enum image_range_kind kind;
    enum trace_what what;
    uint32_t bytes;
    uint64_t lane_accesses, warps, lanes; /* the last two of a branch */
    struct trace_sums sums;
};

static struct {
    struct line *lines; /* ROW_LIMIT of them */
    size_t count;
    uint64_t load_bytes, store_bytes, shared_bytes;
} written;

static void add_line(const struct line *line)
{
    if (written.count < ROW_LIMIT)
        written.lines[written.count++] = *line;
}

static void add_branch(const struct trace_site *site)
{
    for (size_t i = 0; i < written.count; i++) {
        struct line *line = &written.lines[i];
        if (line->what != TRACE_BLOCK || !is_same_place(&line->place, &site->place))
            continue;
        line->warps += site->warps;
        line->lanes += site->lanes;
        return;
    }
    add_line(&(struct line){
        .place = site->place, .what = TRACE_BLOCK, .warps = site->warps, .lanes = site->lanes});
}

static void count_bytes(const struct trace_site *site)
{
    uint64_t bytes = site->lane_accesses * site->bytes;
    if (site->kind == IMAGE_SHARED)
        written.shared_bytes += bytes;
    else if (site->what == TRACE_LOAD)
        written.load_bytes += bytes;
    else
        written.store_bytes += bytes;
}

static void add_site(struct trace_site *site)
{
    if (site->what == TRACE_BLOCK) {
        if (site->is_branch)
            find_place(site);
        if (site->is_branch && site->place.line)
            add_branch(site);
        return;
    }
    struct trace_row *row = trace_row_of(site);
    count_bytes(site);
    if (row)
        row->lane_accesses += site->lane_accesses;
}

/* A line per width. Which share of all accesses was joined is known of the recorded ones. */
static void add_row(const struct trace_row *row)
{
    double recorded = 0;
    for (uint32_t i = 0; i < TRACE_WIDTHS; i++)
        recorded += (double)(row->sums[i].lanes << i);
    for (uint32_t i = 0; i < TRACE_WIDTHS; i++) {
        const struct trace_sums *sums = &row->sums[i];
        double share = recorded > 0 ? (double)sums->lanes / recorded : i == 0;
        if (share > 0)
            add_line(&(struct line){.place = row->place,
                .kind = row->kind,
                .what = row->what,
                .bytes = row->bytes << i,
                .lane_accesses = (uint64_t)((double)row->lane_accesses * share + 0.5),
                .sums = *sums});
    }
}

static int by_place(const void *left, const void *right)
{
    const struct line *a = left, *b = right;
    int names = strcmp(a->place.file, b->place.file);
    if (names)
        return names;
    if (a->place.line != b->place.line)
        return a->place.line < b->place.line ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->what != b->what)
        return a->what < b->what ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static void write_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, out);
    fputc('"', out);
}

static void write_access(FILE *out, const struct line *line, const char *before)
{
    const struct trace_sums *sums = &line->sums;
    fprintf(out, "%s{\"file\":", before);
    write_text(out, line->place.file);
    fprintf(out,
        ",\"line\":%u,\"space\":\"%s\",\"kind\":\"%s\",\"atomic\":%s,\"bytes\":%u,\"requests\":"
        "%" PRIu64 ",\"lanes\":%" PRIu64 ",\"sectors\":%" PRIu64 ",\"wavefronts\":%" PRIu64
        ",\"parts\":%" PRIu64 ",\"degrees\":%" PRIu64
        ",\"degree_max\":%u,\"lane_accesses\":%" PRIu64 "}",
        line->place.line, line->kind == IMAGE_SHARED ? "shared" : "global",
        line->what == TRACE_LOAD ? "load" : "store", line->what == TRACE_ATOMIC ? "true" : "false",
        line->bytes, sums->requests, sums->lanes, sums->sectors, sums->wavefronts, sums->parts,
        sums->degrees, sums->degree_max, line->lane_accesses);
}

static void write_lines(FILE *out, bool are_branches)
{
    const char *before = "";
    for (size_t i = 0; i < written.count; i++) {
        const struct line *line = &written.lines[i];
        if ((line->what == TRACE_BLOCK) != are_branches)
            continue;
        if (are_branches) {
            fprintf(out, "%s{\"file\":", before);
            write_text(out, line->place.file);
            fprintf(out, ",\"line\":%u,\"warps\":%" PRIu64 ",\"lanes\":%" PRIu64 "}",
                line->place.line, line->warps, line->lanes);
        } else {
            write_access(out, line, before);
        }
        before = ",";
    }
}

static void write_launch(FILE *out)
{
    const struct fibre_launch *launch = trace.launch;
    const uint32_t *grid = launch->grid, *block = launch->block;
    fputs("{\"entry\":", out);
    write_text(out, launch->kernel->image->name);
    fprintf(out,
        ",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"blocks\":%" PRIu64
        ",\"blocks_traced\":%" PRIu64 ",\"is_cut\":%s,\"accesses\":[",
        grid[0], grid[1], grid[2], block[0], block[1], block[2],
        (uint64_t)grid[0] * grid[1] * grid[2], trace.blocks_run, trace.is_cut ? "true" : "false");
    write_lines(out, false);
    fputs("],\"branches\":[", out);
    write_lines(out, true);
    fprintf(out,
        "],\"global_load_bytes\":%" PRIu64 ",\"global_store_bytes\":%" PRIu64
        ",\"shared_bytes\":%" PRIu64 "}",
        written.load_bytes, written.store_bytes, written.shared_bytes);
}

void trace_rows_write(FILE *out)
{
    memset(&written, 0, sizeof written);
    written.lines = calloc(ROW_LIMIT, sizeof *written.lines);
    if (!written.lines) {
        fputs("null", out);
        return;
    }
    trace_each_site(add_site);
    for (const struct trace_row *row = trace.rows; row; row = row->next)
        add_row(row);
    qsort(written.lines, written.count, sizeof *written.lines, by_place);
    write_launch(out);
    free(written.lines);
}
