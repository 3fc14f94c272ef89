#include "compile.h"
#include "loader.h"
#include "loops.h"
#include "rewrite.h"
#include "scenario.h"
#include "trace_run.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_LIMIT_BYTES ((size_t)64 << 20)

extern char **environ;

/* --- files ------------------------------------------------------------------------------------ */

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

/* --- running the compiler --------------------------------------------------------------------- */

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

/* --- the steps -------------------------------------------------------------------------------- */

static enum nvrtc_result preprocess(struct compile *c)
{
    const char *const tail[] = {"-x", "c++", source_name(c->program), "-o", "tune_stage.ii"};
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++)
        compile_add(c->preprocess, &c->preprocess_count, tail[i]);
    c->preprocess[2] = c->standard;
    return run_step(c, c->preprocess);
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

/* For trace.h. Lanes are put together by their instructions, of which passes that join or split
 * paths would make others. */
static const char *const trace_arguments[] = {"-fsanitize-coverage=trace-pc",
    "--param=tsan-instrument-func-entry-exit=1", "-fno-thread-jumps", "-fno-tree-ch",
    "-fno-tree-cselim", "-fno-tree-sink", "-fno-tree-loop-im", "-S", "-o", "tune_stage.s"};

static void add_build_arguments(struct compile *c, const char *source)
{
    /* -O1 without scalar replacement keeps a float4 access one access of 16 bytes; the hooks of
     * -fsanitize=thread are image.c's, hence no library of that name. */
    const char *const fixed[] = {"-O1", "-g1", "-gdwarf-4", "-w", "-fPIC", "-shared", "-nostdlib",
        "-pipe", "-fno-tree-sra", "-fno-gnu-unique", "-fno-exceptions", "-fno-rtti",
        "-fno-stack-protector", "-fno-strict-aliasing", "-ffp-contract=off",
        "-fno-threadsafe-statics", "-fvisibility=hidden", "-fno-asynchronous-unwind-tables",
        "-fno-math-errno", "-fno-ident", "-frandom-seed=0", "-fsanitize=thread",
        "--param=tsan-instrument-func-entry-exit=0", "-fdiagnostics-color=never",
        "-fno-diagnostics-show-option", "-Wl,-Bsymbolic,--build-id=none,-z,defs,-z,noexecstack"};
    compile_add(c->build, &c->build_count, host_compiler());
    compile_add(c->build, &c->build_count, c->standard);
    compile_add(c->build, &c->build_count, compile_string(c, "-ffile-prefix-map=%s=.", c->folder));
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        compile_add(c->build, &c->build_count, fixed[i]);
    compile_add(c->build, &c->build_count, source);
}

/* From "tune_stage.cc" to "tune_stage.s", and with a table of its blocks to "tune_traced.s". */
static enum nvrtc_result build_traced(struct compile *c)
{
    size_t bytes;
    char path[PATH_MAX];
    add_build_arguments(c, "tune_stage.cc");
    for (size_t i = 0; i < sizeof trace_arguments / sizeof *trace_arguments; i++)
        compile_add(c->build, &c->build_count, trace_arguments[i]);
    enum nvrtc_result result = run_step(c, c->build);
    c->build_count = 0;
    if (result)
        return result;
    path_in(c, "tune_traced.s", path);
    char *assembly = read_file(c, "tune_stage.s", &bytes);
    FILE *out = fopen(path, "we");
    bool is_written = assembly && out && loops_annotate(assembly, out);
    free(assembly);
    if (out && fclose(out) != 0)
        is_written = false;
    add_build_arguments(c, "tune_traced.s");
    return is_written ? NVRTC_SUCCESS : NVRTC_ERROR_OUT_OF_MEMORY;
}

static enum nvrtc_result build(struct compile *c)
{
    enum nvrtc_result result = NVRTC_SUCCESS;
    if (trace_mode())
        result = build_traced(c);
    else
        add_build_arguments(c, "tune_stage.cc");
    if (result)
        return result;
    compile_add(c->build, &c->build_count, compile_string(c, "%s/tune_image.o", c->library_folder));
    const char *const tail[] = {"-lm", "-lc", "-lgcc", "-o", "tune_image.so"};
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++)
        compile_add(c->build, &c->build_count, tail[i]);
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

static bool has_planned_error(struct compile *c, enum nvrtc_result *result)
{
    const struct program *program = c->program;
    struct scenario_call call = {.call = "nvrtcCompileProgram",
        .entry = program->expression_count ? program->lowered[0] : NULL,
        .defines = c->defines,
        .device = -1};
    *result = (enum nvrtc_result)scenario_apply(&call).error;
    if (*result)
        fprintf(c->log, "emulator: the scenario makes this compile fail with %u\n", *result);
    return *result != NVRTC_SUCCESS;
}

static void begin_arguments(struct compile *c)
{
    snprintf(c->arch, sizeof c->arch, "cpu");
    snprintf(c->standard, sizeof c->standard, "-std=c++17");
    const char *const head[] = {host_compiler(), "-E", c->standard, "-fdiagnostics-color=never",
        "-I", c->library_folder, "-I.", "-include", "tune_cuda.h", "-include", "tune_macros.h"};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        compile_add(c->preprocess, &c->preprocess_count, head[i]);
    if (trace_mode())
        compile_add(c->preprocess, &c->preprocess_count, "-DTUNE_TRACE");
}

static enum nvrtc_result compile(struct compile *c, int count, const char *const *options)
{
    const char *temporary = getenv("TMPDIR");
    if (!library_folder(c->library_folder))
        return NVRTC_ERROR_INTERNAL_ERROR;
    begin_arguments(c);
    enum nvrtc_result result = compile_take_options(c, count, options);
    fflush(c->defines_out);
    fflush(c->macros_out);
    if (result || has_planned_error(c, &result))
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

static void compile_finish(struct compile *c)
{
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
}

enum nvrtc_result compile_program(struct program *program, int count, const char *const *options)
{
    enum nvrtc_result result = NVRTC_ERROR_OUT_OF_MEMORY;
    struct compile *c = calloc(1, sizeof *c);
    if (!c)
        return result;
    free(program->log);
    free(program->image);
    program->log = program->image = NULL;
    program->image_bytes = 0;
    c->program = program;
    c->log = open_memstream(&program->log, &program->log_bytes);
    c->defines_out = open_memstream(&c->defines, &c->defines_bytes);
    c->macros_out = open_memstream(&c->macros, &c->macros_bytes);
    if (c->log && c->defines_out && c->macros_out)
        result = compile(c, count, options);
    if (result) {
        free(program->image);
        program->image = NULL;
    }
    compile_finish(c);
    return result;
}
