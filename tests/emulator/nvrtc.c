/* The stand-in libnvrtc: its entry points. The work is in compile.c. */
#include "compile.h"
#include "scenario.h"

#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

typedef struct program *nvrtcProgram;

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
    program->is_compiled = true;
    return compile_program(program, count, options);
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
