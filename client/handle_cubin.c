/* Code: asked from the daemon once per question and news, kept by content until tune_close. Which
 * question has which code is kept for so many questions as programs ask in turns. See handle.h. */
#include "handle.h"
#include "answer.h"
#include "proto.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#define BUCKETS 256u
#define BUCKET_ENTRIES 16 /* past these the one that was added first goes */

struct blob {
    struct blob *next;
    uint64_t hash;
    size_t length;
    char bytes[]; /* and a NUL: PTX is text */
};

struct entry {
    struct entry *next;
    uint64_t tag;
    struct tune_cubin cubin;
    struct handle_key key;
    struct tune_answer *answer; /* of its length only */
};

struct cubin_store {
    struct entry *entries[BUCKETS];
    struct blob *blobs;
};

static size_t answer_bytes(const struct tune_answer *answer)
{
    return offsetof(struct tune_answer, words) + ((size_t)answer->length + 7) / 8 * 8;
}

/* --- the store; its lock is held ----------------------------------------------------------------
 */

/* Same bytes, same address: launchers know by it that nothing changed. Takes `bytes`. */
static const struct blob *keep_blob(struct cubin_store *store, char *bytes, size_t length)
{
    uint64_t hash = XXH3_64bits(bytes, length);
    for (struct blob *blob = store->blobs; blob != NULL; blob = blob->next)
        if (blob->hash == hash && blob->length == length &&
            memcmp(blob->bytes, bytes, length) == 0) {
            free(bytes);
            return blob;
        }
    struct blob *blob = malloc(sizeof *blob + length + 1);
    if (blob != NULL) {
        *blob = (struct blob){store->blobs, hash, length};
        memcpy(blob->bytes, bytes, length);
        blob->bytes[length] = '\0';
        store->blobs = blob;
    }
    free(bytes);
    return blob;
}

static struct entry *find_entry(const struct cubin_store *store, const struct handle_key *key)
{
    struct entry *entry = store->entries[key->hash % BUCKETS];
    while (entry != NULL && (entry->key.length != key->length ||
                                memcmp(entry->key.words, key->words, key->length) != 0))
        entry = entry->next;
    return entry;
}

static void free_entry(struct entry *entry)
{
    free(entry->answer);
    free(entry);
}

/* Newest first. */
static void drop_oldest(struct entry **here)
{
    for (int i = 0; i < BUCKET_ENTRIES && *here != NULL; i++)
        here = &(*here)->next;
    if (*here != NULL)
        free_entry(*here);
    *here = NULL;
}

static struct entry *add_entry(struct cubin_store *store, const struct handle_key *key)
{
    struct entry *entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return NULL;
    entry->key.hash = key->hash;
    entry->key.length = key->length;
    memcpy(entry->key.words, key->words, key->length);
    entry->next = store->entries[key->hash % BUCKETS];
    store->entries[key->hash % BUCKETS] = entry;
    drop_oldest(&store->entries[key->hash % BUCKETS]);
    return entry;
}

/* Best effort: without memory it is asked again. */
static void keep_entry(struct cubin_store *store, const struct handle_key *key, uint64_t tag,
    const struct tune_answer *answer, const struct tune_cubin *cubin)
{
    struct entry *entry = key->length > 0 ? find_entry(store, key) : NULL;
    struct tune_answer *copy = malloc(answer_bytes(answer));
    if (entry == NULL && key->length > 0)
        entry = add_entry(store, key);
    if (entry == NULL || copy == NULL) {
        free(copy);
        return;
    }
    memcpy(copy, answer, answer_bytes(answer));
    free(entry->answer);
    entry->answer = copy;
    entry->cubin = *cubin;
    entry->tag = tag;
}

void handle_cubins_finish(struct tune *tune)
{
    struct cubin_store *store = tune->cubins;
    if (store == NULL)
        return;
    for (unsigned i = 0; i < BUCKETS; i++)
        while (store->entries[i] != NULL) {
            struct entry *entry = store->entries[i];
            store->entries[i] = entry->next;
            free_entry(entry);
        }
    while (store->blobs != NULL) {
        struct blob *blob = store->blobs;
        store->blobs = blob->next;
        free(blob);
    }
    free(store);
}

