// The self-test of @NAME@ on a bare Cortex-M: from reset to the verdict, which a
// debugger or an emulator prints (semihosting) and takes as exit code.
//
// SPDX-License-Identifier: Apache-2.0

#include "@NAME@.h"
#include "@NAME@_selftest.h"

// "Semihosting for AArch32 and AArch64", Arm, operation numbers.
#define SYS_WRITE0 0x04u
#define SYS_EXIT_EXTENDED 0x20u
#define ADP_STOPPED_APPLICATION_EXIT 0x20026u

#define LINE_BYTES 160u
#define EXIT_FAULT 3u

#define CPACR (*(volatile uint32_t *)0xE000ED88u)
#define VTOR (*(volatile uint32_t *)0xE000ED08u)

extern uint32_t ld_data_load[], ld_data_start[], ld_data_end[];
extern uint32_t ld_bss_start[], ld_bss_end[], ld_stack_top[];

void selftest_reset(void);

static uint8_t arena[@UPPER@_ARENA_BYTES] __attribute__((aligned(@UPPER@_ARENA_ALIGNMENT)));

static void semihost(uint32_t operation, const void *argument)
{
    register uint32_t r0 __asm("r0") = operation;
    register const void *r1 __asm("r1") = argument;
    __asm volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

static void leave(uint32_t code)
{
    const uint32_t block[2] = {ADP_STOPPED_APPLICATION_EXIT, code};
    semihost(SYS_EXIT_EXTENDED, block);
    for (;;) {
    }
}

static void fault(void)
{
    semihost(SYS_WRITE0, "FAIL @NAME@: processor fault\n");
    leave(EXIT_FAULT);
}

struct line {
    uint32_t length;
    char text[LINE_BYTES];
};

static void put(char character, void *context)
{
    struct line *line = context;
    line->text[line->length++] = character;
    if (character == '\n' || line->length == LINE_BYTES - 1u) {
        line->text[line->length] = '\0';
        semihost(SYS_WRITE0, line->text);
        line->length = 0u;
    }
}

static void start(void)
{
    const uint32_t *load = ld_data_load;
    for (uint32_t *to = ld_data_start; to < ld_data_end; to++) {
        *to = *load++;
    }
    for (uint32_t *to = ld_bss_start; to < ld_bss_end; to++) {
        *to = 0u;
    }
    struct line line = {0u, {0}};
    leave((uint32_t)@NAME@_selftest(arena, put, &line));
}

struct vector_table {
    uint32_t *stack_top;
    void (*handlers[15])(void);
};

// handlers[n] belongs to exception n + 1; nothing enables an interrupt.
__attribute__((section(".vectors"), used))
const struct vector_table selftest_vectors = {
    ld_stack_top,
    {selftest_reset, fault, fault, fault, fault, fault, fault, 0, 0, 0, fault, fault, 0, fault,
        fault},
};

void selftest_reset(void)
{
    VTOR = (uint32_t)(uintptr_t)&selftest_vectors;
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    // Before any code that the compiler may have given floating-point or vector instructions.
    CPACR |= 0xFu << 20;
    __asm volatile("dsb\n\tisb" : : : "memory");
#endif
    start();
}
