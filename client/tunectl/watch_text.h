/* Text for the cells of a terminal, in the locale's characters (LC_CTYPE): cut to columns, bars,
 * sparklines. Pure. */
#ifndef TUNECTL_WATCH_TEXT_H
#define TUNECTL_WATCH_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Whether characters beyond ASCII can be shown. */
bool text_is_utf8(void);

/* The text in at most so many columns, malloc'ed; wide characters take two. What is cut off is
 * marked in the last column. Control characters, those that turn the direction of writing, and
 * bytes that are no character of the locale are shown as '?'. */
char *text_fit(const char *text, int columns);

#define TEXT_BAR_MAX 40
/* "#####....." of `cells` cells, TEXT_BAR_MAX at most, filled by `share` of 0 to 1. Returns `text`.
 */
char *text_bar(double share, int cells, char text[TEXT_BAR_MAX + 1]);

/* A cell for each of the last `columns` times, from the lowest to the highest of them on a
 * logarithmic scale; 'x' for a value that is no time (<= 0). malloc'ed. The bounds go to *low_ns
 * and *high_ns: 0 when there is no time. */
char *text_sparkline(
    const double *times_ns, size_t count, int columns, double *low_ns, double *high_ns);

#endif
