// What a UART received, and the functions of port.h that need no register. For
// drivers whose interrupt takes each byte at once.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef RECEIVED_H
#define RECEIVED_H

#include "port.h"
#include "ring.h"

static struct ring received;
// Whether the last uart_write left bytes.
static bool is_tx_full;

// A full ring drops the byte: the frame's CRC fails and the host asks again.
static void receive(uint8_t byte) {
    if (!ring_is_full(&received)) {
        ring_put(&received, byte);
    }
}

size_t uart_read(uint8_t *data, size_t size) {
    return ring_take(&received, data, size);
}

bool uart_is_busy(void) {
    return is_tx_full || !ring_is_empty(&received);
}

#endif
