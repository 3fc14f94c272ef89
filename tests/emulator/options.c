#include "compile.h"
#include "scenario.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

char *compile_string(struct compile *c, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (c->string_count == 2 * ARGUMENT_LIMIT || vasprintf(&text, format, args) < 0)
        text = NULL;
    else
        c->strings[c->string_count++] = text;
    va_end(args);
    return text;
}

void compile_add(char **list, int *count, const char *argument)
{
    if (argument && *count < ARGUMENT_LIMIT - 1) {
        list[(*count)++] = (char *)(uintptr_t)argument;
        list[*count] = NULL;
    }
}

/* "NAME=value", "NAME" or "NAME(x)=value". Macros stand in a file that is read after tune_cuda.h,
 * so that a macro N or T of the kernel does not change the header. */
static void add_macro(struct compile *c, const char *definition)
{
    const char *equals = strchr(definition, '=');
    size_t length = strcspn(definition, "=");
    const char *value = equals ? equals + 1 : "1";
    fprintf(c->macros_out, "#define %.*s ", (int)length, definition);
    for (const char *p = value; *p; p++)
        fputc(*p == '\n' ? ' ' : *p, c->macros_out);
    fputc('\n', c->macros_out);
    fprintf(c->defines_out, "%.*s=%s\n", (int)length, definition, value);
}

/* Options whose effect on a GPU has no counterpart here. */
static bool is_ignored(const char *option)
{
    static const char *const ignored[] = {"ptxas-options", "maxrregcount", "fmad", "ftz",
        "prec-div", "prec-sqrt", "use_fast_math", "extra-device-vectorization", "lineinfo",
        "generate-line-info", "device-debug", "G", "dopt", "no-cache", "minimal", "time",
        "diag-suppress", "diag-error", "diag-warn", "disable-warnings", "w", "restrict",
        "default-device", "device-as-default-execution-space", "split-compile",
        "modify-stack-limit", "builtin-move-forward", "builtin-initializer-list",
        "relocatable-device-code", "rdc", "device-c", "dc", "device-w", "dw", "optimization-info",
        "display-error-number", "no-display-error-number", "err-no", "Xptxas", "pch",
        "device-float128", "device-int128", "device-syntax-only", "fdevice-time-trace",
        "jump-table-density", "no-source-include", "brief-diagnostics", "frandom-seed",
        "arch-list"};
    size_t length = strcspn(option, "=");
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (strlen(ignored[i]) == length && strncmp(option, ignored[i], length) == 0)
            return true;
    return false;
}

/* The value of `option` when it is --name=value, -name=value, or "--name" with the value next. */
static const char *value_of(const char *option, const char *name, const char *next, int *used)
{
    size_t length = strlen(name);
    if (strncmp(option, name, length) != 0)
        return NULL;
    if (option[length] == '=')
        return option + length + 1;
    if (option[length] == '\0' && next) {
        *used = 2;
        return next;
    }
    return NULL;
}

/* -DX, -IX and -UX, with the value next to the letter or in the next argument. */
static const char *value_of_letter(const char *option, char letter, const char *next, int *used)
{
    if (option[0] != letter)
        return NULL;
    if (option[1])
        return option + 1;
    *used = 2;
    return next;
}

static bool arch_is_known(const char *arch)
{
    int count, number;
    const int *archs = scenario_archs(&count);
    if (strcmp(arch, "cpu") == 0)
        return count > 0 && archs[0] == 0;
    const char *digits = strncmp(arch, "sm_", 3) == 0        ? arch + 3
                         : strncmp(arch, "compute_", 8) == 0 ? arch + 8
                                                             : "";
    number = atoi(digits);
    for (int i = 0; i < count; i++)
        if (number > 0 && archs[i] == number)
            return true;
    return false;
}

/* Takes one option (and its value); the number of arguments used, or 0 when it is not known. */
static int take_option(struct compile *c, const char *argument, const char *next)
{
    int used = 1;
    const char *value, *option = argument + 1 + (argument[1] == '-');
    if (argument[0] != '-' || !*option)
        return 0;
    if ((value = value_of(option, "gpu-architecture", next, &used)) ||
        (value = value_of(option, "arch", next, &used)))
        snprintf(c->arch, sizeof c->arch, "%s", value);
    else if ((value = value_of(option, "std", next, &used)))
        snprintf(c->standard, sizeof c->standard, "-std=%s", value);
    else if ((value = value_of(option, "define-macro", next, &used)))
        add_macro(c, value);
    else if ((value = value_of(option, "undefine-macro", next, &used)))
        fprintf(c->macros_out, "#undef %s\n", value);
    else if ((value = value_of(option, "include-path", next, &used)))
        compile_add(c->preprocess, &c->preprocess_count, compile_string(c, "-I%s", value));
    else if ((value = value_of(option, "pre-include", next, &used)) ||
             (value = value_of(option, "include", next, &used))) {
        compile_add(c->preprocess, &c->preprocess_count, "-include");
        compile_add(c->preprocess, &c->preprocess_count, compile_string(c, "%s", value));
    } else if (is_ignored(option)) {
        bool takes_next = strcmp(option, "Xptxas") == 0 || strcmp(option, "ptxas-options") == 0;
        used = takes_next && next ? 2 : 1;
        c->is_verbose |= (takes_next && next && strstr(next, "-v")) || strstr(option, "options=-v");
    } else if (argument[1] != '-' && (value = value_of_letter(option, 'D', next, &used)))
        add_macro(c, value);
    else if (argument[1] != '-' && (value = value_of_letter(option, 'I', next, &used)))
        compile_add(c->preprocess, &c->preprocess_count, compile_string(c, "-I%s", value));
    else if (argument[1] != '-' && (value = value_of_letter(option, 'U', next, &used)))
        fprintf(c->macros_out, "#undef %s\n", value);
    else
        return 0;
    return used;
}

enum nvrtc_result compile_take_options(struct compile *c, int count, const char *const *options)
{
    for (int i = 0; i < count;) {
        int used = take_option(c, options[i], i + 1 < count ? options[i + 1] : NULL);
        if (used == 0) {
            fprintf(c->log, "nvrtc: error: unrecognized option %s found\n", options[i]);
            return NVRTC_ERROR_INVALID_OPTION;
        }
        i += used;
    }
    if (!arch_is_known(c->arch)) {
        fprintf(
            c->log, "nvrtc: error: invalid value for --gpu-architecture (-arch): %s\n", c->arch);
        return NVRTC_ERROR_INVALID_OPTION;
    }
    c->program->is_virtual = strncmp(c->arch, "compute_", 8) == 0;
    return NVRTC_SUCCESS;
}
