/* See nearest.h. */
#include "daemon/nearest.h"

#include "daemon/xmalloc.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define NO_TEXT UINT32_MAX
#define LEAST_DISTANCE 0.25 /* what a served one's counts as when similar ones are looked for */
#define SIMILAR_FACTOR 4
#define PAIRS_MAX (NEAREST_SHAPES * NEAREST_SHAPES)
#define PAIRS_COUNTED 8

/* --- texts, each once ------------------------------------------------------------------------- */

struct texts {
    char **texts;
    size_t count, room;
    uint32_t *places; /* open addressing, of a power of two, at most half full */
    size_t place_count;
};

static size_t find_place(const struct texts *texts, const char *text)
{
    size_t mask = texts->place_count - 1;
    size_t place = XXH3_64bits(text, strlen(text)) & mask;
    while (texts->places[place] != NO_TEXT && strcmp(texts->texts[texts->places[place]], text) != 0)
        place = (place + 1) & mask;
    return place;
}

/* The number of a text, or NO_TEXT. */
static uint32_t find_text(const struct texts *texts, const char *text)
{
    return texts->place_count == 0 ? NO_TEXT : texts->places[find_place(texts, text)];
}

static void grow_places(struct texts *texts)
{
    texts->place_count = texts->place_count ? 2 * texts->place_count : 64;
    texts->places = xrealloc(texts->places, texts->place_count * sizeof *texts->places);
    memset(texts->places, 0xff, texts->place_count * sizeof *texts->places);
    for (size_t i = 0; i < texts->count; i++)
        texts->places[find_place(texts, texts->texts[i])] = (uint32_t)i;
}

static uint32_t add_text(struct texts *texts, const char *text)
{
    uint32_t found = find_text(texts, text);
    if (found != NO_TEXT)
        return found;
    if (2 * (texts->count + 1) > texts->place_count)
        grow_places(texts);
    if (texts->count == texts->room) {
        texts->room = texts->room ? 2 * texts->room : 64;
        texts->texts = xrealloc(texts->texts, texts->room * sizeof *texts->texts);
    }
    texts->texts[texts->count] = xstrdup(text);
    texts->places[find_place(texts, text)] = (uint32_t)texts->count;
    return (uint32_t)texts->count++;
}

static void texts_finish(struct texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        free(texts->texts[i]);
    free(texts->texts);
    free(texts->places);
    *texts = (struct texts){0};
}

/* --- tables ----------------------------------------------------------------------------------- */

struct median {
    uint32_t config;
    bool is_confirmed;
    double median_ns;
};

/* A best row. Texts by number. */
struct row {
    uint32_t config, arch, gpu, dtype, mode, fingerprint, nvrtc, method;
    uint32_t sms;
    int sm; /* of the arch; 0: the emulated device */
    bool is_confirmed, is_shipped, is_own, has_medians;
    double median_ns, default_ns; /* default_ns 0: not known */
    /* Of the configurations that are the best of some shape, as far as measured at this one. */
    struct median *medians;
    size_t median_count;
};

struct table {
    struct table *next;
    char *kernel;
    pthread_mutex_t lock; /* over all that follows */
    bool is_loaded;
    char fingerprint[33]; /* of the plugin whose dims it is made for */
    uint64_t generation;  /* up to which changes are in it */
    size_t dim_count, log_count;
    struct texts texts;
    struct row *rows;
    int64_t *dims; /* dim_count for each row */
    double *logs;  /* log_count for each row: manifest_shape_logs */
    size_t count, room;
};

struct nearest {
    struct tuning_db *db;
    pthread_mutex_t lock; /* over the list; tables live as long as this */
    struct table *tables;
};

struct nearest *nearest_create(struct tuning_db *db)
{
    struct nearest *nearest = xcalloc(1, sizeof *nearest);
    nearest->db = db;
    pthread_mutex_init(&nearest->lock, NULL);
    return nearest;
}

static void forget_medians(struct table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        free(table->rows[i].medians);
        table->rows[i].medians = NULL;
        table->rows[i].median_count = 0;
        table->rows[i].has_medians = false;
    }
}

static void empty_table(struct table *table)
{
    forget_medians(table);
    texts_finish(&table->texts);
    free(table->rows);
    free(table->dims);
    free(table->logs);
    table->rows = NULL;
    table->dims = NULL;
    table->logs = NULL;
    table->count = table->room = 0;
    table->is_loaded = false;
}

