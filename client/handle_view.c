/* The snapshot that the handle reads, found by the link beside the socket: that of the daemon which
 * answered last; until one has, of the first socket that has a link. See handle.h; the files are
 * snapshot.h's business, which also notices that the link leads elsewhere. */
#include "handle.h"
#include "snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* What a daemon publishes. Kept until the end, as there may be readers in it. */
struct view {
    struct view *next;
    struct snapshot *snapshot;
    char socket_path[TUNE_SOCKET_PATH_BYTES];
};

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

/* The snapshot that the daemon of this socket publishes, opened once; NULL: none. The lock is held.
 */
static struct snapshot *find(struct tune *tune, const char *socket_path)
{
    char folder[TUNE_SOCKET_PATH_BYTES + sizeof ".served"];
    struct view *view = tune->views;
    while (view != NULL && strcmp(view->socket_path, socket_path) != 0)
        view = view->next;
    if (view != NULL)
        return view->snapshot;
    view = calloc(1, sizeof *view);
    snprintf(folder, sizeof folder, "%s.served", socket_path);
    if (view == NULL || snapshot_open(folder, &view->snapshot, NULL) != 0) {
        free(view);
        return NULL;
    }
    snprintf(view->socket_path, sizeof view->socket_path, "%s", socket_path);
    view->next = tune->views;
    tune->views = view;
    return view->snapshot;
}

void handle_view_of(struct tune *tune, const char *socket_path)
{
    pthread_mutex_lock(&tune->view_lock);
    snprintf(tune->served_by, sizeof tune->served_by, "%s", socket_path);
    atomic_store(&tune->snapshot, find(tune, socket_path));
    pthread_mutex_unlock(&tune->view_lock);
}

void handle_view_look(struct tune *tune)
{
    char path[TUNE_SOCKET_PATH_BYTES];
    struct snapshot *snapshot = NULL;
    uint64_t tick = handle_tick();
    if (atomic_load(&tune->snapshot) != NULL || atomic_exchange(&tune->looked, tick) == tick)
        return;
    pthread_mutex_lock(&tune->view_lock);
    bool is_told = tune->served_by[0] != '\0';
    if (is_told)
        snapshot = find(tune, tune->served_by);
    else if (tune_socket_path(tune->asked_path, path, NULL) == 0)
        snapshot = find(tune, path);
    if (snapshot == NULL && !is_told && tune->asked_path == NULL && getenv("TUNE_SOCKET") == NULL)
        snapshot = find(tune, TUNE_SYSTEM_SOCKET);
    atomic_store(&tune->snapshot, snapshot);
    pthread_mutex_unlock(&tune->view_lock);
}

void handle_view_finish(struct tune *tune)
{
    struct view *next;
    for (struct view *view = tune->views; view != NULL; view = next) {
        next = view->next;
        snapshot_close(view->snapshot);
        free(view);
    }
}

int handle_view_get(struct tune *tune, const struct tune_query *query, struct tune_answer *answer)
{
    char key[SNAPSHOT_KEY_BYTES];
    struct snapshot *snapshot = atomic_load(&tune->snapshot);
    size_t length = snapshot ? snapshot_key(query, key) : 0;
    return length == 0 ? 1 : snapshot_get(snapshot, key, length, answer);
}
