// Boards whose clocks are right after reset.
//
// SPDX-License-Identifier: Apache-2.0

#include "port.h"

void clock_start(void) {
}
