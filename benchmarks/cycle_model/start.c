// A bare-metal image that times short instruction sequences and prints the counts by semihosting.
//
// It needs nothing but a debugger that answers semihosting calls (QEMU, OpenOCD, pyOCD), so it also
// runs on a real board: there the core's own cycle counter tells, in QEMU the cycle model's block.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdint.h>

#include "image.h" // generated: CASE_COUNT, COUNTER_WORDS

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define DEMCR REGISTER(0xE000EDFCu)
#define DWT_CTRL REGISTER(0xE0001000u)
#define DWT_CYCCNT REGISTER(0xE0001004u)
#define DWT_LAR REGISTER(0xE0001FB0u)
#define CPACR REGISTER(0xE000ED88u)
#define CCR REGISTER(0xE000ED14u)
#define ICIALLU REGISTER(0xE000EF50u)
#define DCISW REGISTER(0xE000EF60u)

#define SYS_WRITE0 0x04
#define SYS_EXIT 0x18
#define STOPPED_APPLICATION_EXIT 0x20026

typedef void sequence_t(void);

// Pairs of a short and a long run of each sequence.
extern sequence_t *const sequences[CASE_COUNT][2];
extern uint32_t ld_stack_top[];

// The cycle model writes here what it has counted, when it meets the marker.
__attribute__((section(".counters"))) const volatile uint64_t utvm_counters[COUNTER_WORDS];

static void semihost(uint32_t operation, const void *argument) {
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static void print_number(uint64_t number) {
    char text[24];
    char *at = text + sizeof text;
    *--at = '\0';
    *--at = ' ';
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    semihost(SYS_WRITE0, at);
}

struct reading {
    uint64_t dwt, core, rich;
};

// Model and silicon are read together; whichever is absent stands still.
static struct reading read_counters(void) {
    struct reading r;
    __asm__ volatile("isb\n dbg #13\n isb" ::: "memory");
    r.dwt = DWT_CYCCNT;
    r.core = utvm_counters[COUNTER_CORE];
    r.rich = utvm_counters[COUNTER_RICH];
    return r;
}

static struct reading time(sequence_t *sequence) {
    const struct reading before = read_counters();
    sequence();
    const struct reading after = read_counters();
    return (struct reading){(uint32_t)(after.dwt - before.dwt), after.core - before.core,
                            after.rich - before.rich};
}

static void run(unsigned number) {
    struct reading r[2];
    // The second round finds caches and predictors warm.
    for (int round = 0; round < 2; ++round) {
        for (int n = 0; n < 2; ++n) {
            r[n] = time(sequences[number][n]);
        }
    }
    print_number(number);
    print_number(r[1].dwt - r[0].dwt);
    print_number(r[1].core - r[0].core);
    print_number(r[1].rich - r[0].rich);
    semihost(SYS_WRITE0, "\n");
}

void reset_handler(void);
void reset_handler(void) {
    CPACR |= 0xFu << 20; // FPU on
    DEMCR |= 1u << 24;
    DWT_LAR = 0xC5ACCE55u;
    DWT_CYCCNT = 0;
    DWT_CTRL |= 1u;
#if HAS_ICACHE
    ICIALLU = 0;
    __asm__ volatile("dsb\n isb");
    CCR |= 1u << 17;
#endif
#if DCACHE_BYTES
    // By set and way: four ways of lines of 32 bytes, as every Cortex-M7 has.
    for (uint32_t way = 0; way < 4; ++way) {
        for (uint32_t at = 0; at < DCACHE_BYTES / 4; at += 32) {
            DCISW = way << 30 | at;
        }
    }
    __asm__ volatile("dsb\n isb");
    CCR |= 1u << 16; // the stack lies in TCM, or in RAM that is warm by the second round
#endif
    __asm__ volatile("dsb\n isb");
    for (unsigned n = 0; n < CASE_COUNT; ++n) {
        run(n);
    }
    semihost(SYS_EXIT, (const void *)STOPPED_APPLICATION_EXIT);
    for (;;) {
    }
}

static void fault_handler(void) {
    semihost(SYS_WRITE0, "fault\n");
    semihost(SYS_EXIT, (const void *)0x20023);
    for (;;) {
    }
}

__attribute__((section(".vectors"), used)) static const void *const vectors[] = {
    ld_stack_top,          (void *)reset_handler, (void *)fault_handler, (void *)fault_handler,
    (void *)fault_handler, (void *)fault_handler, (void *)fault_handler,
};
