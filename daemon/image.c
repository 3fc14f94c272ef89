/* See image.h. */
#include "daemon/image.h"

#include "client/proto.h"
#include "daemon/file.h"
#include "daemon/xmalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPILE_TRIES                                                                              \
    2 /* a compiler that dies is tried once more: it may have been killed from outside */
#define TOOLKIT_HEADER_MAX 512
#define TOOLKIT_HEADER_BYTES ((size_t)8 << 20)

struct waiter {
    struct waiter *next;
    image_callback callback; /* NULL: cancelled */
    void *context;
};

/* One key that is being answered: looked up, compiled, or ready to be told. */
struct pending {
    struct pending *next;
    struct images *images;
    struct record_hash key;
    struct waiter *waiters;
    json_t *request; /* of the worker pipe; NULL when no compile is needed */
    unsigned tries;
    json_t *package; /* from the cache */
    bool is_ready;   /* package or failure is known; told on the next turn */
    bool is_hopeless, is_ptx;
    bool is_telling; /* its waiters are being told: it takes no more */
    char error[256];
};

struct toolkit_hash {
    struct toolkit_hash *next;
    char *names; /* include folder and header names */
    char hash[33];
};

struct images {
    struct sched *sched;
    struct tuning_db *db;
    struct writer *writer;
    struct pending *pending;
    struct toolkit_hash *toolkit;
    uv_async_t *turn; /* owned by the loop once closed */
    struct image_counts counts;
};

void image_hash_text(const char *text, char hex[33])
{
    struct record_hash hash = record_text_hash(text);
    for (size_t i = 0; i < sizeof hash.bytes; i++)
        sprintf(hex + 2 * i, "%02x", hash.bytes[i]);
}

/* --- target ----------------------------------------------------------------------------------- */

static void list_archs(const struct compiler_info *compiler, char *text, size_t room)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < compiler->arch_count && used < room - 8; i++)
        used +=
            (size_t)snprintf(text + used, room - used, "%s%d", i ? " " : "", compiler->archs[i]);
}

int image_target(const struct compiler_info *compiler, const struct device_info *device,
    const char *suffix, char target[24], bool *is_ptx, struct tune_error *err)
{
    int sm = (int)device->attributes[DEVICE_sm];
    *is_ptx = false;
    if (compiler->is_emulated != (sm == 0))
        return tune_fail(err, TUNE_ENOCOMPILER,
            "NVRTC at %s and the driver are not of one kind (one is the emulator): check "
            "TUNE_CUDA_DIR",
            compiler->path);
    if (sm == 0) {
        strcpy(target, "cpu");
        return 0;
    }
    int best = 0;
    for (int i = 0; i < compiler->arch_count; i++)
        if (compiler->archs[i] <= sm && compiler->archs[i] > best)
            best = compiler->archs[i];
    char archs[120];
    list_archs(compiler, archs, sizeof archs);
    if (best == 0)
        return tune_fail(err, TUNE_ENOCOMPILER,
            "%s is sm_%d, older than NVRTC %s compiles for (%s): install an older CUDA toolkit",
            device->name[0] ? device->name : "the architecture asked for", sm, compiler->nvrtc,
            archs);
    if (best / 10 == sm / 10 && (best == sm || suffix[0] == '\0')) {
        snprintf(target, 24, "sm_%d%s", best, suffix); /* code for 8.6 runs on 8.9 */
        return 0;
    }
    if (suffix[0] != '\0')
        return tune_fail(err, TUNE_ENOCOMPILER,
            "this variant needs sm_%d%s exactly; NVRTC %s compiles for %s", sm, suffix,
            compiler->nvrtc, archs);
    *is_ptx = true; /* the driver finishes code for a device newer than NVRTC */
    snprintf(target, 24, "compute_%d", best);
    return 0;
}

/* --- toolkit headers -------------------------------------------------------------------------- */

struct header_walk {
    const char *folder;
    char *names[TOOLKIT_HEADER_MAX];
    size_t count;
    size_t bytes;
    char digest[33];
};

/* NULL for one that is built into NVRTC, or missing: then the compile says so. */
static char *read_header(const struct header_walk *walk, const char *name)
{
    char *path = xasprintf("%s/%s", walk->folder, name);
    char *text = file_read_text(path);
    free(path);
    return text;
}

