// What the files of this folder offer each other.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef PORT_H
#define PORT_H

#include <stddef.h>
#include <stdint.h>

#include "utvm.h"

// The serial line, uart.c. Returns 0, or why the device cannot be used.
int uart_start(void);
// Both move what can be moved at once and return how many bytes that was.
size_t uart_take(uint8_t *data, size_t size);
size_t uart_give(const uint8_t *data, size_t size);
// Sleeps until bytes have come or gone.
void uart_wait(void);
// Waits until everything given has left the chip, but not for ever.
void uart_drain(void);

// The clock, ticks.c: 64 bit, never wraps, in the board file's unit.
void ticks_start(void);
uint64_t ticks_now(void *context);
uint32_t ticks_per_second(void);

// Tasks run in a thread of their own, so that what stops one stops nothing
// else: guard.c.
void guard_start(void);
enum utvm_status guard_call(void *context, const struct utvm_call *call, struct utvm_fault *fault);
void guard_deadline(void *context, uint32_t us);

// The fault records of the target, fault.c: of the thread that the kernel's timer
// interrupted, and of one that the kernel ends for a reason of its own.
struct arch_esf;
void fault_at_deadline(struct utvm_fault *fault);
void fault_of(struct utvm_fault *fault, unsigned int reason, const struct arch_esf *esf);

#endif
