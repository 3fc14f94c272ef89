/* A T1 problem description (the tuning community's input format) as a kernel of ours. Pure.
 *
 * What comes out is a manifest, with a small source that includes the description's own. Values and
 * conditions are Python and are read by python.h, never executed. What a manifest cannot say, or
 * what contradicts itself in the file, becomes a warning: a space that can be used stays usable,
 * also where the kernel cannot be launched as described. */
#ifndef TUNE_BRIDGES_T1_H
#define TUNE_BRIDGES_T1_H

#include "plugins/manifest.h"

#define T1_LIMIT_BYTES ((size_t)1 << 20)

struct t1_options {
    const char *file;   /* names the description in sentences and gives a kernel its name */
    const char *name;   /* of the kernel; NULL: from the description */
    const char *dtype;  /* what records are kept under; NULL: that of the first vector argument */
    const char *source; /* text of the description's KernelFile; NULL: not at hand */
};

struct t1_plugin {
    char *name;
    char *manifest;        /* NAME.json */
    char *source;          /* its text, and */
    char *source_name;     /* what it is called beside the manifest */
    char *included_name;   /* the KernelFile as the source includes it */
    size_t configurations; /* of the space; 0: more than can be counted */
    json_t *warnings;      /* sentences */
};

/* New (json_decref): the description; TUNE_EPARSE, or TUNE_EINVAL for what is no T1. */
json_t *t1_parse(const char *text, size_t length, struct tune_error *err);
/* The KernelFile as the description names it, borrowed; "" when it names none. */
const char *t1_kernel_file(const json_t *t1);

/* 0, or -1 with what is wrong and where; t1_plugin_finish in any case. */
int t1_convert(const json_t *t1, const struct t1_options *options, struct t1_plugin *plugin,
    struct tune_error *err);
void t1_plugin_finish(struct t1_plugin *plugin);

#endif
