/* The stand-in libnvrtc: hands a kernel to the host's C++ compiler.
 *
 * Three steps in a private folder that is removed afterwards: preprocess, rewrite (rewrite.h),
 * compile and link with image.c's object. The result is a shared library that the stand-in libcuda
 * loads, and it is a pure function of source, headers and options: same input, same bytes. */
#include "loader.h"
#include "rewrite.h"
#include "scenario.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define ARGUMENT_LIMIT 512
#define OUTPUT_LIMIT_BYTES ((size_t)64 << 20)

extern char **environ;

enum nvrtc_result {
    NVRTC_SUCCESS = 0,
    NVRTC_ERROR_OUT_OF_MEMORY = 1,
    NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
    NVRTC_ERROR_INVALID_INPUT = 3,
    NVRTC_ERROR_INVALID_PROGRAM = 4,
    NVRTC_ERROR_INVALID_OPTION = 5,
    NVRTC_ERROR_COMPILATION = 6,
    NVRTC_ERROR_BUILTIN_OPERATION_FAILURE = 7,
    NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION = 8,
    NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION = 9,
    NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID = 10,
    NVRTC_ERROR_INTERNAL_ERROR = 11
};

struct file {
    char *name, *text;
};

struct program {
    struct file source;
    struct file *headers;
    int header_count;
    char **expressions, **lowered;
    size_t expression_count;
    bool is_compiled;
    char *image;
    size_t image_bytes;
    bool is_virtual; /* compiled for compute_NN: PTX, no cubin */
    char *log;
    size_t log_bytes;
};

typedef struct program *nvrtcProgram;

/* One compile: everything that ends with it. */
struct compile {
    struct program *program;
    FILE *log;
    char folder[PATH_MAX];
    char library_folder[PATH_MAX]; /* where tune_cuda.h and tune_image.o lie */
    char arch[32];
    char *defines; /* "BM=64\nBN=32\n" */
    size_t defines_bytes;
    FILE *defines_out;
    char *macros; /* the same as preprocessor lines, with #undef */
    size_t macros_bytes;
    FILE *macros_out;
    char *preprocess[ARGUMENT_LIMIT], *build[ARGUMENT_LIMIT];
    int preprocess_count, build_count;
    char *strings[2 * ARGUMENT_LIMIT]; /* arguments made here */
    int string_count;
    bool is_verbose; /* --ptxas-options=-v */
    char standard[32];
};

/* --- arguments ----------------------------------------------------------------------------------
 */

__attribute__((format(printf, 2, 3))) static char *string(
    struct compile *c, const char *format, ...)
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

static void add(char **list, int *count, const char *argument)
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
        add(c->preprocess, &c->preprocess_count, string(c, "-I%s", value));
    else if ((value = value_of(option, "pre-include", next, &used)) ||
             (value = value_of(option, "include", next, &used))) {
        add(c->preprocess, &c->preprocess_count, "-include");
        add(c->preprocess, &c->preprocess_count, string(c, "%s", value));
    } else if (is_ignored(option)) {
        bool takes_next = strcmp(option, "Xptxas") == 0 || strcmp(option, "ptxas-options") == 0;
        used = takes_next && next ? 2 : 1;
        c->is_verbose |= (takes_next && next && strstr(next, "-v")) || strstr(option, "options=-v");
    } else if (argument[1] != '-' && (value = value_of_letter(option, 'D', next, &used)))
        add_macro(c, value);
    else if (argument[1] != '-' && (value = value_of_letter(option, 'I', next, &used)))
        add(c->preprocess, &c->preprocess_count, string(c, "-I%s", value));
    else if (argument[1] != '-' && (value = value_of_letter(option, 'U', next, &used)))
        fprintf(c->macros_out, "#undef %s\n", value);
    else
        return 0;
    return used;
}

static enum nvrtc_result take_options(struct compile *c, int count, const char *const *options)
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

/* --- files --------------------------------------------------------------------------------------
 */

static void path_in(const struct compile *c, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", c->folder, name) >= PATH_MAX)
        path[0] = '\0'; /* opening it fails */
}

