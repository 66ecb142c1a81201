// C that makes the compiler use the DSP instructions, divisions, tables and floating point.
//
// SPDX-License-Identifier: Apache-2.0

#include <arm_acle.h>
#include <stdint.h>

int32_t dot(const int8_t *a, const int8_t *b, int count);
int32_t dot(const int8_t *a, const int8_t *b, int count) {
    int32_t sum = 0;
    for (int n = 0; n < count; n += 4) {
        int32_t x, y;
        __builtin_memcpy(&x, a + n, 4);
        __builtin_memcpy(&y, b + n, 4);
        sum = __smlad(__sxtb16(x), __sxtb16(y), sum);
        sum = __smladx(__sxtab16(x, y), __sxtb16((int32_t)__ror((uint32_t)y, 8)), sum);
        sum = __qadd(sum, __ssat(sum >> 3, 8));
    }
    return sum;
}

int32_t scale(int32_t x, int32_t multiplier, int shift);
int32_t scale(int32_t x, int32_t multiplier, int shift) {
    const int64_t product = (int64_t)x * multiplier + (1 << 30);
    const int32_t high = (int32_t)(product >> 31);
    const int32_t mask = (1 << shift) - 1;
    return (high >> shift) + ((high & mask) > (mask >> 1) + (high < 0)) + x / multiplier;
}

void average(uint8_t *out, const uint8_t *in, int count);
void average(uint8_t *out, const uint8_t *in, int count) {
    for (int n = 0; n < count; ++n) {
        out[n] = (uint8_t)((in[2 * n] + in[2 * n + 1] + 1) / 2);
    }
}

float filter(const float *x, const float *h, int count);
float filter(const float *x, const float *h, int count) {
    float sum = 0.0f;
    for (int n = 0; n < count; ++n) {
        sum += x[n] * h[n] / (1.0f + h[n]);
    }
    return sum > 0.0f ? sum : -sum * 0.5f;
}

int choose(int what, int x);
int choose(int what, int x) {
    switch (what) {
    case 0:
        return x + 3;
    case 1:
        return x * 7;
    case 2:
        return x ^ 0x55aa;
    case 3:
        return -x;
    case 4:
        return x / 3;
    case 5:
        return x << 5 | 1;
    default:
        return x;
    }
}
