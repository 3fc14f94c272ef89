/* See record.h. One list of fields per record serves writing and reading alike, so that the two
 * cannot drift apart: a codec either measures, writes or reads. */
#include "record.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define HEADER_BYTES 20

enum record_kind { KIND_SAMPLE = 1, KIND_BEST, KIND_BLOB };

/* --- words and hashes ------------------------------------------------------------------------- */

static const char *const outcome_words[] = {
#define X(name, word) [OUTCOME_##name] = word,
    OUTCOMES(X)
#undef X
};

const char *outcome_word(enum outcome outcome)
{
    assert((unsigned)outcome < OUTCOME_COUNT);
    return outcome_words[outcome];
}

bool method_is_own(const char *method)
{
    return method == NULL || method[0] == '\0' || strcmp(method, "event") == 0 ||
           strcmp(method, "graph") == 0;
}

int outcome_from_word(const char *word, enum outcome *outcome)
{
    for (int i = 0; i < OUTCOME_COUNT; i++) {
        if (strcmp(word, outcome_words[i]) == 0) {
            *outcome = (enum outcome)i;
            return 0;
        }
    }
    return -1;
}

static void store_le(uint8_t *bytes, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t load_le(const uint8_t *bytes, size_t width)
{
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static struct record_hash finish_hash(XXH128_hash_t hash)
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    struct record_hash out;
    memcpy(out.bytes, canonical.digest, sizeof out.bytes);
    return out;
}

static void hash_text(XXH3_state_t *state, const char *text)
{
    size_t length = text == NULL ? 0 : strlen(text);
    uint8_t prefix[8];
    store_le(prefix, length, sizeof prefix);
    XXH3_128bits_update(state, prefix, sizeof prefix);
    if (length > 0)
        XXH3_128bits_update(state, text, length);
}

struct record_hash record_key_hash(const struct record_key *key)
{
    const char *const fields[] = {
        key->kernel, key->fingerprint, key->shape, key->dtype, key->arch, key->mode};
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        hash_text(&state, fields[i]);
    return finish_hash(XXH3_128bits_digest(&state));
}

struct record_hash record_text_hash(const char *text)
{
    return record_bytes_hash(text, text == NULL ? 0 : strlen(text));
}

struct record_hash record_bytes_hash(const void *bytes, size_t count)
{
    return finish_hash(XXH3_128bits(count > 0 ? bytes : "", count));
}

static bool is_same_text(const char *a, const char *b)
{
    return strcmp(a == NULL ? "" : a, b == NULL ? "" : b) == 0;
}

bool record_key_equal(const struct record_key *a, const struct record_key *b)
{
    return is_same_text(a->kernel, b->kernel) && is_same_text(a->fingerprint, b->fingerprint) &&
           is_same_text(a->shape, b->shape) && is_same_text(a->dtype, b->dtype) &&
           is_same_text(a->arch, b->arch) && is_same_text(a->mode, b->mode);
}

/* --- the codec -------------------------------------------------------------------------------- */

enum codec_mode { CODEC_MEASURE, CODEC_WRITE, CODEC_READ };

struct codec {
    enum codec_mode mode;
    uint8_t *bytes; /* the payload; while reading a private copy that strings point into */
    size_t at, end; /* end: reading only */
    bool is_bad;    /* reading: a field runs over the end, or a text is not a text */
};

/* Reading: whether `count` more bytes are there. A payload that ends at a field's start was
 * written before that field existed, which is no fault: the field keeps its zero. */
static bool codec_has(struct codec *codec, size_t count)
{
    if (codec->is_bad || codec->at == codec->end)
        return false;
    if (codec->end - codec->at < count)
        codec->is_bad = true;
    return !codec->is_bad;
}

static void field_word(struct codec *codec, uint64_t *value, size_t width)
{
    if (codec->mode == CODEC_READ) {
        *value = 0;
        if (!codec_has(codec, width))
            return;
        *value = load_le(codec->bytes + codec->at, width);
    } else if (codec->mode == CODEC_WRITE) {
        store_le(codec->bytes + codec->at, *value, width);
    }
    codec->at += width;
}

static void field_u64(struct codec *codec, uint64_t *value)
{
    field_word(codec, value, 8);
}

static void field_i64(struct codec *codec, int64_t *value)
{
    uint64_t word = (uint64_t)*value;
    field_word(codec, &word, 8);
    *value = (int64_t)word;
}

static void field_u32(struct codec *codec, uint32_t *value)
{
    uint64_t word = *value;
    field_word(codec, &word, 4);
    *value = (uint32_t)word;
}

static void field_bool(struct codec *codec, bool *value)
{
    uint64_t word = *value;
    field_word(codec, &word, 1);
    *value = word != 0;
}

static void field_double(struct codec *codec, double *value)
{
    uint64_t word = 0;
    memcpy(&word, value, sizeof word);
    field_word(codec, &word, 8);
    memcpy(value, &word, sizeof word);
}

/* Length, bytes and a NUL, so that a reader can point straight into its copy of the payload. */
static void field_string(struct codec *codec, const char **text)
{
    if (codec->mode == CODEC_READ)
        *text = "";
    const char *source = *text == NULL ? "" : *text;
    uint32_t length = (uint32_t)strlen(source);
    field_u32(codec, &length);
    if (codec->mode == CODEC_READ) {
        if (length == 0 && codec->at == codec->end)
            return;
        if (!codec_has(codec, (size_t)length + 1))
            return;
        const char *copy = (const char *)codec->bytes + codec->at;
        codec->is_bad = memchr(copy, '\0', (size_t)length + 1) != copy + length;
        *text = codec->is_bad ? "" : copy;
    } else if (codec->mode == CODEC_WRITE) {
        memcpy(codec->bytes + codec->at, source, (size_t)length + 1);
    }
    codec->at += (size_t)length + 1;
}

/* A count and that many floats. The reader moves them down by up to three bytes, over the count
 * that it has read, so that they lie aligned in its copy. */
static void field_floats(struct codec *codec, const float **values, size_t *count)
{
    uint32_t stored_count = (uint32_t)*count;
    field_u32(codec, &stored_count);
    size_t bytes = (size_t)stored_count * 4;
    if (codec->mode == CODEC_READ) {
        *values = NULL;
        *count = 0;
        if (stored_count == 0 || !codec_has(codec, bytes))
            return;
        float *aligned = (float *)(void *)(codec->bytes + codec->at / 4 * 4);
        for (size_t i = 0; i < stored_count; i++) {
            uint32_t word = (uint32_t)load_le(codec->bytes + codec->at + 4 * i, 4);
            memcpy(&aligned[i], &word, 4);
        }
        *values = aligned;
        *count = stored_count;
    } else if (codec->mode == CODEC_WRITE) {
        for (size_t i = 0; i < stored_count; i++) {
            uint32_t word;
            memcpy(&word, &(*values)[i], 4);
            store_le(codec->bytes + codec->at + 4 * i, word, 4);
        }
    }
    codec->at += bytes;
}

static void key_fields(struct codec *codec, struct record_key *key)
{
    field_string(codec, &key->kernel);
    field_string(codec, &key->fingerprint);
    field_string(codec, &key->shape);
    field_string(codec, &key->dtype);
    field_string(codec, &key->arch);
    field_string(codec, &key->mode);
}

/* New fields go to the end, and only there. */
static void sample_fields(struct codec *codec, struct sample *sample)
{
    key_fields(codec, &sample->key);
    field_string(codec, &sample->config);
    field_string(codec, &sample->gpu_uuid);
    field_string(codec, &sample->run);
    uint32_t outcome = (uint32_t)sample->outcome;
    field_u32(codec, &outcome);
    sample->outcome = (enum outcome)outcome;
    field_bool(codec, &sample->is_final);
    field_bool(codec, &sample->is_confirmed);
    field_bool(codec, &sample->is_default);
    field_bool(codec, &sample->is_refused);
    field_bool(codec, &sample->via_ptx);
    field_u32(codec, &sample->attempts);
    field_string(codec, &sample->method);
    field_double(codec, &sample->median_ns);
    field_double(codec, &sample->lo_ns);
    field_double(codec, &sample->hi_ns);
    field_floats(codec, &sample->samples_ns, &sample->sample_count);
    field_u32(codec, &sample->registers);
    field_u32(codec, &sample->spill_bytes);
    field_u32(codec, &sample->static_shared_bytes);
    field_u32(codec, &sample->dynamic_shared_bytes);
    field_string(codec, &sample->same_as);
    field_string(codec, &sample->detail);
    field_string(codec, &sample->log_id);
    field_string(codec, &sample->gpu_name);
    field_string(codec, &sample->host);
    field_string(codec, &sample->nvrtc);
    field_string(codec, &sample->method_note);
    field_u32(codec, &sample->driver);
    field_i64(codec, &sample->time_unix_ms);
    field_u32(codec, &sample->sm_clock_mhz);
    field_u32(codec, &sample->memory_clock_mhz);
    field_u32(codec, &sample->temperature_c);
    field_u64(codec, &sample->throttle_reasons);
    field_u64(codec, &sample->seed);
    field_double(codec, &sample->max_error);
    field_u32(codec, &sample->sms);
    field_string(codec, &sample->extra);
}

static void best_fields(struct codec *codec, struct best *best)
{
    key_fields(codec, &best->key);
    field_string(codec, &best->config);
    field_string(codec, &best->gpu_name);
    field_string(codec, &best->gpu_uuid);
    field_string(codec, &best->host);
    field_string(codec, &best->nvrtc);
    field_string(codec, &best->run);
    field_string(codec, &best->method);
    field_u32(codec, &best->driver);
    field_bool(codec, &best->is_confirmed);
    field_double(codec, &best->median_ns);
    field_double(codec, &best->lo_ns);
    field_double(codec, &best->hi_ns);
    field_double(codec, &best->default_median_ns);
    field_u32(codec, &best->sample_count);
    field_i64(codec, &best->time_unix_ms);
    uint32_t tie_count = (uint32_t)best->tie_count;
    field_u32(codec, &tie_count);
    if (codec->mode == CODEC_READ) {
        best->tie_count = 0;
        best->ties = NULL;
        /* An entry takes five bytes at least, so a wild count cannot ask for wild memory. */
        if (!codec_has(codec, (size_t)tie_count * 5))
            return;
        best->ties = calloc((size_t)tie_count + 1, sizeof *best->ties);
        if (best->ties == NULL) {
            codec->is_bad = true;
            return;
        }
        best->tie_count = tie_count;
    }
    for (size_t i = 0; i < tie_count; i++)
        field_string(codec, &best->ties[i]);
    field_u32(codec, &best->sms);
}

/* --- envelope --------------------------------------------------------------------------------- */

static void seal(uint8_t *bytes, enum record_kind kind, size_t payload_bytes)
{
    memcpy(bytes, RECORD_MAGIC, 4);
    store_le(bytes + 4, RECORD_VERSION, 2);
    store_le(bytes + 6, kind, 2);
    store_le(bytes + 8, payload_bytes, 4);
    store_le(bytes + 12, XXH3_64bits(bytes + HEADER_BYTES, payload_bytes), 8);
}

static int unseal(const uint8_t *bytes, size_t length, enum record_kind kind,
    const uint8_t **payload, size_t *payload_bytes, struct tune_error *err)
{
    if (length < HEADER_BYTES || memcmp(bytes, RECORD_MAGIC, 4) != 0)
        return tune_fail(err, TUNE_EDAMAGED, "these %zu bytes are not a record", length);
    unsigned version = (unsigned)load_le(bytes + 4, 2);
    if (version != RECORD_VERSION)
        return tune_fail(err, TUNE_EVERSION,
            "the record is of version %u, this program reads version %d", version, RECORD_VERSION);
    if (load_le(bytes + 6, 2) != (uint64_t)kind)
        return tune_fail(err, TUNE_EDAMAGED, "the record is of another kind than its place");
    if (load_le(bytes + 8, 4) != length - HEADER_BYTES)
        return tune_fail(
            err, TUNE_EDAMAGED, "the record's length does not fit its %zu bytes", length);
    *payload = bytes + HEADER_BYTES;
    *payload_bytes = length - HEADER_BYTES;
    if (load_le(bytes + 12, 8) != XXH3_64bits(*payload, *payload_bytes))
        return tune_fail(err, TUNE_EDAMAGED, "the record's checksum does not match");
    return 0;
}

size_t record_length(const void *bytes, size_t room)
{
    if (room < HEADER_BYTES || memcmp(bytes, RECORD_MAGIC, 4) != 0)
        return 0;
    size_t length = HEADER_BYTES + load_le((const uint8_t *)bytes + 8, 4);
    return length <= room ? length : 0;
}

/* A private copy of a record's payload, ready to be read; never empty, for malloc's sake. */
static int codec_open(struct codec *codec, const void *bytes, size_t length, enum record_kind kind,
    struct tune_error *err)
{
    const uint8_t *payload;
    size_t payload_bytes;
    if (unseal(bytes, length, kind, &payload, &payload_bytes, err) != 0)
        return -1;
    *codec = (struct codec){.mode = CODEC_READ, .end = payload_bytes};
    codec->bytes = malloc(payload_bytes + 1);
    if (codec->bytes == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a record of %zu bytes", payload_bytes);
    memcpy(codec->bytes, payload, payload_bytes);
    return 0;
}

void *sample_encode(const struct sample *sample, size_t *length)
{
    struct sample fields = *sample;
    struct codec codec = {.mode = CODEC_MEASURE};
    sample_fields(&codec, &fields);
    uint8_t *bytes = malloc(HEADER_BYTES + codec.at);
    if (bytes == NULL)
        return NULL;
    *length = HEADER_BYTES + codec.at;
    codec = (struct codec){.mode = CODEC_WRITE, .bytes = bytes + HEADER_BYTES};
    sample_fields(&codec, &fields);
    seal(bytes, KIND_SAMPLE, codec.at);
    return bytes;
}

int sample_decode(const void *bytes, size_t length, struct sample *sample, struct tune_error *err)
{
    struct codec codec;
    *sample = (struct sample){0};
    if (codec_open(&codec, bytes, length, KIND_SAMPLE, err) != 0)
        return -1;
    sample_fields(&codec, sample);
    sample->storage = codec.bytes;
    int status = 0;
    if (codec.is_bad)
        status = tune_fail(err, TUNE_EDAMAGED, "the record's fields do not fit its length");
    else if ((unsigned)sample->outcome >= OUTCOME_COUNT)
        status = tune_fail(err, TUNE_EVERSION, "the record has an outcome of a newer version");
    if (status != 0)
        sample_finish(sample);
    return status;
}

void sample_finish(struct sample *sample)
{
    if (sample == NULL || sample->storage == NULL)
        return;
    free(sample->storage);
    *sample = (struct sample){0};
}

void *best_encode(const struct best *best, size_t *length)
{
    struct best fields = *best;
    struct codec codec = {.mode = CODEC_MEASURE};
    best_fields(&codec, &fields);
    uint8_t *bytes = malloc(HEADER_BYTES + codec.at);
    if (bytes == NULL)
        return NULL;
    *length = HEADER_BYTES + codec.at;
    codec = (struct codec){.mode = CODEC_WRITE, .bytes = bytes + HEADER_BYTES};
    best_fields(&codec, &fields);
    seal(bytes, KIND_BEST, codec.at);
    return bytes;
}

int best_decode(const void *bytes, size_t length, struct best *best, struct tune_error *err)
{
    struct codec codec;
    *best = (struct best){0};
    if (codec_open(&codec, bytes, length, KIND_BEST, err) != 0)
        return -1;
    best_fields(&codec, best);
    best->storage = codec.bytes;
    if (!codec.is_bad)
        return 0;
    best_finish(best);
    return tune_fail(err, TUNE_EDAMAGED, "the record's fields do not fit its length");
}

void best_finish(struct best *best)
{
    if (best == NULL || best->storage == NULL)
        return;
    free((void *)best->ties);
    free(best->storage);
    *best = (struct best){0};
}

void *blob_encode(const void *bytes, size_t count, size_t *length)
{
    if (count > UINT32_MAX)
        return NULL;
    uint8_t *sealed = malloc(HEADER_BYTES + count);
    if (sealed == NULL)
        return NULL;
    if (count > 0)
        memcpy(sealed + HEADER_BYTES, bytes, count);
    seal(sealed, KIND_BLOB, count);
    *length = HEADER_BYTES + count;
    return sealed;
}

int blob_decode(
    const void *bytes, size_t length, const void **payload, size_t *count, struct tune_error *err)
{
    const uint8_t *start;
    if (unseal(bytes, length, KIND_BLOB, &start, count, err) != 0)
        return -1;
    *payload = start;
    return 0;
}

/* --- which is better -------------------------------------------------------------------------- */

/* Damaged or hostile rows are not served because they are fast. */
static bool is_possible(const struct sample *sample)
{
    return sample->median_ns >= RECORD_MIN_NS || is_same_text(sample->key.arch, "cpu");
}

bool sample_is_eligible(const struct sample *sample)
{
    return is_possible(sample) && sample->outcome == OUTCOME_OK && sample->is_final && !sample->is_refused &&
           isfinite(sample->median_ns) && isfinite(sample->lo_ns) && isfinite(sample->hi_ns) &&
           sample->lo_ns > 0 && sample->lo_ns <= sample->median_ns &&
           sample->median_ns <= sample->hi_ns;
}

int sample_compare(const struct sample *a, const struct sample *b)
{
    if (a->is_confirmed != b->is_confirmed)
        return a->is_confirmed ? -1 : 1;
    if (a->hi_ns != b->hi_ns)
        return a->hi_ns < b->hi_ns ? -1 : 1;
    int order = strcmp(a->config, b->config);
    if (order == 0)
        order = strcmp(a->run, b->run);
    return order != 0 ? order : strcmp(a->gpu_uuid, b->gpu_uuid);
}