/* Whether the code is known; *is_fresh: and nothing was published since. */
static bool recall(struct tune *tune, const struct handle_key *key, uint64_t tag,
    struct tune_answer *answer, struct tune_cubin *cubin, bool *is_fresh)
{
    pthread_mutex_lock(&tune->cubin_lock);
    const struct entry *entry =
        tune->cubins && key->length > 0 ? find_entry(tune->cubins, key) : NULL;
    bool is_known = entry != NULL && entry->answer != NULL;
    if (is_known) {
        memcpy(answer, entry->answer, answer_bytes(entry->answer));
        *cubin = entry->cubin;
        *is_fresh = handle_is_fresh(entry->tag, tag);
    }
    pthread_mutex_unlock(&tune->cubin_lock);
    return is_known;
}

static int remember(struct tune *tune, const struct handle_key *key, uint64_t tag,
    const struct tune_answer *answer, char *bytes, struct tune_cubin *cubin, struct tune_error *err)
{
    pthread_mutex_lock(&tune->cubin_lock);
    if (tune->cubins == NULL)
        tune->cubins = calloc(1, sizeof *tune->cubins);
    const struct blob *blob = tune->cubins ? keep_blob(tune->cubins, bytes, cubin->length) : NULL;
    if (blob != NULL) {
        cubin->bytes = blob->bytes;
        keep_entry(tune->cubins, key, tag, answer, cubin);
    }
    pthread_mutex_unlock(&tune->cubin_lock);
    return blob ? 0 : tune_fail(err, TUNE_ENOMEM, "no memory for a cubin");
}

/* --- reading the reply ------------------------------------------------------------------------ */

/* An entry that is a name expression is found in the image under the compiler's name for it. */
static void lower_entries(json_t *json)
{
    size_t i;
    json_t *launch;
    const json_t *names = json_object_get(json, "names");
    json_array_foreach (json_object_get(json, "launches"), i, launch) {
        const char *entry = json_string_value(json_object_get(launch, "entry"));
        json_t *lowered = entry ? json_object_get(names, entry) : NULL;
        if (json_is_string(lowered))
            json_object_set(launch, "entry", lowered);
    }
}

/* "13.0" -> 13000, as the driver tells its version; 0: not said. */
static int driver_number(const char *text)
{
    int major = 0, minor = 0;
    if (text != NULL && sscanf(text, "%d.%d", &major, &minor) >= 1)
        return 1000 * major + 10 * minor;
    return 0;
}

/* The image, malloc'ed, and what is told of it. */
static char *read_image(
    json_t *json, struct tune_answer *answer, struct tune_cubin *cubin, struct tune_error *err)
{
    const char *text, *min_driver = NULL;
    struct tune_answer_info info;
    lower_entries(json);
    if (answer_from_json(json, answer, err) || proto_string(json, "cubin", &text, err) ||
        proto_string_opt(json, "min_driver", &min_driver, err))
        return NULL;
    tune_answer_info(answer, &info);
    *cubin = (struct tune_cubin){.sm = info.sm,
        .is_ptx = json_is_true(json_object_get(json, "via_ptx")),
        .min_driver = driver_number(min_driver)};
    return proto_base64_decode(text, &cubin->length, err);
}

int tune_get_cubin(struct tune *tune, const struct tune_query *query, struct tune_answer *answer,
    struct tune_cubin *cubin, struct tune_error *err)
{
    struct handle_key key;
    struct tune_error why = {0};
    bool is_fresh = false;
    json_t *json = NULL;
    if (handle_key_make(query, &key, err) || handle_check_owner(tune, err))
        return -1;
    uint64_t tag = handle_tag(tune);
    bool is_known = recall(tune, &key, tag, answer, cubin, &is_fresh);
    if (is_fresh)
        return 0;
    enum asked asked = handle_ask(tune, query, true, !is_known, &json, &why);
    if (is_known && (asked == ASKED_NOBODY || why.code == TUNE_ETIMEOUT))
        return 0;
    if (asked == ASKED_NOBODY)
        return tune_fail(err, TUNE_ENODAEMON,
            "no code for %.64s: libtune does not compile, and no daemon gives it (%.100s); start "
            "one: tunerd",
            query->kernel, why.text);
    char *bytes = asked == ASKED_OK ? read_image(json, answer, cubin, &why) : NULL;
    json_decref(json);
    if (bytes == NULL)
        return tune_fail(err, why.code, "%s", why.text);
    return remember(
        tune, &key, query->session != NULL ? TAG_ALWAYS : tag, answer, bytes, cubin, err);
}
