/* Answers as bytes: what is in the JSON comes out of the readers; damaged bytes are refused, or
 * still read inside the answer. */
#include "client/answer.h"
#include "client/proto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char full[] =
    "{'kernel':'gemm','dtype':'f32','arch':'sm_90','shape':{'M':4096,'N':2048,'K':1},"
    "'mode':'cold','origin':'nearest','measured_on':'NVIDIA H200','measured_shape':'M=1,N=2,K=3',"
    "'same_gpu':true,'config':{'VARIANT':'tiled','BM':128,'PAD':-4},'launches':["
    "{'memset':'C','byte':255},"
    "{'constant':'taps','buffer':'A'},"
    "{'entry':'gemm','grid':[7,8,9],'block':[256,2,1],'shared_bytes':49664,"
    "'defines':{'VARIANT':1,'BM':128,'PAD':-4},'args':[{'kind':'buffer','name':'A'},"
    "{'kind':'scalar','type':'i64','value':4096},{'kind':'scalar','type':'f32','value':0.5},"
    "{'kind':'scalar','type':'i32','name':'offset'},"
    "{'kind':'tensor_map','buffer':'B','dtype':'bf16','dims':[64,32],'strides_bytes':[128],"
    "'box':[8,16],'swizzle':'128B'}],'cluster':[2,1,1],'cooperative':true,'repeat':3},"
    "{'entry':'finish','grid':[1,1,1],'block':[32,1,1],'shared_bytes':0,'defines':{},'args':["
    "{'kind':'buffer','name':'C'}],'cluster':null,'cooperative':false}],"
    "'buffers':[{'name':'A','dtype':'f32','bytes':1024,'role':'in','zero_before':false},"
    "{'name':'C','dtype':'f32','bytes':0,'role':'inout','zero_before':true}],"
    "'median_ns':2810.5,'generation':42,'verified':true,'shipped':true,'sm':90,'nvrtc':'13.0',"
    "'expected_loss':0.25,'min_driver':null,'match':{'name':true}}";

/* From a text with ' for ". New. */
static json_t *parse(const char *text)
{
    char *line = strdup(text);
    struct tune_error err = {0};
    for (char *at = line; *at != '\0'; at++)
        if (*at == '\'')
            *at = '"';
    json_t *json = proto_parse(line, strlen(line), &err);
    if (json == NULL)
        fail_msg("%s", err.text);
    free(line);
    return json;
}

static void make(const char *text, struct tune_answer *answer)
{
    struct tune_error err = {0};
    json_t *json = parse(text);
    if (answer_from_json(json, answer, &err))
        fail_msg("%s", err.text);
    json_decref(json);
}

static void the_head_is_read_back(void **state)
{
    (void)state;
    struct tune_answer answer;
    struct tune_answer_info info;
    make(full, &answer);
    tune_answer_info(&answer, &info);
    assert_int_equal(info.origin, TUNE_NEAR);
    assert_true(info.same_gpu && info.is_verified && info.is_shipped && !answer.is_offline);
    assert_true(info.median_ns == 2810.5 && info.expected_loss == 0.25);
    assert_int_equal(info.generation, 42);
    assert_int_equal(info.sm, 90);
    assert_int_equal(info.param_count, 3);
    assert_int_equal(info.launch_count, 4);
    assert_int_equal(info.buffer_count, 2);
    assert_string_equal(info.kernel, "gemm");
    assert_string_equal(info.dtype, "f32");
    assert_string_equal(info.mode, "cold");
    assert_string_equal(info.arch, "sm_90");
    assert_string_equal(info.shape, "M=4096,N=2048,K=1");
    assert_string_equal(info.measured_on, "NVIDIA H200");
    assert_string_equal(info.measured_shape, "M=1,N=2,K=3");
    assert_true(answer.length < 1024);
}

static void what_is_not_known_is_said_so(void **state)
{
    (void)state;
    struct tune_answer answer;
    struct tune_answer_info info;
    make("{'kernel':'k','dtype':'f32','arch':'cpu','shape':{'N':1},'mode':'warm',"
         "'origin':'default','measured_on':null,'measured_shape':null,'same_gpu':false,"
         "'config':{},'launches':[],'buffers':[],'median_ns':null,'generation':0,"
         "'verified':false,'sm':0,'nvrtc':null,'expected_loss':null}",
        &answer);
    tune_answer_info(&answer, &info);
    assert_int_equal(info.origin, TUNE_DEFAULT);
    assert_true(info.median_ns == 0 && info.expected_loss < 0);
    assert_true(!info.same_gpu && !info.is_verified && !info.is_shipped);
    assert_string_equal(info.measured_on, "");
    assert_string_equal(info.measured_shape, "");
}

