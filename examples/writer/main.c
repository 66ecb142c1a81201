// A model that writes, on a bare chip: each line that comes over the UART is a prompt, and the
// answer is the prompt with the text that the model writes behind it.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "board_config.h"
#include "core.h"
#include "guard.h"
#include "idle.h"
#include "port.h"
#include "print.h"
#include "text.h"
#include "utvm.h"
#include "vocabulary.h"
#include "writer.h"

#define LINE_BYTES 256u

// Of the linker script: the RAM that nothing else uses.
extern uint8_t utvm_workspace[], utvm_workspace_end[];

static uint64_t port_ticks(void *context) {
    (void)context;
    return timer_ticks();
}

#define REGION(begin, end, rights) {(const void *)(begin), (const void *)(end), (rights)}
static const struct utvm_region regions[] = {BOARD_REGIONS};

static const struct utvm_config timer = {
    .ticks = port_ticks,
    .ticks_per_second = BOARD_TICKS_HZ,
    .tick_unit = BOARD_TICK_UNIT,
};
static const struct utvm_config *chosen;
static uint8_t *arena;

// On the tasks' stack, where a fault ends the call and not the firmware.
static bool run(uintptr_t function) {
    const struct utvm_call call = {
        .function = function,
        .arguments = {(uintptr_t)arena WRITER_POOLS},
    };
    struct utvm_fault fault = {0};
    return guard_call(NULL, &call, &fault) == UTVM_STATUS_OK;
}

// A model that takes blocks of steps has further inputs for them.
#ifndef WRITER_PREFILL_INPUT_COUNT
#define WRITER_PREFILL_INPUT_COUNT 0
#define writer_step writer_run
#endif

static bool step(uint16_t token, uint32_t position) {
    *writer_input_0(arena) = token;
#if WRITER_INPUT_COUNT - WRITER_PREFILL_INPUT_COUNT > 1
    *writer_input_1(arena) = (int32_t)position;
#else
    (void)position; // the model counts itself
#endif
    return run((uintptr_t)writer_step);
}

#if WRITER_PREFILL_INPUT_COUNT > 1
#define BLOCK_TOKENS WRITER_INPUT_2_ELEMENTS
#define BLOCK_TOKENS_AT writer_input_2
#elif WRITER_PREFILL_INPUT_COUNT
#define BLOCK_TOKENS WRITER_INPUT_1_ELEMENTS
#define BLOCK_TOKENS_AT writer_input_1
#endif

// What blocks take of a prompt, without its last token: it scores the next one. Returns how many
// tokens that is, and -1 for a fault.
static int32_t prefill(const uint16_t *tokens, uint32_t count) {
    uint32_t taken = 0u;
#if WRITER_PREFILL_INPUT_COUNT
    for (; taken + BLOCK_TOKENS < count; taken += BLOCK_TOKENS) {
        for (uint32_t i = 0u; i < BLOCK_TOKENS; i++) {
            BLOCK_TOKENS_AT(arena)[i] = tokens[taken + i];
        }
#if WRITER_PREFILL_INPUT_COUNT > 1
        for (uint32_t i = 0u; i < WRITER_INPUT_3_ELEMENTS; i++) {
            writer_input_3(arena)[i] = (int32_t)(taken + i);
        }
#endif
        if (!run((uintptr_t)writer_prefill)) {
            return -1;
        }
    }
#else
    (void)tokens;
    (void)count;
#endif
    return (int32_t)taken;
}

static uint16_t choose(struct sampler *sampler) {
    static uint16_t below[WRITER_OUTPUT_0_ELEMENTS];
#ifdef WRITER_OUTPUT_0_SCALE
    return text_choose_int8(sampler, writer_output_0(arena), WRITER_OUTPUT_0_SCALE, below,
                            WRITER_OUTPUT_0_ELEMENTS);
#else
    return text_choose_float(sampler, writer_output_0(arena), below, WRITER_OUTPUT_0_ELEMENTS);
#endif
}

// The tokens of the prompt, behind the one that begins each text; 0 if it cannot be taken.
static uint32_t begin(const char *prompt, uint16_t *tokens) {
    tokens[0] = vocabulary.end;
    const int32_t count = text_encode(&vocabulary, prompt, tokens + 1, vocabulary.length - 1u);
    if (count < 0) {
        print(count == -1 ? "error: the prompt has characters that the model does not know\n"
                          : "error: the prompt is longer than the model's cache\n");
        return 0u;
    }
    return (uint32_t)count + 1u;
}

static void write_text(const char *prompt) {
    static uint16_t tokens[WRITER_LENGTH];
    struct sampler sampler = {WRITER_TEMPERATURE, WRITER_TOP_K, WRITER_SEED};
    const uint32_t given = begin(prompt, tokens);
    if (given == 0u) {
        return;
    }
    print(prompt);
    writer_reset(arena);
    const uint64_t start = chosen->ticks(chosen->context);
    const int32_t taken = prefill(tokens, given);
    uint64_t of_prompt = chosen->ticks(chosen->context) - start, ticks = 0u;
    if (taken < 0) {
        print("\nerror: a fault stopped the model\n");
        return;
    }
    uint32_t position = (uint32_t)taken;
    uint16_t token = tokens[position];
    while (position < vocabulary.length) {
        const uint64_t before = chosen->ticks(chosen->context);
        if (!step(token, position)) {
            print("\nerror: a fault stopped the model\n");
            return;
        }
        *(position < given ? &of_prompt : &ticks) += chosen->ticks(chosen->context) - before;
        position++;
        token = position < given ? tokens[position] : choose(&sampler);
        if (token == vocabulary.end) {
            break;
        }
        if (position >= given) {
            print(vocabulary.pieces[token]);
        }
    }
    print("\n");
    print_number(position);
    print(" tokens in ");
    print_number(of_prompt + ticks);
    print(", of which the prompt's ");
    print_number(given);
    print(" took ");
    print_number(of_prompt);
    print(chosen == &timer ? " ticks of the timer\n" : " modelled cycles\n");
}

// A line without its end; of a longer one, the rest is dropped, and said.
static void serve(void) {
    static char line[LINE_BYTES + 1u];
    uint32_t length = 0u;
    print("> ");
    for (;;) {
        uint8_t byte;
        if (uart_read(&byte, 1u) == 0u) {
            idle();
        } else if (byte == '\n') {
            line[length < LINE_BYTES ? length : LINE_BYTES] = '\0';
            if (length > LINE_BYTES) {
                print("error: the line is too long\n");
            } else {
                write_text(line);
            }
            length = 0u;
            print("> ");
        } else if (byte != '\r') {
            if (length < LINE_BYTES) {
                line[length] = (char)byte;
            }
            length += length <= LINE_BYTES;
        }
    }
}

int main(void) {
    const uintptr_t alignment = WRITER_ARENA_ALIGNMENT;
    uart_start();
    timer_start();
    mpu_start(regions, sizeof regions / sizeof regions[0]);
    interrupts_on();
    chosen = ticks_choose(&timer);
    arena = (uint8_t *)(((uintptr_t)utvm_workspace + alignment - 1u) / alignment * alignment);
    if (arena + WRITER_ARENA_BYTES > utvm_workspace_end) {
        print("error: the RAM has no room for the model\n");
        return 1;
    }
    serve();
}
