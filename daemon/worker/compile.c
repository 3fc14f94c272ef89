/* The compile role. A request becomes one NVRTC program: the source and its quoted headers in
 * memory, the options that every compile gets, the request's macros, and a name expression for each
 * entry, so that templates and kernels without C linkage are found too. One request at a time; the
 * process may die in the compiler without harm to anybody else. */
#include "compile.h"
#include "builtin_headers.h"
#include "compile_log.h"
#include "pipe.h"
#include "daemon/clock.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPTION_LIMIT 256
#define HEADER_LIMIT 256
#define ENTRY_LIMIT 64

struct compile_job {
    const char *name, *source, *arch;
    const json_t *entries; /* array or NULL */
    bool is_ptx;
    size_t option_count, header_count;
    const char *options[OPTION_LIMIT];
    const char *headers[HEADER_LIMIT], *header_names[HEADER_LIMIT];
    char arch_option[64], include_option[PATH_MAX + 8], cccl_option[PATH_MAX + 16];
    struct _nvrtcProgram *program;
    char *log; /* whole, stripped */
    size_t log_bytes;
};

/* --- what a request may say ------------------------------------------------------------------- */

/* NAME or NAME=VALUE where VALUE can be a number, a type or a name: nothing that ends the macro's
 * line or begins a comment, a string or another statement. */
static bool is_macro(const char *text)
{
    if (!isalpha((unsigned char)*text) && *text != '_')
        return false;
    while (isalnum((unsigned char)*text) || *text == '_')
        text++;
    if (*text == '\0')
        return true;
    if (*text != '=')
        return false;
    for (text++; *text; text++)
        if (!isalnum((unsigned char)*text) && !strchr("_ +-.*()<>:,", *text))
            return false;
    return true;
}

static bool is_option_allowed(const char *option)
{
    static const char *const allowed[] = {"--maxrregcount=", "--use_fast_math",
        "--fmad=", "--ftz=", "--prec-div=", "--prec-sqrt=", "--generate-line-info", "-lineinfo",
        NULL};
    if (strncmp(option, "-D", 2) == 0)
        return is_macro(option + 2);
    for (const char *const *prefix = allowed; *prefix; prefix++)
        if (strncmp(option, *prefix, strlen(*prefix)) == 0 && !strpbrk(option, " \t\n\r"))
            return true;
    return false;
}

/* An identifier, qualified or with template arguments; brackets must match. */
static bool is_entry_name(const char *name)
{
    int depth = 0;
    if (!isalpha((unsigned char)*name) && *name != '_' && *name != ':')
        return false;
    for (const char *at = name; *at; at++) {
        if (!isalnum((unsigned char)*at) && !strchr("_:<>, *&()-+", *at))
            return false;
        depth += *at == '<' || *at == '(' ? 1 : *at == '>' || *at == ')' ? -1 : 0;
        if (depth < 0)
            return false;
    }
    return depth == 0;
}

static int add_option(struct compile_job *job, const char *option, struct tune_error *err)
{
    if (job->option_count == OPTION_LIMIT)
        return tune_fail(err, TUNE_ELIMIT, "more than %d compiler options", OPTION_LIMIT);
    job->options[job->option_count++] = option;
    return 0;
}