static void add_header(struct header_walk *walk, const char *name, size_t length)
{
    for (size_t i = 0; i < walk->count; i++)
        if (strlen(walk->names[i]) == length && memcmp(walk->names[i], name, length) == 0)
            return;
    if (walk->count < TOOLKIT_HEADER_MAX)
        walk->names[walk->count++] = xasprintf("%.*s", (int)length, name);
}

/* Every name after an #include, whatever conditions stand around it: hashing a header too many
 * costs nothing, one too few would reuse a stale cubin. */
static void add_includes(struct header_walk *walk, const char *text)
{
    for (const char *at = text; (at = strstr(at, "include")) != NULL;) {
        at += strlen("include");
        at += strspn(at, " \t");
        if (*at != '<' && *at != '"')
            continue;
        const char *end = strpbrk(at + 1, ">\"\n");
        if (end != NULL && *end != '\n')
            add_header(walk, at + 1, (size_t)(end - at - 1));
    }
}

/* Digest over name and content of each toolkit header that can be reached from the names given. */
static const char *toolkit_digest(struct images *images, char *const *headers)
{
    const char *folder = sched_compiler(images->sched)->include;
    if (headers == NULL || headers[0] == NULL || folder[0] == '\0')
        return "";
    char *names = xstrdup(folder);
    for (size_t i = 0; headers[i] != NULL; i++) {
        char *longer = xasprintf("%s|%s", names, headers[i]);
        free(names);
        names = longer;
    }
    for (struct toolkit_hash *known = images->toolkit; known != NULL; known = known->next)
        if (strcmp(known->names, names) == 0) {
            free(names);
            return known->hash;
        }
    struct header_walk walk = {.folder = folder};
    for (size_t i = 0; headers[i] != NULL; i++)
        add_header(&walk, headers[i], strlen(headers[i]));
    for (size_t i = 0; i < walk.count && walk.bytes < TOOLKIT_HEADER_BYTES; i++) {
        char *text = read_header(&walk, walk.names[i]);
        char hash[33] = "";
        if (text != NULL) {
            walk.bytes += strlen(text);
            add_includes(&walk, text);
            image_hash_text(text, hash);
        }
        char *joined = xasprintf("%s|%s|%s", walk.digest, walk.names[i], hash);
        image_hash_text(joined, walk.digest);
        free(joined);
        free(text);
    }
    for (size_t i = 0; i < walk.count; i++)
        free(walk.names[i]);
    struct toolkit_hash *entry = xcalloc(1, sizeof *entry);
    entry->names = names;
    memcpy(entry->hash, walk.digest, sizeof entry->hash);
    entry->next = images->toolkit;
    images->toolkit = entry;
    return entry->hash;
}

/* --- requests --------------------------------------------------------------------------------- */

static json_t *headers_json(const struct image_source *source)
{
    json_t *list = json_array();
    for (size_t i = 0; i < source->header_count; i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", source->headers[i].name, "text",
                                        source->headers[i].text));
    return list;
}

json_t *image_compile_json(const struct image_source *source, json_t *defines, json_t *entries)
{
    return json_pack("{s:s, s:s, s:o, s:O, s:O}", "name", source->name, "source", source->text,
        "headers", headers_json(source), "options", defines, "entries", entries);
}

static struct record_hash key_of(
    struct images *images, const struct image_request *request, const char *target)
{
    char *defines = json_dumps(request->defines, JSON_COMPACT);
    char *entries = json_dumps(request->entries, JSON_COMPACT);
    char *text = xasprintf("%s|%s|%s|%s|%s|%s|%s", request->source.name, request->source.content,
        toolkit_digest(images, request->source.toolkit_headers), defines, entries, target,
        sched_compiler(images->sched)->nvrtc);
    struct record_hash key = record_text_hash(text);
    free(text);
    free(defines);
    free(entries);
    return key;
}

static void unlink_pending(struct pending *pending)
{
    struct pending **at = &pending->images->pending;
    while (*at != pending)
        at = &(*at)->next;
    *at = pending->next;
}

/* Tells all waiters and frees the entry. A callback may ask for further images, and may cancel
 * other waiters: it stays in the list, where these are found, until all are told. */
