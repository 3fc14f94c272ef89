/* The terminal of `watch`: the whole of it while open, and as it was found afterwards, whichever
 * way the program ends (but by SIGKILL). One at a time. */
#ifndef TUNECTL_WATCH_SCREEN_H
#define TUNECTL_WATCH_SCREEN_H

#include "watch_view.h"

/* Takes the terminal of standard input and output. False, with nothing changed, where there is none
 * that can be drawn on. */
bool screen_open(void);
void screen_close(void); /* more than once is fine */

/* What asked the program to end since it was opened (SIGINT, SIGTERM, SIGHUP), or 0. A second
 * SIGINT gives the terminal back and ends the program at once. */
int screen_signal(void);

/* If Ctrl-Z was pressed: gives the terminal back, stops, and takes it again when told to go on. */
void screen_suspend(void);

/* The size, which the window may change at any time. */
void screen_size(int *rows, int *columns);
void screen_draw(const struct view *view);
/* The next key that was pressed, arrows as j and k; 0: none. */
int screen_key(void);

#endif
