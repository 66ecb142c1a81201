// Boards whose only way in is a debugger.
//
// SPDX-License-Identifier: Apache-2.0

#include "port.h"

void uart_start(void) {
}

size_t uart_read(uint8_t *data, size_t size) {
    (void)data;
    (void)size;
    return 0u;
}

size_t uart_write(const uint8_t *data, size_t size) {
    (void)data;
    (void)size;
    return 0u;
}

bool uart_is_busy(void) {
    return false;
}

void uart_drain(void) {
}
