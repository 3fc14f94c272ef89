/* What client.c, start.c and the parts of a handle share and nobody else sees. */
#ifndef TUNE_CLIENT_INTERNAL_H
#define TUNE_CLIENT_INTERNAL_H

#include "tune_rpc.h"

#include <stdbool.h>

#define CLIENT_HELLO_MS 5000 /* a daemon answers `ping` at once, or it is stopped */

/* Connects to exactly this path and checks who answers. *client is new. */
int client_open(
    const char *path, int limit_ms, struct tune_client **client, struct tune_error *err);

/* tune_connect with a limit of its own. */
int client_connect(
    const char *path, int limit_ms, struct tune_client **client, struct tune_error *err);

/* Whether the last request failed for the connection and not by the daemon's word. */
bool client_is_lost(const struct tune_client *client);

/* For who never calls tune_next: none is kept. */
void client_ignore_notifications(struct tune_client *client);

/* Monotonic milliseconds. */
long long client_now_ms(void);

#endif
