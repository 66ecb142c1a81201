// From reset to main: vector table, memory initialization, FPU, caches, faults.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "guard.h"
#include "port.h"

extern uint32_t ld_data_load[], ld_data_start[], ld_data_end[];
extern uint32_t ld_bss_start[], ld_bss_end[], ld_stack_top[];

int main(void);
void reset_handler(void);
void utvm_fault_point(void);
_Noreturn void fault_record_and_reset(const uint32_t *frame, uint32_t exception);

__attribute__((section(".noinit"))) struct fault_record utvm_fault;

typedef void (*handler_t)(void);

struct vector_table {
    uint32_t *stack_top;
    handler_t handlers[15 + BOARD_INTERRUPT_COUNT];
};

// handlers[n] belongs to exception n + 1, interrupt n to handlers[15 + n].
__attribute__((section(".vectors"), used)) const struct vector_table vector_table = {
    ld_stack_top,
    {
        [0] = reset_handler,
        [1] = fault_handler, // NMI
        [2] = fault_handler, // HardFault
        [3] = fault_handler, // MemManage
        [4] = fault_handler, // BusFault
        [5] = fault_handler, // UsageFault
        [6] = fault_handler, // SecureFault
        [10] = service_handler,
        [11] = fault_handler, // DebugMonitor
        [13] = fault_handler, // PendSV
        [14] = timer_isr,     // SysTick
#ifdef BOARD_UART_RX_IRQ
        [15 + BOARD_UART_RX_IRQ] = uart_rx_isr,
#endif
#ifdef BOARD_TIMER_IRQ
        [15 + BOARD_TIMER_IRQ] = timer_isr,
#endif
    },
};

#if BOARD_DCACHE_BYTES
// Clean-and-invalidate or invalidate the whole data cache by set and way.
static void dcache_all(volatile uint32_t *operation) {
    SCB_CSSELR = 0u; // level 1 data cache
    barrier();
    const uint32_t geometry = SCB_CCSIDR;
    const uint32_t sets = (geometry >> 13) & 0x7FFFu;
    const uint32_t ways = (geometry >> 3) & 0x3FFu;
    // The way stands in the topmost bits, however many it needs.
    const uint32_t way_shift = ways ? (uint32_t)__builtin_clz(ways) : 0u;
    const uint32_t set_shift = (geometry & 7u) + 4u;
    for (uint32_t set = 0u; set <= sets; ++set) {
        for (uint32_t way = 0u; way <= ways; ++way) {
            *operation = (way << way_shift) | (set << set_shift);
        }
    }
    barrier();
}
#endif

static void caches_on(void) {
#if BOARD_ICACHE_BYTES
    CACHE_ICIALLU = 0u;
    barrier();
    SCB_CCR |= 1u << 17;
    barrier();
#endif
#if BOARD_DCACHE_BYTES
    // After a reset by software the cache may be on and hold dirty lines, but
    // then they are of the previous life: drop them.
    if ((SCB_CCR & (1u << 16)) == 0u) {
        dcache_all(&CACHE_DCISW);
        SCB_CCR |= 1u << 16;
        barrier();
    }
#endif
}

void dcache_empty(void) {
#if BOARD_DCACHE_BYTES
    dcache_all(&CACHE_DCCISW);
#endif
}

_Noreturn void system_reset(void) {
    dcache_empty(); // .noinit must reach the memory that survives
    barrier();
    SCB_AIRCR = 0x05FA0004u; // key, SYSRESETREQ
    for (;;) {
        barrier();
    }
}

void reset_handler(void) {
#if HAS_FAULT_STATUS
    SCB_VTOR = (uint32_t)(uintptr_t)&vector_table;
    // MemManage, BusFault and UsageFault on, so that a record can name them.
    SCB_SHCSR |= 7u << 16;
    // A division by zero is a fault, as on a computer, instead of a zero.
    SCB_CCR |= 1u << 4;
#endif
#if BOARD_HAS_FPU
    SCB_CPACR |= 0xFu << 20; // also switches the vector extension on
#endif
    barrier();
    clock_start();
    const uint32_t *load = ld_data_load;
    for (uint32_t *to = ld_data_start; to < ld_data_end; ++to) {
        *to = *load++;
    }
    for (uint32_t *to = ld_bss_start; to < ld_bss_end; ++to) {
        *to = 0u;
    }
    caches_on();
    main();
    system_reset();
}

// A place for a breakpoint: the record is where a debugger reads it.
__attribute__((noinline)) void utvm_fault_point(void) {
    __asm volatile("nop" ::: "memory");
}

// A fault of the runtime itself, or in an interrupt: guard.c has those of tasks.
_Noreturn void fault_record_and_reset(const uint32_t *frame, uint32_t exception) {
    take_fault(&utvm_fault.fault, exception, frame, BOARD_STACK_RAM_START, BOARD_STACK_RAM_END);
    utvm_fault.magic = FAULT_MAGIC;
    dcache_empty();
    utvm_fault_point();
    system_reset();
}
