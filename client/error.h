/* One error convention for every library of tunerd.
 *
 * A function that can fail because the world or a caller is wrong returns 0 or -1 (or a NULL
 * pointer) and fills a caller-owned `struct tune_error`, which comes last in its parameters and may
 * be NULL. The first cause wins: setting an error that is already set changes nothing, so a
 * callee's sentence is never overwritten by its caller's vaguer one. Texts tell a person what is
 * wrong and what to do about it. Our own mistakes are assertions, not errors. */
#ifndef TUNE_ERROR_H
#define TUNE_ERROR_H

#include <stdarg.h>

/* X(name, word): the word is stable and travels in `error.data.code` of JSON-RPC replies. */
#define TUNE_CODES(X)                                                                              \
    X(OK, "ok")                                                                                    \
    X(EINVAL, "invalid_request") /* an argument, field or file content is wrong */                 \
    X(EPARSE, "parse_error")     /* bytes are not the JSON (or expression) they should be */       \
    X(EMETHOD, "unknown_method")                                                                   \
    X(ENOTFOUND, "not_found")                                                                      \
    X(ELIMIT, "limit") /* a documented limit was met; the text has the number */                   \
    X(EPERM, "not_permitted")                                                                      \
    X(EBUSY, "busy")                                                                               \
    X(ETIMEOUT, "timeout")                                                                         \
    X(EIO, "io")           /* disk, socket or process trouble; the text has errno's words */       \
    X(EDAMAGED, "damaged") /* stored bytes fail their checksum or are cut short */                 \
    X(EFULL, "database_full")                                                                      \
    X(EVERSION, "version")       /* bytes or a plugin of a version this build does not read */     \
    X(EEMPTY, "empty_space")     /* constraints leave no configuration */                          \
    X(EMATH, "expression_error") /* division by zero or 64-bit overflow while evaluating */        \
    X(ENODAEMON, "no_daemon")                                                                      \
    X(ENODEVICE, "no_device")                                                                      \
    X(ENOCOMPILER, "no_compiler")                                                                  \
    X(ECANCELED, "canceled")                                                                       \
    X(ENOMEM, "no_memory")                                                                         \
    X(EINTERNAL, "internal")

enum tune_code {
#define X(name, word) TUNE_##name,
    TUNE_CODES(X)
#undef X
};

struct tune_error {
    enum tune_code code;
    char text[240];
};

/* The stable word of a code ("limit"), never NULL. */
const char *tune_code_word(enum tune_code code);
/* The code of an error's word; TUNE_EINTERNAL for NULL and for what is no error's word. */
enum tune_code tune_code_from_word(const char *word);

/* Sets *err unless it is NULL or already set, and returns -1 so that `return tune_fail(...)` reads
 * well. Text longer than the buffer is cut at a UTF-8 character. */
int tune_fail(struct tune_error *err, enum tune_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same with errno's words appended: "cannot open FILE: No such file or directory". A text that
 * is too long loses its end, never errno's words. */
int tune_fail_errno(struct tune_error *err, enum tune_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
