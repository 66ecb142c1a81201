// What the port for ESP-IDF needs of this computer as a core.
//
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <string.h>
#include <ucontext.h>

#include "port.h"

void core_sync_code(void) {
}

void core_note_fault(struct utvm_fault *fault, const void *frame, const void *stack) {
    const ucontext_t *context = frame;
    (void)stack;
    memset(fault, 0, sizeof *fault);
    fault->architecture = UTVM_ARCHITECTURE_HOST;
    fault->count = UTVM_FAULT_HOST_WORDS;
#if defined(__x86_64__)
    fault->words[UTVM_FAULT_HOST_PC] = (uint32_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    fault->words[UTVM_FAULT_HOST_PC] = (uint32_t)context->uc_mcontext.pc;
#endif
}
