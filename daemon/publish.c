/* See publish.h. */
#include "daemon/publish.h"

#include "daemon/log.h"
#include "daemon/publish_view.h"
#include "daemon/xmalloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define THREAD_NICE 5 /* as compile workers: answers by the socket go first */

/* A key that changed since the base. */
struct change {
    struct record_key key; /* its texts lie in storage */
    struct record_hash hash;
    uint64_t generation; /* the change was stored by then */
    char *storage;
};

struct change_list {
    struct change *items;
    size_t count, room;
};

struct publish {
    struct tuning_db *db;
    char *db_dir, *folder;
    bool is_off; /* cannot work */
    uint64_t check_ms, base_period_ms, delta_age_ms;
    size_t delta_keys, delta_keys_max;
    uv_thread_t thread;
    uv_async_t ended;
    void (*on_stopped)(void *context);
    void *stopped_context;
    /* Shared with the loop, under the mutex. */
    uv_mutex_t mutex;
    uv_cond_t wake;
    struct view *next_view;
    bool is_stopping;
    /* The thread's. */
    struct view *view;
    struct snapshot_page page; /* as published; base "": names nothing */
    bool is_page_late;         /* could not be written: clients see an older one */
    uint64_t generation;       /* of the database, that the list of changes has reached */
    struct change_list changes;
    bool has_all_changes; /* all since the base under construction or published was begun */
    bool is_extendable;   /* the changes are all that differs from the published base */
    uint64_t last_number; /* of a file */
    bool has_built;
    uint64_t build_began_ms, base_published_ms, round_ms;
    char complaint[sizeof((struct tune_error *)0)->text]; /* the last one logged */
};

static uint64_t now_ms(void)
{
    return uv_hrtime() / 1000000;
}

/* --- changes ---------------------------------------------------------------------------------- */

static void change_finish(struct change *change)
{
    free(change->storage);
}

static void changes_clear(struct change_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        change_finish(&list->items[i]);
    list->count = 0;
}

/* Forgets what a base that was begun at this generation has. */
static void changes_drop(struct change_list *list, uint64_t generation)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].generation > generation)
            list->items[kept++] = list->items[i];
        else
            change_finish(&list->items[i]);
    }
    list->count = kept;
}

static void copy_key(struct change *change, const struct record_key *key)
{
    const char *const texts[] = {
        key->kernel, key->fingerprint, key->shape, key->dtype, key->arch, key->mode};
    const char **const to[] = {&change->key.kernel, &change->key.fingerprint, &change->key.shape,
        &change->key.dtype, &change->key.arch, &change->key.mode};
    size_t bytes = 0;
    for (size_t i = 0; i < 6; i++)
        bytes += strlen(texts[i]) + 1;
    char *at = change->storage = xmalloc(bytes);
    for (size_t i = 0; i < 6; i++) {
        *to[i] = at;
        at = stpcpy(at, texts[i]) + 1;
    }
}

/* Each key once, with the generation that was reached when it last changed. */
static void changes_add(struct change_list *list, const struct record_key *key, uint64_t generation)
{
    struct record_hash hash = record_key_hash(key);
    for (size_t i = 0; i < list->count; i++)
        if (memcmp(&list->items[i].hash, &hash, sizeof hash) == 0) {
            list->items[i].generation = generation;
            return;
        }
    if (list->count == list->room) {
        list->room = list->room * 2 + 16;
        list->items = xrealloc(list->items, list->room * sizeof *list->items);
    }
    struct change *change = &list->items[list->count++];
    *change = (struct change){.hash = hash, .generation = generation};
    copy_key(change, key);
}

static void on_change(const struct record_key *key, void *context)
{
    struct publish *publish = context;
    /* The generation is not known before the end: the highest stands for it until then. */
    changes_add(&publish->changes, key, UINT64_MAX);
}

/* Reads the changes since the last time; false when they are not all known. */
static bool collect_changes(struct publish *publish)
{
    uint64_t now;
    int status = tuning_db_changes(publish->db, publish->generation, on_change, publish, &now);
    publish->generation = now;
    for (size_t i = 0; i < publish->changes.count; i++)
        if (publish->changes.items[i].generation == UINT64_MAX)
            publish->changes.items[i].generation = now;
    return status == 0 && publish->changes.count <= publish->delta_keys_max;
}

/* --- the page --------------------------------------------------------------------------------- */

/* Says what is wrong, once: the next attempt will likely fail of the same. */
static void complain(struct publish *publish, const struct tune_error *err)
{
    if (strcmp(publish->complaint, err->text) == 0)
        return;
    snprintf(publish->complaint, sizeof publish->complaint, "%s", err->text);
    log_warnx("answers are not published (clients ask by the socket): %s", err->text);
}

