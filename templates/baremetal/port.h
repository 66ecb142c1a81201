// What main.c asks of the drivers. The board's file chooses one file of each
// kind: clock_*.c, uart_*.c, timer_*.c; ticks_*.c follows from the emulator, and
// guard_*.c from the core.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef PORT_H
#define PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Sets the core's and the buses' clocks. Runs before .data is ready.
void clock_start(void);

void uart_start(void);
// Both move what can be moved at once and return how many bytes that was.
size_t uart_read(uint8_t *data, size_t size);
size_t uart_write(const uint8_t *data, size_t size);
// Whether sleeping now would miss work: bytes wait to be read or written.
bool uart_is_busy(void);
// Waits until everything written has left the chip.
void uart_drain(void);
void uart_rx_isr(void);

void timer_start(void);
// Ticks since start, in the board file's unit; 64 bit, never wraps.
uint64_t timer_ticks(void);
// Around sleep: an emulated timer that runs would wake the core for nothing.
void timer_pause(void);
void timer_resume(void);
void timer_isr(void);
// Calls guard_expire, once, when so many microseconds have passed since
// now; 0: not at all any more. Interrupts are off.
void timer_set_deadline(uint32_t us);
void guard_expire(void);

// The configuration, whose ticks are the timer's, or one with better ticks.
// Called once, when everything has started.
struct utvm_config;
const struct utvm_config *ticks_choose(const struct utvm_config *config);

// Lets a debugger take over from here on.
struct utvm;
void debugger_open(struct utvm *utvm);

_Noreturn void system_reset(void);
// Writes all of the data cache back and forgets it.
void dcache_empty(void);
// Makes code that was just written there visible to instruction fetch. The
// host calls it as a task where it wrote past the runtime.
void utvm_sync_code(const void *address, uint32_t size);

#endif