/* Writes a file below the folder, making the folders of its name. */
static bool write_file(const struct compile *c, const char *name, const char *text)
{
    char path[PATH_MAX];
    path_in(c, name, path);
    for (char *slash = path + strlen(c->folder) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return false;
        *slash = '/';
    }
    FILE *file = fopen(path, "we");
    if (!file)
        return false;
    fputs(text, file);
    return fclose(file) == 0;
}

/* malloc'ed and NUL-terminated, or NULL. */
static char *read_file(const struct compile *c, const char *name, size_t *bytes)
{
    char path[PATH_MAX];
    struct stat status;
    path_in(c, name, path);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &status) != 0 ||
        (size_t)status.st_size > OUTPUT_LIMIT_BYTES) {
        if (descriptor >= 0)
            close(descriptor);
        return NULL;
    }
    char *text = malloc((size_t)status.st_size + 1);
    ssize_t got = text ? read(descriptor, text, (size_t)status.st_size) : -1;
    close(descriptor);
    if (got != status.st_size) {
        free(text);
        return NULL;
    }
    text[got] = '\0';
    *bytes = (size_t)got;
    return text;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

static bool name_is_safe(const char *name)
{
    return *name && *name != '/' && strstr(name, "..") == NULL;
}

static const char *source_name(const struct program *program)
{
    const char *slash = strrchr(program->source.name, '/');
    return slash ? slash + 1 : program->source.name;
}

static bool write_inputs(struct compile *c)
{
    const struct program *program = c->program;
    for (int i = 0; i < program->header_count; i++) {
        if (!name_is_safe(program->headers[i].name) ||
            !write_file(c, program->headers[i].name, program->headers[i].text))
            return false;
    }
    return write_file(c, "tune_macros.h", c->macros) &&
           write_file(c, source_name(program), program->source.text);
}

/* --- running the compiler ------------------------------------------------------------------------
 */

static const char *host_compiler(void)
{
    const char *named = getenv("TUNE_HOST_CXX");
    return named && *named ? named : "g++";
}

/* Messages of the compiler must be English whatever the user speaks. */
static char **english_environment(void)
{
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **copy = calloc(count + 2, sizeof *copy);
    for (size_t i = 0; copy && i < count; i++)
        if (strncmp(environ[i], "LC_", 3) != 0 && strncmp(environ[i], "LANG", 4) != 0)
            copy[kept++] = environ[i];
    if (copy)
        copy[kept] = (char *)(uintptr_t) "LC_ALL=C";
    return copy;
}

/* 0, the compiler's exit status, or -1 when it cannot be started. Its words go to the file "log".
 */
