// A model of MX8: what the silicon would be. It has no part in firmware for a real device.
//
// SPDX-License-Identifier: Apache-2.0

#include <stddef.h>
#include <string.h>

#include "model.h"

static uint32_t low_half(uint32_t pair) {
    return pair & 0xFFFFu;
}

static uint32_t high_half(uint32_t pair) {
    return pair >> 16;
}

// Whether rows of bytes end before the size of a memory; in 64 bits, nothing wraps.
static int fits(uint32_t first, uint32_t bytes, uint32_t rows, uint32_t pitch, uint32_t size) {
    return rows == 0 || (uint64_t)first + (uint64_t)(rows - 1) * pitch + bytes <= size;
}

static uint32_t transfer(struct mx8_model *model, const uint32_t *c) {
    const uint32_t region = (c[0] >> 8) & 0xFFu, bytes = c[MX8_BYTES], rows = c[MX8_ROWS];
    const uint32_t operation = c[0] & 0xFFu;
    const int is_fill = operation == MX8_FILL;
    struct mx8_registers *r = &model->registers;
    if (!fits(c[MX8_LOCAL], bytes, rows, c[MX8_LOCAL_PITCH], MX8_LOCAL_BYTES) ||
        (!is_fill && (region >= MX8_REGIONS ||
                      !fits(c[MX8_OFFSET], bytes, rows, c[MX8_PITCH], r->bytes[region])))) {
        return MX8_BAD_ADDRESS;
    }
    const uint32_t moved = operation == MX8_STORE && r->test == MX8_TEST_HALF ? rows / 2u : rows;
    for (uint32_t row = 0; row < moved; row++) {
        uint8_t *local = model->local + c[MX8_LOCAL] + row * c[MX8_LOCAL_PITCH];
        if (is_fill) {
            memset(local, (int)(c[MX8_OFFSET] & 0xFFu), bytes);
            continue;
        }
        uint8_t *memory = (uint8_t *)r->address[region] + c[MX8_OFFSET] + row * c[MX8_PITCH];
        if (operation == MX8_LOAD) {
            memcpy(local, memory, bytes);
        } else {
            memcpy(memory, local, bytes);
            r->written += bytes;
        }
    }
    return 0;
}

// value * high * 2^(shift - 31), rounded after the product and again after the right shift.
static int32_t rounded_twice(int32_t value, int32_t high, int32_t shift) {
    if (shift > 0) {
        value = (int32_t)((uint32_t)value << shift);
    }
    value = (int32_t)(((int64_t)value * high + ((int64_t)1 << 30)) >> 31);
    if (shift < 0) {
        const int64_t magnitude = value < 0 ? -(int64_t)value : value;
        const int64_t rounded = (magnitude + ((int64_t)1 << (-shift - 1))) >> -shift;
        value = (int32_t)(value < 0 ? -rounded : rounded);
    }
    return value;
}

// value * (high * 2^26 + low) * 2^-(shift + 26), rounded once; results beyond +-1024 are cut.
static int32_t rounded_once(int32_t value, int32_t high, int32_t low, int32_t shift) {
    const uint64_t magnitude = value < 0 ? 0u - (uint32_t)value : (uint32_t)value;
    const uint64_t product = magnitude * (uint32_t)high + ((magnitude * (uint32_t)low) >> 26);
    const uint64_t rounded = (product + ((uint64_t)1 << (shift - 1))) >> shift;
    const int32_t result = rounded > 1024u ? 1024 : (int32_t)rounded;
    return value < 0 ? -result : result;
}

static int8_t scaled(uint32_t sum, const int32_t *parameters, uint32_t range) {
    const int32_t zero_point = (int8_t)range, least = (int8_t)(range >> 8);
    const int32_t most = (int8_t)(range >> 16);
    const int32_t total = (int32_t)(sum + (uint32_t)parameters[0]);
    const int32_t high = parameters[1], low = parameters[2], shift = parameters[3];
    int64_t value =
        range >> 24 ? rounded_once(total, high, low, shift) : rounded_twice(total, high, shift);
    value += zero_point;
    return (int8_t)(value < least ? least : value > most ? most : value);
}