static void params_have_their_value_and_its_name(void **state)
{
    (void)state;
    struct tune_answer answer;
    const char *word, *name;
    int64_t value;
    make(full, &answer);
    assert_int_equal(tune_answer_param(&answer, "VARIANT", &value, &word), 0);
    assert_int_equal(value, 1); /* from the launches' defines */
    assert_string_equal(word, "tiled");
    assert_int_equal(tune_answer_param(&answer, "PAD", &value, &word), 0);
    assert_int_equal(value, -4);
    assert_null(word);
    assert_int_equal(tune_answer_param(&answer, "BM", &value, NULL), 0);
    assert_int_equal(value, 128);
    assert_int_equal(tune_answer_param(&answer, "B", &value, &word), -1);
    tune_answer_param_at(&answer, 2, &name, &value, NULL);
    assert_string_equal(name, "PAD");
}

static void launches_come_in_their_order(void **state)
{
    (void)state;
    struct tune_answer answer;
    struct tune_launch launch;
    make(full, &answer);
    tune_answer_launch(&answer, 0, &launch);
    assert_true(launch.is_memset);
    assert_string_equal(launch.buffer, "C");
    assert_int_equal(launch.byte, 255);
    assert_false(launch.is_constant);
    assert_null(launch.entry);
    tune_answer_launch(&answer, 1, &launch);
    assert_true(launch.is_constant && !launch.is_memset);
    assert_string_equal(launch.entry, "taps");
    assert_string_equal(launch.buffer, "A");
    assert_int_equal(launch.arg_count, 0);
    tune_answer_launch(&answer, 2, &launch);
    assert_false(launch.is_memset || launch.is_constant);
    assert_string_equal(launch.entry, "gemm");
    assert_null(launch.buffer);
    assert_true(launch.grid[0] == 7 && launch.grid[1] == 8 && launch.grid[2] == 9);
    assert_true(launch.block[0] == 256 && launch.block[1] == 2 && launch.block[2] == 1);
    assert_true(launch.cluster[0] == 2 && launch.cluster[1] == 1 && launch.cluster[2] == 1);
    assert_int_equal(launch.shared_bytes, 49664);
    assert_int_equal(launch.repeat, 3);
    assert_true(launch.is_cooperative);
    assert_int_equal(launch.arg_count, 5);
    tune_answer_launch(&answer, 3, &launch);
    assert_string_equal(launch.entry, "finish");
    assert_true(launch.cluster[0] == 0 && !launch.is_cooperative && launch.repeat == 1);
    assert_int_equal(launch.arg_count, 1);
    struct tune_arg arg;
    tune_launch_arg(&launch, 0, &arg);
    assert_string_equal(arg.name, "C");
}

static void arguments_are_of_three_kinds(void **state)
{
    (void)state;
    struct tune_answer answer;
    struct tune_launch launch;
    struct tune_arg arg;
    make(full, &answer);
    tune_answer_launch(&answer, 2, &launch);
    tune_launch_arg(&launch, 0, &arg);
    assert_int_equal(arg.kind, TUNE_ARG_BUFFER);
    assert_string_equal(arg.name, "A");
    tune_launch_arg(&launch, 1, &arg);
    assert_int_equal(arg.kind, TUNE_ARG_SCALAR);
    assert_string_equal(arg.type, "i64");
    assert_int_equal(arg.integer, 4096);
    assert_null(arg.name);
    tune_launch_arg(&launch, 2, &arg);
    assert_string_equal(arg.type, "f32");
    assert_true(arg.real == 0.5);
    tune_launch_arg(&launch, 3, &arg);
    assert_string_equal(arg.name, "offset");
    tune_launch_arg(&launch, 4, &arg);
    assert_int_equal(arg.kind, TUNE_ARG_TENSOR_MAP);
    assert_string_equal(arg.name, "B");
    assert_string_equal(arg.dtype, "bf16");
    assert_string_equal(arg.swizzle, "128B");
    assert_int_equal(arg.rank, 2);
    assert_true(arg.dims[0] == 64 && arg.dims[1] == 32 && arg.strides_bytes[0] == 128);
    assert_true(arg.box[0] == 8 && arg.box[1] == 16);
}

