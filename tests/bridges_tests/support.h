/* What the tests of bridges/ share. */
#ifndef BRIDGES_SUPPORT_H
#define BRIDGES_SUPPORT_H

#include "client/error.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* tests/data/bridges/NAME, malloc'ed and NUL-terminated; the test fails when it cannot be read. */
char *data_file(const char *name, size_t *length);
/* Whether a list of sentences has one with this in it. */
int has_warning(const json_t *warnings, const char *fragment);

#endif
