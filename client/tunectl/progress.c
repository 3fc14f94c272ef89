/* See progress.h. */
#include "progress.h"
#include "print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define PLAIN_EVERY_MS 5000
#define LIVE_EVERY_MS 100 /* a terminal over a slow line is not flooded */

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void progress_init(struct progress *progress)
{
    *progress = (struct progress){.last_tenth = -1, .last_print_ms = -LIVE_EVERY_MS};
    const char *term = getenv("TERM");
    progress->is_terminal = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
}

static int terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

/* Work done so far in times that matter: the best, and how it compares with the default. */
static void print_best(FILE *stream, const json_t *params)
{
    char text[HUMAN_BYTES];
    double best_ns = number_of(params, "best_ns");
    double default_ns = number_of(params, "default_ns");
    if (!(best_ns > 0))
        return;
    fprintf(stream, ", best %s", human_time(best_ns, text));
    if (default_ns > 0)
        fprintf(stream, " (%.2f x as fast as the default)", default_ns / best_ns);
}

char *progress_text(const json_t *params)
{
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    if (stream == NULL)
        return NULL;
    double done = number_of(params, "done"), total = number_of(params, "total");
    double rate = number_of(params, "configs_per_s");
    char *shape = shape_text(params, ",");
    const char *input = text_of(params, "input"); /* says more, and is shorter */
    fprintf(stream, "%s", text_of(params, "kernel"));
    if (input[0] != '\0' || strcmp(shape, "-") != 0)
        fprintf(stream, " %s", input[0] != '\0' ? input : shape);
    free(shape);
    if (number_of(params, "shape_count") > 1)
        fprintf(stream, " (shape %.0f of %.0f)", number_of(params, "shape_index") + 1,
            number_of(params, "shape_count"));
    fprintf(stream, ": %.0f of %.0f", done, total);
    if (text_of(params, "phase")[0] != '\0')
        fprintf(stream, ", %s", text_of(params, "phase"));
    if (rate > 0)
        fprintf(stream, ", %.*f configs/s", rate < 9.95 ? 1 : 0, rate);
    print_best(stream, params);
    char left[HUMAN_BYTES];
    if (rate > 0 && total > done)
        fprintf(stream, ", %s left", human_duration((total - done) / rate, left));
    fclose(stream);
    return text;
}

/* Cuts to a number of columns, at a character. */
static void cut_to_width(char *text, int width)
{
    int columns = 0;
    for (char *at = text; *at != '\0'; at++) {
        if (((unsigned char)*at & 0xC0) != 0x80 && columns++ == width) {
            *at = '\0';
            return;
        }
    }
}

/* A bar of ten cells in front, then the text, all on one line. */
static void draw_line(struct progress *progress, int tenth, char *text)
{
    static const char bar[] = "##########..........";
    char *line;
    if (asprintf(&line, "[%.10s] %s", bar + 10 - tenth, text) < 0)
        return;
    cut_to_width(line, terminal_width() - 1);
    fputs("\r", stderr);
    print_clean(stderr, line);
    fputs("\x1b[K", stderr);
    fflush(stderr);
    free(line);
    progress->is_line_open = true;
}

void progress_update(struct progress *progress, const json_t *params)
{
    double done = number_of(params, "done"), total = number_of(params, "total");
    int tenth = total > 0 ? (int)(done / total * 10) : 0;
    tenth = tenth < 0 ? 0 : tenth > 10 ? 10 : tenth;
    long long now = now_ms();
    long long since = now - progress->last_print_ms;
    bool is_due = progress->is_terminal ? since >= LIVE_EVERY_MS || done >= total
                                        : since >= PLAIN_EVERY_MS || tenth != progress->last_tenth;
    if (!is_due)
        return;
    progress->last_print_ms = now;
    progress->last_tenth = tenth;
    char *text = progress_text(params);
    if (text == NULL)
        return;
    if (progress->is_terminal) {
        draw_line(progress, tenth, text);
    } else {
        print_clean(stderr, text);
        putc('\n', stderr);
    }
    free(text);
}

void progress_end(struct progress *progress)
{
    if (progress->is_line_open)
        fputs("\r\x1b[K", stderr);
    progress->is_line_open = false;
}