void nearest_destroy(struct nearest *nearest)
{
    if (nearest == NULL)
        return;
    while (nearest->tables != NULL) {
        struct table *table = nearest->tables;
        nearest->tables = table->next;
        empty_table(table);
        pthread_mutex_destroy(&table->lock);
        free(table->kernel);
        free(table);
    }
    pthread_mutex_destroy(&nearest->lock);
    free(nearest);
}

static struct table *find_table(struct nearest *nearest, const char *kernel)
{
    pthread_mutex_lock(&nearest->lock);
    struct table *table = nearest->tables;
    while (table != NULL && strcmp(table->kernel, kernel) != 0)
        table = table->next;
    if (table == NULL) {
        table = xcalloc(1, sizeof *table);
        table->kernel = xstrdup(kernel);
        pthread_mutex_init(&table->lock, NULL);
        table->next = nearest->tables;
        nearest->tables = table;
    }
    pthread_mutex_unlock(&nearest->lock);
    return table;
}

/* --- filling ---------------------------------------------------------------------------------- */

struct filling {
    struct table *table;
    const struct manifest *manifest;
};

static void make_room(struct table *table)
{
    if (table->count < table->room)
        return;
    table->room = table->room ? 2 * table->room : 16;
    table->rows = xrealloc(table->rows, table->room * sizeof *table->rows);
    table->dims = xrealloc(table->dims, table->room * table->dim_count * sizeof *table->dims);
    table->logs = xrealloc(table->logs, (table->room * table->log_count + 1) * sizeof *table->logs);
}

static int sm_of(const char *arch)
{
    return strncmp(arch, "sm_", 3) == 0 ? atoi(arch + 3) : 0;
}

/* Rows whose shape is none of today's manifest are left out. */
static int add_row(const struct best *best, void *context)
{
    const struct filling *filling = context;
    struct table *table = filling->table;
    int64_t dims[MANIFEST_MAX_DIMS];
    if (manifest_shape_from_text(filling->manifest, best->key.shape, dims))
        return 0;
    make_room(table);
    struct texts *texts = &table->texts;
    table->rows[table->count] = (struct row){
        .config = add_text(texts, best->config),
        .arch = add_text(texts, best->key.arch),
        .gpu = add_text(texts, best->gpu_name),
        .dtype = add_text(texts, best->key.dtype),
        .mode = add_text(texts, best->key.mode),
        .fingerprint = add_text(texts, best->key.fingerprint),
        .nvrtc = add_text(texts, best->nvrtc),
        .method = add_text(texts, best->method),
        .sms = best->sms,
        .sm = sm_of(best->key.arch),
        .is_confirmed = best->is_confirmed,
        .is_shipped = best->is_shipped,
        .is_own = method_is_own(best->method),
        .median_ns = best->median_ns,
        .default_ns = best->default_median_ns,
    };
    memcpy(&table->dims[table->count * table->dim_count], dims, table->dim_count * sizeof *dims);
    manifest_shape_logs(filling->manifest, dims, &table->logs[table->count * table->log_count]);
    table->count++;
    return 0;
}

static int fill(struct nearest *nearest, struct table *table, const struct plugin *plugin,
    struct tune_error *err)
{
    struct filling filling = {table, plugin->manifest};
    empty_table(table);
    snprintf(table->fingerprint, sizeof table->fingerprint, "%s", plugin->fingerprint);
    double logs[MANIFEST_MAX_DIMS];
    table->dim_count = plugin->manifest->dim_count;
    table->log_count = manifest_shape_logs(plugin->manifest, plugin->manifest->shapes[0], logs);
    table->generation = tuning_db_generation(nearest->db);
    if (tuning_db_walk_best(nearest->db, table->kernel, add_row, &filling, err))
        return -1;
    table->is_loaded = true;
    return 0;
}

/* --- changes ---------------------------------------------------------------------------------- */

struct changed {
    const char *kernel;
    struct record_key *keys; /* with texts of their own */
    size_t count;
};

static void note_change(const struct record_key *key, void *context)
{
    struct changed *changed = context;
    if (strcmp(key->kernel, changed->kernel) != 0)
        return;
    for (size_t i = 0; i < changed->count; i++)
        if (record_key_equal(&changed->keys[i], key))
            return;
    changed->keys = xrealloc(changed->keys, (changed->count + 1) * sizeof *changed->keys);
    changed->keys[changed->count++] = (struct record_key){
        .kernel = changed->kernel,
        .fingerprint = xstrdup(key->fingerprint),
        .shape = xstrdup(key->shape),
        .dtype = xstrdup(key->dtype),
        .arch = xstrdup(key->arch),
        .mode = xstrdup(key->mode),
    };
}

