// Registers that every RISC-V core has, and those of the devices beside it.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef CORE_H
#define CORE_H

#include <stdint.h>

#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))
#define REGISTER_8(address) (*(volatile uint8_t *)(uintptr_t)(address))

// Instructions of Zicsr and Zifencei. All cores have them, but GCC finds no C library for an
// instruction set that names them.
#define WITH_CSR(text)                                                                             \
    ".option push\n\t"                                                                             \
    ".option arch, +zicsr, +zifencei\n\t" text "\n\t"                                              \
    ".option pop\n\t"

#define CSR(name)                                                                                  \
    static inline uint32_t read_##name(void) {                                                     \
        uint32_t value;                                                                            \
        __asm volatile(WITH_CSR("csrr %0, " #name) : "=r"(value));                                 \
        return value;                                                                              \
    }

#define WRITE_CSR(name, value) __asm volatile(WITH_CSR("csrw " name ", %0") : : "r"(value))

#define MSTATUS_MPP (3u << 11) // the privilege that a trap came from; 0: of tasks
#define MIE_TIMER (1u << 7)
#define MIE_EXTERNAL (1u << 11)
#define CAUSE_TIMER (1u << 31 | 7u)
#define CAUSE_EXTERNAL (1u << 31 | 11u)
#define CAUSE_CALL 8u // ECALL of a task

static inline void interrupts_off(void) {
    __asm volatile(WITH_CSR("csrci mstatus, 8") : : : "memory");
}

static inline void interrupts_on(void) {
    __asm volatile(WITH_CSR("csrsi mstatus, 8") : : : "memory");
}

static inline void wait_for_interrupt(void) {
    __asm volatile("wfi" : : : "memory");
}

static inline void enable_interrupts(uint32_t bits) {
    __asm volatile(WITH_CSR("csrs mie, %0") : : "r"(bits) : "memory");
}

static inline void disable_interrupts(uint32_t bits) {
    __asm volatile(WITH_CSR("csrc mie, %0") : : "r"(bits) : "memory");
}

// For debugger.c, in machine mode, as utvm_debug_point is.
#define SERVE_ON_STACK()                                                                           \
    __asm volatile(WITH_CSR("la sp, ld_stack_top\n\t"                                              \
                            "csrsi mstatus, 8\n\t"                                                 \
                            "tail serve"))

// Of the runtime itself: guard.c has the faults of tasks.
_Noreturn void fault_record_and_reset(void);

#endif
