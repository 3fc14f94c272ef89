/* The methods of the protocol: one table, one function each. To add one: a line in command.c, a
 * function in the cmd_*.c of its family.
 *
 * A command gets a request and answers it exactly once, now or later, with request_reply or
 * request_fail, after which the request is gone. The client may have left meanwhile; nobody needs
 * to care. */
#ifndef TUNE_COMMAND_H
#define TUNE_COMMAND_H

#include "daemon/app.h"

struct request {
    struct app *app;
    uint64_t client;
    uid_t uid;
    json_t *id;           /* NULL for a notification: no answer is sent */
    const json_t *params; /* an object; borrowed from message */
    json_t *message;
    /* Set where its answer may be given again: the question as bytes, and what it depends on. */
    char *question;
    size_t question_length;
    uint64_t version;
};

typedef void (*command_run)(struct request *request);

struct command {
    const char *method, *summary;
    command_run run;
};

extern const struct command commands[]; /* ended by a NULL method */

/* Answers a line that is a `get` in canonical form,
 *     {"jsonrpc":"2.0","id":N,"method":"get","params":{...}}
 * with N a whole number and no blanks outside of the params, if the same bytes (but for N) were
 * answered before and nothing has changed since. false: command_dispatch has to. */
bool command_again(struct app *app, uint64_t client, const char *line, size_t length);

/* Takes a message of a client, and the line that it was: finds the command and runs it, or answers
 * why not. */
void command_dispatch(
    struct app *app, uint64_t client, uid_t uid, json_t *message, const char *line, size_t length);

/* Something has changed that answers depend on, beside the best rows: kernels, devices. */
void command_forget_answers(struct app *app);

/* Rows were stored past the writer, as imports are: for those who follow what is stored, and do not
 * see it by themselves. */
void app_rows_stored(struct app *app);

void request_reply(struct request *request, json_t *result); /* takes result */
/* The same for an answer that depends on the question, the best rows, the kernels and the devices
 * alone: it may be given again. */
void request_reply_again(struct request *request, json_t *result);
void request_fail(struct request *request, const struct tune_error *err);

/* cmd_info.c */
void cmd_ping(struct request *request);
void cmd_kernels(struct request *request);
void cmd_describe(struct request *request);
void cmd_devices(struct request *request);
void cmd_stats(struct request *request);
void cmd_fleet(struct request *request);
/* cmd_get.c */
void cmd_get(struct request *request);
/* cmd_explain.c */
void cmd_explain(struct request *request);
/* cmd_limits.c */
void cmd_limits(struct request *request);
/* cmd_sweep.c */
void cmd_sweep(struct request *request);
void cmd_jobs(struct request *request);
void cmd_cancel(struct request *request);
void cmd_watch(struct request *request);
/* cmd_records.c */
void cmd_records(struct request *request);
/* cmd_exchange.c */
void cmd_export(struct request *request);
void cmd_refuse(struct request *request);
/* cmd_import.c */
void cmd_import(struct request *request);

/* cmd_get.c: called by main when a job has ended, for those who wait for it. */
void get_job_ended(struct app *app, const char *job);
/* Called by main when a client has left: it waits for no sweep any more. */
void get_client_left(uint64_t client);
/* cmd_import.c: the same; its import ends. */
void import_client_left(uint64_t client);
/* Whether this user may add and refuse records: on a system daemon root and its owner. 0 or -1. */
int may_change_records(const struct request *request, struct tune_error *err);

/* cmd_explain.c: the same as for get; what nobody waits for is not looked into any more. */
void explain_client_left(struct app *app, uint64_t client);
void explain_refuse_all(struct app *app, const struct tune_error *err);
/* GPUs and compiler are known: what came before is begun. */
void explain_ready(void);

/* cmd_limits.c: as for explain. */
void limits_client_left(struct app *app, uint64_t client);
void limits_refuse_all(struct app *app, const struct tune_error *err);
void limits_ready(void);

/* The GPUs are known: what asked for "the one here" before is answered now. */
void get_devices_known(void);
/* The daemon stops: all that are not answered yet are told so. */
void get_refuse_all(struct app *app, const struct tune_error *err);

/* Parts of a request that several commands share. The device to answer for: the attached one of
 * that arch or GPU name, else a stand-in with the limits of that arch (device.uuid is then ""). */
int find_plugin(
    struct app *app, const json_t *params, struct plugin **plugin, struct tune_error *err);
int find_target(struct app *app, const char *arch, const char *gpu, struct device_info *device,
    struct tune_error *err);
/* Checks a dtype and a mode, and replaces them by texts that outlive the request. */
int find_words(
    const struct manifest *manifest, const char **dtype, const char **mode, struct tune_error *err);

#endif
