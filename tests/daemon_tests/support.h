/* What the tests of the daemon's modules share: a loop with a limit on every wait, a temporary
 * folder, the stand-in worker's environment and log. */
#ifndef DAEMON_SUPPORT_H
#define DAEMON_SUPPORT_H

#include <jansson.h>
#include <uv.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A new loop, and a new folder under TMPDIR. SIGPIPE is ignored, as the daemon does. */
int support_start(void **state);
/* The loop must close with nothing left on it, no child may be left, and no descriptor more be open
 * than at the start; removes the folder. */
int support_finish(void **state);

uv_loop_t *test_loop(void);
/* Turns the loop until `is_done(context)`; fails the test when that takes 30 s. */
void run_until(bool (*is_done)(void *context), void *context);
/* The same for a flag. */
void run_until_true(const bool *flag);
/* Turns the loop without waiting, `turns` times. */
void run_turns(int turns);

/* A path in the folder, static storage; the last four results stay valid. */
const char *path_in(const char *name);

/* The stand-in worker's program, and its environment: ours, FAKE_LOG, and "NAME=VALUE" of set_fake
 * since support_start. */
const char *fake_worker(void);
void set_fake(const char *assignment);
const char *const *fake_env(void);
/* Lines in the stand-in's log that begin with `text`. */
int noted(const char *text);
/* The number after `text` in its first line in the log; -1: none. */
int noted_number(const char *text);
/* By how many lines of `leader` those of `follower` were behind at most. */
int noted_ahead(const char *leader, const char *follower);

int open_descriptors(void);
bool has_children(void);

#endif
