/* See folders.h. */
#include "folders.h"
#include "tune.h"

#include "plugins/manifest.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *environment(const char *name)
{
    const char *value = secure_getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool fits(int length)
{
    return length > 0 && length < PATH_MAX;
}

/* The folder that `way` leads to from the folder of `file`. */
static bool beside(const char *file, const char *way, const char *name, char path[PATH_MAX])
{
    char real[PATH_MAX];
    if (realpath(file, real) == NULL)
        return false;
    *strrchr(real, '/') = '\0';
    return fits(snprintf(path, PATH_MAX, "%s/%s/tunerd/%s", real, way, name));
}

static bool beside_library(const char *name, char path[PATH_MAX])
{
    Dl_info self;
    return dladdr((const void *)&tune_open, &self) != 0 &&
           beside(self.dli_fname, TUNE_LIB_TO_DATA, name, path);
}

static bool at_prefix(const char *name, char path[PATH_MAX])
{
    return fits(snprintf(path, PATH_MAX, TUNE_DATADIR "/tunerd/%s", name));
}

bool folders_installed(size_t index, const char *name, char path[PATH_MAX])
{
    if (beside_library(name, path) && index-- == 0)
        return true;
    if (beside("/proc/self/exe", TUNE_BIN_TO_DATA, name, path) && index-- == 0)
        return true;
    return at_prefix(name, path) && index == 0;
}

static bool of_user(char path[PATH_MAX])
{
    const char *data = environment("XDG_DATA_HOME"), *home = environment("HOME");
    bool has_data = data != NULL && data[0] == '/';
    if (!has_data && (home == NULL || home[0] != '/'))
        return false;
    return fits(snprintf(path, PATH_MAX, "%s%s/tunerd/plugins", has_data ? data : home,
        has_data ? "" : "/.local/share"));
}

bool folders_of_plugins(size_t index, char path[PATH_MAX])
{
    const char *list = environment("TUNE_PLUGIN_PATH");
    while (list != NULL && *list != '\0') {
        int length = (int)strcspn(list, ":");
        if (fits(snprintf(path, PATH_MAX, "%.*s", length, list)) && index-- == 0)
            return true;
        list += length + (list[length] == ':');
    }
    if (of_user(path) && index-- == 0)
        return true;
    return folders_installed(index, "plugins", path);
}

bool folders_is_kernel(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    size_t length = strspn(name, letters);
    return name[0] >= 'a' && name[0] <= 'z' && name[length] == '\0' && length <= MANIFEST_MAX_NAME;
}
