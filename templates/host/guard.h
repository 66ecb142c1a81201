// Tasks run on a stack of their own, and signals that they raise end them
// instead of the process: guard.c.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef GUARD_H
#define GUARD_H

#include <stdint.h>

#include "utvm.h"

// Before the first call. Returns 0, or -1 and errno.
int guard_start(void);

// utvm_config's call and deadline.
enum utvm_status guard_call(void *context, const struct utvm_call *call, struct utvm_fault *fault);
void guard_deadline(void *context, uint32_t us);

#endif