static void buffers_have_size_and_role(void **state)
{
    (void)state;
    struct tune_answer answer;
    struct tune_buffer buffer;
    make(full, &answer);
    tune_answer_buffer(&answer, 0, &buffer);
    assert_string_equal(buffer.name, "A");
    assert_string_equal(buffer.dtype, "f32");
    assert_string_equal(buffer.role, "in");
    assert_int_equal(buffer.bytes, 1024);
    assert_false(buffer.is_zeroed_before);
    tune_answer_buffer(&answer, 1, &buffer);
    assert_string_equal(buffer.role, "inout");
    assert_true(buffer.is_zeroed_before);
}

/* --- what is refused -------------------------------------------------------------------------- */

/* Takes the full answer with `from` replaced by `to`. */
static enum tune_code code_with(const char *from, const char *to)
{
    static char text[2 * sizeof full];
    const char *at = strstr(full, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - full), full, to, at + strlen(from));
    struct tune_error err = {0};
    struct tune_answer answer;
    json_t *json = parse(text);
    int status = answer_from_json(json, &answer, &err);
    json_decref(json);
    assert_int_equal(status, err.code == TUNE_OK ? 0 : -1);
    assert_int_equal(answer.length == 0, status != 0);
    return err.code;
}

static void json_that_lacks_or_garbles_a_field_is_refused(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        {"'kernel':'gemm',", ""},
        {"'kernel':'gemm'", "'kernel':7"},
        {"'shape':{", "'other':{"},
        {"'N':2048", "'N':'x'"},
        {"'origin':'nearest'", "'origin':'guess'"},
        {"'same_gpu':true", "'same_gpu':1"},
        {"'config':{", "'other':{"},
        {"'VARIANT':1,", ""},
        {"'VARIANT':1,", "'VARIANT':1.5,"},
        {"'BM':128,'PAD':-4},'launches'", "'BM':1.5,'PAD':-4},'launches'"},
        {"'byte':255", "'byte':256"},
        {"'grid':[7,8,9]", "'grid':[7,8]"},
        {"'grid':[7,8,9]", "'grid':[7,8,0]"},
        {"'grid':[7,8,9]", "'grid':[7,8,4294967296]"},
        {"'shared_bytes':49664", "'shared_bytes':-1"},
        {"'kind':'buffer','name':'A'", "'kind':'buffer'"},
        {"'kind':'buffer','name':'A'", "'kind':'texture','name':'A'"},
        {"'type':'i64','value':4096", "'type':'i64','value':0.5"},
        {"'type':'f32','value':0.5", "'type':'f32'"},
        {"'dims':[64,32]", "'dims':[]"},
        {"'dims':[64,32],", ""},
        {"'dims':[64,32]", "'dims':[1,2,3,4,5,6]"},
        {"'strides_bytes':[128]", "'strides_bytes':[128,1]"},
        {"'box':[8,16]", "'box':[8,'x']"},
        {"'cluster':[2,1,1]", "'cluster':[2]"},
        {"'bytes':1024", "'bytes':-1"},
        {"'role':'in'", "'part':'in'"},
        {"'generation':42,", ""},
        {"'sm':90,", ""},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        if (code_with(changes[i][0], changes[i][1]) != TUNE_EPARSE)
            fail_msg("%s -> %s was taken", changes[i][0], changes[i][1]);
}

static void an_answer_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    static char name[TUNE_ANSWER_BYTES];
    memset(name, 'x', sizeof name - 1);
    struct tune_error err = {0};
    struct tune_answer answer;
    json_t *json = parse(full);
    json_object_set_new(json, "measured_on", json_string(name));
    assert_int_equal(answer_from_json(json, &answer, &err), -1);
    assert_int_equal(err.code, TUNE_ELIMIT);
    err = (struct tune_error){0};
    json_t *launches = json_object_get(json, "launches");
    for (int i = 0; i < 1000; i++)
        json_array_append(launches, json_array_get(launches, 1));
    json_object_set_new(json, "measured_on", json_string(""));
    assert_int_equal(answer_from_json(json, &answer, &err), -1);
    assert_int_equal(err.code, TUNE_ELIMIT);
    json_decref(json);
}

/* --- bytes ------------------------------------------------------------------------------------ */

static void check_text(const struct tune_answer *answer, const char *text)
{
    if (text == NULL)
        return;
    const char *bytes = (const char *)answer->words;
    assert_true(text >= bytes && text + strlen(text) < bytes + answer->length);
}

