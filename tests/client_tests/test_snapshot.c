/* Published snapshots: what was written is read, news is seen, and nothing that is damaged, foreign
 * or half written is ever believed. */
#include "client/answer.h"
#include "client/snapshot.h"
#include "client/snapshot_form.h"
#include "daemon/search/rng.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* --- a folder, and what is published in it ---------------------------------------------------- */

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tune-snapshot-XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s %s.link %s.old", folder, folder, folder);
    return system(command);
}

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* An answer that is known by its number. */
static void make_answer(int64_t number, struct tune_answer *answer)
{
    struct tune_error err = {0};
    char measured_on[400];
    snprintf(measured_on, sizeof measured_on, "GPU %0*d", (int)(number % 50) + 1, (int)number);
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:{s:I}, s:s, s:s, s:{s:I}, s:[], s:[], s:I, "
                             "s:i}",
        "kernel", "gemm", "dtype", "f32", "mode", "cold", "arch", "sm_90", "shape", "M",
        (json_int_t)number, "origin", "exact", "measured_on", measured_on, "config", "BM",
        (json_int_t)number, "launches", "buffers", "generation", (json_int_t)number, "sm", 90);
    if (answer_from_json(json, answer, &err))
        fail_msg("%s", err.text);
    json_decref(json);
}

static int64_t number_of(const struct tune_answer *answer)
{
    int64_t number = -1;
    assert_int_equal(tune_answer_param(answer, "BM", &number, NULL), 0);
    return number;
}

static size_t make_key(int64_t m, char key[SNAPSHOT_KEY_BYTES])
{
    struct tune_dim dims[] = {{"M", m}, {"N", 2 * m}, {"K", 3}};
    struct tune_query query = {.kernel = "gemm", .dims = dims, .dim_count = 3};
    size_t length = snapshot_key(&query, key);
    assert_true(length > 0);
    return length;
}

struct item {
    int64_t key, number; /* number < 0: ask the daemon */
};

static struct snapshot_writer *begin(size_t count)
{
    struct tune_error err = {0};
    struct snapshot_writer *writer;
    if (snapshot_writer_create(folder, count, &writer, &err))
        fail_msg("%s", err.text);
    return writer;
}

static void add(struct snapshot_writer *writer, const struct item *item)
{
    struct tune_error err = {0};
    struct tune_answer answer;
    char key[SNAPSHOT_KEY_BYTES];
    size_t length = make_key(item->key, key);
    if (item->number >= 0)
        make_answer(item->number, &answer);
    if (snapshot_writer_add(writer, key, length, item->number >= 0 ? &answer : NULL, &err))
        fail_msg("%s", err.text);
}

static void write_file(
    const char *kind, uint64_t number, const struct item *items, size_t count, char name[32])
{
    struct tune_error err = {0};
    struct snapshot_writer *writer = begin(count);
    for (size_t i = 0; i < count; i++)
        add(writer, &items[i]);
    if (snapshot_writer_finish(writer, kind, number, name, &err))
        fail_msg("%s", err.text);
}

static void publish_names(const char *base, const char *delta)
{
    struct tune_error err = {0};
    struct snapshot_page page = {.generation = 7, .origin = 11};
    snprintf(page.base, sizeof page.base, "%s", base);
    snprintf(page.delta, sizeof page.delta, "%s", delta);
    if (snapshot_publish(folder, &page, &err))
        fail_msg("%s", err.text);
}

/* A base of `count` keys 1..count with the numbers key + shift, and perhaps a delta. */
static void publish(
    uint64_t file, int64_t count, int64_t shift, const struct item *delta, size_t delta_count)
{
    char base[32], name[32] = "";
    struct item *items = calloc((size_t)count + 1, sizeof *items);
    for (int64_t i = 0; i < count; i++)
        items[i] = (struct item){i + 1, i + 1 + shift};
    write_file("base", file, items, (size_t)count, base);
    if (delta_count > 0)
        write_file("delta", file, delta, delta_count, name);
    publish_names(base, name);
    free(items);
}

static struct snapshot *open_it(void)
{
    struct tune_error err = {0};
    struct snapshot *snapshot = NULL;
    if (snapshot_open(folder, &snapshot, &err))
        fail_msg("%s", err.text);
    return snapshot;
}

