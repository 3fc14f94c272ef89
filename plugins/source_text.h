/* CUDA source as text: its tokens without comments and blanks, and what it includes. Pure.
 *
 * Two texts have equal canonical forms exactly when a compiler sees the same tokens, so that
 * comments and layout never cost a re-tuning. Lines matter only to preprocessor directives, which
 * keep a line of their own. Trigraphs and line splices inside raw strings are not known here. */
#ifndef TUNE_SOURCE_TEXT_H
#define TUNE_SOURCE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* The canonical form, malloc'ed and NUL-terminated; NULL only without memory. */
char *source_tokens(const char *text, size_t length);

enum include_form { INCLUDE_QUOTED, INCLUDE_ANGLED, INCLUDE_COMPUTED };

struct source_include {
    enum include_form form;
    const char *name; /* borrowed from the tokens; not NUL-terminated */
    size_t length;
};

/* The next #include at or after `at` in a canonical form; where to go on, or NULL at the end. */
const char *source_next_include(const char *at, struct source_include *include);

/* Whether the name of a file leads to its folder or below it, and never out: what is compiled must
 * be what is hashed, a log must not show lines of other files, and a description that was sent by
 * somebody names nobody else's. */
bool source_is_inside(const char *name);

#endif