static int read_arch(struct compile_job *job, const struct compiler *compiler,
    const json_t *request, struct tune_error *err)
{
    if (proto_string(request, "arch", &job->arch, err) < 0)
        return -1;
    job->is_ptx = strncmp(job->arch, "compute_", 8) == 0;
    const char *digits = strncmp(job->arch, "sm_", 3) == 0 ? job->arch + 3
                         : job->is_ptx                     ? job->arch + 8
                                                           : "";
    bool is_cpu = strcmp(job->arch, "cpu") == 0;
    if (!is_cpu && (strlen(digits) < 2 || strspn(digits, "0123456789abcdef") != strlen(digits)))
        return tune_fail(err, TUNE_EINVAL,
            "arch is \"%.40s\", but must be like sm_90, sm_90a, compute_90 or cpu", job->arch);
    if (is_cpu != compiler->is_emulated)
        return tune_fail(err, TUNE_EINVAL,
            is_cpu ? "arch cpu needs the emulator's compiler, but the compiler here is NVRTC %d.%d"
                   : "the emulator compiles for arch cpu only, not for real GPUs (%d.%d)",
            compiler->major, compiler->minor);
    int number = atoi(digits);
    bool is_known = is_cpu || compiler->arch_count == 0;
    for (int i = 0; i < compiler->arch_count; i++)
        is_known = is_known || compiler->archs[i] == number;
    if (!is_known)
        return tune_fail(err, TUNE_EINVAL,
            "NVRTC %d.%d cannot compile for %s: it knows %d to %d; %s", compiler->major,
            compiler->minor, job->arch, compiler->archs[0],
            compiler->archs[compiler->arch_count - 1],
            number < compiler->archs[0] ? "use an older CUDA toolkit for this GPU"
                                        : "use a newer CUDA toolkit, or compute_NN");
    snprintf(job->arch_option, sizeof(job->arch_option), "--gpu-architecture=%s", job->arch);
    return add_option(job, job->arch_option, err);
}

static int read_options(struct compile_job *job, const struct compiler *compiler,
    const json_t *request, struct tune_error *err)
{
    json_t *options = NULL, *option;
    size_t index;
    bool cache = true;
    if (read_arch(job, compiler, request, err) < 0 || add_option(job, "--std=c++17", err) < 0 ||
        proto_array_opt(request, "options", &options, err) < 0 ||
        proto_bool_opt(request, "cache", &cache, err) < 0)
        return -1;
    json_array_foreach (options, index, option) {
        const char *text = json_string_value(option);
        if (!text || !is_option_allowed(text))
            return tune_fail(err, TUNE_EINVAL,
                "compiler option \"%.80s\" is refused: only macros (-DNAME=VALUE) and a few code "
                "generation options are taken",
                text ? text : "(not a string)");
        if (add_option(job, text, err) < 0)
            return -1;
    }
    if (compiler->is_emulated)
        return 0;
    if (add_option(job, "--ptxas-options=-v", err) < 0)
        return -1;
    if (!cache && compiler->has_no_cache && add_option(job, "--no-cache", err) < 0)
        return -1;
    if (compiler->include[0]) {
        snprintf(job->include_option, sizeof(job->include_option), "-I%s", compiler->include);
        if (add_option(job, job->include_option, err) < 0)
            return -1;
    }
    if (compiler->include_cccl[0]) {
        snprintf(job->cccl_option, sizeof(job->cccl_option), "-I%s", compiler->include_cccl);
        return add_option(job, job->cccl_option, err);
    }
    return 0;
}

static int add_header(
    struct compile_job *job, const char *name, const char *text, struct tune_error *err)
{
    for (size_t i = 0; i < job->header_count; i++)
        if (strcmp(job->header_names[i], name) == 0)
            return 0; /* the request's own goes before a built-in one */
    if (job->header_count == HEADER_LIMIT)
        return tune_fail(err, TUNE_ELIMIT, "more than %d headers", HEADER_LIMIT);
    job->header_names[job->header_count] = name;
    job->headers[job->header_count++] = text;
    return 0;
}

static int read_headers(struct compile_job *job, const struct compiler *compiler,
    const json_t *request, struct tune_error *err)
{
    json_t *headers = NULL, *header;
    size_t index;
    if (proto_array_opt(request, "headers", &headers, err) < 0)
        return -1;
    json_array_foreach (headers, index, header) {
        const char *name, *text;
        if (proto_string(header, "name", &name, err) < 0 ||
            proto_string(header, "text", &text, err) < 0 || add_header(job, name, text, err) < 0)
            return -1;
    }
    for (const struct builtin_header *each = builtin_headers; !compiler->is_emulated && each->name;
         each++)
        if (add_header(job, each->name, each->text, err) < 0)
            return -1;
    return 0;
}

