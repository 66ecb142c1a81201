// Ten handwritten digits, recognized on the board, with no host attached.
//
// SPDX-License-Identifier: Apache-2.0

#include <string.h>

#include <zephyr/kernel.h>
#include <zephyr/linker/section_tags.h>
#include <zephyr/sys/printk.h>

#include "digits.h"
#include "samples.h"

static uint8_t arena[DIGITS_ARENA_BYTES] __aligned(DIGITS_ARENA_ALIGNMENT);

// Boards with tightly coupled RAM have scratch there.
#ifdef DIGITS_POOL_DTCM_BYTES
static __dtcm_noinit_section
    uint8_t pool[DIGITS_POOL_DTCM_BYTES] __aligned(DIGITS_POOL_DTCM_ALIGNMENT);
#define RUN() digits_run(arena, pool)
#else
#define RUN() digits_run(arena)
#endif

static uint32_t recognize(const int8_t *image) {
    memcpy(digits_input_0(arena), image, DIGITS_INPUT_0_BYTES);
    RUN();
    const int8_t *scores = digits_output_0(arena);
    uint32_t best = 0;
    for (uint32_t i = 1; i < DIGITS_OUTPUT_0_ELEMENTS; i++) {
        if (scores[i] > scores[best]) {
            best = i;
        }
    }
    return best;
}

int main(void) {
    uint32_t right = 0;
    for (uint32_t i = 0; i < ARRAY_SIZE(samples); i++) {
        const uint32_t answer = recognize(samples[i].image);
        // DIGITS_OUTPUT_0_SCALE is 1/256: a score of 127 is all but certain.
        printk("a %u is taken for a %u, score %d\n", samples[i].label, answer,
               digits_output_0(arena)[answer]);
        right += answer == samples[i].label;
    }
    printk("%u of %u right\n", right, (uint32_t)ARRAY_SIZE(samples));
    return 0;
}
