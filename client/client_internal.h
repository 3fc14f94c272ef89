/* What client.c and start.c share and nobody else sees. */
#ifndef TUNE_CLIENT_INTERNAL_H
#define TUNE_CLIENT_INTERNAL_H

#include "tune_rpc.h"

/* Connects to exactly this path and checks who answers. *client is new. */
int client_open(const char *path, struct tune_client **client, struct tune_error *err);

/* Monotonic milliseconds. */
long long client_now_ms(void);

#endif
