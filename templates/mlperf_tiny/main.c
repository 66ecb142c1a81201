// A model behind the serial protocol of MLPerf Tiny: the consortium's runner loads an input, has
// the model run, and reads the results. Commands end with '%', and each answer with "m-ready".
// The protocol is that of benchmark/api in mlcommons/tiny.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "benchmark.h"
#include "board_config.h"
#include "core.h"
#include "guard.h"
#include "idle.h"
#include "port.h"
#include "print.h"
#include "utvm.h"

#define COMMAND_BYTES 80u
#define BYTES_PER_LINE 8u
// Long enough for each interface board to see the pin low: it needs 1 us.
#define PIN_LOW_US 2u

// Of the linker script: the RAM that nothing else uses.
extern uint8_t utvm_workspace[], utvm_workspace_end[];

// Of pin.c: the pin that the energy monitor watches.
void mlperf_pin(bool is_high);

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

// The arena, then the bytes that the runner loads, then the input tensor as the model takes it.
static uint8_t *arena, *loaded, *input;
static uint32_t load_bytes, load_count;

static void print_hex(uint8_t byte) {
    static const char hex[] = "0123456789abcdef";
    const char text[] = {hex[byte >> 4], hex[byte & 15u], '\0'};
    print(text);
}

// With three decimals, as the reference implementations do.
static void print_real(float value) {
    if (value < 0.0f) {
        print("-");
        value = -value;
    }
    // 4e9 thousandths fit 32 bits; what is not below that, or is no number, is said so.
    if (!(value < 4e6f)) {
        print("4000000.000");
        return;
    }
    const uint32_t thousandths = (uint32_t)(value * 1000.0f + 0.5f);
    print_number(thousandths / 1000u);
    const uint32_t rest = thousandths % 1000u;
    const char text[] = {'.', (char)('0' + rest / 100u), (char)('0' + rest / 10u % 10u),
                         (char)('0' + rest % 10u), '\0'};
    print(text);
}

static void print_line(const char *begin, uint64_t number, const char *end) {
    print(begin);
    print_number(number);
    print(end);
}

// Splits 32 bits off first, so that no product overflows.
static uint64_t microseconds(void) {
    const uint64_t ticks = chosen->ticks(chosen->context), hertz = chosen->ticks_per_second;
    return ticks / hertz * 1000000u + ticks % hertz * 1000000u / hertz;
}

static void timestamp(void) {
#if MLPERF_ENERGY
    mlperf_pin(false);
    const uint64_t begin = microseconds();
    while (microseconds() - begin < PIN_LOW_US) {
    }
    mlperf_pin(true);
#else
    print_line("m-lap-us-", microseconds(), "\r\n");
#endif
}

// What the runner loads becomes the bytes of the input tensor.
static void convert_input(void) {
#if INPUT_FORM == INPUT_PIXELS
    for (uint32_t i = 0; i < INPUT_ELEMENTS; i++) {
        input[i] = loaded[i] ^ 0x80u; // less 128
    }
#elif INPUT_FORM == INPUT_REAL
    for (uint32_t i = 0; i < INPUT_ELEMENTS; i++) {
        float value;
        memcpy(&value, loaded + i * sizeof value, sizeof value);
        value /= MODEL_INPUT_SCALE;
        // Half away from zero, as the reference implementation's roundf.
        value = (value < 0.0f ? value - 0.5f : value + 0.5f);
        // A cast of what is beyond int32_t, or no number, is undefined; beyond int8_t, it is cut.
        value = value > -1e6f ? value : -1e6f;
        value = value < 1e6f ? value : 1e6f;
        int32_t q = (int32_t)value + MODEL_INPUT_ZERO_POINT;
        q = q < -128 ? -128 : q > 127 ? 127 : q;
        input[i] = (uint8_t)q;
    }
#else
    memcpy(input, loaded, MODEL_INPUT_BYTES);
#endif
}

