// From reset to main: stack, traps, FPU, vectors, memory; and what only start-up can undo.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "guard.h"
#include "port.h"
#include "core.h"

extern uint32_t ld_data_load[], ld_data_start[], ld_data_end[];
extern uint32_t ld_bss_start[], ld_bss_end[];

int main(void);
_Noreturn void reset_handler(void);
_Noreturn void start(void);
void utvm_fault_point(void);

__attribute__((section(".noinit"))) struct fault_record utvm_fault;

#if BOARD_HAS_FPU
#define FPU_ON                                                                                     \
    "li t0, 0x2000\n\t" /* mstatus.FS: initial; tasks may use it, too */                           \
    "csrs mstatus, t0\n\t"                                                                         \
    "fscsr zero\n\t"
#else
#define FPU_ON
#endif

#if BOARD_HAS_VECTORS
#define VECTORS_ON                                                                                 \
    "li t0, 0x200\n\t" /* mstatus.VS: initial */                                                   \
    "csrs mstatus, t0\n\t"
#else
#define VECTORS_ON
#endif

// Where the core starts, and where a reset by software goes.
__attribute__((naked, used, section(".vectors"))) void reset_handler(void) {
    __asm volatile(WITH_CSR("csrci mstatus, 8\n\t"
                            "csrw mie, zero\n\t"
                            "csrw mscratch, zero\n\t"
                            "la t0, trap_entry\n\t"
                            "csrw mtvec, t0\n\t" FPU_ON VECTORS_ON "la sp, ld_stack_top\n\t"
                            "tail start"));
}

__attribute__((used)) _Noreturn void start(void) {
    clock_start();
    const uint32_t *load = ld_data_load;
    for (uint32_t *to = ld_data_start; to < ld_data_end; ++to) {
        *to = *load++;
    }
    for (uint32_t *to = ld_bss_start; to < ld_bss_end; ++to) {
        *to = 0u;
    }
    main();
    system_reset();
}

// Each chip has another register for it. Start-up sets up all that the runtime uses.
_Noreturn void system_reset(void) {
    reset_handler();
}

// No data cache that has to be emptied.
void dcache_empty(void) {
}

// Tasks may do it themselves.
void utvm_sync_code(const void *address, uint32_t size) {
    (void)address;
    (void)size;
    __asm volatile(WITH_CSR("fence.i") : : : "memory");
}

// A place for a breakpoint: the record is where a debugger reads it.
__attribute__((noinline)) void utvm_fault_point(void) {
    __asm volatile("nop" ::: "memory");
}

_Noreturn void fault_record_and_reset(void) {
    utvm_fault.magic = FAULT_MAGIC;
    utvm_fault_point();
    system_reset();
}
