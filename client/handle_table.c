/* The handle's own table: what was asked before, at the cost of a hash and a copy. See handle.h.
 *
 * A set of WAYS slots by hash. A slot is a seqlock: its sequence is odd while it is written, and a
 * reader that saw it change throws away what it copied. So readers write nothing that others read,
 * and any number of threads may hit the same key. All of a slot is read and written as atomic words
 * (plain moves on x86-64): the acquire of each keeps the last look at the sequence behind them.
 *
 * The memory is mapped, touched only where it is used, and wiped in a forked child. A page's first
 * use costs several times what a lookup does: the heads of a set lie together, apart from what is
 * long, and the table is no larger than what one program asks for in turns (with 2,048 slots, heads
 * and all, 46 of 1,000 lookups of new keys met a fresh page; now 6 do). */
#include "handle.h"

#include <sys/mman.h>
#include <xxhash.h>

#define SETS 128u /* a power of two */
#define WAYS 4u
#define MAGIC UINT64_C(0x656c646e61686e74)

struct slot {
    _Atomic uint64_t sequence, hash, tag;
    _Atomic uint64_t lengths; /* key bytes << 33 | answer bytes << 1 | is_offline */
};

struct content {
    _Atomic uint64_t words[(KEY_BYTES + TUNE_ANSWER_BYTES) / 8]; /* key, then answer */
};

struct handle_table {
    _Atomic uint64_t magic; /* 0 in a forked child */
    _Atomic uint64_t turn;  /* of replacing */
    struct slot slots[SETS * WAYS];
    struct content contents[SETS * WAYS]; /* of the slot of the same number */
};