static int publish_page(struct publish *publish, struct tune_error *err)
{
    publish->page.generation = publish->generation;
    publish->is_page_late = snapshot_publish(publish->folder, &publish->page, err) != 0;
    return publish->is_page_late ? -1 : 0;
}

/* The page names nothing from here on: clients ask the daemon. */
static void publish_nothing(struct publish *publish)
{
    struct tune_error err = {0};
    memset(publish->page.base, 0, sizeof publish->page.base);
    memset(publish->page.delta, 0, sizeof publish->page.delta);
    publish->is_extendable = false;
    if (publish_page(publish, &err))
        complain(publish, &err);
}

/* What has changed since the base cannot be told any more. */
static void lose_track(struct publish *publish)
{
    changes_clear(&publish->changes);
    publish->has_all_changes = false;
    publish_nothing(publish);
}

/* Numbers of files rise, also from one daemon to the next. */
static uint64_t next_number(struct publish *publish)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t number = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    publish->last_number = number > publish->last_number ? number : publish->last_number + 1;
    return publish->last_number;
}

/* --- a round: the changes as a delta ---------------------------------------------------------- */

static int write_delta(struct publish *publish, struct tune_error *err)
{
    struct snapshot_writer *writer;
    memset(publish->page.delta, 0, sizeof publish->page.delta);
    if (publish->changes.count == 0)
        return 0;
    if (snapshot_writer_create(publish->folder, 4 * publish->changes.count, &writer, err))
        return -1;
    for (size_t i = 0; i < publish->changes.count; i++) {
        const struct record_key *key = &publish->changes.items[i].key;
        if (view_add_answers(publish->view, publish->db, key, true, writer, err)) {
            snapshot_writer_abandon(writer);
            return -1;
        }
    }
    return snapshot_writer_finish(writer, "delta", next_number(publish), publish->page.delta, err);
}

static void publish_delta(struct publish *publish)
{
    struct tune_error err = {0};
    if (write_delta(publish, &err) == 0 && publish_page(publish, &err) == 0) {
        publish->complaint[0] = '\0';
        return;
    }
    complain(publish, &err);
    publish_nothing(publish);
}

/* Publishes what has changed, if anything has. Where the page could not be written it names nothing
 * until there is a new base. */
static void do_round(struct publish *publish)
{
    publish->round_ms = now_ms();
    bool has_news = tuning_db_generation(publish->db) != publish->generation;
    if (!has_news && !publish->is_page_late)
        return;
    if (has_news && !collect_changes(publish))
        lose_track(publish);
    else if (publish->is_extendable)
        publish_delta(publish);
    else
        publish_nothing(publish);
}

/* --- a base: all answers ---------------------------------------------------------------------- */

struct build {
    struct publish *publish;
    struct snapshot_writer *writer;
    struct record_hash last; /* rows of one key follow each other, one for each GPU name */
    bool has_last, is_abandoned;
    size_t keys;
    struct tune_error err;
};

static bool has_orders(struct publish *publish)
{
    uv_mutex_lock(&publish->mutex);
    bool has = publish->next_view != NULL || publish->is_stopping;
    uv_mutex_unlock(&publish->mutex);
    return has;
}

/* Rounds go on while a base is built. */
static bool goes_on(struct publish *publish)
{
    if (now_ms() - publish->round_ms < publish->check_ms)
        return true;
    do_round(publish);
    return publish->has_all_changes && !has_orders(publish);
}

static int on_best(const struct best *best, void *context)
{
    struct build *build = context;
    struct publish *publish = build->publish;
    struct record_hash hash = record_key_hash(&best->key);
    if (!goes_on(publish)) {
        build->is_abandoned = true;
        return 1;
    }
    if (build->has_last && memcmp(&build->last, &hash, sizeof hash) == 0)
        return 0;
    build->has_last = true;
    build->last = hash;
    build->keys++;
    return view_add_answers(
        publish->view, publish->db, &best->key, false, build->writer, &build->err);
}

static int write_base(struct build *build, char name[32])
{
    struct publish *publish = build->publish;
    if (snapshot_writer_create(publish->folder, 0, &build->writer, &build->err))
        return -1;
    if (tuning_db_walk_best(publish->db, NULL, on_best, build, &build->err) ||
        build->err.code != TUNE_OK || build->is_abandoned) {
        snapshot_writer_abandon(build->writer);
        return -1;
    }
    return snapshot_writer_finish(build->writer, "base", next_number(publish), name, &build->err);
}