// On the tasks' stack, where a fault ends the run and not the firmware.
static bool run_model(void) {
    const struct utvm_call call = {
        .function = (uintptr_t)MODEL_RUN,
        .arguments = {(uintptr_t)arena MODEL_POOLS},
    };
    struct utvm_fault fault = {0};
    memcpy(MODEL_INPUT(arena), input, MODEL_INPUT_BYTES);
    if (guard_call(NULL, &call, &fault) == UTVM_STATUS_OK) {
        return true;
    }
    print("e-[a fault stopped the model]\r\n");
    return false;
}

static float output_at(uint32_t index) {
#if MODEL_OUTPUT_IS_FLOAT
    return MODEL_OUTPUT(arena)[index];
#else
    return MODEL_OUTPUT_SCALE * (float)(MODEL_OUTPUT(arena)[index] - MODEL_OUTPUT_ZERO_POINT);
#endif
}

static void results(void) {
    print("m-results-[");
#if RESULT_IS_ERROR
    float sum = 0.0f;
    for (uint32_t i = 0; i < MODEL_OUTPUT_ELEMENTS; i++) {
        float wanted;
        memcpy(&wanted, loaded + i * sizeof wanted, sizeof wanted);
        const float difference = output_at(i) - wanted;
        sum += difference * difference;
    }
    print_real(sum / (float)MODEL_OUTPUT_ELEMENTS);
#else
    for (uint32_t i = 0; i < MODEL_OUTPUT_ELEMENTS; i++) {
        print(i ? "," : "");
        print_real(output_at(i));
    }
#endif
    print("]\r\n");
}

static void infer(uint32_t count, uint32_t warmups) {
    if (load_count != LOADED_BYTES) {
        print_line("e-[", load_count, " bytes are loaded, and the model ");
        print_line("takes ", LOADED_BYTES, "]\r\n");
        return;
    }
    convert_input();
    print_line("m-warmup-start-", warmups, "\r\n");
    bool runs = true;
    while (runs && warmups-- > 0u) {
        runs = run_model();
    }
    print("m-warmup-done\r\n");
    print_line("m-infer-start-", count, "\r\n");
    timestamp();
    while (runs && count-- > 0u) {
        runs = run_model();
    }
    timestamp();
    print("m-infer-done\r\n");
    if (runs) {
        results();
    }
}