static int read_entries(struct compile_job *job, const json_t *request, struct tune_error *err)
{
    json_t *entries = NULL, *entry;
    size_t index;
    if (proto_array_opt(request, "entries", &entries, err) < 0)
        return -1;
    job->entries = entries;
    if (json_array_size(entries) > ENTRY_LIMIT)
        return tune_fail(err, TUNE_ELIMIT, "more than %d entries", ENTRY_LIMIT);
    json_array_foreach (entries, index, entry)
        if (!json_is_string(entry) || !is_entry_name(json_string_value(entry)))
            return tune_fail(err, TUNE_EINVAL,
                "entry \"%.80s\" is no name of a kernel: it must be like gemm, ns::gemm or "
                "gemm<float,16>",
                json_is_string(entry) ? json_string_value(entry) : "(not a string)");
    return 0;
}

static int read_job(struct compile_job *job, const struct compiler *compiler, const json_t *request,
    struct tune_error *err)
{
    if (proto_string(request, "name", &job->name, err) < 0 ||
        proto_string(request, "source", &job->source, err) < 0 ||
        read_options(job, compiler, request, err) < 0 ||
        read_headers(job, compiler, request, err) < 0 || read_entries(job, request, err) < 0)
        return -1;
    return 0;
}

/* --- compiling -------------------------------------------------------------------------------- */

static int fetch_log(
    struct compile_job *job, const struct compiler *compiler, struct tune_error *err)
{
    size_t bytes = 0;
    if (compiler->api.nvrtcGetProgramLogSize(job->program, &bytes) != ABI_NVRTC_SUCCESS)
        bytes = 0;
    job->log = calloc(1, bytes + 1);
    if (!job->log)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a compile log of %zu bytes", bytes);
    if (bytes > 0 && compiler->api.nvrtcGetProgramLog(job->program, job->log) != ABI_NVRTC_SUCCESS)
        job->log[0] = '\0';
    for (char *at = job->log; *at; at++) /* it quotes the source, which may hold any byte */
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    job->log_bytes = compile_log_strip(job->log);
    return 0;
}

/* The compiler's complaint about the name table means that the source has no such kernel. */
static bool is_missing_entry(const struct compile_job *job, const char *error)
{
    return json_array_size(job->entries) > 0 && error && strncmp(error, "__nv_name_map", 13) == 0;
}

static void describe_missing(const struct compile_job *job, struct tune_error *err)
{
    char globals[120];
    const char *entry = json_string_value(json_array_get(job->entries, 0));
    size_t index;
    json_t *each;
    json_array_foreach (job->entries, index, each) {
        char needle[160];
        snprintf(needle, sizeof(needle), "nv_mangled_name %s\n", json_string_value(each));
        if (strstr(job->log, needle))
            entry = json_string_value(each);
    }
    compile_log_globals(job->source, globals, sizeof(globals));
    tune_fail(err, TUNE_EINVAL, "%s has no kernel \"%.60s\"; its __global__ functions: %s",
        job->name, entry, globals);
}

