// An image for the plugin's tests: code loaded twice at one address, a device register read in the
// middle of a block, a loop. Prints the model's differences by semihosting.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdint.h>

#include "image.h" // generated: offsets of the counters, their number

#define SYS_WRITE0 0x04
#define SYS_EXIT 0x18
#define STOPPED_APPLICATION_EXIT 0x20026
#define TIMER_VALUE (*(volatile uint32_t *)0x40000004u)
#define LOADED ((uint16_t *)0x20010000u)
#define UNCACHED ((volatile uint32_t *)0x20000000u)
#define CACHED ((volatile uint32_t *)0x20020000u)

typedef void code_t(void);

extern uint32_t ld_stack_top[];

__attribute__((section(".counters"))) const volatile uint64_t utvm_counters[COUNTER_WORDS];

static void semihost(uint32_t operation, const void *argument) {
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static void print_number(uint32_t number) {
    char text[16];
    char *at = text + sizeof text;
    *--at = '\0';
    *--at = '\n';
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    semihost(SYS_WRITE0, at);
}

static uint32_t count(unsigned counter) {
    __asm__ volatile("isb\n dbg #13\n isb" ::: "memory");
    return (uint32_t)utvm_counters[counter];
}

// One hundred additions to r0 or multiplications of it, each waiting for the one before.
static uint32_t load_and_run(uint16_t first, uint16_t second) {
    for (unsigned n = 0; n < 100; ++n) {
        LOADED[2 * n] = first;
        LOADED[2 * n + 1] = second;
    }
    LOADED[200] = 0x4770; // bx lr
    __asm__ volatile("dsb\n isb" ::: "memory");
    code_t *code = (code_t *)((uintptr_t)LOADED | 1u);
    uint32_t cycles = 0;
    // The last time all branches go where they went before.
    for (unsigned n = 0; n < 3; ++n) {
        const uint32_t before = count(COUNTER_CORE);
        code();
        cycles = count(COUNTER_CORE) - before;
    }
    return cycles;
}

static uint32_t reach_a_device(void) {
    const uint32_t before = count(COUNTER_INSTRUCTIONS);
    __asm__ volatile("nop\n nop\n nop\n ldr r0, [%0]\n nop\n nop\n nop" ::"r"(&TIMER_VALUE)
                     : "r0", "memory");
    return count(COUNTER_INSTRUCTIONS) - before;
}

static uint32_t reach_nothing(void) {
    const uint32_t before = count(COUNTER_INSTRUCTIONS);
    __asm__ volatile("nop\n nop\n nop\n ldr r0, [%0]\n nop\n nop\n nop" ::"r"(UNCACHED)
                     : "r0", "memory");
    return count(COUNTER_INSTRUCTIONS) - before;
}

// Reads 64 words: eight lines of 32 bytes.
static uint32_t misses(const volatile uint32_t *words) {
    const uint32_t before = count(COUNTER_DCACHE_MISSES_RAM);
    for (unsigned n = 0; n < 64; ++n) {
        (void)words[n];
    }
    return count(COUNTER_DCACHE_MISSES_RAM) - before;
}

void reset_handler(void);
void reset_handler(void) {
    print_number(load_and_run(0xf100, 0x0001)); // add.w r0, r0, #1
    print_number(load_and_run(0xfb00, 0xf000)); // mul r0, r0, r0
    print_number(reach_a_device());
    print_number(reach_nothing());
    print_number(misses(CACHED));
    print_number(misses(CACHED));
    print_number(misses(UNCACHED));
    semihost(SYS_EXIT, (const void *)STOPPED_APPLICATION_EXIT);
    for (;;) {
    }
}

__attribute__((section(".vectors"), used)) static const void *const vectors[] = {
    ld_stack_top, (void *)reset_handler, (void *)reset_handler, (void *)reset_handler};
