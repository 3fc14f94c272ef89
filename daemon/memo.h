/* Answers kept ready: from the bytes of a question to the bytes of its answer. Knows neither.
 *
 * A table of fixed size in which a question has one of four places, which it may lose to others
 * that fall there. (With a single place each, 10,000 questions in 131,072 places kept putting each
 * other out: 4 in 100 were answered anew.) Above the limit of bytes, answers give way in the order
 * of their places, going round. An answer of another version is none: whatever may change an answer
 * must change the version. */
#ifndef TUNE_MEMO_H
#define TUNE_MEMO_H

#include <stddef.h>
#include <stdint.h>

struct memo;

struct memo *memo_create(size_t limit_bytes);
void memo_destroy(struct memo *memo); /* NULL is fine */

/* Borrowed until the next memo_put, or NULL. */
const char *memo_get(struct memo *memo, uint64_t version, const char *question,
    size_t question_length, size_t *answer_length);
/* `version`: the one in force when the answer was begun. */
void memo_put(struct memo *memo, uint64_t version, const char *question, size_t question_length,
    const char *answer, size_t answer_length);

size_t memo_bytes(const struct memo *memo);  /* held now */
uint64_t memo_hits(const struct memo *memo); /* answers found so far */

#endif
