/* Files of a snapshot: whatever they hold, a lookup is a miss or an answer, and stays inside the
 * file. The first byte says what the others are: a base as it is, a base or a delta whose checksums
 * are made right (so that what lies behind them is reached), or the page. */
#include "client/snapshot.h"
#include "client/snapshot_form.h"
#include "target.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static char folder[64];

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        abort();
}

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/tune-fuzz-XXXXXX");
    if (mkdtemp(folder) == NULL)
        abort();
    atexit(remove_folder);
}

static void write_file(const char *name, const uint8_t *bytes, size_t count)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, bytes, count) != (ssize_t)count || close(fd) != 0)
        abort();
}

static void make_sums_right(uint8_t *bytes, size_t count)
{
    struct file_head head;
    if (count < sizeof head)
        return;
    memcpy(&head, bytes, sizeof head);
    memcpy(head.magic, snapshot_file_magic, sizeof head.magic);
    head.version = SNAPSHOT_VERSION;
    head.file_bytes = count;
    head.content_sum = XXH3_64bits(bytes + sizeof head, count - sizeof head);
    head.head_sum = XXH3_64bits(&head, offsetof(struct file_head, head_sum));
    memcpy(bytes, &head, sizeof head);
}

static void look_up(int64_t n)
{
    char key[SNAPSHOT_KEY_BYTES];
    struct tune_dim dims[] = {{"N", n}};
    struct tune_query query = {.kernel = "k", .dims = dims, .dim_count = 1};
    struct tune_answer answer;
    struct tune_answer_info info;
    struct snapshot *snapshot = NULL;
    if (snapshot_open(folder, &snapshot, NULL) != 0)
        return;
    if (snapshot_get(snapshot, key, snapshot_key(&query, key), &answer) == 0) {
        tune_answer_info(&answer, &info);
        if (strlen(info.kernel) >= answer.length)
            abort();
    }
    snapshot_close(snapshot);
}

static int on_entry(
    const char *key, size_t key_length, const struct tune_answer *answer, void *context)
{
    (void)answer;
    *(uint64_t *)context += XXH3_64bits(key, key_length); /* reads all of it */
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static uint8_t copy[1 << 21];
    enum { AS_IT_IS, BASE, DELTA, PAGE, KINDS };
    uint64_t sum = 0;
    if (folder[0] == '\0')
        make_folder();
    if (count < 2 || count > sizeof copy)
        return 0;
    int kind = bytes[0] % KINDS;
    const char *name = kind == DELTA ? "delta-1" : kind == PAGE ? "page" : "base-1";
    struct snapshot_page page = {.base = "base-1"};
    if (kind == DELTA)
        strcpy(page.delta, "delta-1");
    if (snapshot_publish(folder, &page, NULL) != 0)
        abort();
    memcpy(copy, bytes + 1, count - 1);
    if (kind == BASE || kind == DELTA)
        make_sums_right(copy, count - 1);
    write_file(name, copy, count - 1);
    for (int64_t n = 1; n <= 3; n++)
        look_up(n);
    if (kind != PAGE)
        snapshot_walk(folder, name, on_entry, &sum, NULL, NULL);
    return 0;
}
