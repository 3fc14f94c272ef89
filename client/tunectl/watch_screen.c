/* See watch_screen.h.
 *
 * Design. The signals that end or stop programs set a flag, which is looked at once the poll that
 * they interrupt returns. Should the program be stuck in a request then, a second Ctrl-C does by
 * hand, in the handler, what curses would do. curses has a handler of its own for Ctrl-Z, but
 * ignores that signal while it draws (seen: one Ctrl-Z of twelve was lost that came with news). */
#include "watch_screen.h"

#include <curses.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

/* Macros of term.h, which has one for each capability of a terminal. */
#undef columns
#undef lines

static bool is_open;
static SCREEN *screen;
static volatile sig_atomic_t ending, is_to_stop;
/* For the handler: the terminal's state, and what brings back its normal screen. */
static struct termios found;
static struct sigaction found_stop;
static char normal[256];
static size_t normal_bytes;

/* --- signals ---------------------------------------------------------------------------------- */

static void on_ending(int number)
{
    if (ending == SIGINT && number == SIGINT) {
        ssize_t ignored = write(STDOUT_FILENO, normal, normal_bytes);
        (void)ignored;
        tcsetattr(STDOUT_FILENO, TCSANOW, &found);
        signal(number, SIG_DFL);
        raise(number); /* takes effect when the handler returns */
    }
    ending = number;
}

static void on_stop(int number)
{
    (void)number;
    is_to_stop = 1;
}

int screen_signal(void)
{
    return ending;
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_ending}; /* no SA_RESTART: poll must wake */
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigaction(numbers[i], &action, NULL);
}

/* Before curses opens, which then leaves it alone. A shell without job control has it ignored: then
 * there is nobody who could tell the program to go on. */
static void catch_stop(void)
{
    struct sigaction action = {.sa_handler = on_stop};
    if (sigaction(SIGTSTP, NULL, &found_stop) == 0 && found_stop.sa_handler != SIG_IGN)
        sigaction(SIGTSTP, &action, NULL);
}

static int keep_byte(int c)
{
    if (normal_bytes < sizeof normal)
        normal[normal_bytes++] = (char)c;
    return c;
}

static void keep_normal(void)
{
    static const char *const names[] = {"sgr0", "rmkx", "cnorm", "rmcup"};
    normal_bytes = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = tigetstr(names[i]);
        if (text != NULL && text != (char *)-1)
            tputs(text, 1, keep_byte);
    }
}

/* --- opening and closing ---------------------------------------------------------------------- */

/* newterm would tell too, but it leaks where the terminal is not known. */
static bool is_known(void)
{
    int status;
    if (setupterm(NULL, STDOUT_FILENO, &status) != OK)
        return false;
    del_curterm(cur_term);
    return true;
}

static bool can_be_drawn_on(void)
{
    const char *term = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term != NULL && term[0] != '\0' &&
           strcmp(term, "dumb") != 0 && is_known() && tcgetattr(STDOUT_FILENO, &found) == 0;
}

static void choose_colours(void)
{
    const char *no_colour = getenv("NO_COLOR");
    if (!has_colors() || (no_colour != NULL && no_colour[0] != '\0'))
        return;
    start_color();
    use_default_colors();
    init_pair(INK_BAD, COLOR_RED, -1);
    init_pair(INK_NOTE, COLOR_YELLOW, -1);
}

bool screen_open(void)
{
    static bool is_registered;
    if (!can_be_drawn_on())
        return false;
    use_env(TRUE);
    use_tioctl(TRUE); /* the window's own size before LINES and COLUMNS */
    catch_stop();
    screen = newterm(NULL, stdout, stdin);
    if (screen == NULL) {
        sigaction(SIGTSTP, &found_stop, NULL);
        return false;
    }
    keep_normal();
    catch_signals(); /* in place of what curses does with them */
    is_open = true;
    if (!is_registered && atexit(screen_close) == 0)
        is_registered = true;
    cbreak();
    noecho();
    nodelay(stdscr, TRUE);
    keypad(stdscr, TRUE);
    set_escdelay(25);
    curs_set(0);
    choose_colours();
    return true;
}

void screen_close(void)
{
    if (!is_open)
        return;
    is_open = false;
    endwin();
    delscreen(screen);
    fflush(stdout);
}

/* The window may have changed meanwhile; of changes under its eyes curses knows by SIGWINCH. */
static void take_size(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
        resizeterm(size.ws_row, size.ws_col);
}

void screen_suspend(void)
{
    if (!is_to_stop)
        return;
    is_to_stop = 0;
    endwin();
    signal(SIGTSTP, SIG_DFL);
    raise(SIGTSTP); /* returns when the shell lets it go on */
    catch_stop();
    take_size();
    redrawwin(stdscr); /* with the next drawing the terminal is ours again */
}

/* --- drawing ---------------------------------------------------------------------------------- */

void screen_size(int *rows, int *columns)
{
    *rows = LINES;
    *columns = COLS;
}

static attr_t attributes_of(enum ink ink)
{
    switch (ink) {
    case INK_TITLE:
        return A_REVERSE;
    case INK_STRONG:
        return A_BOLD;
    case INK_DIM:
        return A_DIM;
    case INK_BAD:
    case INK_NOTE:
        return (attr_t)COLOR_PAIR(ink) | (ink == INK_NOTE ? A_BOLD : A_NORMAL);
    default:
        return A_NORMAL;
    }
}

void screen_draw(const struct view *view)
{
    erase();
    for (int row = 0; row < view->count; row++) {
        attr_t attributes = attributes_of(view->lines[row].ink);
        attrset((int)attributes);
        if (view->lines[row].ink == INK_TITLE)
            mvhline(row, 0, ' ' | attributes, view->columns);
        mvaddstr(row, 0, view->lines[row].text);
    }
    attrset(A_NORMAL);
    refresh();
}

int screen_key(void)
{
    int key;
    while ((key = getch()) == KEY_RESIZE)
        continue;
    if (key == KEY_UP || key == KEY_DOWN)
        return key == KEY_UP ? 'k' : 'j';
    return key == ERR ? 0 : key;
}
