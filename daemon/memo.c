/* See memo.h. */
#include "daemon/memo.h"

#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MEMO_PLACES ((size_t)1 << 17)

struct entry {
    uint64_t hash, version;
    size_t question_length, answer_length;
    char bytes[]; /* question, answer */
};

struct memo {
    size_t limit_bytes, bytes;
    uint64_t hits;
    size_t hand; /* the place that gives way next */
    struct entry *places[MEMO_PLACES];
};

struct memo *memo_create(size_t limit_bytes)
{
    struct memo *memo = xcalloc(1, sizeof *memo);
    memo->limit_bytes = limit_bytes;
    return memo;
}

static size_t entry_bytes(size_t question_length, size_t answer_length)
{
    return sizeof(struct entry) + question_length + answer_length;
}

static void drop(struct memo *memo, struct entry **place)
{
    if (*place == NULL)
        return;
    memo->bytes -= entry_bytes((*place)->question_length, (*place)->answer_length);
    free(*place);
    *place = NULL;
}

void memo_destroy(struct memo *memo)
{
    for (size_t i = 0; memo != NULL && memo->bytes > 0; i++)
        drop(memo, &memo->places[i]);
    free(memo);
}

const char *memo_get(struct memo *memo, uint64_t version, const char *question,
    size_t question_length, size_t *answer_length)
{
    uint64_t hash = XXH3_64bits(question, question_length);
    const struct entry *entry = memo->places[hash % MEMO_PLACES];
    if (entry == NULL || entry->version != version || entry->hash != hash ||
        entry->question_length != question_length ||
        memcmp(entry->bytes, question, question_length) != 0)
        return NULL;
    *answer_length = entry->answer_length;
    memo->hits++;
    return entry->bytes + question_length;
}

static void make_room(struct memo *memo, size_t need)
{
    while (memo->bytes > 0 && memo->bytes + need > memo->limit_bytes) {
        drop(memo, &memo->places[memo->hand]);
        memo->hand = (memo->hand + 1) % MEMO_PLACES;
    }
}

void memo_put(struct memo *memo, uint64_t version, const char *question, size_t question_length,
    const char *answer, size_t answer_length)
{
    size_t need = entry_bytes(question_length, answer_length);
    if (need > memo->limit_bytes)
        return;
    uint64_t hash = XXH3_64bits(question, question_length);
    struct entry **place = &memo->places[hash % MEMO_PLACES];
    drop(memo, place);
    make_room(memo, need);
    struct entry *entry = xmalloc(need);
    entry->hash = hash;
    entry->version = version;
    entry->question_length = question_length;
    entry->answer_length = answer_length;
    memcpy(entry->bytes, question, question_length);
    memcpy(entry->bytes + question_length, answer, answer_length);
    memo->bytes += need;
    *place = entry;
}

uint64_t memo_hits(const struct memo *memo)
{
    return memo->hits;
}

size_t memo_bytes(const struct memo *memo)
{
    return memo->bytes;
}
