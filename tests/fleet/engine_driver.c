/* Speaks the interface of the engine for engine_suite.py: one JSON object a line on standard input,
 * {"op": NAME, ...}, one on standard output, {"error": CODE, "text": ...} where it failed. One
 * engine a process, so that a suite can stop and kill its users. Ids and hashes are hex digits. */
#include "daemon/fleet/engine.h"
#include "tuning_db/record_line.h"
#include "tuning_db/tuning_db.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

static struct engine *engine;
static const struct engine_ops *const ops = &engine_postgres;
static int cancel_fd;

static const char *text_in(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text != NULL ? text : "";
}

static json_int_t int_in(const json_t *json, const char *key)
{
    return json_integer_value(json_object_get(json, key));
}

static void read_id(const char *hex, uint8_t id[ENGINE_ID_BYTES])
{
    for (size_t i = 0; i < ENGINE_ID_BYTES; i++) {
        unsigned byte = 0;
        sscanf(hex + 2 * i, "%2x", &byte);
        id[i] = (uint8_t)byte;
    }
}

static json_t *row_json(const struct engine_row *row)
{
    char id[2 * ENGINE_ID_BYTES + 1], hash[17];
    for (size_t i = 0; i < ENGINE_ID_BYTES; i++)
        snprintf(id + 2 * i, 3, "%02x", row->id[i]);
    snprintf(hash, sizeof hash, "%016" PRIx64, row->hash);
    return json_pack("{s:s, s:I, s:s, s:s?, s:I}", "id", id, "rank", (json_int_t)row->rank, "hash",
        hash, "line", row->line, "seq", (json_int_t)row->seq);
}

static void on_row(const struct engine_row *row, void *context)
{
    json_array_append_new(context, row_json(row));
}

/* --- rows ------------------------------------------------------------------------------------- */

static int put(const json_t *request, struct tune_error *err)
{
    const json_t *list = json_object_get(request, "rows");
    size_t count = json_array_size(list);
    struct engine_row *rows = calloc(count + 1, sizeof *rows);
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(list, i);
        read_id(text_in(row, "id"), rows[i].id);
        rows[i].rank = (uint64_t)int_in(row, "rank");
        rows[i].hash = strtoull(text_in(row, "hash"), NULL, 16);
        rows[i].line = text_in(row, "line");
    }
    int status = ops->put_batch(engine, rows, count, err);
    free(rows);
    return status;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Many batches as fast as they go, each row of an id of its own. */
static int storm(const json_t *request, struct tune_error *err)
{
    uint64_t random = (uint64_t)int_in(request, "seed");
    enum { BATCH = 7 };
    for (json_int_t i = 0; i < int_in(request, "batches"); i++) {
        struct engine_row rows[BATCH];
        for (size_t j = 0; j < BATCH; j++) {
            rows[j] = (struct engine_row){.rank = 1, .hash = next_random(&random), .line = "{}"};
            for (size_t k = 0; k < ENGINE_ID_BYTES; k += 8) {
                uint64_t part = next_random(&random);
                memcpy(rows[j].id + k, &part, 8);
            }
        }
        if (ops->put_batch(engine, rows, BATCH, err))
            return -1;
    }
    return 0;
}

static int changes(const json_t *request, json_t *answer, struct tune_error *err)
{
    uint64_t head = 0;
    json_t *rows = json_array();
    int status = ops->changes_since(engine, (uint64_t)int_in(request, "since"),
        (size_t)int_in(request, "limit"), on_row, rows, &head, err);
    json_object_set_new(answer, "rows", rows);
    json_object_set_new(answer, "head", json_integer((json_int_t)head));
    return status;
}

static int digest(json_t *answer, struct tune_error *err)
{
    struct engine_bucket buckets[ENGINE_BUCKETS];
    json_t *list = json_array();
    int status = ops->digest(engine, buckets, err);
    for (size_t i = 0; status == 0 && i < ENGINE_BUCKETS; i++) {
        char text[17];
        snprintf(text, sizeof text, "%016" PRIx64, buckets[i].digest);
        json_array_append_new(list, json_pack("[I, s]", (json_int_t)buckets[i].rows, text));
    }
    json_object_set_new(answer, "buckets", list);
    return status;
}

