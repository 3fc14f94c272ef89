/* What each of the driver's result codes means for a worker, in one table: whether the context
 * survives, whether the candidate or the device is to blame, and whether another try can help. A
 * code that the table does not know counts as fatal. */
#ifndef TUNE_WORKER_CUDA_ERRORS_H
#define TUNE_WORKER_CUDA_ERRORS_H

#include <jansson.h>
#include <stdbool.h>

enum cuda_blame { BLAME_CANDIDATE, BLAME_DEVICE };

struct cuda_error {
    unsigned code;
    const char *name;
    bool is_sticky; /* the context is lost: the worker ends, a new one takes over */
    enum cuda_blame blame;
    const char *outcome; /* tuning_db/record.h's word */
    bool is_retried;     /* the same candidate may succeed in a fresh worker */
    const char *hint;    /* sentence that helps a person, or NULL */
};

/* Never NULL. */
const struct cuda_error *cuda_error_find(unsigned code);

/* Why a step of setup, bench or confirm failed: the answer in the making. The first cause wins. */
struct verdict {
    const char *outcome; /* NULL: nothing failed */
    unsigned code;       /* the driver's, 0: not from the driver */
    bool is_sticky, is_retried;
    enum cuda_blame blame;
    char text[512];
};

/* Each returns -1, so that `return verdict_set(...)` reads well. */
int verdict_set(struct verdict *verdict, const char *outcome, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "doing: name (code N); hint". */
int verdict_cuda(struct verdict *verdict, unsigned code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds outcome, error, code, blame, retry and sticky to an answer. */
void verdict_to_json(const struct verdict *verdict, json_t *answer);

#endif
