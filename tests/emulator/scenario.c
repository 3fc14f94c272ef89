#include "scenario.h"
#include "json.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define RULES 256
#define ARCHS 32

/* What a rule does: X(word, enumerator). */
#define ACTIONS(X)                                                                                 \
    X("error", ERROR)                                                                              \
    X("fault", FAULT)                                                                              \
    X("hang", HANG)                                                                                \
    X("abort", ABORT)                                                                              \
    X("exit", EXIT)                                                                                \
    X("garbage", GARBAGE)                                                                          \
    X("time_ns", TIME)                                                                             \
    X("delay_ms", DELAY)                                                                           \
    X("registers", REGISTERS)

enum action {
#define X(word, name) DO_##name,
    ACTIONS(X)
#undef X
        ACTION_COUNT
};

struct rule {
    const char *call, *entry;
    const struct json *defines;
    int device; /* -1: any */
    enum action action;
    double value; /* code, time_ns, ms, registers */
    bool is_sticky;
    uint64_t nth, times;     /* times 0: always */
    uint64_t matches, fired; /* of this process, without a state folder */
};

static struct {
    struct json *root;
    struct scenario_device devices[SCENARIO_DEVICES];
    int device_count;
    int driver_version, nvrtc_major, nvrtc_minor;
    int archs[ARCHS], arch_count;
    struct rule rules[RULES];
    size_t rule_count;
    const char *state;
    double noise;
    uint64_t random;
} scenario;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

/* --- reading ---------------------------------------------------------------------------------- */

__attribute__((noreturn, format(printf, 1, 2))) static void refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("emulator: TUNE_SCENARIO: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    _exit(78);
}

static char *read_all(const char *path)
{
    char *text = NULL;
    size_t length;
    int c;
    FILE *file = fopen(path, "re"), *out = open_memstream(&text, &length);
    if (!file || !out)
        refuse("cannot read %s: %s", path, strerror(errno));
    while ((c = getc(file)) != EOF)
        putc(c, out);
    fclose(file);
    fclose(out);
    return text;
}

