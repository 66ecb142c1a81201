// What speaks to an emulator's cycle model: a hint, which does nothing anywhere
// else, between fences that keep what is timed on its side of it.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef MODEL_SIGNALS_H
#define MODEL_SIGNALS_H

#include "core.h"

#define MODEL_SIGNAL(number)                                                                       \
    __asm volatile(WITH_CSR("fence.i\n\tslti x0, x0, " number "\n\tfence.i")::: "memory")
#define MODEL_COUNTS() MODEL_SIGNAL("13")
#define MODEL_FORGETS() MODEL_SIGNAL("12")

#endif
