// The fault records of x86 with 32 bits: where it was.
//
// SPDX-License-Identifier: Apache-2.0

#include <zephyr/fatal.h>
#include <zephyr/kernel.h>

#include "port.h"

static void begin(struct utvm_fault *fault) {
    *fault = (struct utvm_fault){UTVM_ARCHITECTURE_X86, UTVM_FAULT_X86_WORDS, {0}};
}

void fault_at_deadline(struct utvm_fault *fault) {
    begin(fault);
}

void fault_of(struct utvm_fault *fault, unsigned int reason, const struct arch_esf *esf) {
    ARG_UNUSED(reason);
    begin(fault);
    if (esf != NULL) {
        fault->words[UTVM_FAULT_X86_PC] = esf->eip;
        fault->words[UTVM_FAULT_X86_SP] = esf->esp;
    }
}
