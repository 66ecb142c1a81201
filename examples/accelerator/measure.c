// Runs what plugin.py wrote for a region on the model of the device, on a PC:
//
//     measure BLOB SEED
//
// It prints the cycles of the device, and compares its outputs with those of cpu.c. Inputs are
// random. cycles.py builds and calls it.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdio.h>
#include <stdlib.h>

#include "blob.h"
#include "model.h"

struct mx8_state { // as in engine.c
    const uint32_t *blob;
    uint32_t cycles;
    uint32_t fallbacks;
};

int32_t mx8_init(const uint8_t *blob, uint32_t bytes, void *state);
int32_t mx8_run(void *state, const void *const *inputs, void *const *outputs, void *scratch);

#define MOST_BYTES (1u << 22)

static uint32_t blob[MOST_BYTES / 4u];
static uint64_t scratch[MOST_BYTES / 8u];

int main(int count, char **arguments) {
    FILE *file = count == 3 ? fopen(arguments[1], "rb") : NULL;
    if (file == NULL) {
        return 2;
    }
    const uint32_t bytes = (uint32_t)fread(blob, 1, sizeof blob, file);
    fclose(file);
    struct mx8_state state;
    if (mx8_init((const uint8_t *)blob, bytes, &state) != 0) {
        return 3;
    }
    srand((unsigned)atoi(arguments[2]));
    void *ends[2][MX8_REGIONS] = {{NULL}};
    const uint32_t inputs = blob[MX8_INPUTS], outputs = blob[MX8_OUTPUTS];
    for (uint32_t run = 0; run < 2u; run++) {
        for (uint32_t i = 0; i < inputs + outputs; i++) {
            const uint32_t size = blob[MX8_BLOB_WORDS + 2u + i];
            int8_t *data = ends[run][i] = malloc(size);
            for (uint32_t at = 0; at < size; at++) {
                data[at] = i >= inputs ? 0 : run ? ((int8_t *)ends[0][i])[at] : (int8_t)rand();
            }
        }
        // The second run is the CPU's: the device gets a bad command.
        blob[MX8_TEST] = run ? MX8_TEST_COMMAND : blob[MX8_TEST];
        blob[MX8_FLAGS] |= run ? MX8_WITH_FALLBACK : 0u;
        const void *const *from = (const void *const *)ends[run];
        const int32_t status = mx8_run(&state, from, ends[run] + inputs, scratch);
        if (status != 0) {
            printf("status %d\n", (int)status);
            return 4;
        }
        if (run == 0) {
            printf("%u cycles\n", (unsigned)state.cycles);
        }
    }
    for (uint32_t i = inputs; i < inputs + outputs; i++) {
        for (uint32_t at = 0; at < blob[MX8_BLOB_WORDS + 2u + i]; at++) {
            if (((int8_t *)ends[0][i])[at] != ((int8_t *)ends[1][i])[at]) {
                printf("byte %u of output %u differs\n", (unsigned)at, (unsigned)(i - inputs));
                return 5;
            }
        }
    }
    return 0;
}
