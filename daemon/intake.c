/* See intake.h. What a constraint reads is found once for each kernel: an import judges a row in a
 * few microseconds. */
#include "daemon/intake.h"

#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>

/* A kernel, and which of its expressions read the device that this machine knows nothing of. */
struct known {
    struct plugin *plugin; /* a reference */
    bool derived_reads_device[MANIFEST_MAX_DERIVED];
    bool *constraint_reads_device;
};

struct intake {
    struct known *kernels; /* by name, as in the registry */
    size_t count;
};

/* --- the kernels ------------------------------------------------------------------------------ */

static bool reads_device(const struct known *known, const struct expr *expr)
{
    const struct manifest *manifest = known->plugin->manifest;
    for (size_t i = 0; i < DEVICE_ATTRIBUTE_COUNT; i++)
        if (expr_uses(expr, i))
            return true;
    for (size_t i = 0; i < manifest->derived_count; i++)
        if (known->derived_reads_device[i] && expr_uses(expr, manifest_derived_slot(manifest, i)))
            return true;
    return false;
}

static void known_init(struct known *known, struct plugin *plugin)
{
    const struct manifest *manifest = plugin->manifest;
    known->plugin = plugin_ref(plugin);
    for (size_t i = 0; i < manifest->derived_count; i++)
        known->derived_reads_device[i] = reads_device(known, manifest->derived[i].expr);
    known->constraint_reads_device = xcalloc(manifest->constraint_count, sizeof(bool));
    for (size_t i = 0; i < manifest->constraint_count; i++)
        known->constraint_reads_device[i] = reads_device(known, manifest->constraints[i].expr);
}

struct intake *intake_create(const struct registry *registry)
{
    struct intake *intake = xcalloc(1, sizeof *intake);
    intake->count = registry_count(registry);
    intake->kernels = xcalloc(intake->count, sizeof *intake->kernels);
    for (size_t i = 0; i < intake->count; i++)
        known_init(&intake->kernels[i], registry_at(registry, i));
    return intake;
}

void intake_destroy(struct intake *intake)
{
    if (intake == NULL)
        return;
    for (size_t i = 0; i < intake->count; i++) {
        plugin_unref(intake->kernels[i].plugin);
        free(intake->kernels[i].constraint_reads_device);
    }
    free(intake->kernels);
    free(intake);
}

static const struct known *find_kernel(const struct intake *intake, const char *name)
{
    for (size_t i = 0; i < intake->count; i++)
        if (strcmp(intake->kernels[i].plugin->manifest->name, name) == 0)
            return &intake->kernels[i];
    return NULL;
}

/* --- the configuration ------------------------------------------------------------------------ */

/* The names of a canonical text, whose values manifest_config_from_text has refused: which of them
 * is the reason. */
static int name_config_fault(
    const struct manifest *manifest, const char *config, struct tune_error *reason)
{
    bool has[MANIFEST_MAX_PARAMS] = {false};
    for (const char *at = config; *at != '\0'; at += *at == ',') {
        char name[MANIFEST_MAX_NAME + 1];
        size_t length = strcspn(at, "=,");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        size_t param = length < sizeof name ? manifest_find_param(manifest, name) : SIZE_MAX;
        at += length + (at[length] == '=');
        length = strcspn(at, ",");
        if (param == SIZE_MAX)
            return tune_fail(
                reason, TUNE_EINVAL, "%s has no param \"%.64s\"", manifest->name, name);
        char *value = xasprintf("%.*s", (int)length, at);
        struct tune_error why = {0};
        int64_t ignored;
        int status = manifest_param_value_text(&manifest->params[param], value, &ignored, &why);
        free(value);
        if (status)
            return tune_fail(reason, TUNE_EINVAL, "%s: %s", manifest->name, why.text);
        has[param] = true;
        at += length;
    }
    for (size_t i = 0; i < manifest->param_count; i++)
        if (!has[i])
            return tune_fail(reason, TUNE_EINVAL, "the configuration lacks param %s of %s",
                manifest->params[i].name, manifest->name);
    return tune_fail(
        reason, TUNE_EINVAL, "the configuration is not one of %s: %.100s", manifest->name, config);
}

static int fail_math(const struct known *known, const char *what, struct tune_error *reason)
{
    return tune_fail(reason, TUNE_EINVAL, "%s: %.80s cannot be evaluated for this configuration",
        known->plugin->manifest->name, what);
}

/* Constraints that read no device; slots has dims, dtype and params. */
static int check_constraints(const struct known *known, int64_t *slots, struct tune_error *reason)
{
    const struct manifest *manifest = known->plugin->manifest;
    for (size_t i = 0; i < manifest->derived_count; i++) {
        const struct manifest_derived *derived = &manifest->derived[i];
        if (!known->derived_reads_device[i] &&
            expr_eval(derived->expr, slots, &slots[manifest_derived_slot(manifest, i)], NULL))
            return fail_math(known, derived->name, reason);
    }
    for (size_t i = 0; i < manifest->constraint_count; i++) {
        const struct manifest_constraint *constraint = &manifest->constraints[i];
        int64_t holds;
        if (known->constraint_reads_device[i])
            continue;
        if (expr_eval(constraint->expr, slots, &holds, NULL))
            return fail_math(known, expr_text(constraint->expr), reason);
        if (!holds)
            return tune_fail(reason, TUNE_EINVAL, "%s: %s", manifest->name, constraint->message);
    }
    return 0;
}