static void changed_finish(struct changed *changed)
{
    for (size_t i = 0; i < changed->count; i++) {
        const struct record_key *key = &changed->keys[i];
        const char *texts[] = {key->fingerprint, key->shape, key->dtype, key->arch, key->mode};
        for (size_t j = 0; j < sizeof texts / sizeof texts[0]; j++)
            free((char *)(uintptr_t)texts[j]);
    }
    free(changed->keys);
}

static void remove_row(struct table *table, size_t row)
{
    size_t last = --table->count, dims = table->dim_count, logs = table->log_count;
    free(table->rows[row].medians);
    table->rows[row] = table->rows[last];
    memmove(&table->dims[row * dims], &table->dims[last * dims], dims * sizeof *table->dims);
    memmove(&table->logs[row * logs], &table->logs[last * logs], logs * sizeof *table->logs);
}

static void remove_rows(
    struct table *table, const struct record_key *key, const struct manifest *manifest)
{
    int64_t dims[MANIFEST_MAX_DIMS];
    const struct texts *texts = &table->texts;
    uint32_t arch = find_text(texts, key->arch), dtype = find_text(texts, key->dtype),
             mode = find_text(texts, key->mode), fingerprint = find_text(texts, key->fingerprint);
    if (manifest_shape_from_text(manifest, key->shape, dims))
        return;
    for (size_t i = table->count; i-- > 0;) {
        const struct row *row = &table->rows[i];
        if (row->arch == arch && row->dtype == dtype && row->mode == mode &&
            row->fingerprint == fingerprint &&
            memcmp(&table->dims[i * table->dim_count], dims, table->dim_count * sizeof *dims) == 0)
            remove_row(table, i);
    }
}

/* What is looked up next is at least as new as the database was at the call. */
static int bring_up_to_date(struct nearest *nearest, struct table *table,
    const struct plugin *plugin, struct tune_error *err)
{
    struct filling filling = {table, plugin->manifest};
    struct changed changed = {.kernel = table->kernel};
    uint64_t now = 0;
    if (!table->is_loaded || strcmp(table->fingerprint, plugin->fingerprint) != 0)
        return fill(nearest, table, plugin, err);
    if (tuning_db_generation(nearest->db) == table->generation)
        return 0;
    int status = 0;
    if (tuning_db_changes(nearest->db, table->generation, note_change, &changed, &now) != 0) {
        status = fill(nearest, table, plugin, err);
    } else {
        table->generation = now;
        if (changed.count > 0)
            forget_medians(table);
        for (size_t i = 0; status == 0 && i < changed.count; i++) {
            remove_rows(table, &changed.keys[i], plugin->manifest);
            status = tuning_db_walk_best_of(nearest->db, &changed.keys[i], add_row, &filling, err);
        }
        table->is_loaded = status == 0;
    }
    changed_finish(&changed);
    return status;
}

bool nearest_same_sms(uint32_t sms, const struct device_info *device)
{
    bool is_known = sms != 0 && device->uuid[0] != '\0';
    return !is_known || (int64_t)sms == device->attributes[DEVICE_sms];
}

/* --- searching -------------------------------------------------------------------------------- */

/* The question as numbers of the table. */
struct look {
    const struct table *table;
    const struct nearest_question *question;
    uint32_t arch, gpu, dtype, mode, fingerprint;
    int sm;
    double logs[MANIFEST_MAX_DIMS];
    uint8_t *verdicts; /* of is_valid by configuration: 0 not asked, 1 yes, 2 no */
};

/* How well a row serves; compared field by field, lower is better. */
struct fit {
    int level; /* 0 same model, 1 same arch, 2 another arch */
    double distance;
    int arch_distance;
};

static void look_init(
    struct look *look, const struct table *table, const struct nearest_question *question)
{
    const struct texts *texts = &table->texts;
    *look = (struct look){
        .table = table,
        .question = question,
        .arch = find_text(texts, question->device->arch),
        .gpu = find_text(texts, question->device->name),
        .dtype = find_text(texts, question->dtype),
        .mode = find_text(texts, question->mode),
        .fingerprint = find_text(texts, question->plugin->fingerprint),
        .sm = sm_of(question->device->arch),
    };
    manifest_shape_logs(question->plugin->manifest, question->dims, look->logs);
}

