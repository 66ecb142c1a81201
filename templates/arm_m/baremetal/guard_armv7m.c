// Entering and leaving tasks (guard.c) in the instructions of Armv7-M and Armv8-M.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "guard.h"

// The parameters of functions in assembly, which the compiler cannot see used.
#define UNSEEN __attribute__((unused))

uint32_t enter_task(const struct utvm_call *call, uint8_t *stack_top);
void leave_task(void);
void task_left(void);

#if BOARD_HAS_FPU
#define SAVE_FPU "vpush {s16-s31}\n\t"
// CONTROL without FPCA: the registers are back, and interrupts need not store
// them.
#define RESTORE_FPU                                                                                \
    "vpop {s16-s31}\n\t"                                                                           \
    "movs r1, #0\n\t"                                                                              \
    "msr control, r1\n\t"                                                                          \
    "isb\n\t"
// FPCCR.LSPACT: registers of the task that were to be stored on its stack later
// are not to be stored at all.
#define FORGET_LAZY_FPU                                                                            \
    "ldr r1, =0xE000EF34\n\t"                                                                      \
    "ldr r2, [r1]\n\t"                                                                             \
    "bic r2, r2, #1\n\t"                                                                           \
    "str r2, [r1]\n\t"                                                                             \
    "dsb\n\t"
#else
#define SAVE_FPU
#define RESTORE_FPU
#define FORGET_LAZY_FPU
#endif

#if __ARM_ARCH >= 8
#define LIMIT_STACK                                                                                \
    "ldr r2, =utvm_task_stack\n\t"                                                                 \
    "msr psplim, r2\n\t"
#else
#define LIMIT_STACK
#endif

// r0 is the call, r1 the top of its stack.
__attribute__((naked)) uint32_t enter_task(UNSEEN const struct utvm_call *call,
                                           UNSEEN uint8_t *stack_top) {
    __asm volatile("push {r3-r11, lr}\n\t" // ten words keep the stack aligned
                   SAVE_FPU
                   // arguments from the fifth on
                   "add r2, r0, #20\n\t"
                   "ldmia r2, {r4-r11}\n\t"
                   "sub r1, r1, #32\n\t"
                   "stmia r1, {r4-r11}\n\t" LIMIT_STACK "msr psp, r1\n\t"
                   "ldr r12, [r0]\n\t"
                   "add r2, r0, #4\n\t"
                   "ldr lr, =leave_task\n\t"
                   "movs r4, #3\n\t" // unprivileged, process stack, no FPU state
                   "ldmia r2, {r0-r3}\n\t"
                   "msr control, r4\n\t"
                   "isb\n\t"
                   "bx r12\n\t"
                   ".ltorg");
}

// Where a task's function returns to. Its stores have to be through: one that
// fails is its own fault.
__attribute__((naked, used)) void leave_task(void) {
    __asm volatile("dsb\n\t"
                   "svc #0\n"
                   ".global task_end_point\n"
                   "task_end_point:\n\t"
                   "udf #0");
}

// Where an exception that ended a task returns to: privileged, on the main
// stack as enter_task left it, the status in r0.
__attribute__((naked, used)) void task_left(void) {
    __asm volatile(RESTORE_FPU "pop {r3-r11, pc}");
}

// The instruction counts only at this place: an SVC anywhere else is a fault.
__attribute__((naked)) void guard_sync_code(UNSEEN const void *address, UNSEEN uint32_t size) {
    __asm volatile("svc #0\n"
                   ".global task_sync_point\n"
                   "task_sync_point:\n\t"
                   "bx lr");
}

// From the process stack: is it the end of a task?
__attribute__((naked)) void service_handler(void) {
    __asm volatile("tst lr, #4\n\t"
                   "beq fault_handler\n\t"
                   "mrs r0, psp\n\t"
                   "ldr r1, [r0, #24]\n\t" // where it would go on
                   "ldr r2, =task_end_point\n\t"
                   "cmp r1, r2\n\t"
                   "bne 1f\n\t"
                   "movs r0, #0\n\t"
                   "b end_task\n"
                   "1:\n\t"
                   "ldr r2, =task_sync_point\n\t"
                   "cmp r1, r2\n\t"
                   "bne fault_handler\n\t"
                   "ldrd r0, r1, [r0]\n\t"
                   "b sync_code\n"

                   // r0 is the status. A frame on the main stack returns to
                   // task_left.
                   "end_task:\n\t"
                   "movs r1, #0\n\t"
                   "msr control, r1\n\t" // privileged
                   FORGET_LAZY_FPU "sub sp, sp, #32\n\t"
                   "str r0, [sp]\n\t"
                   "ldr r1, =task_left\n\t"
                   "bic r1, r1, #1\n\t"
                   "str r1, [sp, #24]\n\t"
                   "mov r1, #0x01000000\n\t" // xpsr: Thumb
                   "str r1, [sp, #28]\n\t"
                   "orr lr, lr, #0x10\n\t" // a frame without FPU registers,
                   "bic lr, lr, #4\n\t"    // on the main stack
                   "bx lr\n"

                   // Everything else ends here, whatever its number.
                   ".global fault_handler\n"
                   ".thumb_func\n"
                   "fault_handler:\n\t"
                   "mrs r1, ipsr\n\t"
                   "tst lr, #4\n\t"
                   "beq 2f\n\t"
                   "mrs r0, psp\n\t"
                   "mov r2, lr\n\t"
                   "push {r3, lr}\n\t"
                   "bl note_stopped_task\n\t"
                   "pop {r3, lr}\n\t"
                   "b end_task\n"
                   "2:\n\t"
                   "cmp r1, #14\n\t" // PendSV
                   "beq note_expired\n\t"
                   // The runtime itself: only a reset helps.
                   "mrs r0, msp\n\t"
                   "ldr r2, =ld_stack_top\n\t" // the stack may be what broke
                   "mov sp, r2\n\t"
                   "b fault_record_and_reset\n\t"
                   ".ltorg");
}
