/* Manifests: any text is refused with a sentence or becomes a manifest whose default can be asked
 * for. */
#include "plugins/space.h"
#include "target.h"

#include <stdlib.h>
#include <string.h>

static void check(bool is_right)
{
    if (!is_right)
        abort();
}

/* The default of the first shape, without building the space, which may be large. */
static void use(const struct manifest *manifest)
{
    struct device_info device;
    struct tune_error err = {0};
    check(device_generic("sm_90", &device, NULL) == 0);
    check(manifest->default_count > 0 && manifest->shape_count > 0 && manifest->dtype_count > 0);
    int64_t slots[MANIFEST_MAX_SLOTS];
    check(manifest_slot_count(manifest) <= MANIFEST_MAX_SLOTS);
    manifest_bind(manifest, &device, manifest->shapes[0], manifest->dtypes[0], slots);
    int status = space_check(manifest, manifest->defaults[0], slots, &err);
    check(status == 0 || (status == -1 && err.text[0] != '\0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct tune_error err = {0};
    struct manifest *manifest = manifest_create((const char *)bytes, count, "fuzz.json", &err);
    if (manifest != NULL)
        use(manifest);
    else
        check(err.code != TUNE_OK && err.text[0] != '\0');
    manifest_destroy(manifest);
    return 0;
}
