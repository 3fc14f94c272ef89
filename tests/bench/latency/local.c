/* The roads to an answer without a server's turn: bench_local [option...] WHAT PATH
 *
 *   lookup SOCKET  libtune, from the snapshot that the daemon at SOCKET publishes: each key once
 *                  ("first"), then a few of them again and again ("again"); ends with status 1
 *                  where an answer is not exact. Counts the allocations and page faults of both.
 *   sqlite FOLDER  a value by its key from a table made there: WAL, mapped, statement kept
 *   wisdom FOLDER  a file of JSON lines made there, read whole to find one answer
 *
 *   --keys N       of them (100000; wisdom: 10000)
 *   --value N      bytes of a value (1500)
 *
 * Prints one line of JSON: {"median_ns","p99_ns"}, of lookup for "first" and "again" each. */
#include "asked.h"
#include "measure.h"
#include "roads.h"

#include "client/tune.h"

#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#ifdef BENCH_SQLITE
#include <sqlite3.h>
#endif

#define AGAIN_KEYS 64
#define AGAIN_COUNT 100000
#define WISDOM_KEYS 10000
#define WISDOM_REPEATS 5
#define MAP_BYTES "1073741824"

static size_t key_count, value_bytes = 1500;

static size_t *shuffled(size_t count)
{
    size_t *keys = bench_alloc(count, sizeof *keys);
    uint64_t seed = 7;
    for (size_t i = 0; i < count; i++) {
        size_t j = random_below(&seed, i + 1);
        keys[i] = keys[j];
        keys[j] = i;
    }
    return keys;
}

/* --- libtune ---------------------------------------------------------------------------------- */

static void fill_dims(size_t key, struct tune_dim dims[ASKED_DIMS])
{
    int64_t values[ASKED_DIMS];
    asked_shape(key, key_count, values);
    for (size_t i = 0; i < ASKED_DIMS; i++)
        dims[i] = (struct tune_dim){asked_dim_names[i], values[i]};
}

/* The time of one lookup. */
static uint64_t look_up(struct tune *tune, size_t key)
{
    static struct tune_answer answer;
    struct tune_error err = {0};
    struct tune_answer_info info;
    struct tune_dim dims[ASKED_DIMS];
    fill_dims(key, dims);
    struct tune_query query = {
        .kernel = ASKED_KERNEL, .dims = dims, .dim_count = ASKED_DIMS, .arch = ASKED_ARCH};
    uint64_t begun = ticks_now();
    int status = tune_get(tune, &query, &answer, &err);
    uint64_t ticks = ticks_now() - begun;
    if (status != 0)
        bench_fail("%s", err.text);
    tune_answer_info(&answer, &info);
    if (info.origin != TUNE_EXACT || answer.is_offline)
        bench_fail("an answer is not exact: is the snapshot published?");
    return ticks;
}

/* Asks for `count` keys: keys[i], or with `random` any of the first AGAIN_KEYS of them. */
static void print_lookups(struct tune *tune, const char *name, const size_t *keys, size_t count,
    uint64_t *random, uint64_t *ticks)
{
    struct rusage before, after;
    uint64_t allocations_before = allocations();
    getrusage(RUSAGE_SELF, &before);
    for (size_t i = 0; i < count; i++)
        ticks[i] = look_up(tune, keys[random ? random_below(random, AGAIN_KEYS) : i]);
    getrusage(RUSAGE_SELF, &after);
    uint64_t allocated = allocations() - allocations_before;
    struct spread spread = spread_of(ticks, count);
    printf("\"%s\": {\"median_ns\": %.0f, \"p99_ns\": %.0f, \"allocations\": %" PRIu64
           ", \"page_faults\": %ld}",
        name, spread.median_ns, spread.p99_ns, allocated, after.ru_minflt - before.ru_minflt);
}

