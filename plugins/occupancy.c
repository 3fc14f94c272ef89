/* See occupancy.h. */
#include "occupancy.h"

#include <inttypes.h>

#define PARTITIONS 4      /* of a multiprocessor, each with a scheduler and registers */
#define REGISTER_UNIT 256 /* registers are given to a warp in units of this many */
#define REGISTERS_MAX 255 /* per thread */

/* By the architecture that introduced the values: the last row that is not newer holds. The
 * emulated device (0) has the rules of a data-centre GPU. */
static const struct rules {
    int sm, blocks_per_sm, shared_unit, shared_reserved;
} table[] = {
    {0, 32, 128, 1024},
    {70, 32, 256, 0},
    {75, 16, 256, 0},
    {80, 32, 128, 1024},
    {86, 16, 128, 1024},
    {89, 24, 128, 1024},
    {90, 32, 128, 1024},
    {110, 24, 128, 1024},
    {120, 24, 128, 1024},
};

static const struct rules *rules_of(int64_t sm)
{
    const struct rules *found = table;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].sm <= sm)
            found = &table[i];
    return found;
}

static int64_t round_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static int check_use(
    const struct device_info *device, const struct occupancy_use *use, struct tune_error *err)
{
    int64_t max_threads = device->attributes[DEVICE_max_threads];
    if (device->attributes[DEVICE_warp] < 1 || device->attributes[DEVICE_threads_sm] < 1)
        return tune_fail(
            err, TUNE_EINVAL, "%s states no threads per warp or multiprocessor", device->name);
    if (use->threads < 1 || use->threads > max_threads)
        return tune_fail(err, TUNE_EINVAL,
            "a block of %" PRId64 " threads: this device takes 1 to %" PRId64, use->threads,
            max_threads);
    if (use->registers < 0 || use->registers > REGISTERS_MAX)
        return tune_fail(err, TUNE_EINVAL,
            "%" PRId64 " registers per thread: there are 1 to %d (0: unknown)", use->registers,
            REGISTERS_MAX);
    if (use->shared_bytes < 0)
        return tune_fail(
            err, TUNE_EINVAL, "%" PRId64 " bytes of shared memory: below 0", use->shared_bytes);
    return 0;
}

/* Warps take registers in each partition; the launch check counts a block's warps as if they were
 * spread over all partitions evenly. */
static int64_t blocks_by_registers(
    const struct device_info *device, int64_t warps, int64_t registers_per_thread)
{
    if (registers_per_thread == 0)
        return OCCUPANCY_UNLIMITED;
    int64_t per_warp =
        round_up(registers_per_thread * device->attributes[DEVICE_warp], REGISTER_UNIT);
    if (per_warp * round_up(warps, PARTITIONS) > device->attributes[DEVICE_regs_block])
        return 0;
    int64_t warps_per_partition = device->attributes[DEVICE_regs_sm] / PARTITIONS / per_warp;
    return warps_per_partition * PARTITIONS / warps;
}

static int64_t blocks_by_shared(
    const struct device_info *device, const struct rules *rules, int64_t shared_bytes)
{
    if (shared_bytes > device->attributes[DEVICE_smem_optin])
        return 0;
    int64_t taken = round_up(shared_bytes + rules->shared_reserved, rules->shared_unit);
    return taken == 0 ? OCCUPANCY_UNLIMITED : device->attributes[DEVICE_smem_sm] / taken;
}

int occupancy(const struct device_info *device, const struct occupancy_use *use,
    struct occupancy *result, struct tune_error *err)
{
    const int64_t *attributes = device->attributes;
    const struct rules *rules = rules_of(attributes[DEVICE_sm]);
    if (check_use(device, use, err))
        return -1;
    int64_t warps = round_up(use->threads, attributes[DEVICE_warp]) / attributes[DEVICE_warp];
    *result = (struct occupancy){
        .warps_max = attributes[DEVICE_threads_sm] / attributes[DEVICE_warp],
        .limited_by = OCCUPANCY_THREADS,
        .blocks_by[OCCUPANCY_BLOCKS] = rules->blocks_per_sm,
        .blocks_by[OCCUPANCY_REGISTERS] = blocks_by_registers(device, warps, use->registers),
        .blocks_by[OCCUPANCY_SHARED] = blocks_by_shared(device, rules, use->shared_bytes),
    };
    result->blocks_by[OCCUPANCY_THREADS] = result->warps_max / warps;
    for (int i = 0; i < OCCUPANCY_RESOURCE_COUNT; i++)
        if (result->blocks_by[i] < result->blocks_by[result->limited_by])
            result->limited_by = (enum occupancy_resource)i;
    result->blocks_per_sm = result->blocks_by[result->limited_by];
    result->warps_per_sm = result->blocks_per_sm * warps;
    result->fraction = (double)result->warps_per_sm / (double)result->warps_max;
    return 0;
}

const char *occupancy_resource_word(enum occupancy_resource resource)
{
    static const char *const words[] = {
#define X(name, word) word,
        OCCUPANCY_RESOURCES(X)
#undef X
    };
    return words[resource];
}