/* The number under a key; -1 where there is none. */
static int64_t get(struct snapshot *snapshot, int64_t m)
{
    struct tune_answer answer;
    char key[SNAPSHOT_KEY_BYTES];
    size_t length = make_key(m, key);
    return snapshot_get(snapshot, key, length, &answer) == 0 ? number_of(&answer) : -1;
}

static enum tune_code open_code(void)
{
    struct tune_error err = {0};
    struct snapshot *snapshot = NULL;
    int status = snapshot_open(folder, &snapshot, &err);
    assert_int_equal(status, err.code == TUNE_OK ? 0 : -1);
    snapshot_close(snapshot);
    return err.code;
}

/* --- keys ------------------------------------------------------------------------------------- */

static void equal_questions_have_equal_keys(void **state)
{
    (void)state;
    char a[SNAPSHOT_KEY_BYTES], b[SNAPSHOT_KEY_BYTES];
    struct tune_dim one[] = {{"M", 1}, {"N", 2}, {"K", 3}},
                    other[] = {{"K", 3}, {"M", 1}, {"N", 2}};
    struct tune_query query = {.kernel = "gemm", .dims = one, .dim_count = 3};
    size_t length = snapshot_key(&query, a);
    query.dims = other;
    query.mode = "cold";
    query.dtype = "";
    query.policy = TUNE_WAIT;
    assert_int_equal(snapshot_key(&query, b), length);
    assert_memory_equal(a, b, length);
}

static void different_questions_have_different_keys(void **state)
{
    (void)state;
    struct tune_dim dims[] = {{"M", 1}, {"N", 2}}, swapped[] = {{"M", 2}, {"N", 1}},
                    longer[] = {{"M", 1}, {"N", 2}, {"K", 0}}, large[] = {{"M", 257}, {"N", 2}};
    const struct tune_query queries[] = {
        {.kernel = "gemm", .dims = dims, .dim_count = 2},
        {.kernel = "gemmf32", .dims = dims, .dim_count = 2},
        {.kernel = "gemm", .dims = swapped, .dim_count = 2},
        {.kernel = "gemm", .dims = large, .dim_count = 2},
        {.kernel = "gemm", .dims = longer, .dim_count = 3},
        {.kernel = "gemm", .dims = dims, .dim_count = 1},
        {.kernel = "gemm", .dims = dims, .dim_count = 2, .dtype = "f32"},
        {.kernel = "gemm", .dims = dims, .dim_count = 2, .mode = "warm"},
        {.kernel = "gemm", .dims = dims, .dim_count = 2, .arch = "sm_90"},
        {.kernel = "gemm", .dims = dims, .dim_count = 2, .gpu = "sm_90"},
        {.kernel = "gemm", .dims = dims, .dim_count = 2, .gpu = "NVIDIA H200"},
    };
    size_t count = sizeof queries / sizeof queries[0];
    static char keys[16][SNAPSHOT_KEY_BYTES];
    size_t lengths[16];
    for (size_t i = 0; i < count; i++) {
        lengths[i] = snapshot_key(&queries[i], keys[i]);
        assert_true(lengths[i] > 0);
        for (size_t j = 0; j < i; j++)
            assert_true(lengths[i] != lengths[j] || memcmp(keys[i], keys[j], lengths[i]) != 0);
    }
}

static void what_only_the_daemon_can_answer_has_no_key(void **state)
{
    (void)state;
    char key[SNAPSHOT_KEY_BYTES], name[SNAPSHOT_KEY_BYTES + 1];
    struct tune_dim twice[] = {{"M", 1}, {"N", 2}, {"M", 1}}, many[17];
    memset(name, 'x', SNAPSHOT_KEY_BYTES);
    name[SNAPSHOT_KEY_BYTES] = '\0';
    for (size_t i = 0; i < 17; i++)
        many[i] = (struct tune_dim){name + SNAPSHOT_KEY_BYTES - i - 1, 1};
    const struct tune_query queries[] = {
        {.kernel = "gemm", .dims = twice, .dim_count = 3},
        {.kernel = "gemm", .dims = many, .dim_count = 17},
        {.kernel = "gemm", .dims = twice, .dim_count = 2, .session = "job"},
        {.kernel = "gemm", .dims = twice, .dim_count = 2, .arch = "sm_90", .gpu = "NVIDIA H200"},
        {.kernel = name, .dims = twice, .dim_count = 2},
        {.dims = twice, .dim_count = 2},
    };
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++)
        assert_int_equal(snapshot_key(&queries[i], key), 0);
}

