// No guard: a task is a plain call, and no deadline ends it.
//
// SPDX-License-Identifier: Apache-2.0
#include "guard.h"

#ifndef PRETEND
#error "the flags of the target are missing"
#endif

int guard_start(void) {
    return 0;
}

enum utvm_status guard_call(void *context, const struct utvm_call *call, struct utvm_fault *fault) {
    (void)context;
    (void)fault;
    utvm_call_function(call);
    return UTVM_STATUS_OK;
}

void guard_deadline(void *context, uint32_t us) {
    (void)context;
    (void)us;
}
