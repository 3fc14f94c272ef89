/* See print.h. */
#include "print.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

void *need(void *memory)
{
    if (memory == NULL) {
        fputs("tunectl: no memory\n", stderr);
        exit(1);
    }
    return memory;
}

/* --- tables ----------------------------------------------------------------------------------- */

void table_init(struct table *table, const char *align)
{
    *table = (struct table){.align = align, .columns = strlen(align)};
}

void table_add(struct table *table, const char *text)
{
    if (table->count == table->room) {
        table->room = table->room ? table->room * 2 : 64;
        table->cells = need(realloc(table->cells, table->room * sizeof *table->cells));
    }
    table->cells[table->count++] = need(strdup(text ? text : ""));
}

void table_addf(struct table *table, const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&text, format, args);
    va_end(args);
    table_add(table, need(length < 0 ? NULL : text));
    free(text);
}

void table_add_moment(struct table *table, const json_t *moment)
{
    double value = json_number_value(moment);
    time_t seconds = (time_t)(value > 1e11 ? value / 1000 : value);
    struct tm local;
    char text[32] = "";
    if (value > 0 && localtime_r(&seconds, &local))
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
    table_add(table, json_is_string(moment) ? json_string_value(moment) : text);
}

/* Characters, not bytes: continuation bytes of UTF-8 take no column. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

static void print_padding(FILE *file, size_t count)
{
    while (count-- > 0)
        putc(' ', file);
}

static void print_row(
    const struct table *table, size_t row, const size_t *widths, const char *indent, FILE *file)
{
    size_t last = table->columns;
    while (last > 0 && table->cells[row * table->columns + last - 1][0] == '\0')
        last--;
    fputs(indent, file);
    for (size_t i = 0; i < last; i++) {
        const char *text = table->cells[row * table->columns + i];
        size_t padding = widths[i] - width_of(text);
        if (i > 0)
            fputs("  ", file);
        if (table->align[i] == '>')
            print_padding(file, padding);
        print_clean(file, text);
        if (table->align[i] == '<' && i + 1 < last)
            print_padding(file, padding);
    }
    putc('\n', file);
}

void table_print(const struct table *table, const char *indent, FILE *file)
{
    assert(table->count % table->columns == 0);
    size_t *widths = need(calloc(table->columns, sizeof *widths));
    for (size_t i = 0; i < table->count; i++) {
        size_t width = width_of(table->cells[i]);
        if (width > widths[i % table->columns])
            widths[i % table->columns] = width;
    }
    for (size_t row = 0; row < table->count / table->columns; row++)
        print_row(table, row, widths, indent, file);
    free(widths);
}

void table_finish(struct table *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct table){0};
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* Three significant digits at least, without an exponent. */
static void print_scaled(char text[HUMAN_BYTES], double value, const char *unit)
{
    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(text, HUMAN_BYTES, "%.*f %s", decimals, value, unit);
}

char *human_time(double ns, char text[HUMAN_BYTES])
{
    if (!(ns > 0))
        snprintf(text, HUMAN_BYTES, "-");
    else if (ns < 999.5)
        print_scaled(text, ns, "ns");
    else if (ns < 999.5e3)
        print_scaled(text, ns / 1e3, "us");
    else if (ns < 999.5e6)
        print_scaled(text, ns / 1e6, "ms");
    else
        print_scaled(text, ns / 1e9, "s");
    return text;
}

char *human_duration(double seconds, char text[HUMAN_BYTES])
{
    if (!(seconds >= 0) || seconds > 1e9)
        snprintf(text, HUMAN_BYTES, "-");
    else if (seconds < 9.95)
        snprintf(text, HUMAN_BYTES, "%.1f s", seconds);
    else if (seconds < 59.5)
        snprintf(text, HUMAN_BYTES, "%.0f s", seconds);
    else if (seconds < 3599.5)
        snprintf(text, HUMAN_BYTES, "%d min %02d s", (int)(seconds + 0.5) / 60,
            (int)(seconds + 0.5) % 60);
    else
        snprintf(
            text, HUMAN_BYTES, "%d h %02d min", (int)(seconds / 3600), (int)(seconds / 60) % 60);
    return text;
}

char *human_bytes(double bytes, char text[HUMAN_BYTES])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        bytes /= 1024;
    if (unit == 0)
        snprintf(text, HUMAN_BYTES, "%.0f bytes", bytes);
    else
        print_scaled(text, bytes, units[unit]);
    return text;
}

/* --- JSON ------------------------------------------------------------------------------------- */

char *pairs_text(const json_t *object, const char *separator)
{
    char *text = NULL;
    size_t length;
    FILE *stream = need(open_memstream(&text, &length));
    const char *key;
    json_t *value;
    bool is_first = true;
    if (!json_is_object(object))
        fputs(json_is_string(object) ? json_string_value(object) : "-", stream);
    json_object_foreach ((json_t *)object, key, value) {
        fprintf(stream, "%s%s=", is_first ? "" : separator, key);
        is_first = false;
        if (json_is_string(value))
            fputs(json_string_value(value), stream);
        else
            json_dumpf(value, stream, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    }
    fclose(stream);
    return need(text);
}

char *shape_text(const json_t *reply, const char *separator)
{
    json_t *shape = json_copy(json_object_get(reply, "shape"));
    const json_t *names = json_object_get(reply, "choices");
    if (json_is_object(shape) && json_is_object(names))
        json_object_update(shape, (json_t *)names);
    char *text = pairs_text(shape, separator);
    json_decref(shape);
    return text;
}

const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

void print_clean(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        /* C1 controls arrive in UTF-8 as C2 80..9F. */
        bool is_c1 = c == 0xC2 && (unsigned char)text[1] >= 0x80 && (unsigned char)text[1] < 0xA0;
        putc(c < 0x20 || c == 0x7F || is_c1 ? '?' : c, file);
        text += is_c1;
    }
}

int text_columns(void)
{
    struct winsize size;
    int columns = 100;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    return columns < 80 ? 80 : columns > 120 ? 120 : columns;
}

void print_wrapped(const char *text, int indent)
{
    int column = indent, width = text_columns();
    bool is_first = true;
    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        char *word = need(strndup(text, length));
        int columns = (int)width_of(word);
        if (!is_first && column + 1 + columns > width) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (!is_first) {
            column += printf(" ");
        }
        print_clean(stdout, word);
        free(word);
        column += columns;
        is_first = false;
        text += length + strspn(text + length, " ");
    }
    putchar('\n');
}

void print_json(const json_t *value)
{
    /* 15 digits: 63.2 stays 63.2. */
    json_dumpf(value, stdout, JSON_INDENT(1) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    putchar('\n');
}
