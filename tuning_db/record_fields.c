/* The table of fields and what may stand in them. See record_fields.h. */
#include "record_fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIM_LIMIT (INT64_C(1) << 62)

static const char *const phrases[] = {
#define X(name, phrase) [TYPE_##name] = phrase,
    FIELD_TYPES(X)
#undef X
};

#define AT(member) offsetof(struct sample, member)

/* The order is that of a line. */
static const struct field fields[] = {
    {"kernel", TYPE_NAME, AT(key.kernel), true, 64},
    {"dtype", TYPE_NAME, AT(key.dtype), true, 64},
    {"arch", TYPE_NAME, AT(key.arch), true, 64},
    {"shape", TYPE_SHAPE, AT(key.shape), true, 0},
    {"mode", TYPE_MODE, AT(key.mode), true, 0},
    {"config", TYPE_CONFIG, AT(config), true, 0},
    {"gpu", TYPE_TEXT, AT(gpu_name), false, 256},
    {"uuid", TYPE_WORD, AT(gpu_uuid), true, 128},
    {"run", TYPE_WORD, AT(run), true, 256},
    {"fingerprint", TYPE_NAME, AT(key.fingerprint), true, 64},
    {"outcome", TYPE_OUTCOME, AT(outcome), true, 0},
    {"final", TYPE_BOOL, AT(is_final), false, 0},
    {"confirmed", TYPE_BOOL, AT(is_confirmed), false, 0},
    {"default", TYPE_BOOL, AT(is_default), false, 0},
    {"refused", TYPE_BOOL, AT(is_refused), false, 0},
    {"attempts", TYPE_COUNT, AT(attempts), false, 0},
    {"method", TYPE_OPTIONAL_NAME, AT(method), false, 64},
    {"median_ns", TYPE_NS, AT(median_ns), false, 0},
    {"interval_ns", TYPE_INTERVAL, AT(lo_ns), false, 0},
    {"samples_ns", TYPE_FLOATS, AT(samples_ns), false, 0},
    {"registers", TYPE_COUNT, AT(registers), false, 0},
    {"spill_bytes", TYPE_COUNT, AT(spill_bytes), false, 0},
    {"static_shared_bytes", TYPE_COUNT, AT(static_shared_bytes), false, 0},
    {"dynamic_shared_bytes", TYPE_COUNT, AT(dynamic_shared_bytes), false, 0},
    {"same_as", TYPE_CONFIG_TEXT, AT(same_as), false, 0},
    {"detail", TYPE_TEXT, AT(detail), false, 1024},
    {"log", TYPE_OPTIONAL_NAME, AT(log_id), false, 64},
    {"host", TYPE_TEXT, AT(host), false, 256},
    {"nvrtc", TYPE_TEXT, AT(nvrtc), false, 64},
    {"method_note", TYPE_TEXT, AT(method_note), false, 1024},
    {"driver", TYPE_COUNT, AT(driver), false, 0},
    {"via_ptx", TYPE_BOOL, AT(via_ptx), false, 0},
    {"time", TYPE_MOMENT, AT(time_unix_ms), false, 0},
    {"sm_clock_mhz", TYPE_COUNT, AT(sm_clock_mhz), false, 0},
    {"memory_clock_mhz", TYPE_COUNT, AT(memory_clock_mhz), false, 0},
    {"temperature_c", TYPE_COUNT, AT(temperature_c), false, 0},
    {"throttle_reasons", TYPE_HEX, AT(throttle_reasons), false, 0},
    {"seed", TYPE_HEX, AT(seed), false, 0},
    {"max_error", TYPE_ERROR, AT(max_error), false, 0},
    {"sms", TYPE_COUNT, AT(sms), false, 0},
};

#define FIELD_COUNT (sizeof fields / sizeof fields[0])

/* --- the table -------------------------------------------------------------------------------- */

size_t field_count(void)
{
    return FIELD_COUNT;
}

const struct field *field_at(size_t index)
{
    return &fields[index];
}

const struct field *field_of(const struct member *member, size_t *hint)
{
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const struct field *field = &fields[(*hint + i) % FIELD_COUNT];
        if (member_is(member, field->name)) {
            *hint = (size_t)(field - fields) + 1;
            return field;
        }
    }
    return NULL;
}

void *field_place(const struct field *field, const struct sample *sample)
{
    return (char *)sample + field->at;
}

const char *field_text(const struct field *field, const struct sample *sample)
{
    const char *text = *(const char *const *)field_place(field, sample);
    return text == NULL ? "" : text;
}

bool field_is_left_out(const struct field *field, const struct sample *sample)
{
    if (field->is_required)
        return false;
    switch (field->type) {
    case TYPE_BOOL:
        return !*(const bool *)field_place(field, sample);
    case TYPE_COUNT:
        return *(const uint32_t *)field_place(field, sample) == 0;
    case TYPE_MOMENT:
        return *(const int64_t *)field_place(field, sample) == 0;
    case TYPE_HEX:
        return *(const uint64_t *)field_place(field, sample) == 0;
    case TYPE_NS:
    case TYPE_ERROR:
        return *(const double *)field_place(field, sample) == 0;
    case TYPE_INTERVAL:
        return sample->lo_ns == 0 && sample->hi_ns == 0;
    case TYPE_FLOATS:
        return sample->sample_count == 0;
    default:
        return field_text(field, sample)[0] == '\0';
    }
}

