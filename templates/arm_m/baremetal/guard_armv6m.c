// Entering and leaving tasks (guard.c) in the instructions of Armv6-M.
//
// The Cortex-M0 has no unprivileged mode and ignores that a task asks for it.
//
// SPDX-License-Identifier: Apache-2.0

#include "core.h"
#include "guard.h"

// The parameters of functions in assembly, which the compiler cannot see used.
#define UNSEEN __attribute__((unused))
// GCC's own syntax for Thumb code without Thumb-2 is an older one.
#define UNIFIED ".syntax unified\n\t"

uint32_t enter_task(const struct utvm_call *call, uint8_t *stack_top);
void leave_task(void);
void task_left(void);

// r0 is the call, r1 the top of its stack.
__attribute__((naked)) uint32_t enter_task(UNSEEN const struct utvm_call *call,
                                           UNSEEN uint8_t *stack_top) {
    __asm volatile(UNIFIED "push {r4-r7, lr}\n\t"
                           "mov r4, r8\n\t"
                           "mov r5, r9\n\t"
                           "mov r6, r10\n\t"
                           "mov r7, r11\n\t"
                           "push {r3-r7}\n\t" // ten words keep the stack aligned
                           // arguments from the fifth on
                           "movs r2, #20\n\t"
                           "adds r2, r2, r0\n\t"
                           "subs r1, #32\n\t"
                           "mov r3, r1\n\t"
                           "ldmia r2!, {r4-r7}\n\t"
                           "stmia r3!, {r4-r7}\n\t"
                           "ldmia r2!, {r4-r7}\n\t"
                           "stmia r3!, {r4-r7}\n\t"
                           "msr psp, r1\n\t"
                           "ldr r4, =leave_task\n\t"
                           "mov lr, r4\n\t"
                           "mov r4, r0\n\t"
                           "movs r5, #3\n\t" // unprivileged, process stack
                           "ldmia r4!, {r6}\n\t"
                           "mov r12, r6\n\t"
                           "ldmia r4!, {r0-r3}\n\t"
                           "msr control, r5\n\t"
                           "isb\n\t"
                           "bx r12\n\t"
                           ".ltorg");
}

// Where a task's function returns to. Its stores have to be through: one that
// fails is its own fault.
__attribute__((naked, used)) void leave_task(void) {
    __asm volatile(UNIFIED "dsb\n\t"
                           "svc #0\n"
                           ".global task_end_point\n"
                           "task_end_point:\n\t"
                           "udf #0");
}

// Where an exception that ended a task returns to: privileged, on the main
// stack as enter_task left it, the status in r0.
__attribute__((naked, used)) void task_left(void) {
    __asm volatile(UNIFIED "pop {r3-r7}\n\t"
                           "mov r8, r4\n\t"
                           "mov r9, r5\n\t"
                           "mov r10, r6\n\t"
                           "mov r11, r7\n\t"
                           "pop {r4-r7, pc}");
}

// The instruction counts only at this place: an SVC anywhere else is a fault.
__attribute__((naked)) void guard_sync_code(UNSEEN const void *address, UNSEEN uint32_t size) {
    __asm volatile(UNIFIED "svc #0\n"
                           ".global task_sync_point\n"
                           "task_sync_point:\n\t"
                           "bx lr");
}

// From the process stack: is it the end of a task?
__attribute__((naked)) void service_handler(void) {
    __asm volatile(UNIFIED "mov r0, lr\n\t"
                           "movs r1, #4\n\t"
                           "tst r0, r1\n\t"
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
                           "ldmia r0!, {r2, r3}\n\t"
                           "mov r0, r2\n\t"
                           "mov r1, r3\n\t"
                           "ldr r2, =sync_code\n\t"
                           "bx r2\n"

                           // r0 is the status. A frame on the main stack returns to
                           // task_left.
                           "end_task:\n\t"
                           "movs r1, #0\n\t"
                           "msr control, r1\n\t" // privileged
                           "sub sp, #32\n\t"
                           "str r0, [sp]\n\t"
                           "ldr r1, =task_left\n\t"
                           "subs r1, #1\n\t" // without the Thumb bit, which xpsr has
                           "str r1, [sp, #24]\n\t"
                           "ldr r1, =0x01000000\n\t"
                           "str r1, [sp, #28]\n\t"
                           "ldr r1, =0xFFFFFFF9\n\t" // to the main stack
                           "bx r1\n"

                           // Everything else ends here, whatever its number.
                           ".global fault_handler\n"
                           ".thumb_func\n"
                           "fault_handler:\n\t"
                           "mrs r1, ipsr\n\t"
                           "mov r2, lr\n\t"
                           "movs r3, #4\n\t"
                           "tst r2, r3\n\t"
                           "beq 2f\n\t"
                           "mrs r0, psp\n\t"
                           "bl note_stopped_task\n\t" // lr is not needed any more
                           "b end_task\n"
                           "2:\n\t"
                           "cmp r1, #14\n\t" // PendSV
                           "bne 3f\n\t"
                           "ldr r2, =note_expired\n\t"
                           "bx r2\n"
                           // The runtime itself: only a reset helps.
                           "3:\n\t"
                           "mrs r0, msp\n\t"
                           "ldr r2, =ld_stack_top\n\t" // the stack may be what broke
                           "mov sp, r2\n\t"
                           "bl fault_record_and_reset\n\t"
                           ".ltorg");
}
