// The fault records of a Cortex-M.
//
// SPDX-License-Identifier: Apache-2.0

#include <cmsis_core.h>
#include <zephyr/fatal.h>
#include <zephyr/kernel.h>

#include "port.h"

static void begin(struct utvm_fault *fault) {
    *fault = (struct utvm_fault){UTVM_ARCHITECTURE_ARM_M, UTVM_FAULT_ARM_M_WORDS, {0}};
}

void fault_at_deadline(struct utvm_fault *fault) {
    begin(fault);
    // What the core stacked when the interrupt came: r0-r3, r12, lr, pc, xpsr.
    const uint32_t *frame = (const uint32_t *)__get_PSP();
    fault->words[UTVM_FAULT_ARM_M_LR] = frame[5];
    fault->words[UTVM_FAULT_ARM_M_PC] = frame[6];
    fault->words[UTVM_FAULT_ARM_M_XPSR] = frame[7];
    fault->words[UTVM_FAULT_ARM_M_SP] = (uint32_t)(uintptr_t)frame;
}

// The kernel clears the fault status register and keeps what it said in words
// of its own; back to the register's bits.
static uint32_t fault_status(unsigned int reason) {
    switch (reason) {
    case K_ERR_ARM_MEM_INSTRUCTION_ACCESS:
        return SCB_CFSR_IACCVIOL_Msk;
    case K_ERR_ARM_MEM_DATA_ACCESS:
        return SCB_CFSR_DACCVIOL_Msk;
    case K_ERR_STACK_CHK_FAIL:
#ifdef CONFIG_BUILTIN_STACK_GUARD
        return SCB_CFSR_STKOF_Msk;
#endif
    case K_ERR_ARM_MEM_STACKING:
        return SCB_CFSR_MSTKERR_Msk;
    case K_ERR_ARM_BUS_INSTRUCTION_BUS:
        return SCB_CFSR_IBUSERR_Msk;
    case K_ERR_ARM_BUS_PRECISE_DATA_BUS:
        return SCB_CFSR_PRECISERR_Msk;
    case K_ERR_ARM_BUS_IMPRECISE_DATA_BUS:
        return SCB_CFSR_IMPRECISERR_Msk;
    case K_ERR_ARM_BUS_STACKING:
        return SCB_CFSR_STKERR_Msk;
    case K_ERR_ARM_USAGE_UNDEFINED_INSTRUCTION:
        return SCB_CFSR_UNDEFINSTR_Msk;
    case K_ERR_ARM_USAGE_ILLEGAL_EPSR:
        return SCB_CFSR_INVSTATE_Msk;
    case K_ERR_ARM_USAGE_NO_COPROCESSOR:
        return SCB_CFSR_NOCP_Msk;
    case K_ERR_ARM_USAGE_UNALIGNED_ACCESS:
        return SCB_CFSR_UNALIGNED_Msk;
    case K_ERR_ARM_USAGE_DIV_0:
        return SCB_CFSR_DIVBYZERO_Msk;
    default:
        return 0u;
    }
}

void fault_of(struct utvm_fault *fault, unsigned int reason, const struct arch_esf *esf) {
    begin(fault);
    fault->words[UTVM_FAULT_ARM_M_EXCEPTION] = __get_IPSR();
    fault->words[UTVM_FAULT_ARM_M_CFSR] = fault_status(reason);
    if (esf != NULL) {
        fault->words[UTVM_FAULT_ARM_M_PC] = esf->basic.pc;
        fault->words[UTVM_FAULT_ARM_M_LR] = esf->basic.lr;
        fault->words[UTVM_FAULT_ARM_M_XPSR] = esf->basic.xpsr;
    }
}