/* --- texts ------------------------------------------------------------------------------------ */

size_t utf8_bytes(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t count = at[0] < 0x80 ? 1 : at[0] < 0xC2 ? 0 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
    if (at[0] > 0xF4)
        return 0;
    for (size_t i = 1; i < count; i++) {
        if ((at[i] & 0xC0) != 0x80) /* the NUL at the end too */
            return 0;
    }
    bool is_bad = (at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F) ||
                  (at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] > 0x8F);
    return is_bad ? 0 : count;
}

static bool is_utf8(const char *text)
{
    while (*text != '\0') {
        size_t count = utf8_bytes(text);
        if (count == 0)
            return false;
        text += count;
    }
    return true;
}

bool is_identifier(const char *text, size_t length)
{
    return is_plain_name(text, length, RECORD_NAME_LIMIT_BYTES) &&
           memchr(text, '-', length) == NULL && memchr(text, '.', length) == NULL &&
           (text[0] < '0' || text[0] > '9');
}

/* The integer that `digits` spells, which has one spelling: no blanks, no zeros before it. */
static bool is_integer(const char *digits, size_t length, int64_t *value)
{
    char number[24], again[24];
    if (length == 0 || length >= sizeof number)
        return false;
    memcpy(number, digits, length);
    number[length] = '\0';
    *value = strtoll(number, NULL, 10);
    snprintf(again, sizeof again, "%" PRId64, *value);
    return strcmp(number, again) == 0;
}

static bool has_name(const char *text, const char *end, const char *name, size_t length)
{
    for (const char *at = text; at < end; at += strcspn(at, ",") + 1) {
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return true;
    }
    return false;
}

/* "M=64,N=48": 1 to `limit` pairs of a name and an integer from `min` to `max`. */
static bool is_pairs(const char *text, size_t limit, int64_t min, int64_t max)
{
    size_t count = 0;
    for (const char *at = text;; at++) {
        size_t name = strcspn(at, "=,"), pair = strcspn(at, ",");
        int64_t value;
        if (name >= pair || !is_identifier(at, name) || has_name(text, at, at, name) ||
            !is_integer(at + name + 1, pair - name - 1, &value) || value < min || value > max ||
            ++count > limit)
            return false;
        at += pair;
        if (*at == '\0')
            return true;
    }
}

/* --- checking --------------------------------------------------------------------------------- */

int field_wrong(const struct field *field, struct tune_error *err)
{
    return tune_fail(
        err, TUNE_EINVAL, "field \"%s\" must be %s", field->name, phrases[field->type]);
}

static bool is_time(double ns)
{
    return isfinite(ns) && ns >= 0;
}

static bool are_times(const struct sample *sample)
{
    if (sample->sample_count > RECORD_SAMPLES_LIMIT)
        return false;
    for (size_t i = 0; i < sample->sample_count; i++) {
        if (!is_time((double)sample->samples_ns[i]))
            return false;
    }
    return true;
}

static bool is_interval(const struct sample *sample)
{
    return is_time(sample->lo_ns) && is_time(sample->hi_ns) && sample->lo_ns <= sample->median_ns &&
           sample->median_ns <= sample->hi_ns;
}

static bool is_right_text(const struct field *field, const char *text)
{
    switch (field->type) {
    case TYPE_NAME:
        return is_plain_name(text, strlen(text), field->limit_bytes);
    case TYPE_OPTIONAL_NAME:
        return *text == '\0' || is_plain_name(text, strlen(text), field->limit_bytes);
    case TYPE_MODE:
        return strcmp(text, "cold") == 0 || strcmp(text, "warm") == 0;
    case TYPE_WORD:
        return strlen(text) <= field->limit_bytes && is_utf8(text);
    case TYPE_SHAPE:
        return is_pairs(text, 16, 1, DIM_LIMIT);
    case TYPE_CONFIG:
        return is_pairs(text, 32, INT64_MIN, INT64_MAX);
    case TYPE_CONFIG_TEXT:
        return *text == '\0' || is_pairs(text, 32, INT64_MIN, INT64_MAX);
    default: /* what is too long or broken is mended when it is written */
        return true;
    }
}

int field_check(const struct field *field, const struct sample *sample, struct tune_error *err)
{
    bool is_right = true;
    double number;
    switch (field->type) {
    case TYPE_OUTCOME:
        is_right = (unsigned)sample->outcome < OUTCOME_COUNT;
        break;
    case TYPE_MOMENT:
        is_right = sample->time_unix_ms >= -RECORD_EXACT_LIMIT &&
                   sample->time_unix_ms <= RECORD_EXACT_LIMIT;
        break;
    case TYPE_NS:
        is_right = is_time(*(const double *)field_place(field, sample));
        break;
    case TYPE_INTERVAL:
        is_right = is_interval(sample);
        break;
    case TYPE_FLOATS:
        is_right = are_times(sample);
        break;
    case TYPE_ERROR:
        number = *(const double *)field_place(field, sample);
        is_right = isnan(number) || number >= 0;
        break;
    case TYPE_BOOL:
    case TYPE_COUNT:
    case TYPE_HEX:
        break;
    default:
        is_right = is_right_text(field, field_text(field, sample));
    }
    return is_right ? 0 : field_wrong(field, err);
}
