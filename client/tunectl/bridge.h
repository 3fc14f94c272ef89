/* Files of other tuners behind `import --from` and `export --to`. */
#ifndef TUNECTL_BRIDGE_H
#define TUNECTL_BRIDGE_H

#include "exchange.h"
#include "tunectl.h"

/* Imports one foreign file as `import` does one of ours: new report with the file's "warnings",
 * which stand on standard error too, or {"name","error":{"code","message"}}. */
json_t *bridge_import_file(struct tunectl *ctl, const struct args *args, const char *path,
    const struct exchange_options *options);

/* `export --to`, from the command line to the exit status. */
int bridge_export(struct tunectl *ctl, const struct args *args);

/* Options that need --from (or --to) and were given without: a usage error in *err, and -1. */
int bridge_check_options(const struct args *args, struct tune_error *err);

/* A whole file, plain or gzipped; "-" is standard input. malloc'ed with a NUL behind, or NULL. */
char *bridge_read_file(const char *path, size_t limit, size_t *length, struct tune_error *err);

#endif