/* A row of the same problem: what of its shape is a choice is as asked. */
static bool is_alike(const struct look *look, size_t index)
{
    const struct table *table = look->table;
    const struct row *row = &table->rows[index];
    return row->dtype == look->dtype && row->mode == look->mode &&
           manifest_same_choices(look->question->plugin->manifest, look->question->dims,
               &table->dims[index * table->dim_count]);
}

static bool may_serve(const struct look *look, size_t index)
{
    return (look->table->rows[index].sm == 0) == (look->sm == 0) && is_alike(look, index);
}

static double row_distance(const struct look *look, size_t row)
{
    const struct table *table = look->table;
    return manifest_log_distance(
        table->log_count, look->logs, &table->logs[row * table->log_count]);
}

static bool is_same_model(const struct look *look, const struct row *row)
{
    return row->gpu == look->gpu && nearest_same_sms(row->sms, look->question->device);
}

static struct fit fit_of(const struct look *look, size_t index)
{
    const struct row *row = &look->table->rows[index];
    bool same_arch = row->arch == look->arch;
    return (struct fit){
        .level = !same_arch                 ? 2
                 : is_same_model(look, row) ? 0
                                            : 1,
        .distance = row_distance(look, index),
        .arch_distance = abs(row->sm - look->sm),
    };
}

/* Of two rows with equal fit: a total order over what tells best rows apart. */
static int compare_equals(const struct look *look, size_t left, size_t right)
{
    const struct table *table = look->table;
    const struct row *a = &table->rows[left], *b = &table->rows[right];
    char *const *texts = table->texts.texts;
    bool a_is_today = a->fingerprint == look->fingerprint;
    bool b_is_today = b->fingerprint == look->fingerprint;
    if (a_is_today != b_is_today)
        return a_is_today ? -1 : 1;
    if (a->is_confirmed != b->is_confirmed)
        return a->is_confirmed ? -1 : 1;
    for (size_t i = 0; i < table->dim_count; i++) {
        int64_t x = table->dims[left * table->dim_count + i];
        int64_t y = table->dims[right * table->dim_count + i];
        if (x != y)
            return x < y ? -1 : 1;
    }
    int order = strcmp(texts[a->arch], texts[b->arch]);
    if (order == 0)
        order = strcmp(texts[a->gpu], texts[b->gpu]);
    if (order == 0)
        order = (a->sms > b->sms) - (a->sms < b->sms);
    return order != 0 ? order : strcmp(texts[a->fingerprint], texts[b->fingerprint]);
}

static bool is_better(const struct look *look, const struct fit *fit, size_t row,
    const struct fit *than, size_t other)
{
    if (fit->level != than->level)
        return fit->level < than->level;
    if (fit->distance != than->distance)
        return fit->distance < than->distance;
    if (fit->arch_distance != than->arch_distance)
        return fit->arch_distance < than->arch_distance;
    return compare_equals(look, row, other) < 0;
}

static bool is_valid(struct look *look, uint32_t config)
{
    if (look->verdicts[config] == 0) {
        const char *text = look->table->texts.texts[config];
        look->verdicts[config] = look->question->is_valid(text, look->question->context) ? 1 : 2;
    }
    return look->verdicts[config] == 1;
}

/* SIZE_MAX: none. */
static size_t find_best(struct look *look, struct fit *best_fit)
{
    const struct table *table = look->table;
    size_t best = SIZE_MAX;
    look->verdicts = xcalloc(table->texts.count + 1, 1);
    for (size_t i = 0; i < table->count; i++) {
        if (!may_serve(look, i))
            continue;
        struct fit fit = fit_of(look, i);
        if ((best == SIZE_MAX || is_better(look, &fit, i, best_fit, best)) &&
            is_valid(look, table->rows[i].config)) {
            best = i;
            *best_fit = fit;
        }
    }
    free(look->verdicts);
    return best;
}

/* --- expected loss ---------------------------------------------------------------------------- */

/* The rows nearest to the asked shape, nearest first. `like` NULL: of the asked arch on any GPU and
 * of any fingerprint, with the default's time known. */