static uint32_t matrix(struct mx8_model *model, const uint32_t *c) {
    const uint32_t columns = low_half(c[MX8_POSITIONS]), rows = high_half(c[MX8_POSITIONS]);
    const uint32_t width = low_half(c[MX8_KERNEL]), height = high_half(c[MX8_KERNEL]);
    const uint32_t inputs = low_half(c[MX8_CHANNELS]), outputs = high_half(c[MX8_CHANNELS]);
    const uint32_t right = low_half(c[MX8_STRIDES]) * inputs, down = high_half(c[MX8_STRIDES]);
    const uint32_t line = width * inputs, pitch = c[MX8_INPUT_PITCH];
    if (!columns || !rows || !line || !height || !outputs || (c[MX8_PARAMETERS] & 3u)) {
        return MX8_BAD_COMMAND;
    }
    if (line > MX8_LOCAL_BYTES || height > MX8_LOCAL_BYTES || pitch > MX8_LOCAL_BYTES) {
        return MX8_BAD_ADDRESS;
    }
    const uint64_t last = (uint64_t)((rows - 1u) * (uint64_t)down + height - 1u) * pitch;
    if (c[MX8_INPUT] + last + (uint64_t)(columns - 1u) * right + line > MX8_LOCAL_BYTES ||
        !fits(c[MX8_WEIGHTS], line * height, outputs, line * height, MX8_LOCAL_BYTES) ||
        !fits(c[MX8_PARAMETERS], 16u, outputs, 16u, MX8_LOCAL_BYTES) ||
        !fits(c[MX8_OUTPUT], outputs, rows * columns, outputs, MX8_LOCAL_BYTES)) {
        return MX8_BAD_ADDRESS;
    }
    const int8_t *local = (const int8_t *)model->local;
    int8_t *to = (int8_t *)model->local + c[MX8_OUTPUT];
    for (uint32_t position = 0; position < rows * columns; position++) {
        const uint32_t y = position / columns, x = position % columns;
        const int8_t *from = local + c[MX8_INPUT] + y * down * pitch + x * right;
        const int8_t *weights = local + c[MX8_WEIGHTS];
        for (uint32_t output = 0; output < outputs; output++) {
            uint32_t sum = 0;
            for (uint32_t ky = 0; ky < height; ky++) {
                for (uint32_t i = 0; i < line; i++) {
                    sum += (uint32_t)(from[ky * pitch + i] * *weights++);
                }
            }
            int32_t parameters[MX8_PARAMETER_WORDS];
            memcpy(parameters, local + c[MX8_PARAMETERS] + output * sizeof parameters,
                   sizeof parameters);
            *to++ = scaled(sum, parameters, c[MX8_RANGE]);
        }
    }
    return 0;
}

static uint32_t eighths(uint32_t bytes) {
    return (bytes + 7u) / 8u;
}

// The cycles of a command, by the specification.
static uint32_t cycles_of(const uint32_t *c) {
    const uint32_t operation = c[0] & 0xFFu;
    if (operation == MX8_FILL) {
        return 4u + c[MX8_ROWS] * eighths(c[MX8_BYTES]);
    }
    if (operation != MX8_MATRIX) {
        return 20u + c[MX8_ROWS] * (1u + eighths(c[MX8_BYTES]));
    }
    const uint32_t positions = low_half(c[MX8_POSITIONS]) * high_half(c[MX8_POSITIONS]);
    const uint32_t line = low_half(c[MX8_KERNEL]) * low_half(c[MX8_CHANNELS]);
    return 32u + positions * eighths(high_half(c[MX8_CHANNELS])) * high_half(c[MX8_KERNEL]) *
                     eighths(line);
}

// The unit that executes an operation: 0 loads and fills, 1 stores, 2 multiplies.
static uint32_t unit_of(uint32_t operation) {
    return operation == MX8_MATRIX ? 2u : operation == MX8_STORE ? 1u : 0u;
}

// Each unit takes its commands in order. A command begins when its unit is free and those before
// it are done that it waits for.
static void count(struct mx8_model *model, uint32_t number, const uint32_t *c) {
    const uint32_t unit = unit_of(c[0] & 0xFFu);
    uint32_t start = model->free_at[unit];
    for (uint32_t half = 0; half < 2u; half++) {
        const uint32_t back = half ? high_half(c[1]) : low_half(c[1]);
        if (back != 0 && back <= number && back < MX8_HISTORY) {
            const uint32_t done = model->done_at[(number - back) % MX8_HISTORY];
            start = done > start ? done : start;
        }
    }
    const uint32_t end = start + cycles_of(c);
    model->free_at[unit] = model->done_at[number % MX8_HISTORY] = end;
    if (end > model->registers.cycles) {
        model->registers.cycles = end;
    }
}

static uint32_t executed(struct mx8_model *model, const uint32_t *c) {
    switch (c[0] & 0xFFu) {
    case MX8_LOAD:
    case MX8_STORE:
    case MX8_FILL:
        return transfer(model, c);
    case MX8_MATRIX:
        return matrix(model, c);
    default:
        return MX8_BAD_COMMAND;
    }
}

static void reset(struct mx8_model *model) {
    struct mx8_registers *r = &model->registers;
    r->id = MX8_ID;
    r->control = r->fault = r->head = r->tail = r->written = r->cycles = 0;
    memset(model->free_at, 0, sizeof model->free_at);
    memset(model->done_at, 0, sizeof model->done_at);
    model->is_raised = 0;
}

void mx8_model_step(struct mx8_model *model) {
    struct mx8_registers *r = &model->registers;
    if (r->control & MX8_RESET) {
        reset(model);
    }
    const uint32_t number = r->head;
    const int is_hung = r->test == MX8_TEST_HANG && number == 3u;
    if ((r->control & MX8_RUN) && r->fault == 0 && number != r->tail && !is_hung) {
        uint32_t c[MX8_COMMAND_WORDS];
        memcpy(c, (const uint8_t *)r->queue + (number % r->slots) * sizeof c, sizeof c);
        if (r->test == MX8_TEST_COMMAND && number == 3u) {
            c[0] ^= 0x80u; // as if the bus had lost a bit
        }
        r->fault = executed(model, c);
        if (r->fault == 0) {
            count(model, number, c);
            r->head = number + 1u;
        }
    }
    model->is_raised = (r->fault != 0 || r->head == r->tail) && (r->control & MX8_INTERRUPT);
}