static int run_compiler(struct compile *c, char *const *arguments)
{
    pid_t pid;
    int status;
    posix_spawn_file_actions_t actions;
    char **environment = english_environment();
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, c->folder);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "log", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    int failed = posix_spawnp(&pid, arguments[0], &actions, NULL, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    if (failed) {
        fprintf(c->log,
            "emulator: cannot run the host's C++ compiler \"%s\": %s; install g++ or name one with "
            "TUNE_HOST_CXX\n",
            arguments[0], strerror(failed));
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* "gemm.cu:12:5: error: text" -> "gemm.cu(12): error: text", with NVRTC's words for a
 * static_assert. False for any other line. */
static bool convert_error(FILE *log, const char *line)
{
    static const char assertion[] = "static assertion failed: ";
    const char *error = strstr(line, " error: ");
    const char *colon = strchr(line, ':');
    if (!error || !colon || colon > error)
        return false;
    int number = atoi(colon + 1);
    if (number <= 0)
        return false; /* not the compiler itself: the linker, say */
    const char *text = error + strlen(" error: ");
    if (strncmp(text, assertion, strlen(assertion)) == 0)
        fprintf(log, "%.*s(%d): error: static assertion failed with \"%s\"\n", (int)(colon - line),
            line, number, text + strlen(assertion));
    else
        fprintf(log, "%.*s(%d): error: %s\n", (int)(colon - line), line, number, text);
    return true;
}

static void convert_log(struct compile *c)
{
    size_t bytes;
    int errors = 0;
    char *text = read_file(c, "log", &bytes), *rest = NULL;
    char *copy = text ? strdup(text) : NULL;
    for (char *line = copy ? strtok_r(copy, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest))
        errors += convert_error(c->log, line);
    if (errors)
        fprintf(c->log, "\n%d error%s detected in the compilation of \"%s\".\n", errors,
            errors == 1 ? "" : "s", c->program->source.name);
    else if (text)
        fputs(text, c->log); /* the linker's, say */
    free(copy);
    free(text);
}

static enum nvrtc_result run_step(struct compile *c, char *const *arguments)
{
    int status = run_compiler(c, arguments);
    if (status < 0)
        return NVRTC_ERROR_BUILTIN_OPERATION_FAILURE;
    if (status > 0) {
        convert_log(c);
        return NVRTC_ERROR_COMPILATION;
    }
    return NVRTC_SUCCESS;
}

/* --- the steps ----------------------------------------------------------------------------------
 */

static enum nvrtc_result preprocess(struct compile *c)
{
    const char *const tail[] = {"-x", "c++", source_name(c->program), "-o", "tune_stage.ii"};
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++)
        add(c->preprocess, &c->preprocess_count, tail[i]);
    c->preprocess[2] = c->standard;
    return run_step(c, c->preprocess);
}

/* A name expression without blanks is also its lowered name. */
static char *without_blanks(const char *text)
{
    char *copy = strdup(text), *out = copy;
    for (; copy && *text; text++)
        if (*text != ' ' && *text != '\t')
            *out++ = *text;
    if (copy)
        *out = '\0';
    return copy;
}

static void register_kernels(struct compile *c, const struct rewrite *rewrite, FILE *out)
{
    const struct program *program = c->program;
    size_t number = 0;
    for (size_t i = 0; i < program->expression_count; i++)
        fprintf(out, "# 1 \"name expression\"\nTUNE_KERNEL(%zu, \"%s\", %s);\n", number++,
            program->lowered[i], program->expressions[i]);
    for (size_t i = 0; i < rewrite->kernel_count; i++) {
        bool is_named = rewrite->kernels[i].is_template;
        for (size_t j = 0; !is_named && j < program->expression_count; j++)
            is_named = strcmp(rewrite->kernels[i].name, program->lowered[j]) == 0;
        if (!is_named)
            fprintf(out, "# 1 \"kernel\"\nTUNE_KERNEL(%zu, \"%s\", %s);\n", number++,
                rewrite->kernels[i].name, rewrite->kernels[i].name);
    }
}

static void write_defines(const struct compile *c, FILE *out)
{
    fputs("extern \"C\" TUNE_HIDDEN const char tune_image_defines[] = \"", out);
    for (const char *line = c->defines, *end; (end = strchr(line, '\n')); line = end + 1) {
        char macro[128];
        snprintf(macro, sizeof macro, "%.*s", (int)strcspn(line, "=\n"), line);
        if (!scenario_asks_about(macro))
            continue;
        for (const char *p = line; p < end; p++)
            fprintf(out, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
        fputs("\\n", out);
    }
    fputs("\";\n", out);
}

/* From here on the qualifiers mean something. Launch bounds: see image.c. */
static const char qualifiers[] =
    "#define __global__ __attribute__((visibility(\"default\"), used, noinline))\n"
    "#define __shared__ static __attribute__((used))\n"
    "#define TUNE_FIRST(a, ...) (a)\n"
    "#define __launch_bounds__(...) __attribute__((patchable_function_entry("
    "TUNE_FIRST(__VA_ARGS__, 0), TUNE_FIRST(__VA_ARGS__, 0))))\n"
    "#define TUNE_HIDDEN __attribute__((visibility(\"hidden\")))\n"
    "#define TUNE_KERNEL(number, name, ...) extern \"C\" __attribute__((visibility(\"default\"), "
    "used)) const tune_image_kernel tune_kernel_##number = { name, (void *)&__VA_ARGS__, "
    "&tune_caller<decltype(&__VA_ARGS__), &__VA_ARGS__>::call, "
    "tune_caller<decltype(&__VA_ARGS__), &__VA_ARGS__>::count, "
    "tune_caller<decltype(&__VA_ARGS__), &__VA_ARGS__>::bytes }\n";

static enum nvrtc_result rewrite_stage(struct compile *c)
{
    size_t bytes;
    char path[PATH_MAX], *text = read_file(c, "tune_stage.ii", &bytes);
    struct rewrite rewrite;
    path_in(c, "tune_stage.cc", path);
    FILE *out = fopen(path, "we");
    if (!text || !out || rewrite_init(&rewrite, text) != 0) {
        if (out)
            fclose(out);
        free(text);
        return NVRTC_ERROR_OUT_OF_MEMORY;
    }
    fputs(qualifiers, out);
    fwrite(rewrite.text, 1, rewrite.length, out);
    fprintf(out, "\n# 1 \"emulator\"\n");
    fprintf(out, "extern \"C\" TUNE_HIDDEN const char tune_image_arch[] = \"%s\";\n", c->arch);
    write_defines(c, out);
    register_kernels(c, &rewrite, out);
    rewrite_finish(&rewrite);
    free(text);
    return fclose(out) == 0 ? NVRTC_SUCCESS : NVRTC_ERROR_INTERNAL_ERROR;
}

static enum nvrtc_result build(struct compile *c)
{
    /* -O1 without scalar replacement keeps a float4 access one access of 16 bytes; the hooks of
     * -fsanitize=thread are image.c's, hence no library of that name. */
    const char *const fixed[] = {"-O1", "-g1", "-gdwarf-4", "-w", "-fPIC", "-shared", "-nostdlib",
        "-pipe", "-fno-tree-sra", "-fno-gnu-unique", "-fno-exceptions", "-fno-rtti",
        "-fno-stack-protector", "-fno-strict-aliasing", "-ffp-contract=off",
        "-fno-threadsafe-statics", "-fvisibility=hidden", "-fno-asynchronous-unwind-tables",
        "-fno-math-errno", "-fno-ident", "-frandom-seed=0", "-fsanitize=thread",
        "--param=tsan-instrument-func-entry-exit=0", "-fdiagnostics-color=never",
        "-fno-diagnostics-show-option", "-Wl,-Bsymbolic,--build-id=none,-z,defs,-z,noexecstack",
        "tune_stage.cc"};
    add(c->build, &c->build_count, host_compiler());
    add(c->build, &c->build_count, c->standard);
    add(c->build, &c->build_count, string(c, "-ffile-prefix-map=%s=.", c->folder));
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        add(c->build, &c->build_count, fixed[i]);
    add(c->build, &c->build_count, string(c, "%s/tune_image.o", c->library_folder));
    const char *const tail[] = {"-lm", "-lc", "-lgcc", "-o", "tune_image.so"};
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++)
        add(c->build, &c->build_count, tail[i]);
    return run_step(c, c->build);
}

static void describe_kernel(struct compile *c, const struct loaded_kernel *kernel)
{
    fprintf(c->log,
        "ptxas info    : Compiling entry function '%s' for '%s'\n"
        "ptxas info    : Function properties for %s\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used %u registers, used 1 barriers, %u bytes smem\n",
        kernel->image->name, c->arch, kernel->image->name, kernel->registers,
        kernel->static_shared);
}

/* What ptxas would refuse. */
static enum nvrtc_result check_image(struct compile *c)
{
    char text[512];
    struct program *program = c->program;
    enum nvrtc_result result = NVRTC_SUCCESS;
    struct loaded *loaded = loader_open(program->image, program->image_bytes, text, sizeof text);
    if (!loaded) {
        fprintf(c->log, "ptxas fatal   : %s\n", text);
        return NVRTC_ERROR_COMPILATION;
    }
    for (size_t i = 0; i < loaded->kernel_count; i++) {
        const struct loaded_kernel *kernel = &loaded->kernels[i];
        if (c->is_verbose)
            describe_kernel(c, kernel);
        if (kernel->static_shared <= LOADER_STATIC_SHARED_LIMIT)
            continue;
        fprintf(c->log,
            "ptxas error   : Entry function '%s' uses too much shared data (0x%x bytes, 0x%x "
            "max)\n",
            kernel->image->name, kernel->static_shared, LOADER_STATIC_SHARED_LIMIT);
        result = NVRTC_ERROR_COMPILATION;
    }
    loader_close(loaded);
    return result;
}

static enum nvrtc_result compile_in_folder(struct compile *c)
{
    enum nvrtc_result result;
    struct program *program = c->program;
    if (!write_inputs(c)) {
        fprintf(c->log, "emulator: cannot write \"%s\" or its headers under %s: %s\n",
            source_name(program), c->folder, strerror(errno));
        return NVRTC_ERROR_INVALID_INPUT;
    }
    if ((result = preprocess(c)) || (result = rewrite_stage(c)) || (result = build(c)))
        return result;
    program->image = read_file(c, "tune_image.so", &program->image_bytes);
    if (!program->image)
        return NVRTC_ERROR_OUT_OF_MEMORY;
    return check_image(c);
}

static bool library_folder(char folder[PATH_MAX])
{
    Dl_info info;
    if (!dladdr(library_folder, &info) || !realpath(info.dli_fname, folder))
        return false;
    *strrchr(folder, '/') = '\0';
    return true;
}

static enum nvrtc_result compile(struct compile *c, int count, const char *const *options)
{
    const char *temporary = getenv("TMPDIR");
    snprintf(c->arch, sizeof c->arch, "cpu");
    snprintf(c->standard, sizeof c->standard, "-std=c++17");
    if (!library_folder(c->library_folder))
        return NVRTC_ERROR_INTERNAL_ERROR;
    const char *const head[] = {host_compiler(), "-E", c->standard, "-fdiagnostics-color=never",
        "-I", c->library_folder, "-I.", "-include", "tune_cuda.h", "-include", "tune_macros.h"};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        add(c->preprocess, &c->preprocess_count, head[i]);
    enum nvrtc_result result = take_options(c, count, options);
    fflush(c->defines_out);
    fflush(c->macros_out);
    if (result)
        return result;
    snprintf(c->folder, sizeof c->folder, "%s/tune-emulator-XXXXXX",
        temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(c->folder)) {
        fprintf(c->log, "emulator: cannot make the folder %s: %s\n", c->folder, strerror(errno));
        return NVRTC_ERROR_BUILTIN_OPERATION_FAILURE;
    }
    result = compile_in_folder(c);
    nftw(c->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return result;
}

static unsigned apply_scenario(const struct compile *c)
{
    const struct program *program = c->program;
    struct scenario_call call = {.call = "nvrtcCompileProgram",
        .entry = program->expression_count ? program->lowered[0] : NULL,
        .defines = c->defines,
        .device = -1};
    return scenario_apply(&call).error;
}

/* --- the interface -------------------------------------------------------------------------------
 */

EXPORTED unsigned nvrtcVersion(int *major, int *minor);
EXPORTED unsigned nvrtcGetNumSupportedArchs(int *count);
EXPORTED unsigned nvrtcGetSupportedArchs(int *archs);
EXPORTED unsigned nvrtcCreateProgram(nvrtcProgram *out, const char *source, const char *name,
    int header_count, const char *const *headers, const char *const *header_names);
EXPORTED unsigned nvrtcDestroyProgram(nvrtcProgram *program);
EXPORTED unsigned nvrtcAddNameExpression(nvrtcProgram program, const char *expression);
EXPORTED unsigned nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *options);
EXPORTED unsigned nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes);
EXPORTED unsigned nvrtcGetProgramLog(nvrtcProgram program, char *log);
EXPORTED unsigned nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes);
EXPORTED unsigned nvrtcGetCUBIN(nvrtcProgram program, char *image);
EXPORTED unsigned nvrtcGetPTXSize(nvrtcProgram program, size_t *bytes);
EXPORTED unsigned nvrtcGetPTX(nvrtcProgram program, char *image);
EXPORTED unsigned nvrtcGetLoweredName(
    nvrtcProgram program, const char *expression, const char **lowered);