static void settle(struct pending *pending, const struct image_result *result)
{
    pending->is_telling = true;
    while (pending->waiters != NULL) {
        struct waiter *waiter = pending->waiters;
        pending->waiters = waiter->next;
        if (waiter->callback != NULL)
            waiter->callback(result, waiter->context);
        free(waiter);
    }
    unlink_pending(pending);
    json_decref(pending->request);
    json_decref(pending->package);
    free(pending);
}

static void store(struct pending *pending, json_t *package)
{
    char *text = json_dumps(package, JSON_COMPACT);
    if (text != NULL)
        tuning_db_batch_cubin(
            writer_batch(pending->images->writer), &pending->key, text, strlen(text));
    free(text);
}

static void take_answer(struct pending *pending, const json_t *answer)
{
    struct images *images = pending->images;
    const char *log = json_string_value(json_object_get(answer, "log"));
    const char *error = json_string_value(json_object_get(answer, "error"));
    struct image_result result = {
        .error = error ? error : "the compiler gave no reason",
        .log = log ? log : "",
        .log_bytes = (size_t)json_integer_value(json_object_get(answer, "log_bytes")),
        .is_static_assert = json_is_true(json_object_get(answer, "static_assert")),
        .compile_ms = json_number_value(json_object_get(answer, "compile_ms")),
    };
    json_t *package = NULL;
    images->counts.compiles++;
    if (json_is_true(json_object_get(answer, "ok"))) {
        package = json_pack("{s:O, s:b, s:O, s:O}", "image", json_object_get(answer, "image"),
            "is_ptx", json_is_true(json_object_get(answer, "is_ptx")), "names",
            json_object_get(answer, "names"), "resources", json_object_get(answer, "resources"));
        if (package != NULL)
            store(pending, package);
        else
            result.error = "the compile worker's answer lacks a field";
    }
    images->counts.failures += package == NULL;
    result.package = package;
    result.is_ptx = pending->is_ptx;
    settle(pending, &result);
    json_decref(package);
}

static void on_compiled(const struct task_result *task, void *context)
{
    struct pending *pending = context;
    struct image_result result = {.error = task->why, .log = ""};
    char text[320];
    switch (task->end) {
    case TASK_ANSWERED:
        take_answer(pending, task->answer);
        return;
    case TASK_CRASHED:
        if (++pending->tries < COMPILE_TRIES) {
            sched_compile(
                pending->images->sched, json_incref(pending->request), on_compiled, pending);
            return;
        }
        snprintf(text, sizeof text, "the compiler died on it: %s", task->why);
        result.error = text;
        break;
    case TASK_TIMED_OUT:
        result.error = "compiling took longer than the deadline (see --compile-deadline)";
        break;
    case TASK_OVER_MEMORY:
        result.error = "compiling took more memory than allowed (see --compile-memory)";
        break;
    case TASK_SETUP_FAILED:
    case TASK_UNAVAILABLE:
        result.is_hopeless = true;
        break;
    }
    pending->images->counts.failures++;
    settle(pending, &result);
}

static void on_turn(uv_async_t *turn)
{
    struct images *images = turn->data;
    for (struct pending *pending = images->pending; pending != NULL;) {
        struct pending *next = pending->next;
        if (pending->is_ready) {
            struct image_result result = {
                .package = pending->package,
                .error = pending->error,
                .log = "",
                .is_cached = pending->package != NULL,
                .is_ptx = pending->is_ptx,
                .is_hopeless = pending->is_hopeless,
            };
            settle(pending, &result);
            uv_async_send(images->turn); /* callbacks may have changed the list: look again */
            return;
        }
        pending = next;
    }
}

static void add_waiter(struct pending *pending, image_callback callback, void *context)
{
    struct waiter **end = &pending->waiters;
    while (*end != NULL)
        end = &(*end)->next;
    *end = xcalloc(1, sizeof **end);
    (*end)->callback = callback;
    (*end)->context = context;
}

static json_t *cached_package(struct images *images, const struct record_hash *key)
{
    struct tune_error err = {0};
    void *bytes = NULL;
    size_t count = 0;
    if (tuning_db_cubin(images->db, key, &bytes, &count, &err) != 0)
        return NULL;
    json_t *package = proto_parse(bytes, count, &err);
    free(bytes);
    if (!json_is_string(json_object_get(package, "image"))) {
        json_decref(package);
        return NULL;
    }
    return package;
}