/* --- reading what was written ----------------------------------------------------------------- */

static void random_sets_come_back_whole(void **state)
{
    (void)state;
    struct rng rng = {20261130};
    for (uint64_t round = 1; round <= 30; round++) {
        enum { KEYS = 400 };
        static int64_t in_base[KEYS + 1], in_delta[KEYS + 1]; /* 0: absent, -1: ask */
        static struct item base_items[KEYS], delta_items[KEYS];
        size_t base_count = 0, delta_count = 0;
        for (int64_t key = 1; key <= KEYS; key++) {
            in_base[key] = rng_below(&rng, 3) == 0 ? 0 : (int64_t)rng_below(&rng, 90) + 1;
            in_delta[key] = rng_below(&rng, 8) != 0   ? 0
                            : rng_below(&rng, 3) == 0 ? -1
                                                      : (int64_t)rng_below(&rng, 90) + 100;
            if (in_base[key] != 0)
                base_items[base_count++] = (struct item){key, in_base[key]};
            if (in_delta[key] != 0)
                delta_items[delta_count++] = (struct item){key, in_delta[key]};
        }
        char base[32], delta[32];
        write_file("base", round, base_items, base_count, base);
        write_file("delta", round, delta_items, delta_count, delta);
        publish_names(base, delta);
        struct snapshot *snapshot = open_it();
        for (int64_t key = 1; key <= KEYS; key++) {
            int64_t expected = in_delta[key] != 0 ? in_delta[key] : in_base[key];
            assert_int_equal(get(snapshot, key), expected > 0 ? expected : -1);
        }
        assert_int_equal(get(snapshot, KEYS + 1), -1);
        snapshot_close(snapshot);
    }
}

static void keys_share_an_answer(void **state)
{
    (void)state;
    const struct item apart[] = {{1, 5}, {2, 6}, {3, 5}}, shared[] = {{1, 5}, {3, 5}, {2, 6}};
    char name[32];
    struct stat status_apart, status_shared;
    write_file("base", 1, apart, 3, name);
    assert_int_equal(stat(path_of(name), &status_apart), 0);
    write_file("base", 2, shared, 3, name);
    assert_int_equal(stat(path_of(name), &status_shared), 0);
    assert_true(status_shared.st_size + 100 < status_apart.st_size);
    publish_names(name, "");
    struct snapshot *snapshot = open_it();
    assert_int_equal(get(snapshot, 1), 5);
    assert_int_equal(get(snapshot, 2), 6);
    assert_int_equal(get(snapshot, 3), 5);
    snapshot_close(snapshot);
}

struct seen {
    size_t answers, asks;
    int64_t sum;
};

static int on_entry(
    const char *key, size_t key_length, const struct tune_answer *answer, void *context)
{
    struct seen *seen = context;
    (void)key;
    assert_true(key_length > 0);
    seen->answers += answer != NULL;
    seen->asks += answer == NULL;
    seen->sum += answer != NULL ? number_of(answer) : 0;
    return 0;
}

static void a_walk_sees_every_entry(void **state)
{
    (void)state;
    const struct item items[] = {{1, 5}, {2, -1}, {3, 7}, {4, 7}};
    char name[32];
    struct seen seen = {0};
    uint64_t entries;
    struct tune_error err = {0};
    write_file("delta", 1, items, 4, name);
    assert_int_equal(snapshot_walk(folder, name, on_entry, &seen, &entries, &err), 0);
    assert_int_equal(entries, 4);
    assert_true(seen.answers == 3 && seen.asks == 1 && seen.sum == 19);
    assert_int_equal(snapshot_walk(folder, "delta-2", NULL, NULL, NULL, &err), -1);
    assert_int_equal(err.code, TUNE_ENOTFOUND);
}