EXPORTED const char *nvrtcGetErrorString(unsigned result);

unsigned nvrtcVersion(int *major, int *minor)
{
    struct scenario_effect effect =
        scenario_apply(&(struct scenario_call){.call = "nvrtcVersion", .device = -1});
    if (effect.error)
        return effect.error;
    if (!major || !minor)
        return NVRTC_ERROR_INVALID_INPUT;
    scenario_nvrtc_version(major, minor);
    return NVRTC_SUCCESS;
}

unsigned nvrtcGetNumSupportedArchs(int *count)
{
    if (!count)
        return NVRTC_ERROR_INVALID_INPUT;
    scenario_archs(count);
    return NVRTC_SUCCESS;
}

unsigned nvrtcGetSupportedArchs(int *archs)
{
    int count;
    if (!archs)
        return NVRTC_ERROR_INVALID_INPUT;
    const int *known = scenario_archs(&count);
    memcpy(archs, known, (size_t)count * sizeof *archs);
    return NVRTC_SUCCESS;
}

unsigned nvrtcCreateProgram(nvrtcProgram *out, const char *source, const char *name,
    int header_count, const char *const *headers, const char *const *header_names)
{
    if (!out || !source || header_count < 0 || (header_count && (!headers || !header_names)))
        return NVRTC_ERROR_INVALID_INPUT;
    struct program *program = calloc(1, sizeof *program);
    if (!program)
        return NVRTC_ERROR_OUT_OF_MEMORY;
    program->source.name = strdup(name && *name ? name : "default_program");
    program->source.text = strdup(source);
    program->headers = calloc((size_t)header_count + 1, sizeof *program->headers);
    program->header_count = program->headers ? header_count : 0;
    for (int i = 0; i < program->header_count; i++) {
        program->headers[i].name = strdup(header_names[i]);
        program->headers[i].text = strdup(headers[i]);
    }
    *out = program;
    return NVRTC_SUCCESS;
}