static void run_lookup(const char *socket)
{
    struct tune_error err = {0};
    struct tune *tune;
    size_t *keys = shuffled(key_count);
    size_t room = key_count > AGAIN_COUNT ? key_count : AGAIN_COUNT;
    uint64_t *ticks = bench_alloc(room, sizeof *ticks), seed = 11;
    memset(ticks, 1, room * sizeof *ticks); /* its pages are there before the clock starts */
    ns_per_tick();
    if (tune_open(socket, &tune, &err))
        bench_fail("%s", err.text);
    look_up(tune, keys[0]); /* takes up the files */
    printf("{");
    print_lookups(tune, "first", keys + 1, key_count - 1, NULL, ticks);
    for (size_t i = 0; i < AGAIN_KEYS; i++)
        look_up(tune, keys[i]);
    printf(", ");
    print_lookups(tune, "again", keys, AGAIN_COUNT, &seed, ticks);
    printf("}\n");
    tune_close(tune);
    free(ticks);
    free(keys);
}

/* --- SQLite ----------------------------------------------------------------------------------- */

#ifdef BENCH_SQLITE
static void sql(sqlite3 *db, const char *text)
{
    char *why = NULL;
    if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK)
        bench_fail("SQLite: %s: %s", text, why);
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *text)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, text, -1, &statement, NULL) != SQLITE_OK)
        bench_fail("SQLite: %s: %s", text, sqlite3_errmsg(db));
    return statement;
}

static void bind_key(sqlite3_stmt *statement, size_t key)
{
    int64_t dims[ASKED_DIMS];
    char text[ROAD_KEY_ROOM];
    asked_shape(key, key_count, dims);
    sqlite3_bind_text(statement, 1, text, (int)road_key(text, dims), SQLITE_TRANSIENT);
}