static struct pending *add_pending(struct images *images)
{
    struct pending *pending = xcalloc(1, sizeof *pending);
    struct pending **end = &images->pending;
    while (*end != NULL)
        end = &(*end)->next;
    pending->images = images;
    *end = pending; /* first asked, first told: askers ask for what promises most first */
    return pending;
}

void image_request(struct images *images, const struct image_request *request,
    image_callback callback, void *context)
{
    struct tune_error err = {0};
    char target[24] = "";
    bool is_ptx = false;
    const struct compiler_info *compiler = sched_compiler(images->sched);
    if (!compiler->is_known)
        tune_fail(&err, TUNE_ENOCOMPILER, "%s",
            compiler->error[0] ? compiler->error : "the compiler is not known yet: try again");
    else
        image_target(compiler, request->device, request->arch_suffix, target, &is_ptx, &err);
    if (err.code != TUNE_OK) {
        struct pending *failed = add_pending(images);
        failed->is_ready = failed->is_hopeless = true;
        snprintf(failed->error, sizeof failed->error, "%s", err.text);
        add_waiter(failed, callback, context);
        uv_async_send(images->turn);
        return;
    }
    struct record_hash key = key_of(images, request, target);
    for (struct pending *pending = images->pending; pending != NULL; pending = pending->next)
        if (!pending->is_telling && memcmp(&pending->key, &key, sizeof key) == 0) {
            add_waiter(pending, callback, context);
            return;
        }
    struct pending *pending = add_pending(images);
    pending->key = key;
    pending->is_ptx = is_ptx;
    add_waiter(pending, callback, context);
    pending->package = cached_package(images, &key);
    if (pending->package != NULL) {
        images->counts.hits++;
        pending->is_ready = true;
        uv_async_send(images->turn);
        return;
    }
    pending->request = image_compile_json(&request->source, request->defines, request->entries);
    if (pending->request != NULL) {
        json_object_set_new(pending->request, "op", json_string("compile"));
        json_object_set_new(pending->request, "arch", json_string(target));
        json_object_set_new(pending->request, "cache", json_boolean(!request->no_nvrtc_cache));
    } else { /* the worker's pipe carries JSON */
        pending->is_ready = true;
        snprintf(pending->error, sizeof pending->error,
            "%.60s or a header of it is not UTF-8: save it in that encoding", request->source.name);
        uv_async_send(images->turn);
        return;
    }
    sched_compile(images->sched, json_incref(pending->request), on_compiled, pending);
}

void image_cancel(struct images *images, const void *context)
{
    for (struct pending *pending = images->pending; pending != NULL; pending = pending->next)
        for (struct waiter *waiter = pending->waiters; waiter != NULL; waiter = waiter->next)
            if (waiter->context == context)
                waiter->callback = NULL;
}

struct image_source image_source_of_plugin(const struct plugin *plugin)
{
    return (struct image_source){
        .name = plugin->source_name,
        .text = plugin->source,
        .content = plugin->content,
        .header_count = plugin->header_count,
        .headers = plugin->headers,
        .toolkit_headers = plugin->toolkit_headers,
    };
}

struct image_counts images_counts(const struct images *images)
{
    return images->counts;
}

/* --- life ------------------------------------------------------------------------------------- */

struct images *images_create(
    uv_loop_t *loop, struct sched *sched, struct tuning_db *db, struct writer *writer)
{
    struct images *images = xcalloc(1, sizeof *images);
    images->sched = sched;
    images->db = db;
    images->writer = writer;
    images->turn = xcalloc(1, sizeof *images->turn);
    uv_async_init(loop, images->turn, on_turn);
    images->turn->data = images;
    return images;
}

static void on_turn_closed(uv_handle_t *handle)
{
    free(handle);
}

void images_destroy(struct images *images)
{
    if (images == NULL)
        return;
    while (images->pending != NULL) {
        struct image_result result = {
            .error = "the daemon is stopping", .log = "", .is_hopeless = true};
        settle(images->pending, &result);
    }
    while (images->toolkit != NULL) {
        struct toolkit_hash *entry = images->toolkit;
        images->toolkit = entry->next;
        free(entry->names);
        free(entry);
    }
    uv_close((uv_handle_t *)images->turn, on_turn_closed);
    free(images);
}