unsigned nvrtcDestroyProgram(nvrtcProgram *out)
{
    if (!out || !*out)
        return NVRTC_ERROR_INVALID_PROGRAM;
    struct program *program = *out;
    for (int i = 0; i < program->header_count; i++) {
        free(program->headers[i].name);
        free(program->headers[i].text);
    }
    for (size_t i = 0; i < program->expression_count; i++) {
        free(program->expressions[i]);
        free(program->lowered[i]);
    }
    free(program->headers);
    free(program->expressions);
    free(program->lowered);
    free(program->source.name);
    free(program->source.text);
    free(program->image);
    free(program->log);
    free(program);
    *out = NULL;
    return NVRTC_SUCCESS;
}

unsigned nvrtcAddNameExpression(nvrtcProgram program, const char *expression)
{
    if (!program)
        return NVRTC_ERROR_INVALID_PROGRAM;
    if (!expression)
        return NVRTC_ERROR_INVALID_INPUT;
    if (program->is_compiled)
        return NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
    char *lowered = without_blanks(expression);
    for (size_t i = 0; lowered && i < program->expression_count; i++) {
        if (strcmp(program->lowered[i], lowered) == 0) {
            free(lowered);
            return NVRTC_SUCCESS;
        }
    }
    size_t room = (program->expression_count + 1) * sizeof(char *);
    char **expressions = realloc(program->expressions, room);
    program->expressions = expressions ? expressions : program->expressions;
    char **names = realloc(program->lowered, room);
    program->lowered = names ? names : program->lowered;
    if (!lowered || !expressions || !names) {
        free(lowered);
        return NVRTC_ERROR_OUT_OF_MEMORY;
    }
    expressions[program->expression_count] = strdup(expression);
    names[program->expression_count++] = lowered;
    return NVRTC_SUCCESS;
}

