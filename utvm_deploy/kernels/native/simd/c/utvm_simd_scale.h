#if defined(__wasm_simd128__)
#include <wasm_simd128.h>

// The sum of the lanes of each vector.
static inline v128_t utvm_simd_sums(v128_t a, v128_t b, v128_t c, v128_t d) {
    v128_t ab =
        wasm_i32x4_add(wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), wasm_i32x4_shuffle(a, b, 2, 6, 3, 7));
    v128_t cd =
        wasm_i32x4_add(wasm_i32x4_shuffle(c, d, 0, 4, 1, 5), wasm_i32x4_shuffle(c, d, 2, 6, 3, 7));
    return wasm_i32x4_add(wasm_i32x4_shuffle(ab, cd, 0, 1, 4, 5),
                          wasm_i32x4_shuffle(ab, cd, 2, 3, 6, 7));
}

// The upper words of the products.
static inline v128_t utvm_simd_high(v128_t a, v128_t b, v128_t offset) {
    v128_t low = wasm_i64x2_add(wasm_i64x2_extmul_low_i32x4(a, b), offset);
    v128_t high = wasm_i64x2_add(wasm_i64x2_extmul_high_i32x4(a, b), offset);
    return wasm_i32x4_shuffle(low, high, 1, 3, 5, 7);
}

// utvm_simd_once and utvm_simd_twice of four sums. A product with 2^(32 - shift) shifts a lane.
static inline v128_t utvm_simd_once_4(v128_t value, const int32_t *scaling) {
    const v128_t none = wasm_i64x2_const(0, 0);
    v128_t sum = wasm_i32x4_add(utvm_simd_high(value, wasm_v128_load(scaling + 4), none),
                                wasm_v128_load(scaling + 8));
    return utvm_simd_high(sum, wasm_v128_load(scaling + 12), none);
}

static inline v128_t utvm_simd_twice_4(v128_t value, const int32_t *scaling) {
    const v128_t none = wasm_i64x2_const(0, 0), half = wasm_i64x2_splat(INT64_C(0x80000000));
    v128_t doubled = wasm_i32x4_shl(value, 1), sign = wasm_i32x4_shr(value, 31);
    v128_t sum = utvm_simd_high(doubled, wasm_v128_load(scaling + 4), half);
    sum = wasm_i32x4_add(sum, wasm_i32x4_add(wasm_v128_load(scaling + 8), sign));
    return utvm_simd_high(sum, wasm_v128_load(scaling + 12), none);
}
#endif

// (value * multiplier >> 32) + offset, shifted right: `factor` is 2^(32 - shift).
static inline int32_t utvm_simd_once(int32_t value, int32_t multiplier, int32_t offset,
                                     int32_t factor) {
    int32_t sum = utvm_add((int32_t)(((int64_t)value * multiplier) >> 32), offset);
    return (int32_t)(((int64_t)sum * factor) >> 32);
}

// utvm_scale, by the same factor.
static inline int32_t utvm_simd_twice(int32_t value, int32_t multiplier, int32_t offset,
                                      int32_t factor) {
    int64_t product = (int64_t)utvm_add(value, value) * multiplier + INT64_C(0x80000000);
    int32_t sum = utvm_add((int32_t)(product >> 32), utvm_add(offset, value >> 31));
    return (int32_t)(((int64_t)sum * factor) >> 32);
}
