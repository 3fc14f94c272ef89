/* Where the files lie that a program of tunerd needs and that are no programs: shared ones of the
 * installation ("plugins", "records", "report"), and kernels' folders of the user. Nothing is
 * opened here, and a folder that is told need not exist. */
#ifndef TUNE_FOLDERS_H
#define TUNE_FOLDERS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* The index-th folder in which the installation's NAME may be, in the order to look: seen from
 * where this library (or the program that carries it) lies, then from the running program, then at
 * the prefix that it was built for. False past the last one. */
bool folders_installed(size_t index, const char *name, char path[PATH_MAX]);

/* The same for folders of kernels, as the daemon of this user has them: those of TUNE_PLUGIN_PATH,
 * the user's own, the installed one. A program with raised rights takes nothing from its
 * environment. */
bool folders_of_plugins(size_t index, char path[PATH_MAX]);

/* Whether it can be the name of a kernel, and so of a folder: names come from foreign files. */
bool folders_is_kernel(const char *name);

#endif
