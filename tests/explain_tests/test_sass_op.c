/* Single instructions, as NVIDIA's disassembler names them. */
#include "explain/sass_op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What an instruction must be read as. */
struct example {
    const char *text;
    uint64_t lo, hi;
    int sm;
    enum sass_class kind;
    uint32_t bytes;
};

static void check(const struct example *examples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct example *example = &examples[i];
        struct sass_op op = sass_op(example->lo, example->hi, example->sm);
        if (!op.is_known || op.is_padding || op.kind != example->kind || op.bytes != example->bytes)
            fail_msg("%s (sm_%d) is read as %s of %u bytes%s", example->text, example->sm,
                sass_class_word(op.kind), op.bytes, op.is_padding ? ", padding" : "");
    }
}

#define CHECK(examples) check(examples, sizeof(examples) / sizeof *(examples))

static void arithmetic_is_told_apart_by_type(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"FFMA R7, R7, R16, R0", 0x0000001007077223, 0x004fe40000000000, 75, SASS_FP32, 0},
        {"DFMA R12, -R28, R10, 1", 0x3ff000001c0c742b, 0x002e4c000000010a, 80, SASS_FP64, 0},
        {"HFMA2 R3, R9, R3, R10", 0x0000000309037231, 0x004fca000000000a, 80, SASS_FP16, 0},
        {"HMMA.1688.F32.TF32", 0x000000080804723c, 0x002fee00000810ff, 80, SASS_TENSOR, 0},
        {"HGMMA.64x8x16.F32.BF16", 0x00000000041879f0, 0x000fe2000c0018ff, 90, SASS_TENSOR, 0},
        {"MUFU.SIN R6, R6", 0x0000000600067308, 0x000fe20000000400, 89, SASS_SPECIAL, 0},
        {"I2FP.F32.S32 R8, UR4", 0x0000000400087c45, 0x000fe20008201400, 86, SASS_CONVERT, 0},
        {"SHFL.BFLY PT, R3, R5", 0x0c601f0005037f89, 0x000e6200000e0000, 80, SASS_WARP, 0},
        {"BAR.SYNC 0x0", 0x0000000000007b1d, 0x000fea0000000000, 75, SASS_BARRIER, 0},
        {"@P0 EXIT", 0x000000000000094d, 0x000fea0003800000, 120, SASS_BRANCH, 0},
    };
    CHECK(examples);
}

static void a_constant_loaded_by_f16_arithmetic_is_a_move(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"HFMA2.MMA R18, -RZ, RZ, 0, 0", 0x00000000ff127435, 0x000fe200000001ff, 90, SASS_INTEGER,
            0},
        {"HFMA2 R0, -RZ, RZ, 0, 0", 0x00000000ff007431, 0x000fe200000001ff, 120, SASS_INTEGER, 0},
        {"HFMA2.MMA R4, R4, -0.0009765625, -0.0009765625, R9", 0x9400940004047835,
            0x000fe20000000009, 80, SASS_FP16, 0},
    };
    CHECK(examples);
}

static void a_number_may_mean_another_operation_on_later_architectures(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"HFMA2.MMA", 0x9400940004047835, 0x000fe20000000009, 80, SASS_FP16, 0},
        {"IADD", 0x9400940004047835, 0x000fe20000000009, 120, SASS_INTEGER, 0},
    };
    CHECK(examples);
}

static void loads_and_stores_say_how_wide_they_are(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"LDG.E.U8.SYS R22, [R22.64+UR4]", 0x0000000416167981, 0x000ea2000c1ee100, 75,
            SASS_GLOBAL_LOAD, 1},
        {"LDG.E.128 R4, desc[UR36][R20.64]", 0x0000002414047981, 0x004ea2000c1e1d00, 100,
            SASS_GLOBAL_LOAD, 16},
        {"ld.global.v8.b32", 0xfe0000040204797e, 0x002ea80008121908, 100, SASS_GLOBAL_LOAD, 32},
        {"STG.E.64 desc[UR6][R4.64], R16", 0x0000001004007986, 0x000fe8000c101b06, 90,
            SASS_GLOBAL_STORE, 8},
        {"STS.U16 [R11], R0", 0x000000000b007388, 0x004fe80000000400, 80, SASS_SHARED_STORE, 2},
        {"LDSM.16.M88.4 R8, [R15]", 0x000000000f08783b, 0x000e640000000200, 90, SASS_SHARED_LOAD,
            16},
        {"stmatrix.x4", 0x0000000400007844, 0x000fe20000000200, 90, SASS_SHARED_STORE, 16},
    };
    CHECK(examples);
}

