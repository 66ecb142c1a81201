// Prints the cycles that the model's pipeline takes for sequences of instructions.
//
// Arguments: QEMU's name of the target, the core, how often each sequence runs in a row.
// In: "FIRST SECOND" in hexadecimal for each instruction, and "end" behind each sequence.
// Out: cycles, and how many instructions the decoder does not know, for each sequence.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UTVM_TIMING_TABLES
#include "decode.h"
#include "pipeline.h"
#include "timing_table.h"

#define INSTRUCTIONS_MAX 1024

static const struct timing *timing_of(const char *core) {
    for (size_t n = 0; n < sizeof timings / sizeof *timings; ++n) {
        if (!strcmp(timings[n].core, core)) {
            return &timings[n];
        }
    }
    return NULL;
}

int main(int count, char **arguments) {
    static struct instruction code[INSTRUCTIONS_MAX];
    const struct decoder *decoder = count == 4 ? decoder_for(arguments[1]) : NULL;
    const struct timing *timing = count == 4 ? timing_of(arguments[2]) : NULL;
    struct it_state it = {0};
    unsigned length = 0, unknown = 0, first, second;
    char line[64];
    if (!decoder || !timing) {
        return 2;
    }
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%x %x", &first, &second) == 2 && length < INSTRUCTIONS_MAX) {
            code[length] = decoder->decode(0, (uint16_t)first, (uint16_t)second, &it);
            unknown += code[length++].kind == KIND_UNKNOWN;
            continue;
        }
        struct pipeline_state state = {.open_base = NO_REGISTER, .flags_age = UINT8_MAX};
        unsigned long cycles = 0;
        for (int turn = 0; turn < atoi(arguments[3]); ++turn) {
            cycles += pipeline_run(timing, timing->pairs, &state, code, length, NULL).cycles;
        }
        printf("%lu %u\n", cycles, unknown);
        length = unknown = 0;
        it = (struct it_state){0};
    }
    return 0;
}