static int fetch(const json_t *request, json_t *answer, struct tune_error *err)
{
    const json_t *list = json_object_get(request, "ids");
    uint8_t(*ids)[ENGINE_ID_BYTES] = calloc(json_array_size(list) + 1, sizeof *ids);
    json_t *rows = json_array();
    for (size_t i = 0; i < json_array_size(list); i++)
        read_id(json_string_value(json_array_get(list, i)), ids[i]);
    int status = ops->fetch(
        engine, (const uint8_t(*)[ENGINE_ID_BYTES])ids, json_array_size(list), on_row, rows, err);
    json_object_set_new(answer, "rows", rows);
    free(ids);
    return status;
}

/* --- precedence ------------------------------------------------------------------------------- */

static struct sample random_sample(uint64_t number, uint64_t *random)
{
    static char config[32];
    snprintf(config, sizeof config, "N=%" PRIu64, number);
    uint64_t bits = next_random(random);
    return (struct sample){
        .key = {"k", "0123456789abcdef0123456789abcdef", "N=1", "f32", "sm_90", "cold"},
        .config = config,
        .gpu_uuid = "GPU-1",
        .run = "j/search",
        .outcome = bits & 1 ? OUTCOME_OK : OUTCOME_CRASHED,
        .is_final = bits & 2,
        .is_refused = bits & 4,
        .attempts = bits >> 3 & 1,
        .method = "event",
        .median_ns = bits & 1 ? 1000.0 + (double)(bits >> 8 & 7) : 0,
        .lo_ns = bits & 1 ? 1000 : 0,
        .hi_ns = bits & 1 ? 2000 : 0,
        .host = bits & 64 ? "\xc3\xa4" : "b", /* sorts otherwise where collations are clever */
    };
}

static int put_sample(const struct sample *sample, const char *line, struct tune_error *err)
{
    struct engine_row row = {
        .rank = (uint64_t)sample->is_refused << 40 | (uint64_t)sample->is_final << 32 |
                sample->attempts,
        .hash = record_line_hash(sample),
        .line = line,
    };
    tuning_db_id(sample, row.id);
    return ops->put_batch(engine, &row, 1, err);
}

struct winner {
    uint64_t hash;
    size_t count;
};

static void on_winner(const struct engine_row *row, void *context)
{
    struct winner *winner = context;
    winner->hash = row->hash;
    winner->count++;
}

/* Pairs of rows of one identity: what stands in the engine is what sample_precedence says. */
static int precedence(const json_t *request, struct tune_error *err)
{
    uint64_t random = (uint64_t)int_in(request, "seed");
    for (json_int_t i = 0; i < int_in(request, "count"); i++) {
        struct sample a = random_sample((uint64_t)i, &random);
        struct sample b = random_sample((uint64_t)i, &random);
        size_t length;
        char *line_a = record_line_format(&a, &length, err);
        char *line_b = record_line_format(&b, &length, err);
        uint8_t ids[1][ENGINE_ID_BYTES];
        struct winner winner = {0};
        tuning_db_id(&a, ids[0]);
        int status =
            line_a == NULL || line_b == NULL || put_sample(&a, line_a, err) ||
            put_sample(&b, line_b, err) ||
            ops->fetch(engine, (const uint8_t(*)[ENGINE_ID_BYTES])ids, 1, on_winner, &winner, err);
        const struct sample *stands = sample_precedence(&a, &b) <= 0 ? &a : &b;
        if (!status && (winner.count != 1 || winner.hash != record_line_hash(stands)))
            status =
                tune_fail(err, TUNE_EINTERNAL, "of %s and %s the other one stands", line_a, line_b);
        free(line_a);
        free(line_b);
        if (status)
            return -1;
    }
    return 0;
}

/* --- forging ---------------------------------------------------------------------------------- */

