/* A cubin: any bytes are refused with a sentence or read, and what is read agrees with itself. */
#include "explain/explain.h"
#include "explain/sass.h"
#include "target.h"

#include <stdlib.h>
#include <string.h>

static void check(bool is_right)
{
    if (!is_right)
        abort();
}

static void check_kernel(const struct sass_kernel *kernel)
{
    uint64_t classes = 0, accesses = 0;
    for (int kind = 0; kind < SASS_CLASS_COUNT; kind++)
        classes += kernel->by_class[kind];
    for (size_t i = 0; i < kernel->access_count; i++) {
        const struct sass_access *access = &kernel->accesses[i];
        accesses += access->count;
        check(strlen(access->file) < 256 && access->bytes >= 1 && access->bytes <= 32);
        check(i == 0 || sass_access_order(access - 1, access) < 0);
    }
    check(classes == kernel->instructions && accesses <= classes);
    check(kernel->unknown <= kernel->by_class[SASS_OTHER]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct sass sass;
    struct tune_error err = {0};
    int status = sass_read(bytes, count, &sass, &err);
    check(status == 0 || err.text[0] != '\0');
    for (size_t i = 0; status == 0 && i < sass.kernel_count; i++)
        check_kernel(&sass.kernels[i]);
    sass_finish(&sass);
    json_t *widths = explain_widths(bytes, count);
    check(json_is_array(widths));
    json_decref(widths);
    return 0;
}
