/* The screen of `watch` as lines of text: what is shown, in which order, and what gives way on a
 * small terminal. Pure; watch_screen.h puts it on the terminal. */
#ifndef TUNECTL_WATCH_VIEW_H
#define TUNECTL_WATCH_VIEW_H

#include "watch_model.h"

/* How a line is to look. Everything is said in words too: a terminal may have no colours. */
enum ink {
    INK_PLAIN,
    INK_TITLE, /* reverse */
    INK_STRONG,
    INK_DIM,
    INK_BAD,
    INK_NOTE, /* a question or a warning */
};

struct view_line {
    enum ink ink;
    char *text; /* clean, and no wider than the view */
};

struct view {
    int rows, columns;
    struct view_line *lines; /* `rows` of them at most; the last one is the footer */
    int count;
};

/* `server`: the daemon's answer to ping. view_finish in any case. */
void view_make(struct view *view, const struct watch_model *model, const json_t *server, int rows,
    int columns, double now_s);
void view_finish(struct view *view);

#endif
