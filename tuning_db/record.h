/* Records as bytes: versioned, checksummed, independent of the machine's byte order. Pure.
 *
 * A value is: magic "TUNE", u16 version, u16 kind, u32 payload bytes, u64 XXH3 of the payload, then
 * the payload of little-endian integers, IEEE doubles as u64, and length-prefixed strings. A value
 * that is too short, of an unknown version, or fails its checksum is TUNE_EDAMAGED or
 * TUNE_EVERSION; a reader treats it as a miss. A newer minor addition appends fields: decoders
 * ignore trailing bytes and give absent fields their zero. */
#ifndef TUNE_RECORD_H
#define TUNE_RECORD_H

#include "client/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_VERSION 1
#define RECORD_MAGIC "TUNE"

/* X(name, word): what became of a candidate. The words are in the protocol. */
#define OUTCOMES(X)                                                                                \
    X(OK, "ok")                                                                                    \
    X(INVALID, "invalid")                                                                          \
    X(COMPILE_FAILED, "compile_failed")                                                            \
    X(OVER_LIMITS, "over_limits")                                                                  \
    X(LAUNCH_FAILED, "launch_failed")                                                              \
    X(WRONG_RESULT, "wrong_result")                                                                \
    X(TIMEOUT, "timeout")                                                                          \
    X(CRASHED, "crashed")

enum outcome {
#define X(name, word) OUTCOME_##name,
    OUTCOMES(X)
#undef X
        OUTCOME_COUNT
};

const char *outcome_word(enum outcome outcome);
int outcome_from_word(const char *word, enum outcome *outcome); /* 0, or -1 when unknown */

/* What results are compared under: results of unlike keys never meet. Strings are borrowed. */
struct record_key {
    const char *kernel;
    const char *fingerprint; /* 32 hex digits */
    const char *shape;       /* canonical text "M=1024,N=1024,K=1024" */
    const char *dtype;
    const char *arch; /* "sm_90" */
    const char *mode; /* "cold" or "warm" */
};

/* No GPU runs a kernel in less: an empty one inside a graph reads 540 ns on an H200. */
#define RECORD_MIN_NS 200.0

/* Whether tunerd itself measured under this method ("event", "graph", or none told), and so has
 * compared the outputs before; rows of other tuners' files have the name of the tuner. */
bool method_is_own(const char *method);

struct record_hash {
    uint8_t bytes[16];
};

/* XXH3-128 over the length-prefixed fields, so that no two different keys run together. NULL counts
 * as "" in hashes and comparisons. */
struct record_hash record_key_hash(const struct record_key *key);
struct record_hash record_text_hash(const char *text);
struct record_hash record_bytes_hash(const void *bytes, size_t count);
bool record_key_equal(const struct record_key *a, const struct record_key *b);

/* One measured (or failed) candidate: a row of `samples`. All strings are borrowed when encoding; a
 * decoded sample owns them through `storage`. NULL strings are stored as "". */
struct sample {
    struct record_key key;
    const char *config; /* canonical text "BM=64,..." */
    const char *gpu_uuid;
    const char *run; /* "<job>/search" or "<job>/confirm": unique per measurement of a config */
    enum outcome outcome;
    bool is_final;     /* false: a first crash, to be tried once more */
    bool is_confirmed; /* measured interleaved with the default */
    bool is_default;   /* the manifest's default for this shape */
    bool is_refused;   /* set aside by an operator or a rule: never best */
    uint32_t attempts;
    const char *method;             /* "event" or "graph" */
    double median_ns, lo_ns, hi_ns; /* 95 % interval of the median; 0 unless ok */
    size_t sample_count;
    const float *samples_ns; /* in the order taken */
    uint32_t registers, spill_bytes, static_shared_bytes, dynamic_shared_bytes;
    const char *same_as; /* config text whose cubin and launches are equal, or "" */
    const char *detail;  /* the reason of a failure, one line, <= 1 KiB */
    const char *log_id;  /* key of the full compile log in `logs`, or "" */
    const char *gpu_name, *host, *nvrtc, *method_note;
    uint32_t driver;
    bool via_ptx;
    int64_t time_unix_ms;
    uint32_t sm_clock_mhz, memory_clock_mhz, temperature_c;
    uint64_t throttle_reasons;
    uint64_t seed;    /* of the inputs */
    double max_error; /* largest |x - ref| relative to what was allowed; <= 1 passes */
    uint32_t sms;     /* multiprocessors of the GPU, which its name does not tell; 0: not known */
    const char *extra; /* fields of a record line that this version does not know: a JSON object in
                          canonical form, or "" (record_line.h) */
    void *storage;
};

/* Bytes of a sample's value: malloc'ed, *length set. NULL only without memory. */
void *sample_encode(const struct sample *sample, size_t *length);
/* 0, or -1 with TUNE_EDAMAGED / TUNE_EVERSION. sample_finish releases what decode took. */
int sample_decode(const void *bytes, size_t length, struct sample *sample, struct tune_error *err);
void sample_finish(struct sample *sample);

/* The published winner of a key: a row of `best`. */
struct best {
    struct record_key key;
    const char *config;
    const char *gpu_name, *gpu_uuid, *host, *nvrtc, *run, *method;
    uint32_t driver, sms; /* sms 0: not known */
    bool is_confirmed;
    double median_ns, lo_ns, hi_ns;
    double default_median_ns; /* of the same run; 0 when unknown */
    uint32_t sample_count;
    int64_t time_unix_ms;
    size_t tie_count;
    const char **ties; /* config texts that cannot be told apart from the winner (same run) */
    bool is_shipped;   /* of the records that came with the program; not stored */
    void *storage;
};

void *best_encode(const struct best *best, size_t *length);
int best_decode(const void *bytes, size_t length, struct best *best, struct tune_error *err);
void best_finish(struct best *best);

/* Which of two samples of one key is the better candidate for `best`: negative when a comes first.
 * Order: confirmed first, then the lower upper bound, then the canonical text, then run and GPU, so
 * that the order is total. Both must be eligible. */
/* ok, final, not refused, finite times that a GPU can reach (or of the emulated device). */
bool sample_is_eligible(const struct sample *sample);
int sample_compare(const struct sample *a, const struct sample *b);

/* A generic checksummed wrapper for opaque payloads (cubins, logs, jobs). */
void *blob_encode(const void *bytes, size_t count, size_t *length);
/* Points *payload into bytes. A blob holds at most 4 GiB - 1. */
int blob_decode(
    const void *bytes, size_t length, const void **payload, size_t *count, struct tune_error *err);

/* The whole length of the record that starts at `bytes`, by its header; 0 when there is none or
 * when it is longer than `room`. */
size_t record_length(const void *bytes, size_t room);

#endif