static void make_table(sqlite3 *db)
{
    char *value = bench_alloc(1, value_bytes + 1);
    memset(value, 'x', value_bytes);
    sql(db, "CREATE TABLE best(k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID; BEGIN");
    sqlite3_stmt *insert = prepare(db, "INSERT INTO best VALUES(?, ?)");
    sqlite3_bind_text(insert, 2, value, (int)value_bytes, SQLITE_STATIC);
    for (size_t i = 0; i < key_count; i++) {
        bind_key(insert, i);
        if (sqlite3_step(insert) != SQLITE_DONE)
            bench_fail("SQLite: %s", sqlite3_errmsg(db));
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    sql(db, "COMMIT; PRAGMA wal_checkpoint(TRUNCATE)");
    free(value);
}

static void run_sqlite(const char *folder)
{
    char path[4096];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/best.sqlite", folder);
    if (sqlite3_open(path, &db) != SQLITE_OK)
        bench_fail("SQLite cannot open %s", path);
    sql(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; PRAGMA mmap_size=" MAP_BYTES);
    make_table(db);
    size_t *keys = shuffled(key_count);
    uint64_t *ticks = bench_alloc(key_count, sizeof *ticks);
    char *value = bench_alloc(1, value_bytes);
    sqlite3_stmt *select = prepare(db, "SELECT v FROM best WHERE k=?");
    for (size_t i = 0; i < key_count; i++) {
        uint64_t begun = ticks_now();
        bind_key(select, keys[i]);
        if (sqlite3_step(select) != SQLITE_ROW ||
            sqlite3_column_bytes(select, 0) != (int)value_bytes)
            bench_fail("SQLite: a key is not there: %s", sqlite3_errmsg(db));
        memcpy(value, sqlite3_column_text(select, 0), value_bytes);
        sqlite3_reset(select);
        ticks[i] = ticks_now() - begun;
    }
    struct spread spread = spread_of(ticks, key_count);
    printf("{\"median_ns\": %.0f, \"p99_ns\": %.0f}\n", spread.median_ns, spread.p99_ns);
    sqlite3_finalize(select);
    sqlite3_close(db);
    free(value);
    free(ticks);
    free(keys);
}
#else
static void run_sqlite(const char *folder)
{
    (void)folder;
    bench_fail("this bench was built without SQLite");
}
#endif

/* --- a wisdom file ---------------------------------------------------------------------------- */

static void write_wisdom(const char *path)
{
    FILE *file = fopen(path, "we");
    if (file == NULL)
        bench_fail("cannot write %s", path);
    for (size_t i = 0; i < key_count; i++) {
        int64_t dims[ASKED_DIMS];
        asked_shape(i, key_count, dims);
        fprintf(file,
            "{\"kernel\":\"gemm\",\"problem\":[%" PRId64 ",%" PRId64 ",%" PRId64
            "],\"device\":\"NVIDIA H200\",\"arch\":\"sm_90\",\"config\":{\"VARIANT\":1,\"BM\":64,"
            "\"BN\":128,\"BK\":16,\"TM\":8,\"TN\":8,\"PAD\":4,\"SWIZZLE\":0,\"VEC\":4,\"STAGES\":2,"
            "\"SPLIT_K\":1,\"UNROLL\":16,\"MIN_BLOCKS\":2},\"time_ns\":%zu,\"driver\":\"13.0\","
            "\"date\":\"2026-01-01T00:00:00\",\"host\":\"bench\",\"environment\":{\"nvrtc\":"
            "\"13.0\",\"clock_mhz\":1980}}\n",
            dims[0], dims[1], dims[2], 20000 + i);
    }
    fclose(file);
}

/* Reads every line, keeps the fastest of the asked problem: what such a library does at its first
 * launch. */
static double read_wisdom(const char *path)
{
    static char line[8192];
    double best_ns = 0;
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        json_t *entry = json_loads(line, 0, NULL);
        const json_t *problem = json_object_get(entry, "problem");
        double time_ns = json_number_value(json_object_get(entry, "time_ns"));
        bool is_asked = json_integer_value(json_array_get(problem, 0)) == ASKED_STEP;
        if (is_asked && (best_ns == 0 || time_ns < best_ns))
            best_ns = time_ns;
        json_decref(entry);
    }
    if (file != NULL)
        fclose(file);
    return best_ns;
}

static void run_wisdom(const char *folder)
{
    char path[4096];
    uint64_t ticks[WISDOM_REPEATS];
    snprintf(path, sizeof path, "%s/wisdom.jsonl", folder);
    write_wisdom(path);
    for (size_t i = 0; i < WISDOM_REPEATS; i++) {
        uint64_t begun = ticks_now();
        if (read_wisdom(path) == 0)
            bench_fail("the wisdom file has no answer");
        ticks[i] = ticks_now() - begun;
    }
    struct spread spread = spread_of(ticks, WISDOM_REPEATS);
    printf("{\"median_ns\": %.0f, \"p99_ns\": %.0f}\n", spread.median_ns, spread.p99_ns);
}

/* --- main ------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static const struct option names[] = {{"keys", required_argument, NULL, 'k'},
        {"value", required_argument, NULL, 'v'}, {NULL, 0, NULL, 0}};
    int letter;
    while ((letter = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (letter == '?')
            return 2;
        *(letter == 'k' ? &key_count : &value_bytes) = strtoul(optarg, NULL, 10);
    }
    if (argc - optind != 2 || value_bytes == 0)
        bench_fail("usage: bench_local [option...] lookup|sqlite|wisdom PATH");
    const char *what = argv[optind], *path = argv[optind + 1];
    if (key_count == 0)
        key_count = strcmp(what, "wisdom") == 0 ? WISDOM_KEYS : 100000;
    if (strcmp(what, "lookup") == 0)
        run_lookup(path);
    else if (strcmp(what, "sqlite") == 0)
        run_sqlite(path);
    else if (strcmp(what, "wisdom") == 0)
        run_wisdom(path);
    else
        bench_fail("there is no \"%s\"", what);
    return 0;
}
