/* The engines that are built in. To add one: its ops here, its files in daemon/CMakeLists.txt. */
#include "daemon/fleet/engine.h"

#include <stdlib.h>

const struct engine_ops *const engines[] = {
#ifdef TUNE_HAS_POSTGRES
    &engine_postgres,
#endif
    NULL,
};

const struct engine_ops *engine_find(const char *url, struct tune_error *err)
{
    for (size_t i = 0; engines[i] != NULL; i++)
        if (engines[i]->knows(url))
            return engines[i];
    if (engines[0] == NULL)
        tune_fail(err, TUNE_EINVAL,
            "this tunerd was built without the fleet: build it with -DTUNE_FLEET=ON (needs libpq)");
    else
        tune_fail(err, TUNE_EINVAL,
            "--fleet takes a PostgreSQL URL such as postgresql://user@host/tune, or a connection "
            "text such as \"host=db dbname=tune\"");
    return NULL;
}

void engine_task_finish(struct engine_task *task)
{
    free((char *)(uintptr_t)task->target);
    free((char *)(uintptr_t)task->payload);
    *task = (struct engine_task){0};
}