static void asynchronous_copies_are_loads_from_global_memory(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"LDGSTS.E.BYPASS.128 [R13], [R2.64]", 0x00000000020d7fae, 0x0003e8000b901c44, 80,
            SASS_GLOBAL_LOAD, 16},
        {"cp.async.ca 8", 0x0000000002097fae, 0x000fe8000b921a46, 90, SASS_GLOBAL_LOAD, 8},
        {"LDGSTS.E.BYPASS.128 [R11], desc[UR6][R2.64]", 0x00000000020b7fae, 0x0083e8000b981806, 120,
            SASS_GLOBAL_LOAD, 16},
        {"cp.async.ca 4", 0x0000000002097fae, 0x008fe8000b9a1006, 100, SASS_GLOBAL_LOAD, 4},
        {"UTMALDG.2D [UR8], [UR4]", 0x00000008040075b4, 0x0003d80008008000, 90, SASS_GLOBAL_LOAD,
            0},
        {"cp.async.bulk to shared", 0x00000008060073ba, 0x0001e40008000204, 90, SASS_GLOBAL_LOAD,
            0},
        {"cp.async.bulk to global", 0x00000006050073ba, 0x0003f00008000404, 90, SASS_GLOBAL_STORE,
            0},
    };
    CHECK(examples);
}

static void atomics_say_how_wide_they_are(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"RED.E.ADD.F64.RN.STRONG.GPU", 0x000000140c00798e, 0x000fe2000c10eda4, 86, SASS_ATOMIC, 8},
        {"red.global.add.f64", 0x00000004020079a6, 0x004fe2000c10ff84, 90, SASS_ATOMIC, 8},
        {"REDG.E.ADD.F32.FTZ.RN", 0x00000005020079a6, 0x008fe2000c10f386, 90, SASS_ATOMIC, 4},
        {"red.global.add.v4.f32", 0x00000004020079a6, 0x000fe2000c10f784, 90, SASS_ATOMIC, 16},
        {"ATOMG.E.CAS PT, R9, [R4+0xc], R14, R15", 0x00000c0e040973a9, 0x0012e200001f410f, 75,
            SASS_ATOMIC, 4},
        {"atom.global.cas.b128", 0x00000008020873a9, 0x000ea800001ee90c, 90, SASS_ATOMIC, 16},
        {"atom.global.min.s64", 0x00000004020479a8, 0x004ea800089ee7c4, 90, SASS_ATOMIC, 8},
    };
    CHECK(examples);
}

static void other_memory_has_a_class_and_no_width(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"ld.u32 of any space", 0x0000000402057980, 0x000ea8000c101900, 80, SASS_GLOBAL_LOAD, 0},
        {"STL [R25], R10", 0x0000000a19007387, 0x0041e80000100800, 75, SASS_LOCAL, 0},
        {"LDCU.64 UR4, c[0x0][0x390]", 0x00007200ff0477ac, 0x000e620008000a00, 100, SASS_CONSTANT,
            0},
        {"ULDC.64 UR4, c[0x0][0x118]", 0x0000460000047ab9, 0x000fc60000000a00, 80, SASS_CONSTANT,
            0},
    };
    CHECK(examples);
}

static void what_never_runs_is_padding(void **state)
{
    (void)state;
    assert_true(sass_op(0x0000000000007918, 0x000fc00000000000, 75).is_padding); /* NOP */
    assert_true(sass_op(0x00000000fffff984, 0x000fe20000000800, 90).is_padding); /* @!PT LDS */
    /* BRA to itself */
    assert_true(sass_op(0xfffffff000007947, 0x000fc0000383ffff, 80).is_padding);
    assert_true(sass_op(0xfffffffc00fc7947, 0x000fc0000383ffff, 90).is_padding);
    /* @P0 BRA to itself is a loop; BRA to the instruction before it is one too */
    assert_false(sass_op(0xfffffff000000947, 0x000fc0000383ffff, 80).is_padding);
    assert_false(sass_op(0xffffffe000007947, 0x000fc0000383ffff, 80).is_padding);
}

static void operations_without_a_name_are_counted_apart(void **state)
{
    (void)state;
    struct sass_op op = sass_op(0x00000000000071ff, 0, 90);
    assert_false(op.is_known);
    assert_false(op.is_padding);
    assert_int_equal(op.kind, SASS_OTHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetic_is_told_apart_by_type),
        cmocka_unit_test(a_constant_loaded_by_f16_arithmetic_is_a_move),
        cmocka_unit_test(a_number_may_mean_another_operation_on_later_architectures),
        cmocka_unit_test(loads_and_stores_say_how_wide_they_are),
        cmocka_unit_test(asynchronous_copies_are_loads_from_global_memory),
        cmocka_unit_test(atomics_say_how_wide_they_are),
        cmocka_unit_test(other_memory_has_a_class_and_no_width),
        cmocka_unit_test(what_never_runs_is_padding),
        cmocka_unit_test(operations_without_a_name_are_counted_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
