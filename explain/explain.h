/* Why a configuration is as fast as it is: puts together what is known of it without timing it, in
 * the JSON form that `explain` answers. Pure; whatever is missing is null or empty, and a sentence
 * in "notes" says why and what to do.
 *
 * {"kernel","dtype","arch","shape":{},"mode","config":{},"origin":"given"|the origins of get,
 *  "device":name|null (limits of the architecture alone),
 *  "occupancy":{"blocks_per_sm","warps_per_sm","warps_max","fraction","limited_by":"threads"|"blocks"|
 *    "registers"|"shared_memory","blocks_by":{a number per resource, null: no limit},"threads",
 *    "registers","shared_bytes"},
 *  "launches":[plan_launches],"buffers":[plan_buffers],"blocks","waves","tail_fill" (both null
 *    without a device),
 *  "accesses":[{"entry","file","line","text" (of the source line),"space":"global"|"shared",
 *    "kind":"load"|"store","atomic","bytes" (per lane),"sectors_per_request" (global; null),
 *    "ideal_sectors" (if the active lanes' bytes lay side by side, and no more than there are;
 *    null),"conflict_degree" (shared; null),"conflict_degree_max","wavefronts_per_request",
 *    "requests","active_lanes" (per request)}],
 *  "branches":[{"entry","file","line","text","active_fraction","warps"}],
 *  "traced":{"blocks","of"}|null,
 *  "intensity":flops per byte that threads load from global memory (without a trace: per byte of
 *    the manifest's traffic_global)|null,
 *  "roofline":{"flops","bytes" (each operand once),"requested_bytes" (loads and stores)|null,
 *    "intensity_dram"|null,"ceiling":"compute"|"memory","attainable_flops_per_s"|null,
 *    "attainable_ns"|null,"achieved_flops_per_s"|null,"achieved_bytes_per_s"|null,
 *    "share"|null (attainable_ns / median_ns),
 *    "limits":{"dram_bytes_per_s","flops","from":"measured"|"shipped"|"data sheet","device"}|null}
 *    |null (the manifest states neither flops nor bytes),
 *  "registers"|null,"registers_from":"compiler"|"emulator"|"manifest"|"given","spill_bytes"|null,
 *  "static_shared_bytes"|null,
 *  "instructions":{"total","by_class":{word: count}}|null,
 *  "estimate":{"time_ns","limited_by","ceilings_ns":{word: ns},"wait_ns","launch_ns"}|null (the
 *    trace stands in for traffic that the manifest does not state),
 *  "median_ns"|null,"interval_ns"|null,"measured_on"|null,
 *  "notes":[sentences],"words":one paragraph}
 *
 * occupancy, blocks, registers, spills, instructions and traced are those of the launch that does
 * the work (the first one whose `when` holds). Accesses are averages over the blocks that were
 * traced on the emulator: per-request ratios are what the GPU does, counts (requests, warps) are
 * the host compiler's, extrapolated from what was recorded to the whole call. */
#ifndef TUNE_EXPLAIN_H
#define TUNE_EXPLAIN_H

#include "plugins/estimate.h"

#include <jansson.h>

/* A text of the kernel, for the texts of lines. */
struct explain_source {
    const char *name; /* of the file; folders in it do not count */
    const char *text;
};

/* What is known; all borrowed. NULL or as said: unknown. */
struct explain_facts {
    const struct manifest *manifest;
    const struct device_info *device; /* uuid "": limits of an architecture */
    const int64_t *dims, *values;
    const char *dtype, *mode, *origin;
    const struct explain_source *sources; /* the kernel's own source and headers */
    size_t source_count;
    const json_t *resources; /* of the compile answer, by lowered name (pipe.h) */
    const json_t *names;     /* entry -> lowered name */
    bool is_emulated;        /* resources are the emulator's */
    const void *cubin;       /* with line information, for explain/sass.h */
    size_t cubin_bytes;
    const json_t *trace;  /* "launches" of the trace answer */
    const json_t *limits; /* {"dram_bytes_per_s","flops_f32","from","device"} */
    double median_ns;     /* 0: not measured */
    double lo_ns, hi_ns;
    const char *measured_on;
    const char *const *notes; /* NULL-ended: why something is missing */
};

/* New, or NULL: TUNE_ELIMIT where the configuration does not fit the device, or the error of an
 * expression. */
json_t *explain(const struct explain_facts *facts, struct tune_error *err);

/* The same form for bare numbers; everything else is null or empty. shared_bytes: static and
 * dynamic. */
json_t *explain_resources(
    const struct device_info *device, const struct occupancy_use *use, struct tune_error *err);

/* The part "occupancy"; new. */
json_t *explain_occupancy(const struct occupancy *occupancy, const struct occupancy_use *use);

/* words.c: the paragraph for an explanation: what limits it, and which parameter to move. New
 * string (malloc). It names parameters of the manifest (NULL: none) only where the explanation
 * shows that they bear on it. */
char *explain_words(const json_t *explanation, const struct manifest *manifest);

/* compare.c: two explanations of one kernel and shape:
 * {"a":explanation,"b":explanation,"config":[{"param","a","b"}],
 *  "differences":[{"what":word,"a","b","matters":0..1,"favours":"a"|"b"|null,"words"}] (what
 * matters most first),"faster":"a"|"b"|null (by measured times, else by the estimate),"ratio",
 *  "by":"measured"|"estimate"|null,"words"}. Takes neither. */
json_t *explain_compare(const json_t *a, const json_t *b);

/* From the cubin to the "widths" of a trace request: [{"file","line","space","kind","bytes"}],
 * lines whose widest access is wider than one word. New; empty where nothing is known. */
json_t *explain_widths(const void *cubin, size_t cubin_bytes);

#endif
