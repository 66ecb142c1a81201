// Arm's CMSDK APB UART: one byte of buffer each way, on MPS boards.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "port.h"
#include "ring.h"

#define UART_DATA REGISTER(BOARD_UART_BASE + 0x00u)
#define UART_STATE REGISTER(BOARD_UART_BASE + 0x04u)
#define UART_CTRL REGISTER(BOARD_UART_BASE + 0x08u)
#define UART_INTCLEAR REGISTER(BOARD_UART_BASE + 0x0Cu)
#define UART_BAUDDIV REGISTER(BOARD_UART_BASE + 0x10u)

#define STATE_TX_FULL 1u
#define STATE_RX_FULL 2u
#define CTRL_TX_ENABLE 1u
#define CTRL_RX_ENABLE 2u
#define CTRL_RX_INTERRUPT 8u
#define INT_RX 2u

static struct ring received;
static bool is_tx_full;

void uart_start(void) {
    UART_BAUDDIV = BOARD_UART_CLOCK_HZ / BOARD_UART_BAUD;
    UART_CTRL = CTRL_TX_ENABLE | CTRL_RX_ENABLE | CTRL_RX_INTERRUPT;
    enable_interrupt(BOARD_UART_RX_IRQ);
}

// Level-driven by the state register, not by the pending bit: a byte that came
// while the ring was full has no interrupt of its own any more.
static void drain(void) {
    UART_INTCLEAR = INT_RX;
    while ((UART_STATE & STATE_RX_FULL) && !ring_is_full(&received)) {
        ring_put(&received, (uint8_t)UART_DATA);
    }
}

void uart_rx_isr(void) {
    drain();
}

size_t uart_read(uint8_t *data, size_t size) {
    const bool was_full = ring_is_full(&received);
    const size_t n = ring_take(&received, data, size);
    if (was_full && n > 0u) {
        interrupts_off();
        drain();
        interrupts_on();
    }
    return n;
}

size_t uart_write(const uint8_t *data, size_t size) {
    size_t n = 0u;
    while (n < size && !(UART_STATE & STATE_TX_FULL)) {
        UART_DATA = data[n++];
    }
    is_tx_full = n < size;
    return n;
}

void uart_drain(void) {
    while (UART_STATE & STATE_TX_FULL) {
    }
}

bool uart_is_busy(void) {
    return is_tx_full || !ring_is_empty(&received);
}
