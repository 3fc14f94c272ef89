/* See support.h. */
#include "support.h"

#include "client/proto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *data_path(const char *name)
{
    static char path[4096];
    const char *root = getenv("TUNE_SOURCE_DIR");
    assert_non_null(root);
    snprintf(path, sizeof path, "%s/tests/data/manifests/%s", root, name);
    return path;
}

char *read_text(const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail_msg("cannot open %s", path);
    size_t room = 2 << 20;
    char *text = malloc(room);
    assert_non_null(text);
    text[fread(text, 1, room - 1, file)] = '\0';
    fclose(file);
    return text;
}

struct manifest *load_valid(const char *name)
{
    struct tune_error err = {0};
    struct manifest *manifest = load_changed(name, "{}", &err);
    if (manifest == NULL)
        fail_msg("%s: %s", name, err.text);
    return manifest;
}

struct manifest *load_changed(const char *name, const char *changes, struct tune_error *err)
{
    char file[64];
    snprintf(file, sizeof file, "valid/%s/manifest.json", name);
    char *text = read_text(data_path(file));
    json_t *json = parse_json(text), *patch = parse_json(changes);
    json_object_update(json, patch);
    char *changed = json_dumps(json, 0);
    struct manifest *manifest = manifest_create(changed, strlen(changed), "test.json", err);
    json_decref(json);
    json_decref(patch);
    free(changed);
    free(text);
    return manifest;
}

struct device_info device_of(const char *arch)
{
    struct device_info device;
    assert_int_equal(device_generic(arch, &device, NULL), 0);
    return device;
}

json_t *parse_json(const char *text)
{
    struct tune_error err = {0};
    json_t *json = proto_parse(text, strlen(text), &err);
    if (json == NULL)
        fail_msg("%s in %s", err.text, text);
    return json;
}

void assert_json_equal(json_t *actual, json_t *expected)
{
    if (!json_equal(actual, expected)) {
        char *first = json_dumps(actual, JSON_SORT_KEYS | JSON_ENCODE_ANY);
        char *second = json_dumps(expected, JSON_SORT_KEYS | JSON_ENCODE_ANY);
        fail_msg("got      %s\nexpected %s", first ? first : "NULL", second ? second : "NULL");
    }
    json_decref(actual);
    json_decref(expected);
}
