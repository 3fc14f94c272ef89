/* Whether this process traces; both stand-ins ask. */
#include "trace_run.h"

#include <stdlib.h>
#include <string.h>

static bool is_tracing;

/* When the library is loaded. */
__attribute__((constructor)) static void read_environment(void)
{
    const char *value = getenv("TUNE_EMULATOR_TRACE");
    is_tracing = value && strcmp(value, "1") == 0;
}

bool trace_mode(void)
{
    return is_tracing;
}