static void describe_failure(const struct compile_job *job, const struct compiler *compiler,
    unsigned result, struct tune_error *err)
{
    size_t length;
    const char *error = compile_log_error(job->log, &length);
    if (is_missing_entry(job, error)) {
        describe_missing(job, err);
    } else if (!error && compiler->is_emulated && job->log[0]) { /* no host compiler, say */
        tune_fail(err, TUNE_EINVAL, "%.*s", (int)strcspn(job->log, "\n"), job->log);
    } else if (!error) {
        json_t *resources = compile_log_resources(job->log), *entry;
        const char *name;
        json_object_foreach (resources, name, entry) {
            json_int_t bytes = json_integer_value(json_object_get(entry, "static_shared_bytes"));
            if (bytes > 48 << 10)
                tune_fail(err, TUNE_EINVAL,
                    "%s uses %lld bytes of static shared memory, but 49152 is the most: take "
                    "dynamic shared memory",
                    name, (long long)bytes);
        }
        json_decref(resources);
        tune_fail(err, TUNE_EINVAL, "%s", compiler->api.nvrtcGetErrorString(result));
    } else if (memmem(error, length, "__nv_nvrtc_builtin", 18)) {
        tune_fail(err, TUNE_EINVAL,
            "%.*s: a parameter's macro replaces a name of NVRTC's own header; give that parameter "
            "another name (T, say, is taken)",
            (int)length, error);
    } else if (memmem(error, length, "not open source file", 20) && !compiler->include[0]) {
        tune_fail(err, TUNE_EINVAL,
            "%.*s; no toolkit headers were found: install nvidia-cuda-toolkit or the Python wheel "
            "nvidia-cuda-runtime",
            (int)length, error);
    } else if (memmem(error, length, "not open source file", 20)) {
        tune_fail(err, TUNE_EINVAL, "%.*s; searched: the kernel's own headers, %s", (int)length,
            error, compiler->include);
    } else {
        tune_fail(err, TUNE_EINVAL, "%.*s", (int)length, error);
    }
}

/* Creates the program, compiles it, keeps its log. */
static int run_compiler(
    struct compile_job *job, const struct compiler *compiler, struct tune_error *err)
{
    unsigned result = compiler->api.nvrtcCreateProgram(&job->program, job->source, job->name,
        (int)job->header_count, job->headers, job->header_names);
    if (result != ABI_NVRTC_SUCCESS)
        return tune_fail(err, TUNE_EINVAL, "NVRTC refuses the program: %s",
            compiler->api.nvrtcGetErrorString(result));
    size_t index;
    json_t *entry;
    json_array_foreach (job->entries, index, entry) {
        result = compiler->api.nvrtcAddNameExpression(job->program, json_string_value(entry));
        if (result != ABI_NVRTC_SUCCESS)
            return tune_fail(err, TUNE_EINVAL, "NVRTC refuses the entry name %.80s: %s",
                json_string_value(entry), compiler->api.nvrtcGetErrorString(result));
    }
    result = compiler->api.nvrtcCompileProgram(job->program, (int)job->option_count, job->options);
    if (fetch_log(job, compiler, err) < 0)
        return -1;
    if (result != ABI_NVRTC_SUCCESS) {
        describe_failure(job, compiler, result, err);
        return -1;
    }
    return 0;
}

/* Entry name -> the name in the image. New reference. */
static json_t *lowered_names(
    struct compile_job *job, const struct compiler *compiler, struct tune_error *err)
{
    json_t *names = json_object(), *entry;
    size_t index;
    json_array_foreach (job->entries, index, entry) {
        const char *lowered = NULL;
        unsigned result =
            compiler->api.nvrtcGetLoweredName(job->program, json_string_value(entry), &lowered);
        if (result != ABI_NVRTC_SUCCESS || !lowered) {
            describe_missing(job, err);
            json_decref(names);
            return NULL;
        }
        json_object_set_new(names, json_string_value(entry), json_string(lowered));
    }
    return names;
}

/* The image as base64: new reference. */
static json_t *fetch_image(
    struct compile_job *job, const struct compiler *compiler, struct tune_error *err)
{
    const struct nvrtc_api *api = &compiler->api;
    size_t bytes = 0;
    unsigned result = job->is_ptx ? api->nvrtcGetPTXSize(job->program, &bytes)
                                  : api->nvrtcGetCUBINSize(job->program, &bytes);
    char *image = result == ABI_NVRTC_SUCCESS && bytes > 0 ? malloc(bytes) : NULL;
    if (!image) {
        tune_fail(err, TUNE_EINTERNAL, "the compiler gave no code for %s", job->arch);
        return NULL;
    }
    result = job->is_ptx ? api->nvrtcGetPTX(job->program, image)
                         : api->nvrtcGetCUBIN(job->program, image);
    char *text = result == ABI_NVRTC_SUCCESS ? proto_base64_encode(image, bytes) : NULL;
    json_t *json = text ? json_string(text) : NULL;
    if (!json)
        tune_fail(err, TUNE_EINTERNAL, "the compiler's code cannot be fetched: %s",
            api->nvrtcGetErrorString(result));
    free(text);
    free(image);
    return json;
}

