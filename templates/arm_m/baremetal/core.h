// Registers that Arm's cores of the M profile have at the same address, and what stops code there.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef CORE_H
#define CORE_H

#include <stdint.h>

#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))

#define SYSTICK_CTRL REGISTER(0xE000E010u)
#define SYSTICK_LOAD REGISTER(0xE000E014u)
#define SYSTICK_VALUE REGISTER(0xE000E018u)
#define NVIC_ENABLE(n) REGISTER(0xE000E100u + 4u * (n))
#define SCB_ICSR REGISTER(0xE000ED04u)
#define SCB_VTOR REGISTER(0xE000ED08u)
#define SCB_AIRCR REGISTER(0xE000ED0Cu)
#define SCB_CCR REGISTER(0xE000ED14u)
#define SCB_SHCSR REGISTER(0xE000ED24u)
#define SCB_CFSR REGISTER(0xE000ED28u)
#define SCB_HFSR REGISTER(0xE000ED2Cu)
#define SCB_MMFAR REGISTER(0xE000ED34u)
#define SCB_BFAR REGISTER(0xE000ED38u)
#define SCB_CCSIDR REGISTER(0xE000ED80u)
#define SCB_CSSELR REGISTER(0xE000ED84u)
#define SCB_CPACR REGISTER(0xE000ED88u)
#define DEBUG_DEMCR REGISTER(0xE000EDFCu)
#define CACHE_ICIALLU REGISTER(0xE000EF50u)
#define CACHE_DCCMVAU REGISTER(0xE000EF64u)
#define CACHE_DCISW REGISTER(0xE000EF60u)
#define CACHE_DCCISW REGISTER(0xE000EF74u)
#define DWT_CTRL REGISTER(0xE0001000u)
#define DWT_CYCCNT REGISTER(0xE0001004u)
#define DWT_LAR REGISTER(0xE0001FB0u)

// Armv6-M has one fault, without registers that give its cause, and its vectors stay where they
// are.
#define HAS_FAULT_STATUS (__ARM_ARCH >= 7)

static inline void barrier(void) {
    __asm volatile("dsb\n\tisb" ::: "memory");
}

static inline void interrupts_off(void) {
    __asm volatile("cpsid i" ::: "memory");
}

static inline void interrupts_on(void) {
    __asm volatile("cpsie i\n\tisb" ::: "memory");
}

static inline uint32_t is_unprivileged(void) {
    uint32_t control;
    __asm volatile("mrs %0, control" : "=r"(control));
    return control & 1u;
}

static inline void wait_for_interrupt(void) {
    __asm volatile("dsb\n\twfi" ::: "memory");
}

static inline void enable_interrupt(uint32_t number) {
    NVIC_ENABLE(number / 32u) = 1u << (number % 32u);
}

// For debugger.c: serve() on the main stack, privileged. Armv6-M reaches farther with bl.
#define SERVE_ON_STACK()                                                                           \
    __asm volatile("movs r0, #0\n\t"                                                               \
                   "msr control, r0\n\t"                                                           \
                   "isb\n\t"                                                                       \
                   "ldr r0, =ld_stack_top\n\t"                                                     \
                   "mov sp, r0\n\t"                                                                \
                   "cpsie i\n\t"                                                                   \
                   "bl serve\n\t"                                                                  \
                   ".ltorg")

// Handlers of the vector table: of SVC, and of everything that stops a task or
// the board.
void service_handler(void);
void fault_handler(void);

// Why the core stopped what it ran, and where, if the frame that it stacked is
// within a stack.
struct utvm_fault;
void take_fault(struct utvm_fault *fault, uint32_t exception, const uint32_t *frame,
                uintptr_t stack, uintptr_t stack_end);

// For a task whose function needs a privilege: see sync_code.c.
void guard_sync_code(const void *address, uint32_t size);
void sync_code(const void *address, uint32_t size);

#endif