static void the_page_says_what_was_published(void **state)
{
    (void)state;
    struct snapshot_page page;
    struct tune_error err = {0};
    assert_int_equal(snapshot_read_page(folder, &page, &err), -1);
    assert_int_equal(err.code, TUNE_ENOTFOUND);
    publish(3, 2, 0, NULL, 0);
    assert_int_equal(snapshot_read_page(folder, &page, NULL), 0);
    assert_string_equal(page.base, "base-3");
    assert_string_equal(page.delta, "");
    assert_true(page.generation == 7 && page.origin == 11 && page.published_unix_ms > 0);
}

/* --- news ------------------------------------------------------------------------------------- */

static ino_t page_inode(void)
{
    struct stat status;
    assert_int_equal(stat(path_of("page"), &status), 0);
    return status.st_ino;
}

static size_t count_files(void)
{
    size_t count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void an_open_handle_sees_news(void **state)
{
    (void)state;
    publish(1, 3, 0, NULL, 0);
    ino_t inode = page_inode();
    struct snapshot *snapshot = open_it();
    uint64_t sequence = snapshot_sequence(snapshot);
    assert_int_equal(get(snapshot, 2), 2);
    publish(2, 3, 100, (struct item[]){{2, 200}, {3, -1}, {9, 9}}, 3);
    assert_true(snapshot_sequence(snapshot) != sequence);
    assert_int_equal(get(snapshot, 1), 101);
    assert_int_equal(get(snapshot, 2), 200);
    assert_int_equal(get(snapshot, 3), -1);
    assert_int_equal(get(snapshot, 9), 9);
    publish_names("", "");
    assert_int_equal(get(snapshot, 1), -1);
    publish(4, 1, 0, NULL, 0);
    assert_int_equal(get(snapshot, 1), 1);
    snapshot_close(snapshot);
    assert_int_equal(page_inode(), inode); /* written in place */
    assert_int_equal(count_files(), 2);    /* what is old is gone: page, base-4 */
}

/* Lines of our memory map that name the folder. */
static size_t count_mappings(void)
{
    size_t count = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, folder) != NULL;
    fclose(maps);
    return count;
}

static void old_files_are_let_go(void **state)
{
    (void)state;
    publish(1, 3, 0, NULL, 0);
    struct snapshot *snapshot = open_it();
    for (uint64_t i = 2; i < 50; i++) {
        publish(i, 3, (int64_t)i, (struct item[]){{2, 7}}, 1);
        assert_int_equal(get(snapshot, 1), (int64_t)i + 1);
        assert_int_equal(count_mappings(), 3); /* page, base, delta */
    }
    snapshot_close(snapshot);
    assert_int_equal(count_mappings(), 0);
}

static void lookups_do_not_allocate(void **state)
{
    (void)state;
    publish(1, 50, 0, (struct item[]){{2, 7}}, 1);
    struct snapshot *snapshot = open_it();
    get(snapshot, 1);
    size_t before = mallinfo2().uordblks;
    for (int64_t i = 0; i < 1000; i++) {
        get(snapshot, i % 60);
        assert_int_equal(mallinfo2().uordblks, before);
    }
    snapshot_close(snapshot);
}

static void a_folder_made_anew_is_followed(void **state)
{
    (void)state;
    publish(1, 3, 0, NULL, 0);
    struct snapshot *snapshot = open_it();
    assert_int_equal(get(snapshot, 1), 1);
    char old[80];
    snprintf(old, sizeof old, "%s.old", folder);
    assert_int_equal(rename(folder, old), 0);
    assert_int_equal(snapshot_make_folder(folder, false, NULL), 0);
    uint64_t sequence = snapshot_sequence(snapshot);
    publish(1, 3, 50, NULL, 0);
    assert_int_equal(snapshot_sequence(snapshot), sequence); /* the old page has no news */
    while (get(snapshot, 1) == 1)                            /* within a second */
        sched_yield();
    assert_int_equal(get(snapshot, 1), 51);
    assert_true(snapshot_sequence(snapshot) != sequence);
    snapshot_close(snapshot);
}

/* --- many threads ----------------------------------------------------------------------------- */

#define READERS 6
#define PUBLICATIONS 200

