/* Keys of snapshots. See snapshot.h. */
#include "client/snapshot.h"

#include <string.h>

struct key_builder {
    char *at, *end; /* at NULL: it did not fit */
};

/* With its NUL, which no text has inside: different texts never run together. The texts are short:
 * a loop costs less than two calls of the library. */
static inline void add_text(struct key_builder *builder, const char *text)
{
    char *at = builder->at;
    while (at != NULL && at < builder->end) {
        if ((*at++ = *text++) == '\0') {
            builder->at = at;
            return;
        }
    }
    builder->at = NULL;
}

static inline void add_number(struct key_builder *builder, int64_t number)
{
    if (builder->at == NULL || builder->end - builder->at < (ptrdiff_t)sizeof number) {
        builder->at = NULL;
        return;
    }
    memcpy(builder->at, &number, sizeof number);
    builder->at += sizeof number;
}

#define KEY_DIMS_MAX 16

/* The dims in the order of their names; false where a name comes twice. */
static bool sort_dims(const struct tune_query *query, const struct tune_dim *sorted[KEY_DIMS_MAX])
{
    for (size_t i = 0; i < query->dim_count; i++) {
        size_t at = i;
        for (; at > 0; at--) {
            const char *before = sorted[at - 1]->name, *name = query->dims[i].name;
            int order = before[0] != name[0] ? (unsigned char)before[0] - (unsigned char)name[0]
                                             : strcmp(before, name);
            if (order == 0)
                return false;
            if (order < 0)
                break;
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = &query->dims[i];
    }
    return true;
}

size_t snapshot_key(const struct tune_query *query, char key[SNAPSHOT_KEY_BYTES])
{
    struct key_builder builder = {key, key + SNAPSHOT_KEY_BYTES};
    const struct tune_dim *sorted[KEY_DIMS_MAX];
    if (query->kernel == NULL || query->session != NULL ||
        (query->arch != NULL && query->gpu != NULL) || query->dim_count > KEY_DIMS_MAX ||
        !sort_dims(query, sorted))
        return 0;
    add_text(&builder, query->kernel);
    add_text(&builder, query->dtype ? query->dtype : "");
    add_text(&builder, query->mode ? query->mode : "cold");
    /* A GPU may be named like an arch. */
    add_text(&builder, query->gpu ? "gpu" : query->arch ? "arch" : "");
    add_text(&builder, query->gpu ? query->gpu : query->arch ? query->arch : "");
    for (size_t i = 0; i < query->dim_count; i++) {
        add_text(&builder, sorted[i]->name);
        add_number(&builder, sorted[i]->value);
    }
    return builder.at == NULL ? 0 : (size_t)(builder.at - key);
}
