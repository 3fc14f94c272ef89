/* The line reader and the parser. The first byte is the size of the pieces that the rest arrives
 * in. Lines must not depend on the pieces, and what is parsed must survive being printed and parsed
 * again. */
#include "client/proto.h"
#include "target.h"

#include <stdlib.h>
#include <string.h>

#define LINE_LIMIT_BYTES 512

static void check(bool is_right)
{
    if (!is_right)
        abort();
}

static void check_round_trip(const char *text, size_t length)
{
    struct tune_error err = {0};
    json_t *value = proto_parse(text, length, &err);
    if (value == NULL) {
        check(err.code != TUNE_OK && err.text[0] != '\0');
        json_t *message = proto_error_new(NULL, &err);
        check(message != NULL); /* every refusal can be sent */
        json_decref(message);
        return;
    }
    size_t printed = 0;
    char *line = proto_line(value, &printed);
    check(line != NULL && line[printed - 1] == '\n' && memchr(line, '\n', printed - 1) == NULL);
    json_t *again = proto_parse(line, printed - 1, &err);
    check(again != NULL && json_equal(value, again));
    json_decref(again);
    free(line);
    json_decref(value);
}

/* Feeds in pieces; the lines joined by '\n', malloc'ed, with *is_over when one was too long. */
static char *lines_of(const char *bytes, size_t count, size_t piece, size_t *used, bool *is_over)
{
    struct proto_reader reader;
    char *joined = malloc(count + 1);
    proto_reader_init(&reader, LINE_LIMIT_BYTES);
    *used = 0;
    *is_over = false;
    for (size_t at = 0; at < count && !*is_over; at += piece) {
        size_t part = count - at < piece ? count - at : piece;
        *is_over = proto_reader_feed(&reader, bytes + at, part, NULL) != 0;
        size_t length;
        char *line;
        while (!*is_over && (line = proto_reader_next(&reader, &length)) != NULL) {
            check(length > 0 && length <= LINE_LIMIT_BYTES && line[length] == '\0');
            memcpy(joined + *used, line, length);
            *used += length;
            joined[(*used)++] = '\n';
        }
        check(*is_over || proto_reader_pending(&reader) <= LINE_LIMIT_BYTES);
    }
    proto_reader_finish(&reader);
    return joined;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count < 1)
        return 0;
    const char *text = (const char *)bytes + 1;
    size_t length = count - 1, whole_used, pieces_used;
    bool whole_over, pieces_over;
    check_round_trip(text, length);
    char *whole = lines_of(text, length, length + 1, &whole_used, &whole_over);
    char *pieces = lines_of(text, length, bytes[0] + 1u, &pieces_used, &pieces_over);
    check(whole_over == pieces_over);
    if (!whole_over)
        check(whole_used == pieces_used && memcmp(whole, pieces, whole_used) == 0);
    free(whole);
    free(pieces);
    return 0;
}