static void build_base(struct publish *publish)
{
    char name[32] = "";
    struct build build = {.publish = publish};
    publish->has_built = true;
    publish->build_began_ms = now_ms();
    do_round(publish);
    uint64_t generation = publish->generation;
    if (!publish->has_all_changes)
        changes_clear(&publish->changes);
    publish->has_all_changes = true;
    if (write_base(&build, name)) {
        if (!build.is_abandoned)
            complain(publish, &build.err);
        publish->has_built = !has_orders(publish); /* for other kernels it need not wait */
        return;
    }
    changes_drop(&publish->changes, generation);
    snprintf(publish->page.base, sizeof publish->page.base, "%s", name);
    publish->is_extendable = true;
    publish->base_published_ms = now_ms();
    publish_delta(publish);
    log_info("the answers of %zu keys are published, in %.1f s", build.keys,
        (double)(publish->base_published_ms - publish->build_began_ms) / 1000);
}

static bool wants_base(const struct publish *publish)
{
    uint64_t now = now_ms();
    if (publish->has_built && now - publish->build_began_ms < publish->base_period_ms)
        return false;
    return !publish->is_extendable || publish->changes.count > publish->delta_keys ||
           (publish->changes.count > 0 && now - publish->base_published_ms > publish->delta_age_ms);
}

/* --- views ------------------------------------------------------------------------------------ */

/* All that answers follow from, but for the records. */
static uint64_t origin_of(const struct publish *publish)
{
    struct stat status = {0};
    char *path = xasprintf("%s/data.mdb", publish->db_dir);
    if (stat(path, &status) != 0)
        log_warn("cannot look at %s", path);
    char *text = xasprintf("%s %d %llu %llu %llx %llx", TUNE_VERSION, SNAPSHOT_VERSION,
        (unsigned long long)status.st_dev, (unsigned long long)status.st_ino,
        (unsigned long long)publish->view->hash,
        (unsigned long long)tuning_db_base_hash(publish->db));
    struct record_hash hash = record_text_hash(text);
    uint64_t origin;
    memcpy(&origin, hash.bytes, sizeof origin);
    free(text);
    free(path);
    return origin;
}

static bool is_sound_file(const struct publish *publish, const char *name)
{
    return snapshot_walk(publish->folder, name, NULL, NULL, NULL, NULL) == 0;
}

/* Whether what an earlier daemon published, or this one under an earlier view, still holds. */
static bool still_holds(const struct publish *publish, uint64_t origin)
{
    const struct snapshot_page *page = &publish->page;
    return page->base[0] != '\0' && page->origin == origin &&
           page->generation <= tuning_db_generation(publish->db);
}

/* Goes on where the last daemon ended. Of its delta the keys are not known, so that it cannot be
 * added to: a new base follows soon. */
static void take_over(struct publish *publish)
{
    uint64_t origin = origin_of(publish);
    struct snapshot_page *page = &publish->page;
    bool is_read = snapshot_read_page(publish->folder, page, NULL) == 0;
    if (is_read && still_holds(publish, origin) && is_sound_file(publish, page->base) &&
        (page->delta[0] == '\0' || is_sound_file(publish, page->delta))) {
        publish->generation = page->generation;
        publish->has_all_changes = true;
        publish->is_extendable = page->delta[0] == '\0';
        publish->base_published_ms = now_ms();
        return;
    }
    publish->generation = tuning_db_generation(publish->db);
    *page = (struct snapshot_page){.origin = origin};
    lose_track(publish);
}

static void take_view(struct publish *publish, struct view *view)
{
    bool is_first = publish->view == NULL;
    view_destroy(publish->view);
    publish->view = view;
    if (is_first) {
        take_over(publish);
        return;
    }
    uint64_t origin = origin_of(publish);
    if (publish->page.origin == origin)
        return;
    publish->page.origin = origin;
    lose_track(publish);
}

/* --- the thread ------------------------------------------------------------------------------- */

/* Waits for orders, at most until the next look at the generation. */
static bool wait_for_orders(struct publish *publish, struct view **view)
{
    uv_mutex_lock(&publish->mutex);
    if (publish->next_view == NULL && !publish->is_stopping)
        uv_cond_timedwait(&publish->wake, &publish->mutex, publish->check_ms * 1000000);
    *view = publish->next_view;
    publish->next_view = NULL;
    bool is_stopping = publish->is_stopping;
    uv_mutex_unlock(&publish->mutex);
    return !is_stopping;
}

static void thread_main(void *argument)
{
    struct publish *publish = argument;
    struct view *view;
    bool is_on = true;
    setpriority(PRIO_PROCESS, 0, THREAD_NICE); /* on Linux: of this thread */
    while (is_on) {
        is_on = wait_for_orders(publish, &view);
        if (view != NULL)
            take_view(publish, view);
        if (publish->view == NULL)
            continue;
        do_round(publish);
        if (is_on && wants_base(publish))
            build_base(publish);
    }
    uv_async_send(&publish->ended);
}

