/* The roads to an answer over a socket: what is sent for a key, and how the end of a reply is
 * known. All are bytes on a connected AF_UNIX stream. */
#ifndef BENCH_ROADS_H
#define BENCH_ROADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct road {
    const char *name;
    /* Writes the request for a shape; `number` counts requests. Returns its length (<= room). */
    size_t (*ask)(char *to, size_t room, size_t number, const int64_t *dims);
    /* Length of the first whole reply among `count` bytes, 0 where none is whole. Ends the program
     * where the reply is not the one that was asked for. */
    size_t (*reply)(const char *bytes, size_t count, size_t number);
    bool is_parsed; /* the client reads the reply with jansson */
};

#define ROAD_REQUEST_ROOM 512
#define ROAD_KEY_ROOM 96

/* NULL where there is none of the name. */
const struct road *road_find(const char *name);

/* Fixed sizes of the roads "raw" and "uv"; 200 and 200 at the start. */
extern size_t road_request_bytes, road_reply_bytes;

/* The key of a shape in stores that know keys only: "gemm|64,64,64|sm_90|f32". Its length. */
size_t road_key(char to[ROAD_KEY_ROOM], const int64_t *dims);

#endif