static void default_uuid(unsigned char uuid[16], int ordinal)
{
    static const unsigned char base[16] = {0xe0, 0xe0, 0x1a, 0x70, 0x00, 0x01, 0x40, 0x00, 0x80,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
    memcpy(uuid, base, 16);
    uuid[15] = (unsigned char)ordinal;
}

/* "GPU-e0e01a70-0001-...", with or without the prefix. */
static bool read_uuid(const char *text, unsigned char uuid[16])
{
    int digits = 0;
    for (const char *p = strncmp(text, "GPU-", 4) == 0 ? text + 4 : text; *p; p++) {
        const char hex[] = "0123456789abcdef";
        const char *digit = strchr(hex, *p | 0x20);
        if (*p == '-')
            continue;
        if (!digit || digits == 32)
            return false;
        uuid[digits / 2] = (unsigned char)(uuid[digits / 2] << 4 | (digit - hex));
        digits++;
    }
    return digits == 32;
}

static void read_device(const struct json *json, struct scenario_device *device, int ordinal)
{
    const char *uuid = json_text(json, "uuid", NULL);
    snprintf(device->name, sizeof device->name, "%s", json_text(json, "name", "CPU emulator"));
    device->major = (int)json_number(json, "major", 0);
    device->minor = (int)json_number(json, "minor", 0);
    device->sms = (int)json_number(json, "sms", 4);
    device->memory_bytes = (uint64_t)json_number(json, "memory_bytes", 2147483648.0);
    default_uuid(device->uuid, ordinal);
    if (uuid && !read_uuid(uuid, device->uuid))
        refuse("uuid \"%s\" has not 32 hexadecimal digits", uuid);
    if (uuid && ordinal > 0 && json_member(json, "count"))
        device->uuid[15] = (unsigned char)(device->uuid[15] + ordinal);
}

/* "device" is one object, with "count" of its kind, or a list of different ones. */
static void read_devices(const struct json *json)
{
    bool is_list = json && json->kind == JSON_ARRAY;
    const struct json *item = is_list ? json->first : json;
    double count = is_list ? 0 : json_number(json, "count", 1);
    for (const struct json *i = is_list ? item : NULL; i; i = i->next)
        count++;
    if (count < 0 || count > SCENARIO_DEVICES)
        refuse("device count %g is not 0 to %d", count, SCENARIO_DEVICES);
    scenario.device_count = (int)count;
    for (int i = 0; i < scenario.device_count; i++) {
        read_device(item, &scenario.devices[i], i);
        item = is_list ? item->next : item;
    }
}

static enum action read_action(const struct json *rule)
{
    static const char *const words[] = {
#define X(word, name) word,
        ACTIONS(X)
#undef X
    };
    const char *word = json_text(rule, "do", "");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return (enum action)i;
    refuse("\"do\": \"%s\" is not one of error, fault, hang, abort, exit, garbage, time_ns, "
           "delay_ms, registers",
        word);
}

/* The action's number stands under the action's own name, or under "code" or "value". */
static double read_rule_value(const struct json *rule, enum action action)
{
    double value = json_number(rule, "value", 0);
    if (action == DO_ERROR || action == DO_FAULT || action == DO_EXIT)
        return json_number(rule, "code", action == DO_ERROR ? 999 : action == DO_FAULT ? 700 : 1);
    return json_number(rule, json_text(rule, "do", ""), value);
}

static void read_rule(const struct json *json, struct rule *rule)
{
    static const char *const known[] = {"call", "when", "nth", "times", "do", "code", "sticky",
        "value", "time_ns", "delay_ms", "registers"};
    for (const struct json *m = json->first; m; m = m->next) {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known |= m->key && strcmp(m->key, known[i]) == 0;
        if (!is_known)
            refuse("a rule has the unknown field \"%s\"", m->key ? m->key : "");
    }
    const struct json *when = json_member(json, "when");
    rule->call = json_text(json, "call", NULL);
    if (!rule->call)
        refuse("a rule has no \"call\"");
    rule->entry = json_text(when, "entry", NULL);
    rule->defines = json_member(when, "defines");
    rule->device = (int)json_number(when, "device", -1);
    rule->action = read_action(json);
    rule->value = read_rule_value(json, rule->action);
    rule->is_sticky = json_number(json, "sticky", 0) != 0;
    rule->nth = (uint64_t)json_number(json, "nth", 1);
    rule->times = (uint64_t)json_number(json, "times", 0);
}

static void read_rules(const struct json *rules)
{
    for (const struct json *r = rules ? rules->first : NULL; r; r = r->next) {
        if (scenario.rule_count == RULES)
            refuse("more than %d rules", RULES);
        read_rule(r, &scenario.rules[scenario.rule_count++]);
    }
}

/* "nvrtc": {"version": [13, 0], "archs": [75, 80]}; "driver": 13000 */
static void read_versions(const struct json *root)
{
    const struct json *nvrtc = json_member(root, "nvrtc");
    const struct json *version = json_member(nvrtc, "version"),
                      *archs = json_member(nvrtc, "archs");
    scenario.driver_version = (int)json_number(root, "driver", 13000);
    if (version && version->first && version->first->next) {
        scenario.nvrtc_major = (int)version->first->number;
        scenario.nvrtc_minor = (int)version->first->next->number;
    }
    if (!archs)
        return;
    scenario.arch_count = 0;
    for (const struct json *a = archs->first; a && scenario.arch_count < ARCHS; a = a->next)
        scenario.archs[scenario.arch_count++] = (int)a->number;
}

static void read_scenario(void)
{
    const char *path = getenv("TUNE_SCENARIO");
    scenario.nvrtc_major = 13;
    scenario.arch_count = 1; /* 0: the emulator's own */
    if (path && *path) {
        size_t position;
        char *text = read_all(path);
        scenario.root = json_read(text, &position);
        if (!scenario.root)
            refuse("%s is no JSON at byte %zu", path, position);
        free(text);
    }
    read_devices(json_member(scenario.root, "device"));
    read_versions(scenario.root);
    read_rules(json_member(scenario.root, "rules"));
    const struct json *noise = json_member(scenario.root, "noise");
    scenario.state = json_text(scenario.root, "state", NULL);
    scenario.noise = json_number(noise, "relative", 0);
    scenario.random = (uint64_t)json_number(noise, "seed", 1);
}

static void load(void)
{
    pthread_once(&once, read_scenario);
}

/* --- what there is ---------------------------------------------------------------------------- */

int scenario_device_count(void)
{
    load();
    return scenario.device_count;
}

const struct scenario_device *scenario_device(int ordinal)
{
    load();
    return &scenario.devices[ordinal];
}

int scenario_driver_version(void)
{
    load();
    return scenario.driver_version;
}

void scenario_nvrtc_version(int *major, int *minor)
{
    load();
    *major = scenario.nvrtc_major;
    *minor = scenario.nvrtc_minor;
}

const int *scenario_archs(int *count)
{
    load();
    *count = scenario.arch_count;
    return scenario.archs;
}

double scenario_noise(void)
{
    load();
    if (scenario.noise == 0)
        return 1;
    scenario.random += 0x9E3779B97F4A7C15u; /* splitmix64 */
    uint64_t z = scenario.random;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return 1 + scenario.noise * (2 * ((double)(z >> 11) / 9007199254740992.0) - 1);
}

bool scenario_asks_about(const char *macro)
{
    load();
    for (size_t i = 0; i < scenario.rule_count; i++)
        if (strcmp(scenario.rules[i].call, "nvrtcCompileProgram") != 0 &&
            json_member(scenario.rules[i].defines, macro))
            return true;
    return false;
}

/* --- matching --------------------------------------------------------------------------------- */

/* Whether "NAME=value\n..." has this macro with this value. */
static bool has_define(const char *defines, const struct json *wanted)
{
    size_t length = strlen(wanted->key);
    for (const char *line = defines ? defines : ""; *line; line += strcspn(line, "\n") + 1) {
        if (strncmp(line, wanted->key, length) != 0 || line[length] != '=')
            continue;
        const char *value = line + length + 1;
        if (wanted->kind == JSON_NUMBER)
            return strtod(value, NULL) == wanted->number;
        return wanted->text && strcspn(value, "\n") == strlen(wanted->text) &&
               strncmp(value, wanted->text, strlen(wanted->text)) == 0;
    }
    return false;
}

static bool rule_matches(const struct rule *rule, const struct scenario_call *call)
{
    if (strcmp(rule->call, "*") != 0 && strcmp(rule->call, call->call) != 0)
        return false;
    if (rule->entry && (!call->entry || strcmp(rule->entry, call->entry) != 0))
        return false;
    if (rule->device >= 0 && rule->device != call->device)
        return false;
    for (const struct json *d = rule->defines ? rule->defines->first : NULL; d; d = d->next)
        if (!has_define(call->defines, d))
            return false;
    return true;
}

/* Counts a match and decides; with a state folder the two counts live in its file rule-N. */
static bool count_and_decide(struct rule *rule)
{
    char path[4096];
    FILE *file = NULL;
    unsigned long matches = rule->matches, fired = rule->fired;
    if (scenario.state) {
        snprintf(path, sizeof path, "%s/rule-%zu", scenario.state, (size_t)(rule - scenario.rules));
        int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (descriptor < 0)
            refuse("cannot open %s: %s", path, strerror(errno));
        flock(descriptor, LOCK_EX);
        file = fdopen(descriptor, "r+");
        if (!file || fscanf(file, "%lu %lu", &matches, &fired) != 2)
            matches = fired = 0;
    }
    matches++;
    bool fires = matches >= rule->nth && (rule->times == 0 || fired < rule->times);
    fired += fires;
    rule->matches = matches;
    rule->fired = fired;
    if (file) {
        rewind(file);
        fprintf(file, "%lu %lu\n", matches, fired);
        fclose(file); /* releases the lock */
    }
    return fires;
}

static void act(const struct rule *rule, struct scenario_effect *effect)
{
    struct timespec delay = {(time_t)(rule->value / 1000),
        (long)((rule->value - 1000 * (double)(time_t)(rule->value / 1000)) * 1e6)};
    switch (rule->action) {
    case DO_ERROR:
        if (!effect->error) {
            effect->error = (unsigned)rule->value;
            effect->is_sticky = rule->is_sticky;
        }
        break;
    case DO_FAULT:
        effect->fault = (unsigned)rule->value;
        break;
    case DO_HANG:
        for (;;)
            pause();
    case DO_ABORT:
        abort();
    case DO_EXIT:
        _exit((int)rule->value);
    case DO_GARBAGE:
        effect->has_garbage = true;
        break;
    case DO_TIME:
        effect->time_ns = rule->value;
        break;
    case DO_DELAY:
        while (nanosleep(&delay, &delay) != 0 && errno == EINTR)
            ;
        break;
    case DO_REGISTERS:
        effect->registers = (uint32_t)rule->value;
        break;
    case ACTION_COUNT:
        break;
    }
}

struct scenario_effect scenario_apply(const struct scenario_call *call)
{
    struct scenario_effect effect = {.time_ns = -1};
    load();
    for (size_t i = 0; i < scenario.rule_count; i++) {
        struct rule *rule = &scenario.rules[i];
        if (!rule_matches(rule, call))
            continue;
        pthread_mutex_lock(&counting);
        bool fires = count_and_decide(rule);
        pthread_mutex_unlock(&counting);
        if (fires)
            act(rule, &effect);
    }
    return effect;
}
