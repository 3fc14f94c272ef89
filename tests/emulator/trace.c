/* Tracing: the way in, and which blocks of a launch run. See trace.h. */
#include "trace.h"

#include "driver.h"
#include "json.h"
#include "run.h"
#include "trace_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_BLOCKS 64
#define DEFAULT_ACCESSES 20000000
#define STEPS_PER_ACCESS 4 /* hooks that may be met for each access that was asked for */

struct trace trace;

static struct {
    FILE *out; /* the answer's launches so far */
    char *text;
    size_t bytes, launches;
} answer;

/* --- options ---------------------------------------------------------------------------------- */

static bool read_width(const struct json *json, struct trace_width *width)
{
    const char *space = json_text(json, "space", ""), *kind = json_text(json, "kind", "");
    double line = json_number(json, "line", 0), bytes = json_number(json, "bytes", 0);
    bool is_shared = strcmp(space, "shared") == 0, is_load = strcmp(kind, "load") == 0;
    if ((!is_shared && strcmp(space, "global") != 0) || (!is_load && strcmp(kind, "store") != 0) ||
        !(line >= 1 && line < 1e9) ||
        (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8 && bytes != TRACE_WIDEST_BYTES))
        return false;
    *width = (struct trace_width){.line = (uint32_t)line,
        .bytes = (uint32_t)bytes,
        .kind = is_shared ? IMAGE_SHARED : IMAGE_GLOBAL,
        .what = is_load ? TRACE_LOAD : TRACE_STORE};
    snprintf(width->file, sizeof width->file, "%s", json_text(json, "file", ""));
    return true;
}

static bool read_widths(const struct json *list)
{
    size_t count = 0;
    if (list && list->kind != JSON_ARRAY)
        return false;
    for (const struct json *item = list ? list->first : NULL; item; item = item->next)
        count++;
    trace.widths = calloc(count + 1, sizeof *trace.widths);
    if (!trace.widths)
        return false;
    for (const struct json *item = list ? list->first : NULL; item; item = item->next)
        if (!read_width(item, &trace.widths[trace.width_count++]))
            return false;
    return true;
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static bool read_options(const char *text)
{
    size_t position;
    struct json *json = json_read(text ? text : "{}", &position);
    double blocks = json_number(json, "blocks", DEFAULT_BLOCKS);
    double accesses = json_number(json, "accesses", DEFAULT_ACCESSES);
    double launches = json_number(json, "launches", 1), ms = json_number(json, "ms", 0);
    bool is_read = json && json->kind == JSON_OBJECT && blocks >= 1 && blocks < 1e15 &&
                   accesses >= 1 && accesses < 1e15 && launches >= 1 && launches < 1e15 &&
                   ms >= 0 && ms < 1e15 && read_widths(json_member(json, "widths"));
    if (is_read) {
        trace.blocks_wanted = (uint64_t)blocks;
        trace.accesses_wanted = (uint64_t)accesses;
        trace.launches_left = (uint64_t)launches;
        trace.end_ms = ms > 0 ? now_ms() + ms : 0;
    }
    json_free(json);
    return is_read;
}

/* --- begin and end ---------------------------------------------------------------------------- */

static void forget_all(void)
{
    if (answer.out)
        fclose(answer.out);
    free(answer.text);
    free(trace.widths);
    memset(&answer, 0, sizeof answer);
    memset(&trace, 0, sizeof trace);
}

EXPORTED unsigned tuneTraceBegin(const char *options)
{
    unsigned result = begin("tuneTraceBegin", NEED_NOTHING);
    if (!result && !trace_mode())
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result)
        return end_call(result);
    forget_all();
    if (!read_options(options))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!(answer.out = open_memstream(&answer.text, &answer.bytes)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        forget_all();
    else
        fputc('[', answer.out);
    trace.is_begun = !result;
    return end_call(result);
}

EXPORTED char *tuneTraceEnd(void)
{
    char *text = NULL;
    begin("tuneTraceEnd", NEED_NOTHING); /* what was seen is there after a fault too */
    if (trace.is_begun) {
        fputc(']', answer.out);
        text = fclose(answer.out) == 0 ? answer.text : NULL;
        answer.out = NULL;
        answer.text = text ? NULL : answer.text;
    }
    forget_all();
    end_call(CUDA_SUCCESS);
    return text;
}

EXPORTED void tuneTraceFree(char *text)
{
    free(text);
}

/* --- a launch --------------------------------------------------------------------------------- */

/* Its equal share of the time that is left, which is more when others before it took less. */
static void share_time(void)
{
    double now = now_ms();
    trace.late_ms = 0;
    if (trace.end_ms > 0)
        trace.late_ms = now + (trace.end_ms - now) / (double)trace.launches_left;
    if (trace.launches_left > 1)
        trace.launches_left--;
}

void trace_look_at_limits(void)
{
    if (trace.steps > TRACE_STEPS || (trace.late_ms > 0 && now_ms() > trace.late_ms))
        trace.is_cut = true;
}

void trace_begin_launch(const struct fibre_launch *launch)
{
    struct image_services *services = launch->loaded->image->services;
    if (!trace.is_begun)
        return;
    trace.launch = launch;
    trace.accesses = trace.blocks_run = 0;
    trace.blocks_planned = trace.blocks_wanted;
    if (!trace_lanes_open()) {
        trace_lanes_close();
        return;
    }
    share_time();
    trace_places_open(launch->loaded);
    services->trace_access = trace_access;
    services->trace_block = trace_block;
    services->trace_call = trace_call;
    trace.is_on = true;
}

void trace_end_launch(void)
{
    if (!trace.is_on)
        return;
    if (answer.launches++)
        fputc(',', answer.out);
    trace_rows_write(answer.out);
    trace_rows_free();
    trace_places_close();
    trace_lanes_close();
    trace.is_on = false;
}

/* --- which blocks run ------------------------------------------------------------------------- */

uint64_t trace_block_count(uint64_t blocks)
{
    return trace.is_on && trace.blocks_planned < blocks ? trace.blocks_planned : blocks;
}

/* What has been done, in accesses; hooks elsewhere take time too. */
static uint64_t work_done(void)
{
    uint64_t by_steps = trace.steps / STEPS_PER_ACCESS;
    return trace.accesses > by_steps ? trace.accesses : by_steps;
}

/* One block of each of equal parts of the grid, at a place that differs from part to part, or a
 * grid whose width the parts divide would show one column only. The first and the last one of the
 * grid are among them: tails are there. */
uint64_t trace_block_number(uint64_t i, uint64_t blocks)
{
    uint64_t parts = trace_block_count(blocks);
    if (parts == blocks || i == 0)
        return i;
    if (i == parts - 1)
        return blocks - 1;
    uint64_t from = (uint64_t)((double)blocks / (double)parts * (double)i);
    uint64_t to = (uint64_t)((double)blocks / (double)parts * (double)(i + 1));
    uint64_t noise = (i * 0x9E3779B97F4A7C15u) >> 32;
    return to > from ? from + noise % (to - from) : from;
}

/* After the first block it is known how many may follow, which then lie all over the grid. */
bool trace_goes_on(uint64_t blocks_done)
{
    if (!trace.is_on)
        return true;
    if (trace.is_cut)
        return false;
    uint64_t work = work_done();
    if (blocks_done == 1 && work) {
        uint64_t fit = (trace.accesses_wanted + work - 1) / work;
        trace.blocks_planned = fit < trace.blocks_planned ? fit : trace.blocks_planned;
    }
    return true;
}
