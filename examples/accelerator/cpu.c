// The layers of a blob without the device: its fallback.
//
// SPDX-License-Identifier: Apache-2.0

#include <string.h>

#include "blob.h"

static int32_t lower(uint32_t pair) {
    return (int32_t)(pair & 0xFFFFu);
}

static int32_t upper(uint32_t pair) {
    return (int32_t)(pair >> 16);
}

static int8_t requantized(int32_t sum, const int32_t *parameters, uint32_t range) {
    const int32_t least = (int8_t)(range >> 8), most = (int8_t)(range >> 16);
    int32_t value = range >> 24
                        ? utvm_requantize_exact(sum, parameters[1], parameters[2], parameters[3])
                        : utvm_requantize(sum, parameters[1], parameters[3]);
    value = utvm_clamp(utvm_add(value, (int8_t)range), least, most);
    return (int8_t)value;
}

// The sum of a window; what is beyond the image has the input's zero point.
static uint32_t sum_of(const uint32_t *layer, const int8_t *input, const int8_t *weights,
                       int32_t top, int32_t left) {
    const int32_t width = lower(layer[MX8_IMAGE]), height = upper(layer[MX8_IMAGE]);
    const int32_t depth = lower(layer[MX8_DEPTHS]), zero = (int8_t)layer[MX8_ZERO];
    uint32_t sum = 0;
    for (int32_t y = top; y < top + upper(layer[MX8_WINDOW]); y++) {
        for (int32_t x = left; x < left + lower(layer[MX8_WINDOW]); x++) {
            const int is_inside = y >= 0 && y < height && x >= 0 && x < width;
            const int8_t *from = is_inside ? input + (y * width + x) * depth : (const int8_t *)0;
            for (int32_t i = 0; i < depth; i++) {
                sum += (uint32_t)((from ? from[i] : zero) * *weights++);
            }
        }
    }
    return sum;
}

void mx8_on_cpu(const uint32_t *layer, const struct mx8_work *work) {
    const int8_t *data = work->address[0];
    const int8_t *input = work->address[layer[MX8_FROM_REGION]];
    const int32_t columns = lower(layer[MX8_PLACES]), depth = upper(layer[MX8_DEPTHS]);
    const int32_t count =
        lower(layer[MX8_WINDOW]) * upper(layer[MX8_WINDOW]) * lower(layer[MX8_DEPTHS]);
    int8_t *to = (int8_t *)(uintptr_t)work->address[layer[MX8_TO_REGION]] + layer[MX8_TO];
    for (int32_t position = 0; position < columns * upper(layer[MX8_PLACES]); position++) {
        const int32_t top = position / columns * upper(layer[MX8_STEPS]) - upper(layer[MX8_BEFORE]);
        const int32_t left =
            position % columns * lower(layer[MX8_STEPS]) - lower(layer[MX8_BEFORE]);
        for (int32_t output = 0; output < depth; output++) {
            int32_t parameters[MX8_PARAMETER_WORDS];
            memcpy(parameters, data + layer[MX8_AT_PARAMETERS] + (size_t)output * sizeof parameters,
                   sizeof parameters);
            const int8_t *weights = data + layer[MX8_AT_WEIGHTS] + output * count;
            const uint32_t sum = sum_of(layer, input + layer[MX8_FROM], weights, top, left);
            *to++ =
                requantized(utvm_add((int32_t)sum, parameters[0]), parameters, layer[MX8_LIMITS]);
        }
    }
}