/* --- start and stop --------------------------------------------------------------------------- */

/* LINK -> FOLDER. Renamed over an older link, so that there is one at any time. */
static int make_link(const char *link, const char *folder, struct tune_error *err)
{
    struct stat status;
    char *path = realpath(folder, NULL);
    char *beside = xasprintf("%s.new", link);
    int result = 0;
    if (lstat(link, &status) == 0 && !S_ISLNK(status.st_mode))
        result = tune_fail(err, TUNE_EPERM, "%s is in the way: remove it", link);
    else if (path == NULL || (unlink(beside) != 0 && errno != ENOENT) ||
             symlink(path, beside) != 0 || rename(beside, link) != 0)
        result = tune_fail_errno(err, TUNE_EIO, "cannot make the link %s", link);
    free(beside);
    free(path);
    return result;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct publish *publish = handle->data;
    void (*on_stopped)(void *) = publish->on_stopped;
    void *context = publish->stopped_context;
    changes_clear(&publish->changes);
    free(publish->changes.items);
    view_destroy(publish->view);
    view_destroy(publish->next_view);
    uv_cond_destroy(&publish->wake);
    uv_mutex_destroy(&publish->mutex);
    free(publish->db_dir);
    free(publish->folder);
    free(publish);
    on_stopped(context);
}

static void on_ended(uv_async_t *async)
{
    struct publish *publish = async->data;
    if (!publish->is_off)
        uv_thread_join(&publish->thread);
    uv_close((uv_handle_t *)async, on_handle_closed);
}

static void start_thread(struct publish *publish, struct tune_error *err)
{
    int status = uv_thread_create(&publish->thread, thread_main, publish);
    if (status != 0)
        tune_fail(err, TUNE_EIO, "cannot start the thread for it: %s", uv_strerror(status));
}

/* Programs that still have an earlier daemon's page open are to ask by the socket. */
static void withdraw(const struct publish *publish)
{
    struct snapshot_page page;
    if (snapshot_read_page(publish->folder, &page, NULL) != 0)
        return;
    page = (struct snapshot_page){0};
    snapshot_publish(publish->folder, &page, NULL);
}

struct publish *publish_start(uv_loop_t *loop, const struct publish_options *options)
{
    struct tune_error err = {0};
    struct publish *publish = xcalloc(1, sizeof *publish);
    publish->db = options->db;
    publish->db_dir = xstrdup(options->db_dir);
    publish->folder = xstrdup(options->folder);
    publish->check_ms = options->check_ms ? options->check_ms : PUBLISH_CHECK_MS;
    publish->base_period_ms =
        options->base_period_ms ? options->base_period_ms : PUBLISH_BASE_PERIOD_MS;
    publish->delta_age_ms = options->delta_age_ms ? options->delta_age_ms : PUBLISH_DELTA_AGE_MS;
    publish->delta_keys = options->delta_keys ? options->delta_keys : PUBLISH_DELTA_KEYS;
    publish->delta_keys_max =
        options->delta_keys_max ? options->delta_keys_max : PUBLISH_DELTA_KEYS_MAX;
    uv_mutex_init(&publish->mutex);
    uv_cond_init(&publish->wake);
    uv_async_init(loop, &publish->ended, on_ended);
    publish->ended.data = publish;
    if (snapshot_make_folder(publish->folder, options->allows_group, &err) == 0 &&
        (options->link == NULL || make_link(options->link, publish->folder, &err) == 0))
        start_thread(publish, &err);
    publish->is_off = err.code != TUNE_OK;
    if (publish->is_off) {
        complain(publish, &err);
        withdraw(publish);
    }
    return publish;
}

void publish_set_view(struct publish *publish, const struct registry *registry,
    const struct device_info *devices, size_t device_count)
{
    if (publish->is_off)
        return;
    struct view *view = view_create(registry, devices, device_count);
    uv_mutex_lock(&publish->mutex);
    struct view *unseen = publish->next_view;
    publish->next_view = view;
    uv_cond_signal(&publish->wake);
    uv_mutex_unlock(&publish->mutex);
    view_destroy(unseen);
}

const char *publish_folder(const struct publish *publish)
{
    return publish->is_off ? NULL : publish->folder;
}

void publish_stop(struct publish *publish, void (*on_stopped)(void *context), void *context)
{
    if (publish == NULL) {
        on_stopped(context);
        return;
    }
    publish->on_stopped = on_stopped;
    publish->stopped_context = context;
    uv_mutex_lock(&publish->mutex);
    publish->is_stopping = true;
    uv_cond_signal(&publish->wake);
    uv_mutex_unlock(&publish->mutex);
    if (publish->is_off)
        uv_async_send(&publish->ended);
}
