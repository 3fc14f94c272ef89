/* What several tests of plugins/ need: manifests from tests/data/manifests, a device, edited texts.
 */
#ifndef SUPPORT_H
#define SUPPORT_H

#include "plugins/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The path of tests/data/manifests/NAME; static storage. */
const char *data_path(const char *name);
/* A whole file, malloc'ed and NUL-terminated; the test fails when it cannot be read. */
char *read_text(const char *path);

/* valid/NAME; the test fails when it does not load. */
struct manifest *load_valid(const char *name);
/* valid/NAME with top-level fields replaced by those of `changes`, a JSON object in text; NULL and
 * *err when it does not load. */
struct manifest *load_changed(const char *name, const char *changes, struct tune_error *err);

/* The limits of an sm_90 or other generic device. */
struct device_info device_of(const char *arch);

json_t *parse_json(const char *text);
/* Fails with both texts unless the values are equal. Takes both. */
void assert_json_equal(json_t *actual, json_t *expected);

#endif
