// Waits for work of the UART.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef IDLE_H
#define IDLE_H

#include "core.h"
#include "port.h"

// Sleeps until a byte arrives. With interrupts off a byte that comes between
// the look and the sleep still ends the sleep.
static inline void idle(void) {
    interrupts_off();
    if (!uart_is_busy()) {
        timer_pause();
        wait_for_interrupt();
        timer_resume();
    }
    interrupts_on();
}

#endif