static atomic_bool is_over;
static atomic_llong published;

/* Each answer is at least as new as what was published before it was asked for. */
static void *read_on(void *argument)
{
    struct snapshot *snapshot = argument;
    intptr_t wrong = 0;
    while (!atomic_load(&is_over)) {
        for (int64_t key = 1; key <= 5; key++) {
            int64_t least = atomic_load(&published);
            wrong += get(snapshot, key) < key + least;
        }
    }
    return (void *)wrong;
}

static void threads_read_while_files_change(void **state)
{
    (void)state;
    pthread_t threads[READERS];
    publish(1, 5, 1, NULL, 0);
    atomic_store(&published, 1);
    atomic_store(&is_over, false);
    struct snapshot *snapshot = open_it();
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, snapshot), 0);
    for (int64_t i = 2; i <= PUBLICATIONS; i++) {
        publish((uint64_t)i, 5, i, NULL, 0);
        atomic_store(&published, i);
    }
    atomic_store(&is_over, true);
    for (size_t i = 0; i < READERS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_int_equal((intptr_t)wrong, 0);
    }
    while (count_mappings() != 2) /* within a second: page, base */
        assert_int_equal(get(snapshot, 1), PUBLICATIONS + 1);
    snapshot_close(snapshot);
}

/* --- other processes -------------------------------------------------------------------------- */

static void a_killed_reader_leaves_nothing_behind(void **state)
{
    (void)state;
    int ready[2];
    char byte;
    publish(1, 3, 0, NULL, 0);
    size_t files = count_files();
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct snapshot *snapshot = open_it();
        byte = get(snapshot, 2) == 2 ? 'y' : 'n';
        if (write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            get(snapshot, 2);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(count_files(), files);
    publish(2, 3, 10, NULL, 0);
    assert_int_equal(count_files(), files);
    struct snapshot *snapshot = open_it();
    assert_int_equal(get(snapshot, 2), 12);
    snapshot_close(snapshot);
    close(ready[0]);
    close(ready[1]);
}

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    bool is_written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return is_written;
}

#define SKIPPED 77

/* Enters namespaces of its own, as a container does, and reads there as process 1, while `go` has
 * bytes for it. */
static int read_as_container(int ready, int go)
{
    char map[64], byte;
    snprintf(map, sizeof map, "0 %u 1", (unsigned)getuid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0 || !write_text("/proc/self/uid_map", map))
        return SKIPPED;
    pid_t child = fork();
    if (child == 0) {
        struct tune_error err = {0};
        struct snapshot *snapshot = NULL;
        if (getpid() != 1 || snapshot_open(folder, &snapshot, &err) || get(snapshot, 2) != 2)
            _exit(1);
        if (write(ready, "r", 1) != 1 || read(go, &byte, 1) != 1) /* both hold it open now */
            _exit(2);
        _exit(get(snapshot, 2) == 12 ? 0 : 3);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}

static void processes_with_equal_pids_both_read(void **state)
{
    (void)state;
    int ready[2], go[2];
    pid_t children[2];
    char bytes[2];
    publish(1, 3, 0, NULL, 0);
    assert_true(pipe(ready) == 0 && pipe(go) == 0);
    for (size_t i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0)
            _exit(read_as_container(ready[1], go[0]));
    }
    close(ready[1]);
    size_t count = 0;
    while (count < 2 && read(ready[0], bytes, 1) == 1)
        count++;
    publish(2, 3, 10, NULL, 0);
    assert_int_equal(write(go[1], "gg", 2), 2);
    bool is_skipped = false;
    for (size_t i = 0; i < 2; i++) {
        int status;
        waitpid(children[i], &status, 0);
        is_skipped |= WEXITSTATUS(status) == SKIPPED;
        assert_true(
            WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == SKIPPED));
    }
    close(ready[0]);
    close(go[0]);
    close(go[1]);
    if (is_skipped)
        skip(); /* namespaces are not permitted here */
}

/* --- a writer that was killed ----------------------------------------------------------------- */