/* A line with the sum that belongs to it and, where it reads, the id, hash and rank of its row. */
static int seal(const json_t *request, json_t *answer, struct tune_error *err)
{
    const char *text = text_in(request, "line");
    size_t length = strlen(text), room = length + 32;
    char *line = malloc(room);
    if (length < 2 || line == NULL)
        return tune_fail(err, TUNE_EINVAL, "no line");
    snprintf(line, room, "%.*s,\"sum\":\"%016" PRIx64 "\"}", (int)length - 1, text,
        (uint64_t)XXH3_64bits(text, length - 1));
    struct sample sample;
    struct tune_error why = {0};
    json_object_set_new(answer, "line", json_string(line));
    if (record_line_parse(line, strlen(line), &sample, &why) == 0) {
        struct engine_row row = {.hash = record_line_hash(&sample),
            .rank = (uint64_t)sample.is_refused << 40 | (uint64_t)sample.is_final << 32 |
                    sample.attempts};
        tuning_db_id(&sample, row.id);
        json_object_set_new(answer, "row", row_json(&row));
        sample_finish(&sample);
    } else {
        json_object_set_new(answer, "why", json_string(why.text));
    }
    free(line);
    return 0;
}

/* --- tasks and nodes -------------------------------------------------------------------------- */

static int lease(const json_t *request, json_t *answer, struct tune_error *err)
{
    const char *targets[9] = {NULL};
    const json_t *list = json_object_get(request, "targets");
    for (size_t i = 0; i < json_array_size(list) && i < 8; i++)
        targets[i] = json_string_value(json_array_get(list, i));
    struct engine_task task = {0};
    int status = ops->lease(engine, targets, (unsigned)int_in(request, "lease_ms"), &task, err);
    if (status == 0)
        json_object_update_new(answer,
            json_pack("{s:I, s:s, s:s, s:s, s:i}", "task", (json_int_t)task.id, "asker", task.asker,
                "target", task.target, "payload", task.payload, "tries", (int)task.tries));
    engine_task_finish(&task);
    return status;
}

static int task_state(const json_t *request, json_t *answer, struct tune_error *err)
{
    static const char *const words[] = {"waiting", "leased", "done", "failed", "gone"};
    enum engine_task_state state = ENGINE_TASK_GONE;
    uint64_t done_seq = 0;
    int status = ops->task_state(engine, (uint64_t)int_in(request, "task"), &state, &done_seq, err);
    json_object_set_new(answer, "state", json_string(words[state]));
    json_object_set_new(answer, "done_seq", json_integer((json_int_t)done_seq));
    return status;
}

static int offer(const json_t *request, json_t *answer, struct tune_error *err)
{
    uint64_t task = 0;
    int status =
        ops->offer(engine, text_in(request, "target"), text_in(request, "payload"), &task, err);
    json_object_set_new(answer, "task", json_integer((json_int_t)task));
    return status;
}

static void on_node(const struct engine_node *node, void *context)
{
    json_array_append_new(context,
        json_pack("{s:s, s:s, s:s, s:I, s:f}", "node", node->node, "host", node->host, "targets",
            node->targets, "position", (json_int_t)node->position, "age_s", node->age_s));
}

static int status_of_all(json_t *answer, struct tune_error *err)
{
    json_t *nodes = json_array();
    uint64_t rows = 0, head = 0;
    int status = ops->status(engine, on_node, nodes, &rows, &head, err);
    json_object_set_new(answer, "nodes", nodes);
    json_object_set_new(answer, "rows", json_integer((json_int_t)rows));
    json_object_set_new(answer, "head", json_integer((json_int_t)head));
    return status;
}

/* --- the connection --------------------------------------------------------------------------- */

static void *cancel_later(void *argument)
{
    json_int_t ms = *(json_int_t *)argument;
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    uint64_t one = 1;
    nanosleep(&pause, NULL);
    ssize_t ignored = write(cancel_fd, &one, sizeof one);
    (void)ignored;
    return NULL;
}

