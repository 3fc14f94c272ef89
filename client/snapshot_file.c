/* A snapshot's file: opening, lookup, walking. See snapshot_form.h. */
#include "client/snapshot_form.h"

#include "client/answer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#define POPULATE_MAX_BYTES ((size_t)512 << 20)
#define PREFETCH_BYTES 1024 /* of an entry: what a typical one takes */

const char snapshot_file_magic[8] = "TUNESNAP";

/* --- opening ---------------------------------------------------------------------------------- */

static bool has_sound_head(const struct file_head *head, uint64_t file_bytes)
{
    return memcmp(head->magic, snapshot_file_magic, sizeof head->magic) == 0 &&
           head->head_sum == XXH3_64bits(head, offsetof(struct file_head, head_sum)) &&
           head->file_bytes == file_bytes && head->table % sizeof(uint64_t) == 0 &&
           head->table >= sizeof *head && head->table < file_bytes && head->slots > 0 &&
           (head->slots & (head->slots - 1)) == 0 &&
           head->slots == (file_bytes - head->table) / sizeof(struct file_slot) &&
           (file_bytes - head->table) % sizeof(struct file_slot) == 0;
}

/* In the page cache, where the daemon's writing left it, this takes 25 ms/GB and saves lookups a
 * page fault each. A file too large for that is left to the faults. */
static void populate(const void *bytes, size_t count)
{
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif
    if (count <= POPULATE_MAX_BYTES)
        madvise((void *)(uintptr_t)bytes, count, MADV_POPULATE_READ);
}

void snapshot_file_release(struct snapshot_file *mapping)
{
    if (mapping == NULL || --mapping->references > 0)
        return;
    munmap((void *)(uintptr_t)mapping->bytes, mapping->head->file_bytes);
    free(mapping);
}