/* Sets the page's sequence as a writer leaves it that is killed in the middle. */
static void leave_page_odd(void)
{
    uint64_t sequence;
    int fd = open(path_of("page"), O_RDWR);
    off_t at = offsetof(struct page, sequence);
    assert_int_equal(pread(fd, &sequence, sizeof sequence, at), sizeof sequence);
    sequence |= 1;
    assert_int_equal(pwrite(fd, &sequence, sizeof sequence, at), sizeof sequence);
    /* and half of the names */
    assert_int_equal(pwrite(fd, "base-99", 8, offsetof(struct page, words)), 8);
    close(fd);
}

static void a_damaged_page_is_told_from_one_that_is_being_written(void **state)
{
    (void)state;
    struct snapshot_page page;
    struct tune_error err = {0};
    char path[96];
    publish(1, 3, 0, NULL, 0);
    snprintf(path, sizeof path, "%s/page", folder);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 30), 1); /* in the name of the base */
    close(fd);
    assert_int_equal(snapshot_read_page(folder, &page, &err), -1);
    assert_int_equal(err.code, TUNE_EDAMAGED);
}

static void a_page_left_half_written_is_mended_by_the_next_writer(void **state)
{
    (void)state;
    struct snapshot_page page;
    struct tune_error err = {0};
    publish(1, 3, 0, NULL, 0);
    ino_t inode = page_inode();
    struct snapshot *snapshot = open_it();
    assert_int_equal(get(snapshot, 1), 1);
    leave_page_odd();
    assert_int_equal(get(snapshot, 1), 1); /* keeps what it has */
    assert_int_equal(get(snapshot, 3), 3);
    struct snapshot *late = open_it(); /* has nothing to keep */
    assert_int_equal(get(late, 1), -1);
    assert_int_equal(snapshot_read_page(folder, &page, &err), -1);
    assert_int_equal(err.code, TUNE_EBUSY);
    publish(2, 3, 10, NULL, 0);
    assert_int_equal(page_inode(), inode);
    assert_int_equal(get(snapshot, 1), 11);
    assert_int_equal(get(late, 1), 11);
    snapshot_close(snapshot);
    snapshot_close(late);
}

static void what_a_killed_writer_left_is_removed(void **state)
{
    (void)state;
    static const char *const left[] = {"new-1-0", "new-page", "base-1", "delta-77"};
    for (size_t i = 0; i < 4; i++)
        close(open(path_of(left[i]), O_WRONLY | O_CREAT, 0600));
    close(open(path_of("mine"), O_WRONLY | O_CREAT, 0600));
    struct snapshot_writer *other = begin(1); /* is not left: it is under construction */
    publish(2, 1, 0, NULL, 0);
    assert_int_equal(count_files(), 4); /* page, base-2, mine, and that one */
    snapshot_writer_abandon(other);
    assert_int_equal(count_files(), 3);
}

static void a_file_that_cannot_be_written_leaves_nothing(void **state)
{
    (void)state;
    struct tune_error err = {0};
    struct rlimit usual, small = {.rlim_cur = 4096};
    char name[32];
    struct item item = {1, 1};
    getrlimit(RLIMIT_FSIZE, &usual);
    small.rlim_max = usual.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    struct snapshot_writer *writer = begin(1);
    for (; item.key < 100; item.key++) {
        item.number = item.key;
        add(writer, &item);
    }
    setrlimit(RLIMIT_FSIZE, &small);
    assert_int_equal(snapshot_writer_finish(writer, "base", 1, name, &err), -1);
    setrlimit(RLIMIT_FSIZE, &usual);
    assert_int_equal(err.code, TUNE_EIO);
    assert_int_equal(count_files(), 0);
}

/* --- what is not believed --------------------------------------------------------------------- */

static void without_a_page_there_is_no_snapshot(void **state)
{
    (void)state;
    assert_int_equal(open_code(), TUNE_ENOTFOUND);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(open_code(), TUNE_ENOTFOUND);
}

static void what_others_may_write_is_refused(void **state)
{
    (void)state;
    publish(1, 3, 0, (struct item[]){{2, 7}}, 1);
    static const char *const names[] = {".", "page", "base-1", "delta-1"};
    static const mode_t modes[] = {0022, 0002, 0020};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mode_t usual = i == 0 ? 0700 : 0600;
        for (size_t j = 0; j < sizeof modes / sizeof modes[0]; j++) {
            assert_int_equal(chmod(path_of(names[i]), usual | modes[j]), 0);
            assert_int_equal(open_code(), TUNE_EPERM);
        }
        assert_int_equal(chmod(path_of(names[i]), usual | 0044), 0);
        assert_int_equal(open_code(), TUNE_OK);
        assert_int_equal(chmod(path_of(names[i]), usual), 0);
    }
}

