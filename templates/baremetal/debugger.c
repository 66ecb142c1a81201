// Where a debugger takes over: it puts a request into utvm_mailbox, starts the
// core at utvm_debug_run, and waits for it at utvm_debug_point.
//
// SPDX-License-Identifier: Apache-2.0

#include "core.h"
#include "port.h"
#include "utvm.h"

__attribute__((aligned(4), used)) uint8_t utvm_mailbox[UTVM_MAILBOX_BYTES];
static utvm_t *served;

void utvm_debug_point(void);
void utvm_debug_run(void);
void serve(void);

// A place for a breakpoint, passed once at start and then after each request.
// Without a debugger it is nothing.
__attribute__((noinline)) void utvm_debug_point(void) {
    __asm volatile("nop" ::: "memory");
}

// Most debuggers look past the data cache: while one looks, it holds nothing.
static void stop_here(void) {
    dcache_empty();
    utvm_debug_point();
}

void debugger_open(utvm_t *utvm) {
    served = utvm;
    utvm_open_mailbox(utvm, utvm_mailbox);
    stop_here();
}

__attribute__((used)) void serve(void) {
    utvm_serve_mailbox(served, utvm_mailbox);
    stop_here();
    system_reset(); // gone on without a request: there is nowhere to return to
}

// Whatever the core was at: on the runtime's stack from its top, as main is.
__attribute__((naked, used)) void utvm_debug_run(void) {
    SERVE_ON_STACK();
}
