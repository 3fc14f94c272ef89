/* The snapshot that the handle reads, found by the link beside the socket. See handle.h; the files
 * are snapshot.h's business, which also notices that the link leads elsewhere. */
#include "handle.h"
#include "snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

uint64_t handle_tick(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return TAG_TICK | ((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000) / TICK_MS;
}

uint64_t handle_tag(struct tune *tune)
{
    struct snapshot *snapshot = atomic_load_explicit(&tune->snapshot, memory_order_acquire);
    if (snapshot == NULL || !snapshot_keep_up(snapshot))
        return handle_tick();
    uint64_t epoch = atomic_load_explicit(&tune->epoch, memory_order_relaxed);
    return (snapshot_sequence(snapshot) + (epoch << 40)) & ~TAG_TICK;
}

bool handle_is_fresh(uint64_t entry_tag, uint64_t now_tag)
{
    if (entry_tag == now_tag || entry_tag == TAG_ALWAYS)
        return true;
    return (entry_tag & TAG_TICK) != 0 && entry_tag == handle_tick();
}

void handle_view_open(struct tune *tune, const char *socket_path)
{
    char folder[TUNE_SOCKET_PATH_BYTES + sizeof ".served"];
    struct snapshot *snapshot, *none = NULL;
    snprintf(folder, sizeof folder, "%s.served", socket_path);
    if (atomic_load(&tune->snapshot) != NULL || snapshot_open(folder, &snapshot, NULL) != 0)
        return;
    if (!atomic_compare_exchange_strong(&tune->snapshot, &none, snapshot))
        snapshot_close(snapshot); /* another thread was quicker */
}

void handle_view_look(struct tune *tune)
{
    char path[TUNE_SOCKET_PATH_BYTES];
    uint64_t tick = handle_tick();
    if (atomic_load(&tune->snapshot) != NULL || atomic_exchange(&tune->looked, tick) == tick)
        return;
    if (tune_socket_path(tune->asked_path, path, NULL) == 0)
        handle_view_open(tune, path);
    if (tune->asked_path == NULL && getenv("TUNE_SOCKET") == NULL)
        handle_view_open(tune, TUNE_SYSTEM_SOCKET);
}

int handle_view_get(struct tune *tune, const struct tune_query *query, struct tune_answer *answer)
{
    char key[SNAPSHOT_KEY_BYTES];
    struct snapshot *snapshot = atomic_load(&tune->snapshot);
    size_t length = snapshot ? snapshot_key(query, key) : 0;
    return length == 0 ? 1 : snapshot_get(snapshot, key, length, answer);
}