/* From now on in this process: a call is cut off after some time. */
static int cancel_after(const json_t *request)
{
    static json_int_t ms;
    pthread_t thread;
    ms = int_in(request, "ms");
    if (pthread_create(&thread, NULL, cancel_later, &ms) == 0)
        pthread_detach(thread);
    return 0;
}

static int connect_engine(const json_t *request, json_t *answer, struct tune_error *err)
{
    json_int_t deadline_ms = int_in(request, "deadline_ms");
    const char *url = text_in(request, "url");
    ops->destroy(engine);
    char *shown = ops->show(url);
    json_object_set_new(answer, "shown", json_string(shown));
    free(shown);
    engine = ops->connect(url, text_in(request, "node"), cancel_fd,
        deadline_ms > 0 ? (unsigned)deadline_ms : 10000, err);
    if (engine != NULL)
        json_object_set_new(answer, "identity", json_string(ops->identity(engine)));
    return engine != NULL ? 0 : -1;
}

static int on_bucket(const json_t *request, json_t *answer, struct tune_error *err)
{
    json_t *rows = json_array();
    json_object_set_new(answer, "rows", rows);
    return ops->list_bucket(engine, (unsigned)int_in(request, "bucket"), on_row, rows, err);
}

/* The status of the call: 0, 1 where that means something, -1. */
static int run(const json_t *request, json_t *answer, struct tune_error *err)
{
    const char *op = text_in(request, "op");
    uint64_t task = (uint64_t)int_in(request, "task");
    unsigned lease_ms = (unsigned)int_in(request, "lease_ms");
    if (strcmp(op, "connect") == 0)
        return connect_engine(request, answer, err);
    if (strcmp(op, "cancel_after") == 0)
        return cancel_after(request);
    if (strcmp(op, "put") == 0)
        return put(request, err);
    if (strcmp(op, "storm") == 0)
        return storm(request, err);
    if (strcmp(op, "changes") == 0)
        return changes(request, answer, err);
    if (strcmp(op, "wait") == 0)
        return ops->wait(engine, -1, (unsigned)int_in(request, "ms"), err);
    if (strcmp(op, "digest") == 0)
        return digest(answer, err);
    if (strcmp(op, "list") == 0)
        return on_bucket(request, answer, err);
    if (strcmp(op, "fetch") == 0)
        return fetch(request, answer, err);
    if (strcmp(op, "precedence") == 0)
        return precedence(request, err);
    if (strcmp(op, "seal") == 0)
        return seal(request, answer, err);
    if (strcmp(op, "offer") == 0)
        return offer(request, answer, err);
    if (strcmp(op, "lease") == 0)
        return lease(request, answer, err);
    if (strcmp(op, "renew") == 0)
        return ops->renew(engine, task, lease_ms, err);
    if (strcmp(op, "complete") == 0)
        return ops->complete(engine, task, json_is_true(json_object_get(request, "failed")), err);
    if (strcmp(op, "take_back") == 0)
        return ops->take_back(engine, task, err);
    if (strcmp(op, "task_state") == 0)
        return task_state(request, answer, err);
    if (strcmp(op, "withdraw") == 0)
        return ops->withdraw(engine, task, err);
    if (strcmp(op, "beat") == 0)
        return ops->beat(engine, text_in(request, "host"), text_in(request, "targets"),
            (uint64_t)int_in(request, "position"), err);
    if (strcmp(op, "status") == 0)
        return status_of_all(answer, err);
    return tune_fail(err, TUNE_EMETHOD, "there is no op \"%s\"", op);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    while (getline(&line, &room, stdin) > 0) {
        json_t *request = json_loads(line, 0, NULL), *answer = json_object();
        struct tune_error err = {0};
        int status = run(request, answer, &err);
        json_object_set_new(answer, "status", json_integer(status));
        if (status < 0) {
            json_object_set_new(answer, "error", json_string(tune_code_word(err.code)));
            json_object_set_new(answer, "text", json_string(err.text));
        }
        json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(answer);
        json_decref(request);
    }
    ops->destroy(engine);
    free(line);
    return 0;
}
