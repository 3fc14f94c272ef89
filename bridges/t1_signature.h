/* What a kernel's source says of its parameters: enough to compare an argument list with it. */
#ifndef TUNE_BRIDGES_T1_SIGNATURE_H
#define TUNE_BRIDGES_T1_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>

#define SIGNATURE_PARAMS_MAX 64

struct signature {
    size_t count;
    bool is_pointer[SIGNATURE_PARAMS_MAX];
    char text[200]; /* the list as it stands, cut */
};

/* Finds `__global__ ... name(...)`, outside comments. False when there is none that can be read. */
bool signature_find(const char *source, const char *name, struct signature *signature);

#endif
