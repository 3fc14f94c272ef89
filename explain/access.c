/* See access.h. */
#include "access.h"

#define WIDEST_BYTES 16
/* A lane's 16 bytes touch two sectors when they are not aligned. */
#define SECTORS_MAX (ACCESS_LANES * 2)
/* Of a part: 32 lanes of 8 bytes or 16 of 16, with one word more each where they are unaligned. */
#define WORDS_MAX (ACCESS_LANES * 3)

static bool is_active(const struct access *access, uint32_t lane)
{
    return access->active >> lane & 1;
}

/* Adds `value` to the set; its new size. */
static uint32_t add(uint64_t *set, uint32_t count, uint64_t value)
{
    for (uint32_t i = 0; i < count; i++)
        if (set[i] == value)
            return count;
    set[count] = value;
    return count + 1;
}

static uint32_t lane_bytes(const struct access *access)
{
    return access->bytes < WIDEST_BYTES ? access->bytes : WIDEST_BYTES;
}

uint32_t access_sectors(const struct access *access)
{
    uint64_t sectors[SECTORS_MAX];
    uint32_t total = 0, bytes = lane_bytes(access);
    /* What is wider than an instruction's 16 bytes is several instructions. */
    for (uint32_t piece = 0; piece < access->bytes; piece += WIDEST_BYTES) {
        uint32_t count = 0;
        for (uint32_t lane = 0; lane < ACCESS_LANES; lane++) {
            if (!is_active(access, lane))
                continue;
            uint64_t first = access->address[lane] + piece;
            count = add(sectors, count, first / ACCESS_SECTOR_BYTES);
            count = add(sectors, count, (first + bytes - 1) / ACCESS_SECTOR_BYTES);
        }
        total += count;
    }
    return total;
}

/* Most different words in one bank among lanes [from, to). */
static uint32_t part_degree(
    const struct access *access, uint32_t piece, uint32_t from, uint32_t to, uint32_t bytes)
{
    uint64_t words[WORDS_MAX];
    uint32_t count = 0, degree = 0;
    uint8_t in_bank[ACCESS_BANKS] = {0};
    for (uint32_t lane = from; lane < to; lane++) {
        if (!is_active(access, lane))
            continue;
        uint64_t first = (access->address[lane] + piece) / ACCESS_BANK_BYTES;
        uint64_t last = (access->address[lane] + piece + bytes - 1) / ACCESS_BANK_BYTES;
        for (uint64_t word = first; word <= last && count < WORDS_MAX; word++)
            count = add(words, count, word);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = ++in_bank[words[i] % ACCESS_BANKS];
        degree = n > degree ? n : degree;
    }
    return degree;
}

/* Whether each active lane asks for the same as the lane whose number differs by `bit`. */
static bool is_paired(const struct access *access, uint32_t bit)
{
    for (uint32_t lane = 0; lane < ACCESS_LANES; lane++)
        if (is_active(access, lane) && is_active(access, lane ^ bit) &&
            access->address[lane] != access->address[lane ^ bit])
            return false;
    return true;
}

/* How many lanes are served together. */
static uint32_t part_lanes(const struct access *access)
{
    uint32_t bytes = lane_bytes(access);
    if (bytes <= 4)
        return ACCESS_LANES;
    uint32_t lanes = bytes <= 8 ? ACCESS_LANES / 2 : ACCESS_LANES / 4;
    bool is_joined = !access->is_store && (is_paired(access, 1) || is_paired(access, 2));
    return is_joined ? 2 * lanes : lanes;
}

struct access_banks access_banks(const struct access *access)
{
    struct access_banks banks = {0};
    uint32_t bytes = lane_bytes(access), lanes = part_lanes(access);
    for (uint32_t piece = 0; piece < access->bytes; piece += WIDEST_BYTES)
        for (uint32_t from = 0; from < ACCESS_LANES; from += lanes) {
            uint32_t degree = part_degree(access, piece, from, from + lanes, bytes);
            banks.degree = degree > banks.degree ? degree : banks.degree;
            banks.wavefronts += degree;
            banks.parts += degree > 0;
        }
    return banks;
}
