// A task cannot harm the runtime, and whatever stops it is the runtime's next
// step.
//
//     guard_call ──▶ enter_task ──▶ function, unprivileged, on the task stack
//                        ▲              │ returns      │ faults, deadline
//                        │           leave_task     (exception)
//                        │              │ svc          │
//                    task_left ◀── service_handler  fault_handler
//
// The runtime stays on the main stack, which tasks do not know of; an exception
// that ends a task makes a new exception frame there, whose return is to
// task_left. Nothing of the task's own state is needed for that, so it does not
// matter what it did to its stack.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdbool.h>
#include <string.h>

#include "board_config.h"
#include "core.h"
#include "guard.h"
#include "port.h"

#define EXCEPTION_PENDSV 14u
// The Configurable Fault Status Register's bits for a frame that could not be
// stored, on v7-M and v8-M.
#define STACKING_FAILED (1u << 4 | 1u << 12 | 1u << 20)
// SHCSR: exceptions that wait their turn.
#define PENDED (0xFu << 12)
#define ICSR_PENDSV_SET (1u << 28)
#define ICSR_PENDSV_CLEAR (1u << 27)
// Exception return: the frame has floating-point registers.
#define RETURN_BASIC_FRAME (1u << 4)

// A deadline that passed while no task ran passes again after this time.
#define AGAIN_US 1000u

static struct utvm_fault stopped;
static volatile bool is_expired;

// In assembly: guard_*.c.
uint32_t enter_task(const struct utvm_call *call, uint8_t *stack_top);
// For that assembly.
uint32_t note_stopped_task(const uint32_t *frame, uint32_t exception, uint32_t exception_return);
void note_expired(void);

enum utvm_status guard_call(void *context, const struct utvm_call *call, struct utvm_fault *fault) {
    (void)context;
    if (is_expired) {
        return UTVM_STATUS_TIMEOUT;
    }
    const uint32_t status = enter_task(call, utvm_task_stack_end);
    if (status != UTVM_STATUS_OK) {
        *fault = stopped;
    }
    return (enum utvm_status)status;
}

void guard_deadline(void *context, uint32_t us) {
    (void)context;
    interrupts_off();
    timer_set_deadline(us);
    SCB_ICSR = ICSR_PENDSV_CLEAR;
    is_expired = false;
    interrupts_on();
}

// PendSV comes when the timer's own interrupt is done, and sees what that one
// interrupted.
void guard_expire(void) {
    SCB_ICSR = ICSR_PENDSV_SET;
}

// The deadline passed while no task ran: between two calls, or where guard_call
// has asked whether it passed and enter_task is not in the task yet. So it passes
// again, until it is lifted.
__attribute__((used)) void note_expired(void) {
    interrupts_off();
    is_expired = true;
    timer_set_deadline(AGAIN_US);
    interrupts_on();
}

void take_fault(struct utvm_fault *fault, uint32_t exception, const uint32_t *frame,
                uintptr_t stack, uintptr_t stack_end) {
    uint32_t *words = fault->words;
    memset(fault, 0, sizeof *fault);
    fault->architecture = UTVM_ARCHITECTURE_ARM_M;
    fault->count = UTVM_FAULT_ARM_M_WORDS;
    words[UTVM_FAULT_ARM_M_EXCEPTION] = exception;
#if HAS_FAULT_STATUS // Armv6-M has no such registers: there it stays zero
    words[UTVM_FAULT_ARM_M_CFSR] = SCB_CFSR;
    words[UTVM_FAULT_ARM_M_HFSR] = SCB_HFSR;
    words[UTVM_FAULT_ARM_M_MMFAR] = SCB_MMFAR;
    words[UTVM_FAULT_ARM_M_BFAR] = SCB_BFAR;
    // Cleared for the next fault, with all other exceptions that wait.
    SCB_CFSR = words[UTVM_FAULT_ARM_M_CFSR];
    SCB_HFSR = words[UTVM_FAULT_ARM_M_HFSR];
    SCB_SHCSR &= ~PENDED;
#endif
    // Stacked: r0-r3, r12, lr, pc, xpsr. What faulted may have lost its stack.
    const uintptr_t at = (uintptr_t)frame;
    if (!(words[UTVM_FAULT_ARM_M_CFSR] & STACKING_FAILED) && at % 4u == 0u && at >= stack &&
        at <= stack_end - 32u) {
        words[UTVM_FAULT_ARM_M_LR] = frame[5];
        words[UTVM_FAULT_ARM_M_PC] = frame[6];
        words[UTVM_FAULT_ARM_M_XPSR] = frame[7];
    }
}

// What was stopped, and how.
__attribute__((used)) uint32_t note_stopped_task(const uint32_t *frame, uint32_t exception,
                                                 uint32_t exception_return) {
    take_fault(&stopped, exception, frame, (uintptr_t)utvm_task_stack,
               (uintptr_t)utvm_task_stack_end);
    stopped.words[UTVM_FAULT_ARM_M_SP] =
        (uint32_t)(uintptr_t)frame + (exception_return & RETURN_BASIC_FRAME ? 32u : 104u);
    // A deadline that passed in the meantime is of no interest any more.
    SCB_ICSR = ICSR_PENDSV_CLEAR;
    barrier();
    return exception == EXCEPTION_PENDSV ? UTVM_STATUS_TIMEOUT : UTVM_STATUS_FAULT;
}