struct handle_table *handle_table_create(void)
{
    void *memory = mmap(NULL, sizeof(struct handle_table), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    struct handle_table *table = memory;
    madvise(memory, sizeof *table, MADV_WIPEONFORK);
    atomic_store(&table->magic, MAGIC);
    return table;
}

void handle_table_destroy(struct handle_table *table)
{
    if (table != NULL)
        munmap(table, sizeof *table);
}

bool handle_table_is_ours(const struct handle_table *table)
{
    return atomic_load_explicit(&table->magic, memory_order_relaxed) == MAGIC;
}

/* --- keys ------------------------------------------------------------------------------------- */

/* Appends a text with its NUL; false when it does not fit. Names are short: a loop is quicker than
 * measuring and copying. */
static bool add_text(char *bytes, size_t *used, const char *text)
{
    size_t at = *used;
    while (text != NULL && *text != '\0' && at < KEY_BYTES)
        bytes[at++] = *text++;
    if (at >= KEY_BYTES)
        return false;
    bytes[at++] = '\0';
    *used = at;
    return true;
}

static bool add_number(char *bytes, size_t *used, int64_t number)
{
    if (*used + sizeof number > KEY_BYTES)
        return false;
    memcpy(bytes + *used, &number, sizeof number);
    *used += sizeof number;
    return true;
}

static int check_query(const struct tune_query *query, struct tune_error *err)
{
    if (query->kernel == NULL || query->kernel[0] == '\0')
        return tune_fail(err, TUNE_EINVAL, "the query names no kernel");
    if (query->dim_count > QUERY_MAX_DIMS)
        return tune_fail(err, TUNE_EINVAL, "the query has %zu dims; a kernel has at most %d",
            query->dim_count, QUERY_MAX_DIMS);
    if ((unsigned)query->policy > TUNE_WAIT)
        return tune_fail(
            err, TUNE_EINVAL, "the query's policy is %d: no such policy", (int)query->policy);
    for (size_t i = 0; i < query->dim_count; i++)
        if (query->dims[i].name == NULL)
            return tune_fail(err, TUNE_EINVAL, "dim %zu of the query has no name", i);
    return 0;
}

int handle_key_make(const struct tune_query *query, struct handle_key *key, struct tune_error *err)
{
    if (check_query(query, err))
        return -1;
    char *bytes = (char *)key->words;
    size_t used = 0;
    bool fits = add_text(bytes, &used, query->kernel) && add_text(bytes, &used, query->dtype) &&
                add_text(bytes, &used, query->mode) && add_text(bytes, &used, query->arch) &&
                add_text(bytes, &used, query->gpu) && add_text(bytes, &used, query->session) &&
                add_number(bytes, &used, (int64_t)query->policy);
    for (size_t i = 0; fits && i < query->dim_count; i++)
        fits = add_text(bytes, &used, query->dims[i].name) &&
               add_number(bytes, &used, query->dims[i].value);
    while (fits && used % 8 != 0)
        bytes[used++] = '\0';
    key->length = fits ? (uint32_t)used : 0;
    key->hash = fits ? XXH3_64bits(bytes, used) : 0;
    return 0;
}

/* --- slots ------------------------------------------------------------------------------------ */

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static void store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

static bool has_key(const struct content *content, const struct handle_key *key)
{
    for (uint32_t i = 0; i < key->length / 8; i++)
        if (load(&content->words[i]) != key->words[i])
            return false;
    return true;
}

/* False when it holds another key, or changed meanwhile. */
static bool read_slot(const struct slot *slot, const struct content *content,
    const struct handle_key *key, struct tune_answer *answer, uint64_t *tag)
{
    uint64_t sequence = load(&slot->sequence);
    uint64_t lengths = load(&slot->lengths);
    uint32_t answer_bytes = (uint32_t)(lengths >> 1);
    if (sequence % 2 != 0 || lengths >> 33 != key->length || answer_bytes > TUNE_ANSWER_BYTES ||
        !has_key(content, key))
        return false;
    const _Atomic uint64_t *words = content->words + key->length / 8;
    for (uint32_t i = 0; i < (answer_bytes + 7) / 8; i++)
        answer->words[i] = load(&words[i]);
    answer->length = answer_bytes;
    answer->is_offline = lengths & 1;
    *tag = load(&slot->tag);
    return load(&slot->sequence) == sequence;
}

static size_t first_of_set(uint64_t hash)
{
    return (hash & (SETS - 1)) * WAYS;
}

bool handle_table_get(const struct handle_table *table, const struct handle_key *key,
    struct tune_answer *answer, uint64_t *tag)
{
    size_t first = first_of_set(key->hash);
    if (key->length == 0)
        return false;
    for (size_t i = first; i < first + WAYS; i++)
        if (load(&table->slots[i].hash) == key->hash &&
            read_slot(&table->slots[i], &table->contents[i], key, answer, tag))
            return true;
    return false;
}

/* The number of the slot of this key, else an empty one, else whose turn it is. */
static size_t slot_for(struct handle_table *table, const struct handle_key *key)
{
    size_t first = first_of_set(key->hash), empty = SIZE_MAX;
    for (size_t i = first; i < first + WAYS; i++) {
        if (load(&table->slots[i].hash) == key->hash)
            return i;
        if (empty == SIZE_MAX && load(&table->slots[i].lengths) == 0)
            empty = i;
    }
    return empty != SIZE_MAX ? empty : first + atomic_fetch_add(&table->turn, 1) % WAYS;
}

void handle_table_put(struct handle_table *table, const struct handle_key *key,
    const struct tune_answer *answer, uint64_t tag)
{
    if (key->length == 0)
        return;
    size_t chosen = slot_for(table, key);
    struct slot *slot = &table->slots[chosen];
    struct content *content = &table->contents[chosen];
    uint64_t sequence = load(&slot->sequence);
    if (sequence % 2 != 0 ||
        !atomic_compare_exchange_strong(&slot->sequence, &sequence, sequence + 1))
        return;
    store(&slot->hash, key->hash);
    store(&slot->tag, tag);
    store(&slot->lengths,
        (uint64_t)key->length << 33 | (uint64_t)answer->length << 1 | answer->is_offline);
    for (uint32_t i = 0; i < key->length / 8; i++)
        store(&content->words[i], key->words[i]);
    _Atomic uint64_t *words = content->words + key->length / 8;
    for (uint32_t i = 0; i < (answer->length + 7) / 8; i++)
        store(&words[i], answer->words[i]);
    store(&slot->sequence, sequence + 2);
}
