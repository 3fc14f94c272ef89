/* See watch_text.h. */
#include "watch_text.h"
#include "print.h"

#include <langinfo.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

bool text_is_utf8(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* --- cutting ---------------------------------------------------------------------------------- */

/* Characters that are not seen, and change how others are. */
static bool is_format(wchar_t c)
{
    return (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || c == 0xAD;
}

/* The next character: its bytes, 0 at the end, and the columns it takes; -1: to be shown as '?'. */
static size_t next_character(const char *text, int *columns)
{
    mbstate_t state = {0};
    wchar_t c;
    size_t length = mbrtowc(&c, text, MB_LEN_MAX, &state);
    if (length == 0)
        return 0;
    *columns = -1;
    if (length == (size_t)-1 || length == (size_t)-2)
        return 1;
    if (!is_format(c))
        *columns = wcwidth(c); /* -1 for controls */
    return length;
}

/* Appends what fits into the columns; true when that was all. */
static bool put_characters(const char *text, int columns, char *to)
{
    int width;
    for (size_t length; (length = next_character(text, &width)) > 0; text += length) {
        int taken = width < 0 ? 1 : width;
        if (taken > columns)
            break;
        columns -= taken;
        if (width < 0)
            to = stpcpy(to, "?");
        else
            to = mempcpy(to, text, length);
    }
    *to = '\0';
    return *text == '\0';
}

char *text_fit(const char *text, int columns)
{
    const char *mark = text_is_utf8() ? "\u2026" : "~";
    char *fit = need(malloc(strlen(text) + strlen(mark) + 1));
    if (!put_characters(text, columns < 0 ? 0 : columns, fit)) {
        put_characters(text, columns - 1, fit);
        strcat(fit, columns > 0 ? mark : "");
    }
    return fit;
}

/* --- bars and sparklines ---------------------------------------------------------------------- */

char *text_bar(double share, int cells, char text[TEXT_BAR_MAX + 1])
{
    cells = cells < 0 ? 0 : cells > TEXT_BAR_MAX ? TEXT_BAR_MAX : cells;
    int filled = share > 0 ? (int)(share * cells) : 0;
    filled = filled > cells ? cells : filled;
    memset(text, '.', (size_t)cells);
    memset(text, '#', (size_t)filled);
    text[cells] = '\0';
    return text;
}

static void find_bounds(const double *times_ns, size_t count, double *low_ns, double *high_ns)
{
    *low_ns = *high_ns = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(times_ns[i] > 0))
            continue;
        if (*low_ns == 0 || times_ns[i] < *low_ns)
            *low_ns = times_ns[i];
        if (times_ns[i] > *high_ns)
            *high_ns = times_ns[i];
    }
}

char *text_sparkline(
    const double *times_ns, size_t count, int columns, double *low_ns, double *high_ns)
{
    static const char *const blocks[] = {
        "\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const plain[] = {"_", ".", "-", ":", "=", "+", "*", "#"};
    const char *const *cells = text_is_utf8() ? blocks : plain;
    size_t room = columns > 0 ? (size_t)columns : 0;
    if (count > room) {
        times_ns += count - room;
        count = room;
    }
    find_bounds(times_ns, count, low_ns, high_ns);
    double span = *low_ns > 0 ? log(*high_ns / *low_ns) : 0;
    char *line = need(malloc(count * strlen(blocks[0]) + 1)), *to = line;
    *to = '\0';
    for (size_t i = 0; i < count; i++) {
        double height = span > 0 && times_ns[i] > 0 ? log(times_ns[i] / *low_ns) / span * 7 : 0;
        to = stpcpy(to, times_ns[i] > 0 ? cells[(int)(height + 0.5)] : "x");
    }
    return line;
}