static void add_log(json_t *answer, const struct compile_job *job)
{
    char *cut = compile_log_cut(job->log ? job->log : "", PIPE_LOG_LIMIT_BYTES);
    json_object_set_new(answer, "log", json_string(cut ? cut : ""));
    json_object_set_new(answer, "log_bytes", json_integer((json_int_t)job->log_bytes));
    free(cut);
}

static json_t *success(
    struct compile_job *job, const struct compiler *compiler, struct tune_error *err)
{
    json_t *names = lowered_names(job, compiler, err);
    json_t *image = names ? fetch_image(job, compiler, err) : NULL;
    if (!image) {
        json_decref(names);
        return NULL;
    }
    json_t *answer = json_object();
    json_object_set_new(answer, "ok", json_true());
    json_object_set_new(answer, "image", image);
    json_object_set_new(answer, "is_ptx", json_boolean(job->is_ptx));
    json_object_set_new(answer, "names", names);
    json_object_set_new(answer, "resources", compile_log_resources(job->log));
    return answer;
}

static json_t *failure(const struct compile_job *job, const struct tune_error *err)
{
    json_t *answer = json_pack("{sb,ss}", "ok", 0, "error", err->text);
    json_object_set_new(
        answer, "static_assert", json_boolean(job->log && compile_log_has_static_assert(job->log)));
    return answer;
}

json_t *compiler_answer(struct compiler *compiler, const json_t *request)
{
    struct compile_job *job = calloc(1, sizeof(*job));
    struct tune_error err = {.code = TUNE_OK};
    json_t *answer = NULL;
    double start_ms = clock_ms();
    if (job && read_job(job, compiler, request, &err) == 0 &&
        run_compiler(job, compiler, &err) == 0)
        answer = success(job, compiler, &err);
    if (!job)
        return json_pack("{sb,ss}", "ok", 0, "error", "no memory for a compile");
    if (!answer)
        answer = failure(job, &err);
    json_object_set_new(answer, "compile_ms", json_real(clock_ms() - start_ms));
    add_log(answer, job);
    if (job->program)
        compiler->api.nvrtcDestroyProgram(&job->program);
    free(job->log);
    free(job);
    return answer;
}

/* --- starting --------------------------------------------------------------------------------- */

static void read_archs(struct compiler *compiler)
{
    const struct nvrtc_api *api = &compiler->api;
    int count = 0;
    int *archs = NULL;
    if (api->nvrtcGetNumSupportedArchs && api->nvrtcGetSupportedArchs &&
        api->nvrtcGetNumSupportedArchs(&count) == ABI_NVRTC_SUCCESS && count > 0)
        archs = calloc((size_t)count, sizeof(*archs));
    if (archs && api->nvrtcGetSupportedArchs(archs) == ABI_NVRTC_SUCCESS)
        for (int i = 0; i < count && i < COMPILE_ARCH_LIMIT; i++)
            compiler->archs[compiler->arch_count++] = archs[i];
    free(archs);
    compiler->is_emulated = compiler->arch_count == 1 && compiler->archs[0] == 0;
}

