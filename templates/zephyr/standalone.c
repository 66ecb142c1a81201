// The model alone, without a host: run it on one input and print what it says.
// Replace the input by what your sensor gives.
//
// SPDX-License-Identifier: Apache-2.0

#include <zephyr/devicetree.h>
#include <zephyr/kernel.h>
#include <zephyr/linker/section_tags.h>
#include <zephyr/sys/printk.h>

#include "app_config.h"
#include "utvm.h"

#if UTVM_HAS_MODEL
#include UTVM_MODEL_HEADER

// Beside the core where it fits, else in the kernel's RAM.
#if UTVM_USE_DTCM && DT_HAS_CHOSEN(zephyr_dtcm)
#if UTVM_MODEL_ARENA_BYTES <= DT_REG_SIZE(DT_CHOSEN(zephyr_dtcm))
#define ARENA_SECTION __dtcm_noinit_section
#endif
#endif
#ifndef ARENA_SECTION
#define ARENA_SECTION
#endif
static ARENA_SECTION uint8_t arena[UTVM_MODEL_ARENA_BYTES] __aligned(UTVM_MODEL_ARENA_ALIGNMENT);

int main(void) {
    UTVM_MODEL_RESET(arena);
    for (uint32_t i = 0; i < UTVM_MODEL_INPUT_BYTES; i++) {
        arena[UTVM_MODEL_INPUT_OFFSET + i] = (uint8_t)(i * 37u);
    }
    const uint32_t before = k_cycle_get_32();
    UTVM_MODEL_RUN(arena);
    const uint32_t cycles = k_cycle_get_32() - before;
    const uint8_t *output = arena + UTVM_MODEL_OUTPUT_OFFSET;
    printk("%s: output", UTVM_MODEL_NAME);
    for (uint32_t i = 0; i < UTVM_MODEL_OUTPUT_BYTES && i < 16u; i++) {
        printk(" %d", (int8_t)output[i]);
    }
    printk(", CRC-32 %08x, %u cycles of the kernel's clock\n",
           utvm_crc32(0, output, UTVM_MODEL_OUTPUT_BYTES), cycles);
    return 0;
}
#else
int main(void) {
    printk("no model is in this project\n");
    return 0;
}
#endif
