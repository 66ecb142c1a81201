// Self-test of @NAME@; see @NAME@_selftest.h.
//
// SPDX-License-Identifier: Apache-2.0

#include "@NAME@_selftest.h"

#include "@NAME@.h"
#include "@NAME@_vectors.h"

// What the arena holds before a run must not matter.
#define FILL 0xA5u

struct printer {
    void (*put)(char character, void *context);
    void *context;
};

static void print(const struct printer *out, const char *text)
{
    while (*text != '\0') {
        out->put(*text++, out->context);
    }
}

static void print_unsigned(const struct printer *out, uint32_t value)
{
    char digits[11];
    uint32_t at = sizeof digits;
    digits[--at] = '\0';
    do {
        digits[--at] = (char)('0' + value % 10u);
        value /= 10u;
    } while (value != 0u);
    print(out, &digits[at]);
}

static void print_element(const struct printer *out, const uint8_t *bytes, uint32_t size)
{
    if (size == 1u) {
        int32_t value = (int8_t)bytes[0];
        if (value < 0) {
            print(out, "-");
            value = -value;
        }
        print_unsigned(out, (uint32_t)value);
        return;
    }
    print(out, "bytes");
    for (uint32_t i = 0u; i < size; i++) {
        print(out, " ");
        print_unsigned(out, bytes[i]);
    }
}

static int report_mismatch(const struct printer *out, uint32_t sample, uint32_t output,
    uint32_t element, const uint8_t *got, const uint8_t *expected)
{
    uint32_t size = output_tensors[output].element_bytes;
    print(out, "FAIL @NAME@: sample ");
    print_unsigned(out, sample);
    print(out, ", output ");
    print_unsigned(out, output);
    print(out, ", element ");
    print_unsigned(out, element);
    print(out, ": got ");
    print_element(out, got + element * size, size);
    print(out, ", expected ");
    print_element(out, expected + element * size, size);
    print(out, "\n");
    return 1;
}

static void run_sample(uint8_t *arena, uint32_t sample)
{
    for (uint32_t i = 0u; i < @UPPER@_ARENA_BYTES; i++) {
        arena[i] = FILL;
    }
    for (uint32_t input = 0u; input < @UPPER@_INPUT_COUNT; input++) {
        const uint8_t *from = sample_inputs[sample][input];
        uint8_t *to = arena + input_tensors[input].offset;
        for (uint32_t i = 0u; i < input_tensors[input].bytes; i++) {
            to[i] = from[i];
        }
    }
    @NAME@_run(arena);
}

int @NAME@_selftest(uint8_t *arena, void (*put)(char character, void *context), void *context)
{
    const struct printer out = {put, context};
    for (uint32_t sample = 0u; sample < SAMPLE_COUNT; sample++) {
        run_sample(arena, sample);
        for (uint32_t output = 0u; output < @UPPER@_OUTPUT_COUNT; output++) {
            const uint8_t *expected = sample_outputs[sample][output];
            const uint8_t *got = arena + output_tensors[output].offset;
            for (uint32_t i = 0u; i < output_tensors[output].bytes; i++) {
                if (got[i] != expected[i]) {
                    uint32_t element = i / output_tensors[output].element_bytes;
                    return report_mismatch(&out, sample, output, element, got, expected);
                }
            }
        }
    }
    print(&out, "PASS @NAME@: ");
    print_unsigned(&out, SAMPLE_COUNT);
    print(&out, " sample(s), every output byte equal\n");
    return 0;
}
