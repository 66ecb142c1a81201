// SPDX-License-Identifier: Apache-2.0

#include "text.h"

#include <stddef.h>
#include <string.h>

// Scores become differences to the best one, in parts of a factor of two in probability.
#define PARTS 2048u
#define LARGEST 65535u
// PARTS * log2(e)
#define PARTS_OF_E 2954.6394f

int32_t text_encode(const struct vocabulary *vocabulary, const char *text, uint16_t *tokens,
                    uint32_t most) {
    uint32_t count = 0u;
    while (*text) {
        size_t longest = 0u;
        uint16_t found = 0u;
        for (uint16_t token = 0u; token < vocabulary->count; token++) {
            const char *piece = vocabulary->pieces[token];
            const size_t size = strlen(piece);
            if (size > longest && token != vocabulary->end && strncmp(text, piece, size) == 0) {
                longest = size;
                found = token;
            }
        }
        if (longest == 0u) {
            return -1;
        }
        if (count == most) {
            return -2;
        }
        tokens[count++] = found;
        text += longest;
    }
    return (int32_t)count;
}

// 32 bits: a counter whose bits are mixed (splitmix32).
static uint32_t random_bits(uint32_t *state) {
    *state += 0x9E3779B9u;
    uint32_t mixed = *state ^ *state >> 16;
    mixed *= 0x21F0AAADu;
    mixed ^= mixed >> 15;
    mixed *= 0x735A2D97u;
    return mixed ^ mixed >> 15;
}

// 65536 * 2^(-below / PARTS), rounded down; a cubic stands for 2^-x.
static uint32_t power(uint16_t below) {
    const uint32_t x = below % PARTS * 32u; // 16 bits of fraction
    const uint32_t slope = 45324u - ((15149u - (x * 2593u >> 16)) * x >> 16);
    return (65536u - (slope * x >> 16)) >> below / PARTS;
}

// The cast of what is not below the largest, or no number, would be undefined.
static uint16_t whole(float parts) {
    return parts < (float)LARGEST ? (uint16_t)parts : (uint16_t)LARGEST;
}

// The smallest limit below which, itself included, lie at least `wanted` numbers.
static uint16_t limit_of(const uint16_t *below, uint16_t count, uint16_t wanted) {
    uint32_t low = 0u, high = LARGEST;
    while (low < high) {
        const uint32_t middle = (low + high) / 2u;
        uint32_t found = 0u;
        for (uint16_t i = 0u; i < count; i++) {
            found += below[i] <= middle;
        }
        if (found >= wanted) {
            high = middle;
        } else {
            low = middle + 1u;
        }
    }
    return (uint16_t)low;
}

static uint16_t draw(struct sampler *sampler, const uint16_t *below, uint16_t count) {
    const uint16_t kept = sampler->top_k && sampler->top_k < count ? sampler->top_k : count;
    const uint16_t limit = limit_of(below, count, kept);
    // Of those that equal the limit, the first ones are kept.
    uint32_t equals = kept, sum = 0u;
    for (uint16_t i = 0u; i < count; i++) {
        equals -= below[i] < limit;
    }
    // At most 65535 * 65536, which 32 bits hold. The second pass ends where the first's sum is.
    uint32_t drawn = UINT32_MAX;
    for (uint32_t pass = 0u; pass < 2u; pass++) {
        uint32_t left = equals;
        if (pass == 1u) {
            drawn = (uint32_t)((uint64_t)random_bits(&sampler->state) * sum >> 32);
            sum = 0u;
        }
        for (uint16_t i = 0u; i < count; i++) {
            const uint32_t is_kept = below[i] < limit || (below[i] == limit && left > 0u);
            left -= is_kept && below[i] == limit;
            sum += is_kept ? power(below[i]) : 0u;
            if (pass == 1u && sum > drawn) {
                return i;
            }
        }
    }
    return 0u; // not reached: the best token's part is not 0
}

uint16_t text_choose_int8(struct sampler *sampler, const int8_t *scores, float scale,
                          uint16_t *below, uint16_t count) {
    uint16_t best = 0u;
    for (uint16_t i = 1u; i < count; i++) {
        best = scores[i] > scores[best] ? i : best;
    }
    if (sampler->temperature == 0.0f) {
        return best;
    }
    const float factor = scale * PARTS_OF_E / sampler->temperature;
    for (uint16_t i = 0u; i < count; i++) {
        below[i] = whole((float)(scores[best] - scores[i]) * factor);
    }
    below[best] = 0u; // also if the factor is not finite
    return draw(sampler, below, count);
}

uint16_t text_choose_float(struct sampler *sampler, const float *scores, uint16_t *below,
                           uint16_t count) {
    uint16_t best = 0u;
    for (uint16_t i = 1u; i < count; i++) {
        const uint32_t is_none = scores[best] != scores[best] && scores[i] == scores[i]; // NaN
        best = scores[i] > scores[best] || is_none ? i : best;
    }
    if (sampler->temperature == 0.0f) {
        return best;
    }
    const float factor = PARTS_OF_E / sampler->temperature;
    for (uint16_t i = 0u; i < count; i++) {
        below[i] = whole((scores[best] - scores[i]) * factor);
    }
    below[best] = 0u; // also if its score is not finite
    return draw(sampler, below, count);
}
