#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
// The sums of two rows of a and two rows of b.
static void utvm_mve_dot_four(const int8_t *a, const int8_t *b, int32_t *c, int32_t a_pitch,
                              int32_t b_pitch, int32_t c_pitch, int32_t depth) {
    int32_t low = c[0];
    int32_t high = c[1];
    int32_t low_below = c[c_pitch];
    int32_t high_below = c[c_pitch + 1];
    for (int32_t k = 0; k < depth; k += 16) {
        mve_pred16_t valid = vctp8q((uint32_t)(depth - k));
        int8x16_t first = vldrbq_z_s8(b + k, valid);
        int8x16_t second = vldrbq_z_s8(b + b_pitch + k, valid);
        int8x16_t value = vldrbq_z_s8(a + k, valid);
        low = vmladavaq_s8(low, value, first);
        high = vmladavaq_s8(high, value, second);
        value = vldrbq_z_s8(a + a_pitch + k, valid);
        low_below = vmladavaq_s8(low_below, value, first);
        high_below = vmladavaq_s8(high_below, value, second);
    }
    c[0] = low;
    c[1] = high;
    c[c_pitch] = low_below;
    c[c_pitch + 1] = high_below;
}

// The sums of one row of a and two rows of b.
static void utvm_mve_dot_two(const int8_t *a, const int8_t *b, int32_t *c, int32_t b_pitch,
                             int32_t depth) {
    int32_t low = c[0];
    int32_t high = c[1];
    for (int32_t k = 0; k < depth; k += 16) {
        mve_pred16_t valid = vctp8q((uint32_t)(depth - k));
        int8x16_t value = vldrbq_z_s8(a + k, valid);
        low = vmladavaq_s8(low, value, vldrbq_z_s8(b + k, valid));
        high = vmladavaq_s8(high, value, vldrbq_z_s8(b + b_pitch + k, valid));
    }
    c[0] = low;
    c[1] = high;
}
#endif
