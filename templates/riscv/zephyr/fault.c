// The fault records of a RISC-V core.
//
// SPDX-License-Identifier: Apache-2.0

#include <zephyr/arch/riscv/csr.h>
#include <zephyr/fatal.h>
#include <zephyr/kernel.h>

#include "port.h"

// Traps do not nest here, so these registers are still those of what stopped the task.
static void begin(struct utvm_fault *fault) {
    *fault = (struct utvm_fault){UTVM_ARCHITECTURE_RISCV, UTVM_FAULT_RISCV_WORDS, {0}};
    fault->words[UTVM_FAULT_RISCV_MCAUSE] = csr_read(mcause);
    fault->words[UTVM_FAULT_RISCV_PC] = csr_read(mepc);
}

void fault_at_deadline(struct utvm_fault *fault) {
    begin(fault);
}

void fault_of(struct utvm_fault *fault, unsigned int reason, const struct arch_esf *esf) {
    begin(fault);
    if (esf == NULL) {
        return;
    }
    const uintptr_t sp = (uintptr_t)esf + sizeof *esf;
    fault->words[UTVM_FAULT_RISCV_RA] = esf->ra;
    fault->words[UTVM_FAULT_RISCV_SP] = sp;
    fault->words[UTVM_FAULT_RISCV_MTVAL] = csr_read(mtval);
    // The kernel looks at the guard below the stack itself.
    fault->words[UTVM_FAULT_RISCV_STACK] = reason == K_ERR_STACK_CHK_FAIL ? sp + 1u : 0u;
}
