/* See roads.h. */
#include "roads.h"
#include "asked.h"
#include "measure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t road_request_bytes = 200, road_reply_bytes = 200;

size_t road_key(char to[ROAD_KEY_ROOM], const int64_t *dims)
{
    return (size_t)snprintf(to, ROAD_KEY_ROOM,
        ASKED_KERNEL "|%" PRId64 ",%" PRId64 ",%" PRId64 "|" ASKED_ARCH "|" ASKED_DTYPE, dims[0],
        dims[1], dims[2]);
}

/* --- echoes ----------------------------------------------------------------------------------- */

static size_t ask_echo(char *to, size_t room, size_t number, const int64_t *dims)
{
    (void)number;
    (void)dims;
    if (road_request_bytes > room)
        bench_fail("a request has at most %zu bytes", room);
    memset(to, 'x', road_request_bytes);
    return road_request_bytes;
}

static size_t reply_echo(const char *bytes, size_t count, size_t number)
{
    (void)bytes;
    (void)number;
    return count >= road_reply_bytes ? road_reply_bytes : 0;
}

/* --- tunerd: a line of JSON-RPC, as libtune writes it ------------------------------------------
 */

static size_t ask_tunerd(char *to, size_t room, size_t number, const int64_t *dims)
{
    return (size_t)snprintf(to, room,
        "{\"jsonrpc\":\"2.0\",\"id\":%zu,\"method\":\"get\",\"params\":{\"kernel\":\"" ASKED_KERNEL
        "\",\"shape\":{\"M\":%" PRId64 ",\"N\":%" PRId64 ",\"K\":%" PRId64
        "},\"arch\":\"" ASKED_ARCH "\"}}\n",
        number, dims[0], dims[1], dims[2]);
}

/* Each reply must be the answer to its request (one connection's hits are answered in order), and
 * an exact one. */
static size_t reply_tunerd(const char *bytes, size_t count, size_t number)
{
    const char *end = memchr(bytes, '\n', count);
    if (end == NULL)
        return 0;
    size_t length = (size_t)(end - bytes) + 1;
    char head[64];
    int head_length =
        snprintf(head, sizeof head, "{\"jsonrpc\":\"2.0\",\"id\":%zu,\"result\":{", number);
    if (length < (size_t)head_length || memcmp(bytes, head, (size_t)head_length) != 0 ||
        memmem(bytes, length, "\"origin\":\"exact\"", 16) == NULL)
        bench_fail("not the exact answer to request %zu: %.*s", number, (int)length, bytes);
    return length;
}

/* --- Redis: RESP by hand ---------------------------------------------------------------------- */

static size_t ask_redis(char *to, size_t room, size_t number, const int64_t *dims)
{
    char key[ROAD_KEY_ROOM];
    size_t length = road_key(key, dims);
    (void)number;
    return (size_t)snprintf(to, room, "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n", length, key);
}

static size_t reply_redis(const char *bytes, size_t count, size_t number)
{
    const char *end = memchr(bytes, '\n', count);
    if (end == NULL)
        return 0;
    if (bytes[0] != '$' || bytes[1] == '-')
        bench_fail("Redis does not have key %zu: %.*s", number, (int)(end - bytes), bytes);
    size_t length = (size_t)(end + 1 - bytes) + strtoul(bytes + 1, NULL, 10) + 2;
    return count >= length ? length : 0;
}

/* --- memcached: its text protocol ------------------------------------------------------------- */

static size_t ask_memcached(char *to, size_t room, size_t number, const int64_t *dims)
{
    char key[ROAD_KEY_ROOM];
    (void)number;
    road_key(key, dims);
    return (size_t)snprintf(to, room, "get %s\r\n", key);
}

/* VALUE key flags bytes\r\n data \r\nEND\r\n */
static size_t reply_memcached(const char *bytes, size_t count, size_t number)
{
    const char *end = memchr(bytes, '\n', count);
    if (end == NULL)
        return 0;
    unsigned long data = 0;
    if (sscanf(bytes, "VALUE %*s %*u %lu", &data) != 1)
        bench_fail("memcached does not have key %zu: %.*s", number, (int)(end - bytes), bytes);
    size_t length = (size_t)(end + 1 - bytes) + data + 2 + 5;
    return count >= length ? length : 0;
}

/* --- the table -------------------------------------------------------------------------------- */

static const struct road roads[] = {
    {"raw", ask_echo, reply_echo, false},
    {"uv", ask_echo, reply_echo, false},
    {"tunerd", ask_tunerd, reply_tunerd, false},
    {"tunerd-parsed", ask_tunerd, reply_tunerd, true},
    {"redis", ask_redis, reply_redis, false},
    {"memcached", ask_memcached, reply_memcached, false},
};

const struct road *road_find(const char *name)
{
    for (size_t i = 0; i < sizeof roads / sizeof roads[0]; i++)
        if (strcmp(roads[i].name, name) == 0)
            return &roads[i];
    return NULL;
}