static void what_others_own_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* nothing can be given away */
    publish(1, 3, 0, NULL, 0);
    static const char *const names[] = {".", "page", "base-1"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(chown(path_of(names[i]), 65533, 0), 0);
        assert_int_equal(open_code(), TUNE_EPERM);
        assert_int_equal(chown(path_of(names[i]), 0, 0), 0);
    }
    assert_int_equal(open_code(), TUNE_OK);
}

static void only_the_folder_may_be_a_link(void **state)
{
    (void)state;
    publish(1, 3, 0, NULL, 0);
    char link[80], plain[64];
    snprintf(link, sizeof link, "%s.link", folder);
    assert_int_equal(symlink(folder, link), 0);
    strcpy(plain, folder);
    strcpy(folder, link);
    assert_int_equal(open_code(), TUNE_OK);
    assert_int_equal(snapshot_make_folder(folder, false, NULL), -1); /* but not for the writer */
    strcpy(folder, plain);
    unlink(link);
    static const char *const names[] = {"page", "base-1"};
    for (size_t i = 0; i < 2; i++) {
        char away[128];
        snprintf(away, sizeof away, "%s/away", folder);
        assert_int_equal(rename(path_of(names[i]), away), 0);
        assert_int_equal(symlink("away", path_of(names[i])), 0);
        assert_int_equal(open_code(), TUNE_EPERM);
        assert_int_equal(rename(away, path_of(names[i])), 0);
    }
    assert_int_equal(open_code(), TUNE_OK);
}

/* Neither a FIFO, which would block, nor a folder. */
static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(path_of("page"), 0600), 0);
    assert_int_equal(open_code(), TUNE_EPERM);
    unlink(path_of("page"));
    publish(1, 3, 0, NULL, 0);
    unlink(path_of("base-1"));
    assert_int_equal(mkdir(path_of("base-1"), 0700), 0);
    assert_int_equal(open_code(), TUNE_EPERM);
    rmdir(path_of("base-1"));
}

static uint8_t byte_at(const char *name, size_t at)
{
    uint8_t byte;
    int fd = open(path_of(name), O_RDONLY);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    close(fd);
    return byte;
}

