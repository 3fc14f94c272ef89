/* The members of a JSON object as the bytes they are written in, so that what is not understood can
 * be handed on unchanged. Pure. */
#ifndef TUNE_RECORD_MEMBERS_H
#define TUNE_RECORD_MEMBERS_H

#include "client/error.h"

#include <stdbool.h>
#include <stddef.h>

#define RECORD_MEMBERS_MAX 256
#define RECORD_NAME_LIMIT_BYTES 64

struct member {
    const char *name; /* without its quotes; borrowed from the text, as `value` */
    const char *value;
    size_t name_bytes, value_bytes;
};

struct members {
    size_t count;
    const char *comma; /* the one before the last member; NULL with fewer than two */
    struct member of[RECORD_MEMBERS_MAX];
};

/* Whether a name is made of letters, digits, '_', '-' and '.', 1 to `limit_bytes` bytes. */
bool is_plain_name(const char *name, size_t length, size_t limit_bytes);

/* Splits an object that proto_parse has accepted. 0, or -1: TUNE_EINVAL for a name that is not
 * plain (so that it needs no unescaping), TUNE_ELIMIT for too many. */
int members_split(const char *text, size_t length, struct members *members, struct tune_error *err);
bool member_is(const struct member *member, const char *name);
void members_sort(struct members *members); /* by name; `comma` becomes NULL */

#endif
