// What the files of this folder offer each other.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef PORT_H
#define PORT_H

#include <stddef.h>
#include <stdint.h>

#include "utvm.h"

// Moved in one exchange.
#define PAYLOAD_BYTES 2048u

// The link, line.c. Reading and writing move what can be moved at once, and
// return how many bytes that was.
void line_start(void);
size_t line_read(uint8_t *data, size_t size);
size_t line_write(const uint8_t *data, size_t size);
// Sleeps until a byte came or, if the last write was cut short, for a moment.
void line_wait(void);
// Waits until everything written has left the chip, but not for ever.
void line_drain(void);

// The core's cycle counter, ticks.c: 64 bit, never wraps.
void ticks_start(void);
uint64_t ticks_now(void *context);

// Tasks run in a thread of their own, which a passed deadline ends: guard.c.
void guard_start(void);
enum utvm_status guard_call(void *context, const struct utvm_call *call, struct utvm_fault *fault);
void guard_deadline(void *context, uint32_t us);

// What a fault leaves behind for after the restart. The host reads it by its symbol.
#define FAULT_MAGIC 0x34544C46u // "FLT4"
struct fault_record {
    uint32_t magic;
    struct utvm_fault fault;
};
extern struct fault_record utvm_fault;

// Of the target, core.c: makes code that was just written visible to instruction fetch, and fills
// a record from the registers that an interrupt or an exception saved on the stack.
void core_sync_code(void);
void core_note_fault(struct utvm_fault *fault, const void *frame, const void *stack);

#endif
