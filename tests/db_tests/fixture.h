/* What the tests of the tuning database share: a temporary folder and samples made of a few
 * numbers. */
#ifndef DB_FIXTURE_H
#define DB_FIXTURE_H

#include "tuning_db/tuning_db.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdint.h>

/* A new folder under TMPDIR; `path_in` names something in it (of the last four results one stays
 * valid). */
void fixture_make(void);
void fixture_remove(void); /* with all that is in it */
/* The two as a test's setup and teardown. */
int fixture_setup(void **state);
int fixture_teardown(void **state);
const char *fixture_dir(void);
const char *path_in(const char *name);

/* Opens DIR/db or fails the test with the error's text. */
struct tuning_db *open_db(const struct tuning_db_options *options);
/* Opens, must fail with this code, and prints nothing. */
void refuse_db(enum tune_code code, const char *part_of_text);

extern const struct record_key gemm_key;

/* An ok, final sample of gemm_key on "gpu-0"; its texts stay valid until the 64th call after. */
struct sample make_sample(unsigned config, const char *run, double median_ns);

/* Puts one sample, refreshes its key, commits; fails the test on any error. */
void put_sample_now(struct tuning_db *db, const struct sample *sample);
/* Commits and destroys, or fails the test with the error's text. */
void commit_now(struct tuning_db *db, struct tuning_db_batch *batch);

/* Whole files. read_file mallocs. */
char *read_file(const char *path, size_t *count);
void write_file(const char *path, const void *bytes, size_t count);

uint64_t next_random(uint64_t *state);

/* Runs a function in a forked child: its wait status. */
int run_in_child(void (*body)(void *context), void *context);

#endif
