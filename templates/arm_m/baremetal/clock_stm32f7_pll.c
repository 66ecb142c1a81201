// STM32F74x/75x: core clock from the external oscillator through the main PLL
// (reference manual RM0385, chapters 3, 4 and 5). The numbers come from the
// board's file.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "port.h"

#define RCC_CR REGISTER(0x40023800u)
#define RCC_PLLCFGR REGISTER(0x40023804u)
#define RCC_CFGR REGISTER(0x40023808u)
#define RCC_APB1ENR REGISTER(0x40023840u)
#define PWR_CR1 REGISTER(0x40007000u)
#define PWR_CSR1 REGISTER(0x40007004u)
#define FLASH_ACR REGISTER(0x40023C00u)

#define HSE_ON (1u << 16)
#define HSE_READY (1u << 17)
#define HSE_BYPASS (1u << 18)
#define PLL_ON (1u << 24)
#define PLL_READY (1u << 25)
#define OVERDRIVE (1u << 16)
#define OVERDRIVE_SWITCH (1u << 17)

_Static_assert(BOARD_CLOCK_HSE_HZ / BOARD_CLOCK_PLL_M * BOARD_CLOCK_PLL_N / BOARD_CLOCK_PLL_P ==
                   BOARD_CPU_HZ,
               "the PLL's numbers do not make the core clock of the board's file");
_Static_assert(BOARD_CLOCK_PLL_P % 2u == 0u, "the PLL divides by 2, 4, 6 or 8");

// Prescaler code: 0 for 1, 4 for 2, 5 for 4, 6 for 8, 7 for 16.
#define PRESCALER(d) ((d) == 1u ? 0u : (uint32_t)__builtin_ctz(d) + 3u)

// A third of a second or more at the 16 MHz that the core wakes up with; oscillators take
// milliseconds.
#define MAX_READS 1000000u

// Where a debugger finds a core whose clock never came.
__attribute__((noinline)) static void clock_did_not_start(void) {
    for (;;) {
        barrier();
    }
}

static void wait_until(volatile uint32_t *reg, uint32_t mask, uint32_t value) {
    for (uint32_t i = 0; i < MAX_READS; i++) {
        if ((*reg & mask) == value) {
            return;
        }
    }
    clock_did_not_start();
}

void clock_start(void) {
    RCC_APB1ENR |= 1u << 28; // power controller
    RCC_CR |= HSE_ON | (BOARD_CLOCK_HSE_BYPASS ? HSE_BYPASS : 0u);
    wait_until(&RCC_CR, HSE_READY, HSE_READY);

    PWR_CR1 |= 3u << 14; // regulator scale 1, needed above 144 MHz
    RCC_PLLCFGR = BOARD_CLOCK_PLL_M | BOARD_CLOCK_PLL_N << 6 | (BOARD_CLOCK_PLL_P / 2u - 1u) << 16 |
                  1u << 22 | BOARD_CLOCK_PLL_Q << 24;
    RCC_CR |= PLL_ON;
    if (BOARD_CLOCK_OVERDRIVE) {
        PWR_CR1 |= OVERDRIVE;
        wait_until(&PWR_CSR1, OVERDRIVE, OVERDRIVE);
        PWR_CR1 |= OVERDRIVE_SWITCH;
        wait_until(&PWR_CSR1, OVERDRIVE_SWITCH, OVERDRIVE_SWITCH);
    }
    wait_until(&RCC_CR, PLL_READY, PLL_READY);

    // Flash must be slow before the core is fast. Bits 8, 9: prefetch, ART.
    FLASH_ACR = BOARD_CLOCK_FLASH_WAIT_STATES | 3u << 8;
    wait_until(&FLASH_ACR, 0xFu, BOARD_CLOCK_FLASH_WAIT_STATES);
    RCC_CFGR = PRESCALER(BOARD_CLOCK_APB1_DIVIDER) << 10 | PRESCALER(BOARD_CLOCK_APB2_DIVIDER)
                                                               << 13;
    RCC_CFGR |= 2u; // core clock from the PLL
    wait_until(&RCC_CFGR, 3u << 2, 2u << 2);
}
