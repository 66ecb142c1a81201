// What the port for ESP-IDF needs of a RISC-V core.
//
// SPDX-License-Identifier: Apache-2.0

#include <string.h>

#include "port.h"

#include "esp_attr.h"
#include "riscv/rvruntime-frames.h"

// ESP-IDF watches the end of a thread's stack, and a store there is this exception.
#define CAUSE_BREAKPOINT 3u
#define WATCHED_BYTES 96u

void core_sync_code(void) {
    __asm volatile("fence.i" : : : "memory");
}

// Also in ESP-IDF's panic handler, where flash may not answer.
IRAM_ATTR void core_note_fault(struct utvm_fault *fault, const void *frame, const void *stack) {
    const RvExcFrame *registers = frame;
    memset(fault, 0, sizeof *fault);
    fault->architecture = UTVM_ARCHITECTURE_RISCV;
    fault->count = UTVM_FAULT_RISCV_WORDS;
    fault->words[UTVM_FAULT_RISCV_MCAUSE] = (uint32_t)registers->mcause;
    fault->words[UTVM_FAULT_RISCV_PC] = (uint32_t)registers->mepc;
    fault->words[UTVM_FAULT_RISCV_RA] = (uint32_t)registers->ra;
    fault->words[UTVM_FAULT_RISCV_SP] = (uint32_t)registers->sp;
    fault->words[UTVM_FAULT_RISCV_MTVAL] = (uint32_t)registers->mtval;
    fault->words[UTVM_FAULT_RISCV_STACK] = (uint32_t)(uintptr_t)stack;
    if (registers->mcause == CAUSE_BREAKPOINT) {
        fault->words[UTVM_FAULT_RISCV_STACK] += WATCHED_BYTES;
    }
}