static size_t find_around(
    const struct look *look, const struct row *like, size_t around[NEAREST_SHAPES])
{
    const struct table *table = look->table;
    struct fit fits[NEAREST_SHAPES];
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct row *row = &table->rows[i];
        bool is_wanted = like == NULL
                             ? row->arch == look->arch && row->default_ns > 0
                             : row->arch == like->arch && row->gpu == like->gpu &&
                                   row->sms == like->sms && row->fingerprint == like->fingerprint;
        if (!is_wanted || !is_alike(look, i))
            continue;
        struct fit fit = fit_of(look, i);
        size_t at = count;
        while (at > 0 && is_better(look, &fit, i, &fits[at - 1], around[at - 1]))
            at--;
        if (at == NEAREST_SHAPES)
            continue;
        count += count < NEAREST_SHAPES;
        memmove(&around[at + 1], &around[at], (count - at - 1) * sizeof *around);
        memmove(&fits[at + 1], &fits[at], (count - at - 1) * sizeof *fits);
        around[at] = i;
        fits[at] = fit;
    }
    return count;
}

struct collecting {
    const struct table *table;
    struct row *row;
};

/* Of the measurements of one configuration the confirmed ones count, if there are, and the
 * fastest of them. */
static int collect_median(const struct sample *sample, void *context)
{
    struct collecting *collecting = context;
    char *const *texts = collecting->table->texts.texts;
    struct row *row = collecting->row;
    if (!sample_is_eligible(sample) || strcmp(sample->gpu_name, texts[row->gpu]) != 0 ||
        sample->sms != row->sms || strcmp(sample->method, texts[row->method]) != 0)
        return 0;
    uint32_t config = find_text(&collecting->table->texts, sample->config);
    if (config == NO_TEXT)
        return 0;
    size_t at = 0;
    while (at < row->median_count && row->medians[at].config != config)
        at++;
    struct median found = {config, sample->is_confirmed, sample->median_ns};
    if (at == row->median_count) {
        row->medians = xrealloc(row->medians, (at + 1) * sizeof *row->medians);
        row->median_count++;
    } else if (row->medians[at].is_confirmed > found.is_confirmed ||
               (row->medians[at].is_confirmed == found.is_confirmed &&
                   row->medians[at].median_ns <= found.median_ns)) {
        return 0;
    }
    row->medians[at] = found;
    return 0;
}

static int load_medians(struct nearest *nearest, struct table *table, size_t index,
    const struct manifest *manifest, struct tune_error *err)
{
    struct row *row = &table->rows[index];
    struct collecting collecting = {table, row};
    char *const *texts = table->texts.texts;
    if (row->has_medians)
        return 0;
    char *shape = manifest_shape_text(manifest, &table->dims[index * table->dim_count]);
    struct record_key key = {
        .kernel = table->kernel,
        .fingerprint = texts[row->fingerprint],
        .shape = shape,
        .dtype = texts[row->dtype],
        .arch = texts[row->arch],
        .mode = texts[row->mode],
    };
    int status = tuning_db_walk_samples(nearest->db, &key, collect_median, &collecting, err);
    free(shape);
    row->has_medians = status == 0;
    return status;
}

/* How much slower than the best a configuration was at a row's shape; below 0: not measured. */
static double loss_at(const struct row *row, uint32_t config)
{
    for (size_t i = 0; i < row->median_count; i++)
        if (row->medians[i].config == config)
            return fmax(0, row->medians[i].median_ns / row->median_ns - 1);
    return -1;
}

struct pair {
    double unlike; /* to the served one's distance, in doublings */
    double loss;
};

static int compare_unlike(const void *left, const void *right)
{
    const struct pair *a = left, *b = right;
    if (a->unlike != b->unlike)
        return a->unlike < b->unlike ? -1 : 1;
    return (a->loss > b->loss) - (a->loss < b->loss);
}