// The next word of a command; NULL behind the last one.
static char *next_word(char **rest) {
    char *word = *rest;
    while (*word == ' ') {
        word++;
    }
    if (*word == '\0') {
        return NULL;
    }
    char *end = word;
    while (*end && *end != ' ') {
        end++;
    }
    *rest = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

// The number that the word is; fallback without a word, and -1 for another word.
static int32_t number_of(const char *word, int32_t fallback) {
    int32_t number = 0;
    if (word == NULL) {
        return fallback;
    }
    for (; *word; word++) {
        if (*word < '0' || *word > '9' || number > 100000000) {
            return -1;
        }
        number = number * 10 + (*word - '0');
    }
    return number;
}

static int32_t nibble(char digit) {
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    digit |= 0x20; // a small letter
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static void load(const char *hex) {
    if (strlen(hex) % 2u) {
        print("e-[Insufficent number of hex digits]\r\n"); // the reference's words
        return;
    }
    for (; *hex; hex += 2) {
        const int32_t high = nibble(hex[0]), low = nibble(hex[1]);
        if (high < 0 || low < 0) {
            print("e-[Invalid hex digit]\r\n");
            return;
        }
        // What comes behind the announced bytes is ignored.
        if (load_count < load_bytes) {
            loaded[load_count++] = (uint8_t)(high << 4 | low);
            if (load_count == load_bytes) {
                print("m-load-done\r\n");
            }
        }
    }
}

static void show(uint32_t count, uint32_t offset) {
    for (uint32_t i = 0; i < count && offset + i < load_count; i++) {
        const bool ends = i % BYTES_PER_LINE == BYTES_PER_LINE - 1u || i + 1u == count ||
                          offset + i + 1u == load_count;
        print(i % BYTES_PER_LINE ? "" : "m-buffer-");
        print_hex(loaded[offset + i]);
        print(ends ? "\r\n" : "-");
    }
}

static void buffer_command(char *rest) {
    const char *word = next_word(&rest);
    if (word == NULL) {
        print("e-[Command 'db' requires a subcommand]\r\n");
    } else if (strcmp(word, "load") == 0) {
        const int32_t bytes = number_of(next_word(&rest), 0);
        if (bytes <= 0 || (uint32_t)bytes > LOADED_BYTES) {
            print_line("e-[db load takes 1 to ", LOADED_BYTES, " bytes]\r\n");
            return;
        }
        load_bytes = (uint32_t)bytes;
        load_count = 0u;
        print_line("m-[Expecting ", load_bytes, " bytes]\r\n");
    } else if (strcmp(word, "print") == 0) {
        const int32_t count = number_of(next_word(&rest), 16);
        const int32_t offset = number_of(next_word(&rest), 0);
        show(count < 0 ? 0u : (uint32_t)count, offset < 0 ? 0u : (uint32_t)offset);
    } else {
        load(word);
    }
}

static void infer_command(char *rest) {
    const int32_t count = number_of(next_word(&rest), 1);
    const int32_t warmups = number_of(next_word(&rest), 10);
    if (count <= 0) {
        print("e-[Inference iterations must be >0]\r\n");
    } else if (warmups < 0) {
        print("e-[Inference warmup must be >=0]\r\n");
    } else {
        infer((uint32_t)count, (uint32_t)warmups);
    }
}

static void command(char *rest) {
    const char *word = next_word(&rest);
    if (word == NULL) {
        // Only the end of a command: the runner flushes the line so.
    } else if (strcmp(word, "name") == 0) {
        print("m-name-dut-[" MLPERF_NAME "]\r\n");
    } else if (strcmp(word, "profile") == 0) {
        print("m-profile-[ULPMark for tinyML Firmware V0.0.1]\r\n"); // what the runner knows
        print("m-model-[" MLPERF_BENCHMARK "]\r\n");
        print("m-[time in ");
        print(chosen == &timer ? "ticks of the timer" : "modelled cycles");
        print_line(", ", chosen->ticks_per_second, " a second]\r\n");
    } else if (strcmp(word, "timestamp") == 0) {
        timestamp();
    } else if (strcmp(word, "db") == 0) {
        buffer_command(rest);
    } else if (strcmp(word, "infer") == 0) {
        infer_command(rest);
    } else if (strcmp(word, "results") == 0) {
        results();
    } else if (strcmp(word, "help") == 0) {
        print("name, profile, timestamp, db load N, db HEX, db print [N] [OFFSET], "
              "infer N [WARMUPS], results\r\n");
    } else {
        print("e-[Unknown command: ");
        print(word);
        print("]\r\n");
    }
    print("m-ready\r\n");
}

static void serve(void) {
    static char line[COMMAND_BYTES + 1u];
    uint32_t length = 0u;
    for (;;) {
        uint8_t byte;
        if (uart_read(&byte, 1u) == 0u) {
            idle();
        } else if (byte == '%') {
            line[length] = '\0';
            length = 0u;
            command(line);
        } else if (byte >= ' ' && length < COMMAND_BYTES) {
            line[length++] = (char)byte;
        }
    }
}

int main(void) {
    const uintptr_t alignment = MODEL_ARENA_ALIGNMENT;
    uart_start();
    timer_start();
    mpu_start(regions, sizeof regions / sizeof regions[0]);
    interrupts_on();
    chosen = ticks_choose(&timer);
    arena = (uint8_t *)(((uintptr_t)utvm_workspace + alignment - 1u) / alignment * alignment);
    // Each begins at a multiple of four bytes.
    loaded = arena + (MODEL_ARENA_BYTES + 3u) / 4u * 4u;
    input = loaded + (LOADED_BYTES + 3u) / 4u * 4u;
    if (input + MODEL_INPUT_BYTES > utvm_workspace_end) {
        print("e-[the RAM has no room for the model and its input]\r\n");
        return 1;
    }
    MODEL_START(arena);
#if MLPERF_ENERGY
    print("m-timestamp-mode-energy\r\n");
    mlperf_pin(true);
#else
    print("m-timestamp-mode-performance\r\n");
#endif
    timestamp();
    print("m-init-done\r\nm-ready\r\n");
    serve();
}