static void check_numbers(const struct tune_answer *answer, const int64_t *numbers, size_t count)
{
    const char *bytes = (const char *)answer->words;
    assert_true((const char *)numbers >= bytes &&
                (const char *)(numbers + count) <= bytes + answer->length);
}

static void walk_launch(const struct tune_answer *answer, size_t i)
{
    struct tune_launch launch;
    tune_answer_launch(answer, i, &launch);
    check_text(answer, launch.buffer);
    check_text(answer, launch.entry);
    for (size_t j = 0; j < launch.arg_count; j++) {
        struct tune_arg arg;
        tune_launch_arg(&launch, j, &arg);
        check_text(answer, arg.name);
        check_text(answer, arg.type);
        check_text(answer, arg.dtype);
        check_text(answer, arg.swizzle);
        if (arg.kind != TUNE_ARG_TENSOR_MAP)
            continue;
        check_numbers(answer, arg.dims, arg.rank);
        check_numbers(answer, arg.strides_bytes, arg.rank - 1);
        check_numbers(answer, arg.box, arg.rank);
    }
}

/* Reads all there is, and checks that it lies inside the answer. */
static void walk(const struct tune_answer *answer)
{
    struct tune_answer_info info;
    tune_answer_info(answer, &info);
    const char *const texts[] = {info.kernel, info.dtype, info.mode, info.arch, info.shape,
        info.measured_on, info.measured_shape};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_non_null(texts[i]);
        check_text(answer, texts[i]);
    }
    for (size_t i = 0; i < info.param_count; i++) {
        const char *name, *word;
        int64_t value;
        tune_answer_param_at(answer, i, &name, &value, &word);
        check_text(answer, name);
        check_text(answer, word);
    }
    for (size_t i = 0; i < info.launch_count; i++)
        walk_launch(answer, i);
    for (size_t i = 0; i < info.buffer_count; i++) {
        struct tune_buffer buffer;
        tune_answer_buffer(answer, i, &buffer);
        check_text(answer, buffer.name);
        check_text(answer, buffer.dtype);
        check_text(answer, buffer.role);
    }
}

static void bytes_are_taken_whole_or_not(void **state)
{
    (void)state;
    struct tune_answer answer, copy;
    make(full, &answer);
    for (size_t length = 0; length < answer.length; length++) {
        struct tune_error err = {0};
        assert_int_equal(answer_from_bytes(answer.words, length, &copy, &err), -1);
        assert_int_equal(err.code, TUNE_EDAMAGED);
        assert_int_equal(copy.length, 0);
    }
    assert_int_equal(answer_from_bytes(answer.words, answer.length, &copy, NULL), 0);
    assert_int_equal(copy.length, answer.length);
    assert_memory_equal(copy.words, answer.words, answer.length);
    assert_int_equal(answer_from_bytes(answer.words, TUNE_ANSWER_BYTES + 1, &copy, NULL), -1);
}

static void damaged_bytes_never_lead_outside(void **state)
{
    (void)state;
    struct tune_answer answer, copy;
    make(full, &answer);
    char *bytes = (char *)answer.words;
    size_t refused = 0;
    for (size_t at = 0; at < answer.length; at++) {
        for (int change = 1; change < 256; change++) {
            bytes[at] = (char)(bytes[at] ^ change);
            if (answer_from_bytes(bytes, answer.length, &copy, NULL) == 0)
                walk(&copy);
            else
                refused++;
            bytes[at] = (char)(bytes[at] ^ change);
        }
    }
    assert_true(refused > answer.length); /* many are noticed; what is not is harmless */
}

static void another_version_is_named(void **state)
{
    (void)state;
    struct tune_answer answer, copy;
    struct tune_error err = {0};
    make(full, &answer);
    ((uint16_t *)answer.words)[2]++;
    assert_int_equal(answer_from_bytes(answer.words, answer.length, &copy, &err), -1);
    assert_int_equal(err.code, TUNE_EVERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_head_is_read_back),
        cmocka_unit_test(what_is_not_known_is_said_so),
        cmocka_unit_test(params_have_their_value_and_its_name),
        cmocka_unit_test(launches_come_in_their_order),
        cmocka_unit_test(arguments_are_of_three_kinds),
        cmocka_unit_test(buffers_have_size_and_role),
        cmocka_unit_test(json_that_lacks_or_garbles_a_field_is_refused),
        cmocka_unit_test(an_answer_that_does_not_fit_is_refused),
        cmocka_unit_test(bytes_are_taken_whole_or_not),
        cmocka_unit_test(damaged_bytes_never_lead_outside),
        cmocka_unit_test(another_version_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