/* A compile that needs the companion library, and tells whether --no-cache is known. */
static int self_test(struct compiler *compiler, struct tune_error *err)
{
    char arch[32];
    if (compiler->is_emulated)
        snprintf(arch, sizeof(arch), "cpu");
    else
        snprintf(arch, sizeof(arch), "sm_%d",
            compiler->arch_count ? compiler->archs[compiler->arch_count - 1] : 75);
    json_t *request = json_pack("{ss,ss,ss,s[s],sb}", "name", "self_test.cu", "source",
        "extern \"C\" __global__ void self_test(int *out) { out[threadIdx.x] = 1; }\n", "arch",
        arch, "entries", "self_test", "cache", 0);
    compiler->has_no_cache = !compiler->is_emulated;
    json_t *answer = compiler_answer(compiler, request);
    if (!json_is_true(json_object_get(answer, "ok")) && compiler->has_no_cache) {
        json_decref(answer);
        compiler->has_no_cache = false;
        setenv("CUDA_CACHE_DISABLE", "1", 1);
        answer = compiler_answer(compiler, request);
    }
    int result = 0;
    if (!json_is_true(json_object_get(answer, "ok")))
        result = tune_fail(err, TUNE_ENOCOMPILER,
            "%.90s does not work (a companion library such as libnvrtc-builtins may be missing): "
            "%s",
            compiler->path, json_string_value(json_object_get(answer, "error")));
    json_decref(answer);
    json_decref(request);
    return result;
}

int compiler_open(struct compiler *compiler, struct libraries *libraries, struct tune_error *err)
{
    *compiler = (struct compiler){.major = 0};
    if (libraries_nvrtc(libraries, &compiler->api, compiler->path, err) < 0)
        return -1;
    compiler->api.nvrtcVersion(&compiler->major, &compiler->minor);
    read_archs(compiler);
    if (!compiler->is_emulated && libraries_include(libraries, compiler->path, compiler->include)) {
        snprintf(
            compiler->include_cccl, sizeof(compiler->include_cccl), "%s/cccl", compiler->include);
        if (access(compiler->include_cccl, X_OK) != 0)
            compiler->include_cccl[0] = '\0';
    }
    return 0;
}

int compiler_init(struct compiler *compiler, struct libraries *libraries, struct tune_error *err)
{
    return compiler_open(compiler, libraries, err) < 0 ? -1 : self_test(compiler, err);
}

static json_t *hello(const struct compiler *compiler, const struct tune_error *err)
{
    if (err->code != TUNE_OK)
        return json_pack(
            "{ss,si,ss}", "hello", "compile", "pipe", PIPE_VERSION, "error", err->text);
    json_t *archs = json_array();
    for (int i = 0; i < compiler->arch_count; i++)
        json_array_append_new(archs, json_integer(compiler->archs[i]));
    json_t *message = json_pack("{ss,si,si,ss,so,sb}", "hello", "compile", "pipe", PIPE_VERSION,
        "pid", (int)getpid(), "nvrtc_path", compiler->path, "archs", archs, "emulated",
        compiler->is_emulated);
    json_object_set_new(message, "nvrtc", json_sprintf("%d.%d", compiler->major, compiler->minor));
    json_object_set_new(
        message, "include", compiler->include[0] ? json_string(compiler->include) : json_null());
    return message;
}

int compile_role(struct channel *channel, struct libraries *libraries)
{
    static struct compiler compiler;
    struct tune_error err = {.code = TUNE_OK};
    (void)!nice(5); /* timings come first; see design: compile workers must not disturb them */
    bool is_ready = compiler_init(&compiler, libraries, &err) == 0;
    if (channel_send(channel, hello(&compiler, &err), NULL) < 0 || !is_ready)
        return 1;
    json_t *request;
    err.code = TUNE_OK;
    while ((request = channel_next(channel, &err))) {
        const char *op = "";
        json_t *answer;
        if (proto_string(request, "op", &op, NULL) == 0 && strcmp(op, "compile") == 0)
            answer = compiler_answer(&compiler, request);
        else
            answer = json_pack("{sb,ss,ss,si}", "ok", 0, "error",
                "a compile worker answers op \"compile\" only", "log", "", "log_bytes", 0);
        json_decref(request);
        if (channel_answer(channel, answer, &err) < 0)
            return 1;
    }
    return err.code == TUNE_OK ? 0 : 1;
}