static void change_byte(const char *name, size_t at, uint8_t change)
{
    uint8_t byte;
    int fd = open(path_of(name), O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= change;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

static size_t file_bytes(const char *name)
{
    struct stat status;
    assert_int_equal(stat(path_of(name), &status), 0);
    return (size_t)status.st_size;
}

#define DAMAGE_KEYS 12

/* Every byte of a file changed in a few ways: each lookup is a miss or right. Returns how many of
 * them were misses. */
static size_t damage(const char *name, const int64_t expected[DAMAGE_KEYS + 1])
{
    size_t misses = 0, count = file_bytes(name);
    for (size_t at = 0; at < count; at++) {
        const uint8_t changes[] = {0x01, 0x80, 0xff, byte_at(name, at) /* to 0 */};
        for (size_t i = 0; i < sizeof changes; i++) {
            struct snapshot *snapshot = NULL;
            change_byte(name, at, changes[i]);
            if (snapshot_open(folder, &snapshot, NULL) == 0) {
                for (int64_t key = 1; key <= DAMAGE_KEYS; key++) {
                    int64_t number = get(snapshot, key);
                    misses += number != expected[key];
                    if (number != -1 && number != expected[key])
                        fail_msg("byte %zu of %s: key %d has %d", at, name, (int)key, (int)number);
                }
                snapshot_close(snapshot);
            }
            change_byte(name, at, changes[i]);
        }
    }
    return misses;
}

static void damage_is_a_miss_and_never_a_wrong_answer(void **state)
{
    (void)state;
    const struct item delta[] = {{2, 200}, {4, -1}, {5, 500}};
    int64_t expected[DAMAGE_KEYS + 1];
    publish(1, DAMAGE_KEYS, 0, delta, 3);
    for (int64_t key = 1; key <= DAMAGE_KEYS; key++)
        expected[key] = key;
    expected[2] = 200;
    expected[4] = -1;
    expected[5] = 500;
    assert_true(damage("base-1", expected) > file_bytes("base-1"));
    assert_true(damage("delta-1", expected) > file_bytes("delta-1"));
    assert_true(damage("page", expected) > 0);
}

static void a_file_that_is_cut_short_is_a_miss(void **state)
{
    (void)state;
    publish(1, 3, 0, NULL, 0);
    for (off_t size = (off_t)file_bytes("base-1") - 1; size >= 0; size -= 7) {
        assert_int_equal(truncate(path_of("base-1"), size), 0);
        struct snapshot *snapshot = open_it();
        assert_int_equal(get(snapshot, 1), -1);
        snapshot_close(snapshot);
    }
    assert_int_equal(truncate(path_of("page"), 4000), 0);
    assert_int_equal(open_code(), TUNE_EDAMAGED);
    publish(2, 3, 0, NULL, 0); /* makes another */
    assert_int_equal(open_code(), TUNE_OK);
}

static void another_version_is_named(void **state)
{
    (void)state;
    publish(1, 3, 0, NULL, 0);
    change_byte("page", offsetof(struct page, version), 2);
    assert_int_equal(open_code(), TUNE_EVERSION);
}

/* News that cannot be read is a miss, not the answer of before; and it heals. */
static void a_missing_file_is_a_miss_until_the_next(void **state)
{
    (void)state;
    publish(1, 3, 0, NULL, 0);
    struct snapshot *snapshot = open_it();
    assert_int_equal(get(snapshot, 1), 1);
    publish_names("base-1", "delta-8");
    assert_int_equal(get(snapshot, 1), -1);
    const struct item delta[] = {{1, 8}};
    char name[32];
    write_file("delta", 8, delta, 1, name);
    while (get(snapshot, 1) == -1) /* tried again within 100 ms */
        sched_yield();
    assert_int_equal(get(snapshot, 1), 8);
    snapshot_close(snapshot);
}

static void the_group_reads_where_it_may(void **state)
{
    (void)state;
    struct stat status;
    assert_int_equal(snapshot_make_folder(folder, true, NULL), 0);
    publish(1, 3, 0, NULL, 0);
    static const char *const names[] = {"page", "base-1"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(stat(path_of(names[i]), &status), 0);
        assert_int_equal(status.st_mode & 0777, 0640);
    }
    assert_int_equal(snapshot_make_folder(folder, false, NULL), 0);
    publish(2, 3, 0, NULL, 0);
    assert_int_equal(stat(path_of("page"), &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
}

#define test(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_questions_have_equal_keys),
        cmocka_unit_test(different_questions_have_different_keys),
        cmocka_unit_test(what_only_the_daemon_can_answer_has_no_key),
        test(random_sets_come_back_whole),
        test(keys_share_an_answer),
        test(a_walk_sees_every_entry),
        test(the_page_says_what_was_published),
        test(an_open_handle_sees_news),
        test(old_files_are_let_go),
        test(lookups_do_not_allocate),
        test(a_folder_made_anew_is_followed),
        test(threads_read_while_files_change),
        test(a_killed_reader_leaves_nothing_behind),
        test(processes_with_equal_pids_both_read),
        test(a_damaged_page_is_told_from_one_that_is_being_written),
        test(a_page_left_half_written_is_mended_by_the_next_writer),
        test(what_a_killed_writer_left_is_removed),
        test(a_file_that_cannot_be_written_leaves_nothing),
        test(without_a_page_there_is_no_snapshot),
        test(what_others_may_write_is_refused),
        test(what_others_own_is_refused),
        test(only_the_folder_may_be_a_link),
        test(what_is_no_file_is_refused),
        test(damage_is_a_miss_and_never_a_wrong_answer),
        test(a_file_that_is_cut_short_is_a_miss),
        test(another_version_is_named),
        test(a_missing_file_is_a_miss_until_the_next),
        test(the_group_reads_where_it_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