unsigned nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *options)
{
    if (!program)
        return NVRTC_ERROR_INVALID_PROGRAM;
    if (count < 0 || (count && !options))
        return NVRTC_ERROR_INVALID_INPUT;
    struct compile *c = calloc(1, sizeof *c);
    if (!c)
        return NVRTC_ERROR_OUT_OF_MEMORY;
    free(program->log);
    free(program->image);
    program->log = program->image = NULL;
    program->image_bytes = 0;
    program->is_compiled = true;
    c->program = program;
    c->log = open_memstream(&program->log, &program->log_bytes);
    c->defines_out = open_memstream(&c->defines, &c->defines_bytes);
    c->macros_out = open_memstream(&c->macros, &c->macros_bytes);
    unsigned result = NVRTC_ERROR_OUT_OF_MEMORY;
    if (c->log && c->defines_out && c->macros_out) {
        result = compile(c, count, options);
        unsigned planned = apply_scenario(c);
        if (planned)
            fprintf(c->log, "emulator: the scenario makes this compile fail with %u\n", planned);
        result = planned ? planned : result;
    }
    if (result) {
        free(program->image);
        program->image = NULL;
    }
    if (c->log)
        fclose(c->log);
    if (c->defines_out)
        fclose(c->defines_out);
    if (c->macros_out)
        fclose(c->macros_out);
    for (int i = 0; i < c->string_count; i++)
        free(c->strings[i]);
    free(c->defines);
    free(c->macros);
    free(c);
    return result;
}

