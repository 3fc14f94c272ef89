/* Where a configuration stands under the roofline of its device: S. Williams, A. Waterman and
 * D. Patterson, "Roofline: An Insightful Visual Performance Model", CACM 52 (2009). */
#include "parts.h"

#include "weigh.h"

#include <math.h>
#include <string.h>

struct ceilings {
    double flops_per_s, bytes_per_s; /* of the dtype; 0: not known */
    const char *from, *device;       /* device NULL: not told */
};

static struct ceilings find_ceilings(const struct explain_facts *facts)
{
    const struct device_info *device = facts->device;
    double speed = estimate_dtype_speed(device->attributes[DEVICE_sm], facts->dtype);
    struct ceilings ceilings = {
        .flops_per_s = explain_number(facts->limits, "flops_f32") * speed,
        .bytes_per_s = explain_number(facts->limits, "dram_bytes_per_s"),
        .from = explain_text(facts->limits, "from"),
        .device = json_string_value(json_object_get(facts->limits, "device")),
    };
    if (ceilings.flops_per_s > 0 && ceilings.bytes_per_s > 0)
        return ceilings;
    ceilings = (struct ceilings){
        .flops_per_s = device_peak_flops_f32(device) * speed,
        .bytes_per_s = device_peak_bytes_per_s(device),
        .from = "data sheet",
        .device = device->name,
    };
    bool is_known = ceilings.flops_per_s > 0 && ceilings.bytes_per_s > 0;
    return is_known ? ceilings : (struct ceilings){0};
}

/* Without limits the usual balance of GPUs decides, as in the estimate. */
static const char *ceiling_word(const struct explained *explained, const struct ceilings *ceilings)
{
    const double *rate = explained->estimator.rate;
    bool is_known = ceilings->flops_per_s > 0;
    double flops_per_s = is_known ? ceilings->flops_per_s : rate[ESTIMATE_FLOPS];
    double bytes_per_s = is_known ? ceilings->bytes_per_s : rate[ESTIMATE_DRAM];
    bool is_memory = explained->bytes / bytes_per_s > explained->flops / flops_per_s;
    return is_memory ? "memory" : "compute";
}

/* A share is told only where limits and time are of one GPU model. */
static bool is_of_one_device(const struct explained *explained, const struct ceilings *ceilings)
{
    const char *measured_on = explained->facts->measured_on;
    return measured_on == NULL || ceilings->device == NULL ||
           strcmp(measured_on, ceilings->device) == 0;
}

static json_t *positive(double value)
{
    return value > 0 && isfinite(value) ? json_real(value) : json_null();
}

static json_t *limits_json(const struct ceilings *ceilings)
{
    if (!(ceilings->flops_per_s > 0))
        return json_null();
    return json_pack("{s:f, s:f, s:s, s:s?}", "dram_bytes_per_s", ceilings->bytes_per_s, "flops",
        ceilings->flops_per_s, "from", ceilings->from, "device", ceilings->device);
}

json_t *explain_roofline(const struct explained *explained)
{
    double flops = explained->flops, bytes = explained->bytes;
    double median_s = explained->facts->median_ns / 1e9, attainable_s = 0;
    const struct explain_traffic *traffic = &explained->traffic;
    struct ceilings ceilings = find_ceilings(explained->facts);
    if (!(flops > 0 || bytes > 0))
        return json_null();
    if (ceilings.flops_per_s > 0)
        attainable_s = fmax(flops / ceilings.flops_per_s, bytes / ceilings.bytes_per_s);
    bool has_share = median_s > 0 && is_of_one_device(explained, &ceilings);
    return json_pack("{s:f, s:f, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "flops", flops,
        "bytes", bytes, "requested_bytes",
        traffic->is_known ? json_real(traffic->load_bytes + traffic->store_bytes) : json_null(),
        "intensity_dram", positive(bytes > 0 ? flops / bytes : 0), "ceiling",
        ceiling_word(explained, &ceilings), "attainable_flops_per_s",
        positive(attainable_s > 0 ? flops / attainable_s : 0), "attainable_ns",
        positive(attainable_s * 1e9), "achieved_flops_per_s",
        positive(median_s > 0 ? flops / median_s : 0), "achieved_bytes_per_s",
        positive(median_s > 0 ? bytes / median_s : 0), "share",
        positive(has_share ? attainable_s / median_s : 0), "limits", limits_json(&ceilings));
}