static int map_bytes(
    int fd, size_t count, const char *name, const uint8_t **bytes, struct tune_error *err)
{
    if (count < sizeof(struct file_head) + sizeof(struct file_slot))
        return tune_fail(err, TUNE_EDAMAGED, "%s is cut short", name);
    void *map = mmap(NULL, count, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return tune_fail_errno(err, TUNE_EIO, "cannot map %s", name);
    *bytes = map;
    return 0;
}

static int check_file(
    const uint8_t *bytes, size_t count, const char *name, enum depth depth, struct tune_error *err)
{
    const struct file_head *head = (const struct file_head *)bytes;
    if (!has_sound_head(head, count))
        return tune_fail(err, TUNE_EDAMAGED, "%s is damaged", name);
    if (head->version != SNAPSHOT_VERSION)
        return tune_fail(err, TUNE_EVERSION, "%s is of version %u, this program reads %d", name,
            head->version, SNAPSHOT_VERSION);
    if (depth >= DEPTH_LOOKUPS)
        populate(bytes, count);
    if (depth == DEPTH_WHOLE &&
        head->content_sum != XXH3_64bits(bytes + sizeof *head, count - sizeof *head))
        return tune_fail(err, TUNE_EDAMAGED, "%s is damaged", name);
    return 0;
}

struct snapshot_file *snapshot_file_open(
    int folder_fd, const char *name, enum depth depth, struct tune_error *err)
{
    struct stat status;
    const uint8_t *bytes = NULL;
    int fd = snapshot_open_file(folder_fd, name, O_RDONLY, &status, err);
    if (fd < 0)
        return NULL;
    size_t count = (size_t)status.st_size;
    int result = map_bytes(fd, count, name, &bytes, err);
    close(fd);
    if (result != 0)
        return NULL;
    struct snapshot_file *mapping = NULL;
    if (check_file(bytes, count, name, depth, err) == 0) {
        mapping = malloc(sizeof *mapping);
        if (mapping == NULL)
            tune_fail(err, TUNE_ENOMEM, "no memory to open %s", name);
    }
    if (mapping == NULL) {
        munmap((void *)(uintptr_t)bytes, count);
        return NULL;
    }
    const struct file_head *head = (const struct file_head *)bytes;
    *mapping = (struct snapshot_file){.device = status.st_dev,
        .inode = status.st_ino,
        .references = 1,
        .bytes = bytes,
        .head = head,
        .slots = (const struct file_slot *)(bytes + head->table)};
    snprintf(mapping->name, sizeof mapping->name, "%s", name);
    return mapping;
}

/* --- lookup in one file ----------------------------------------------------------------------- */

/* Entries lie scattered in memory: their lines are asked for together. */
static void prefetch_entry(const struct file_entry *entry)
{
    for (size_t at = 0; at < PREFETCH_BYTES; at += CACHE_LINE)
        __builtin_prefetch((const uint8_t *)entry + at);
}

/* The entry at `offset`, or NULL where it does not lie inside the file. */
static const struct file_entry *entry_at(const struct snapshot_file *mapping, uint64_t offset)
{
    const struct file_entry *entry;
    uint64_t end = mapping->head->table;
    if (offset % sizeof(uint64_t) != 0 || offset < sizeof(struct file_head) ||
        offset > end - sizeof *entry)
        return NULL;
    entry = (const struct file_entry *)(mapping->bytes + offset);
    prefetch_entry(entry);
    if (entry->key_length > end - offset - sizeof *entry || entry->value_length > end ||
        entry->value > end - entry->value_length)
        return NULL;
    return entry;
}

static enum found take_value(const struct snapshot_file *mapping, const struct file_entry *entry,
    uint64_t hash, struct tune_answer *answer)
{
    const uint8_t *value = mapping->bytes + entry->value;
    if (entry->sum != XXH3_64bits(value, entry->value_length) + hash)
        return FOUND_DAMAGED;
    if (entry->value_length == 0)
        return FOUND_ASK;
    return answer_from_bytes(value, entry->value_length, answer, NULL) == 0 ? FOUND : FOUND_DAMAGED;
}

void snapshot_file_prefetch(const struct snapshot_file *mapping, uint64_t hash)
{
    if (mapping != NULL)
        __builtin_prefetch(&mapping->slots[hash & (mapping->head->slots - 1)]);
}

enum found snapshot_file_find(const struct snapshot_file *mapping, const char *key,
    size_t key_length, uint64_t hash, struct tune_answer *answer)
{
    uint64_t mask = mapping->head->slots - 1;
    for (uint64_t i = 0; i <= mapping->head->probe_max; i++) {
        const struct file_slot *slot = &mapping->slots[(hash + i) & mask];
        if (slot->offset == 0)
            return FOUND_NOT;
        if (slot->hash != hash)
            continue;
        const struct file_entry *entry = entry_at(mapping, slot->offset);
        if (entry == NULL)
            return FOUND_DAMAGED;
        if (entry->key_length == key_length && memcmp(entry + 1, key, key_length) == 0)
            return take_value(mapping, entry, hash, answer);
    }
    return FOUND_NOT;
}

/* --- walking ---------------------------------------------------------------------------------- */

static int walk_slots(const struct snapshot_file *mapping,
    int (*on_entry)(
        const char *key, size_t key_length, const struct tune_answer *answer, void *context),
    void *context, struct tune_error *err)
{
    struct tune_answer answer;
    for (uint64_t i = 0; i < mapping->head->slots; i++) {
        const struct file_slot *slot = &mapping->slots[i];
        if (slot->offset == 0)
            continue;
        const struct file_entry *entry = entry_at(mapping, slot->offset);
        enum found found =
            entry == NULL ? FOUND_DAMAGED : take_value(mapping, entry, slot->hash, &answer);
        if (found == FOUND_DAMAGED)
            return tune_fail(err, TUNE_EDAMAGED, "%s is damaged", mapping->name);
        if (on_entry((const char *)(entry + 1), entry->key_length,
                found == FOUND_ASK ? NULL : &answer, context) != 0)
            break;
    }
    return 0;
}

int snapshot_walk(const char *folder, const char *name,
    int (*on_entry)(
        const char *key, size_t key_length, const struct tune_answer *answer, void *context),
    void *context, uint64_t *entries, struct tune_error *err)
{
    int folder_fd = snapshot_open_folder(folder, err);
    if (folder_fd < 0)
        return -1;
    struct snapshot_file *mapping =
        snapshot_file_open(folder_fd, name, on_entry == NULL ? DEPTH_HEAD : DEPTH_WHOLE, err);
    close(folder_fd);
    if (mapping == NULL)
        return -1;
    if (entries != NULL)
        *entries = mapping->head->entries;
    int status = on_entry == NULL ? 0 : walk_slots(mapping, on_entry, context, err);
    snapshot_file_release(mapping);
    return status;
}
