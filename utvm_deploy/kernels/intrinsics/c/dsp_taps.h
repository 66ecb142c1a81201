#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && defined(__GNUC__)
#include <arm_acle.h>
// Four bytes, which need not be aligned.
static inline uint32_t utvm_dsp_taps_word(const int8_t *bytes) {
    struct __attribute__((packed)) word {
        uint32_t value;
    };
    return ((const struct word *)(const void *)bytes)->value;
}
#endif
