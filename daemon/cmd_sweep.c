/* sweep, jobs, cancel, watch. */
#include "daemon/command.h"

#include "client/proto.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>

/* The asker is subscribed before the job can have an event; it gets its id first all the same,
 * since events go out later than this reply. */
static void on_stored(const char *job, const struct tune_error *err, void *context)
{
    struct request *request = context;
    if (err != NULL) {
        request_fail(request, err);
        return;
    }
    server_subscribe(request->app->server, request->client, job);
    request_reply(request, json_pack("{s:s}", "job", job));
}

void cmd_sweep(struct request *request)
{
    struct tune_error err = {0};
    if (jobs_submit(request->app->jobs, request->params, request->uid, on_stored, request, &err))
        request_fail(request, &err);
}

static const char *const job_keys[] = {"job", NULL};

static int job_param(struct request *request, const char **job, struct tune_error *err)
{
    *job = NULL;
    return proto_known_keys(request->params, job_keys, "this method", err) ||
                   proto_string_opt(request->params, "job", job, err)
               ? -1
               : 0;
}

void cmd_jobs(struct request *request)
{
    struct tune_error err = {0};
    const char *job;
    json_t *result = NULL;
    if (job_param(request, &job, &err) == 0)
        result = jobs_to_json(request->app->jobs, job, &err);
    if (result == NULL)
        request_fail(request, &err);
    else
        request_reply(request, result);
}

void cmd_cancel(struct request *request)
{
    struct tune_error err = {0};
    const char *job;
    if (job_param(request, &job, &err) == 0 && job == NULL)
        tune_fail(&err, TUNE_EINVAL, "field \"job\" is missing: which sweep? see `tunectl jobs`");
    if (err.code != TUNE_OK || jobs_cancel(request->app->jobs, job, request->uid, &err))
        request_fail(request, &err);
    else
        request_reply(request, json_pack("{s:s}", "job", job));
}

/* Answers with the state as it is; events follow while the job is active. */
void cmd_watch(struct request *request)
{
    struct app *app = request->app;
    struct tune_error err = {0};
    const char *job;
    json_t *now = NULL;
    if (job_param(request, &job, &err) == 0)
        now = jobs_to_json(app->jobs, job, &err);
    if (now == NULL) {
        request_fail(request, &err);
        return;
    }
    if (job == NULL || jobs_is_active(app->jobs, job))
        server_subscribe(app->server, request->client, job);
    request_reply(request, json_pack("{s:o}", job ? "job" : "jobs", now));
}