static int compare_numbers(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The upper one of an even number; below 0: none. */
static double median_of(double *numbers, size_t count)
{
    if (count == 0)
        return -1;
    qsort(numbers, count, sizeof *numbers, compare_numbers);
    return numbers[count / 2];
}

static size_t collect_pairs(const struct table *table, const size_t *around, size_t count,
    double served, struct pair pairs[PAIRS_MAX])
{
    size_t pair_count = 0;
    for (size_t t = 0; t < count; t++) {
        for (size_t u = 0; u < count; u++) {
            double loss = loss_at(&table->rows[around[t]], table->rows[around[u]].config);
            double distance =
                manifest_log_distance(table->log_count, &table->logs[around[t] * table->log_count],
                    &table->logs[around[u] * table->log_count]);
            double unlike = t == u ? INFINITY : fabs(log2(distance / served));
            if (loss >= 0 && unlike <= log2(SIMILAR_FACTOR))
                pairs[pair_count++] = (struct pair){unlike, loss};
        }
    }
    return pair_count;
}

static int find_loss(struct nearest *nearest, struct table *table, const struct look *look,
    size_t served, double distance, double *loss, struct tune_error *err)
{
    size_t around[NEAREST_SHAPES];
    size_t count = find_around(look, &table->rows[served], around);
    for (size_t i = 0; i < count; i++)
        if (load_medians(nearest, table, around[i], look->question->plugin->manifest, err))
            return -1;
    struct pair pairs[PAIRS_MAX];
    double losses[PAIRS_COUNTED];
    size_t pair_count = collect_pairs(table, around, count, fmax(distance, LEAST_DISTANCE), pairs);
    qsort(pairs, pair_count, sizeof *pairs, compare_unlike);
    pair_count = pair_count < PAIRS_COUNTED ? pair_count : PAIRS_COUNTED;
    for (size_t i = 0; i < pair_count; i++)
        losses[i] = pairs[i].loss;
    *loss = median_of(losses, pair_count);
    return 0;
}

/* --- public ----------------------------------------------------------------------------------- */

static void describe(const struct look *look, size_t index, struct neighbour *found)
{
    const struct table *table = look->table;
    const struct row *row = &table->rows[index];
    char *const *texts = table->texts.texts;
    *found = (struct neighbour){
        .same_arch = row->arch == look->arch,
        .same_name = row->gpu == look->gpu,
        .sms = row->sms,
        .same_fingerprint = row->fingerprint == look->fingerprint,
        .is_confirmed = row->is_confirmed,
        .is_shipped = row->is_shipped,
        .is_own = row->is_own,
        .median_ns = row->median_ns,
        .expected_loss = -1,
        .config = xstrdup(texts[row->config]),
        .shape = manifest_shape_text(
            look->question->plugin->manifest, &table->dims[index * table->dim_count]),
        .gpu = xstrdup(texts[row->gpu]),
        .arch = xstrdup(texts[row->arch]),
        .nvrtc = xstrdup(texts[row->nvrtc]),
    };
}

static int find_locked(struct nearest *nearest, struct table *table,
    const struct nearest_question *question, struct neighbour *found, struct tune_error *err)
{
    if (bring_up_to_date(nearest, table, question->plugin, err))
        return -1;
    struct look look;
    struct fit fit = {0};
    look_init(&look, table, question);
    size_t row = find_best(&look, &fit);
    if (row == SIZE_MAX)
        return 1;
    describe(&look, row, found);
    found->distance = fit.distance;
    if (found->same_arch &&
        find_loss(nearest, table, &look, row, fit.distance, &found->expected_loss, err)) {
        neighbour_finish(found);
        return -1;
    }
    return 0;
}

int nearest_find(struct nearest *nearest, const struct nearest_question *question,
    struct neighbour *found, struct tune_error *err)
{
    struct table *table = find_table(nearest, question->plugin->manifest->name);
    pthread_mutex_lock(&table->lock);
    int status = find_locked(nearest, table, question, found, err);
    pthread_mutex_unlock(&table->lock);
    return status;
}

void neighbour_finish(struct neighbour *neighbour)
{
    free(neighbour->config);
    free(neighbour->shape);
    free(neighbour->gpu);
    free(neighbour->arch);
    free(neighbour->nvrtc);
    *neighbour = (struct neighbour){0};
}

int nearest_default_loss(struct nearest *nearest, const struct nearest_question *question,
    double *loss, struct tune_error *err)
{
    struct table *table = find_table(nearest, question->plugin->manifest->name);
    pthread_mutex_lock(&table->lock);
    int status = bring_up_to_date(nearest, table, question->plugin, err);
    if (status == 0) {
        struct look look;
        size_t around[NEAREST_SHAPES];
        double losses[NEAREST_SHAPES];
        look_init(&look, table, question);
        size_t count = find_around(&look, NULL, around);
        for (size_t i = 0; i < count; i++) {
            const struct row *row = &table->rows[around[i]];
            losses[i] = fmax(0, row->default_ns / row->median_ns - 1);
        }
        *loss = median_of(losses, count);
    }
    pthread_mutex_unlock(&table->lock);
    return status;
}
