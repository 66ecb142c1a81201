// Tasks run unprivileged on a stack of their own, so that whatever stops one
// can be undone: guard.c. What they may touch is the affair of mpu.c or pmp.c.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef GUARD_H
#define GUARD_H

#include <stdint.h>

#include "utvm.h"

// Of the linker script: where tasks have their stack. The runtime's is behind it.
extern uint8_t utvm_task_stack[], utvm_task_stack_end[];

// Makes one call; utvm_config's call.
enum utvm_status guard_call(void *context, const struct utvm_call *call, struct utvm_fault *fault);

// Sets or lifts the deadline; utvm_config's deadline.
void guard_deadline(void *context, uint32_t us);

// Allows tasks the code, the workspace and their stack, and nothing else.
void mpu_start(const struct utvm_region *regions, uint32_t count);

// What a fault handler leaves behind for after the reset; survives it, because
// start-up does not touch .noinit. The host reads it by its symbol.
#define FAULT_MAGIC 0x34544C46u // "FLT4"
struct fault_record {
    uint32_t magic;
    struct utvm_fault fault;
};
extern struct fault_record utvm_fault;

#endif