static int check_config(const struct known *known, const struct sample *sample, const int64_t *dims,
    struct tune_error *reason)
{
    static const struct device_info nowhere;
    const struct manifest *manifest = known->plugin->manifest;
    int64_t values[MANIFEST_MAX_PARAMS], slots[MANIFEST_MAX_SLOTS];
    if (manifest_config_from_text(manifest, sample->config, values, NULL))
        return name_config_fault(manifest, sample->config, reason);
    manifest_bind(manifest, &nowhere, dims, sample->key.dtype, slots);
    for (size_t i = 0; i < manifest->param_count; i++)
        slots[manifest_param_slot(manifest, i)] = values[i];
    return check_constraints(known, slots, reason);
}

/* --- the time --------------------------------------------------------------------------------- */

/* Work per second against what no GPU reaches; work that cannot be told limits nothing. */
static int check_rate(const struct expr *work, const int64_t *slots, double median_ns, double limit,
    const char *what, struct tune_error *reason)
{
    int64_t amount;
    if (work == NULL || expr_eval(work, slots, &amount, NULL))
        return 0;
    double rate = (double)amount / (median_ns / 1e9);
    return rate <= limit ? 0
                         : tune_fail(reason, TUNE_EINVAL,
                               "a time of %.4g ns would mean %.3g %s, more than any GPU can",
                               median_ns, rate, what);
}

static bool is_emulated(const struct sample *sample)
{
    return strcmp(sample->key.arch, "cpu") == 0;
}

/* A time of a kernel of any text: what needs no manifest. */
static int check_time(const struct sample *sample, struct tune_error *reason)
{
    if (sample->outcome != OUTCOME_OK || is_emulated(sample) || sample->median_ns >= INTAKE_MIN_NS)
        return 0;
    return tune_fail(reason, TUNE_EINVAL,
        "a time of %.4g ns is less than the %.0f ns that an empty kernel takes", sample->median_ns,
        INTAKE_MIN_NS);
}

static int check_work(const struct known *known, const struct sample *sample, const int64_t *dims,
    struct tune_error *reason)
{
    static const struct device_info nowhere;
    const struct manifest *manifest = known->plugin->manifest;
    int64_t slots[MANIFEST_MAX_SLOTS];
    if (sample->outcome != OUTCOME_OK || is_emulated(sample))
        return 0;
    manifest_bind(manifest, &nowhere, dims, sample->key.dtype, slots);
    return check_rate(manifest->flops, slots, sample->median_ns, INTAKE_MAX_FLOPS_PER_S,
               "operations a second", reason) ||
                   check_rate(manifest->bytes, slots, sample->median_ns, INTAKE_MAX_BYTES_PER_S,
                       "bytes a second", reason)
               ? -1
               : 0;
}

/* --- the verdict ------------------------------------------------------------------------------ */

/* Its dims, from the one text that a shape has: another spelling would be another key. */
static bool take_shape(const struct manifest *manifest, const char *text, int64_t *dims)
{
    if (manifest_shape_from_text(manifest, text, dims))
        return false;
    for (size_t i = 0; i < manifest->dim_count; i++)
        if (dims[i] > MANIFEST_MAX_DIM)
            return false;
    char *canonical = manifest_shape_text(manifest, dims);
    bool is_canonical = strcmp(canonical, text) == 0;
    free(canonical);
    return is_canonical;
}

static int check_row(
    const struct known *known, const struct sample *sample, struct tune_error *reason)
{
    const struct manifest *manifest = known->plugin->manifest;
    int64_t dims[MANIFEST_MAX_DIMS];
    if (!manifest_has_dtype(manifest, sample->key.dtype))
        return tune_fail(
            reason, TUNE_EINVAL, "%s has no dtype \"%.20s\"", manifest->name, sample->key.dtype);
    if (!take_shape(manifest, sample->key.shape, dims))
        return tune_fail(
            reason, TUNE_EINVAL, "\"%.100s\" is no shape of %s", sample->key.shape, manifest->name);
    return check_config(known, sample, dims, reason) || check_work(known, sample, dims, reason) ? -1
                                                                                                : 0;
}

enum intake_verdict intake_judge(
    struct intake *intake, const struct sample *sample, struct tune_error *reason)
{
    const struct known *known = find_kernel(intake, sample->key.kernel);
    if (check_time(sample, reason))
        return INTAKE_REFUSED;
    if (known == NULL) {
        tune_fail(reason, TUNE_ENOTFOUND, "there is no kernel %.64s here", sample->key.kernel);
        return INTAKE_ASIDE;
    }
    if (strcmp(known->plugin->fingerprint, sample->key.fingerprint) != 0) {
        tune_fail(reason, TUNE_ENOTFOUND, "it was measured with another text of %.64s (%.8s)",
            sample->key.kernel, sample->key.fingerprint);
        return INTAKE_ASIDE;
    }
    return check_row(known, sample, reason) ? INTAKE_REFUSED : INTAKE_TAKEN;
}