unsigned nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes)
{
    if (!program)
        return NVRTC_ERROR_INVALID_PROGRAM;
    if (!bytes)
        return NVRTC_ERROR_INVALID_INPUT;
    *bytes = (program->log ? program->log_bytes : 0) + 1;
    return NVRTC_SUCCESS;
}

unsigned nvrtcGetProgramLog(nvrtcProgram program, char *log)
{
    if (!program)
        return NVRTC_ERROR_INVALID_PROGRAM;
    if (!log)
        return NVRTC_ERROR_INVALID_INPUT;
    memcpy(log, program->log ? program->log : "", (program->log ? program->log_bytes : 0) + 1);
    return NVRTC_SUCCESS;
}

static unsigned get_image(nvrtcProgram program, bool wants_virtual, size_t *bytes, char *image)
{
    if (!program || !program->image)
        return NVRTC_ERROR_INVALID_PROGRAM;
    size_t count = !wants_virtual && program->is_virtual ? 0 : program->image_bytes;
    if (bytes)
        *bytes = count;
    else if (image)
        memcpy(image, program->image, count);
    else
        return NVRTC_ERROR_INVALID_INPUT;
    return NVRTC_SUCCESS;
}

unsigned nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes)
{
    return get_image(program, false, bytes, NULL);
}

unsigned nvrtcGetCUBIN(nvrtcProgram program, char *image)
{
    return get_image(program, false, NULL, image);
}

unsigned nvrtcGetPTXSize(nvrtcProgram program, size_t *bytes)
{
    return get_image(program, true, bytes, NULL);
}

unsigned nvrtcGetPTX(nvrtcProgram program, char *image)
{
    return get_image(program, true, NULL, image);
}

unsigned nvrtcGetLoweredName(nvrtcProgram program, const char *expression, const char **lowered)
{
    if (!program)
        return NVRTC_ERROR_INVALID_PROGRAM;
    if (!expression || !lowered)
        return NVRTC_ERROR_INVALID_INPUT;
    if (!program->image)
        return NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION;
    for (size_t i = 0; i < program->expression_count; i++) {
        if (strcmp(program->expressions[i], expression) == 0) {
            *lowered = program->lowered[i];
            return NVRTC_SUCCESS;
        }
    }
    return NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
}

const char *nvrtcGetErrorString(unsigned result)
{
    static const char *const texts[] = {"NVRTC_SUCCESS", "NVRTC_ERROR_OUT_OF_MEMORY",
        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE", "NVRTC_ERROR_INVALID_INPUT",
        "NVRTC_ERROR_INVALID_PROGRAM", "NVRTC_ERROR_INVALID_OPTION", "NVRTC_ERROR_COMPILATION",
        "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
        "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION", "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
        "NVRTC_ERROR_INTERNAL_ERROR"};
    return result < sizeof texts / sizeof *texts ? texts[result] : "NVRTC_ERROR unknown";
}
