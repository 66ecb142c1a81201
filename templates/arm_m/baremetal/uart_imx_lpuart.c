// NXP's LPUART of the i.MX RT10xx. Pins and clocks are steps of the board's
// clock.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "received.h"

#define UART_BAUD REGISTER(BOARD_UART_BASE + 0x10u)
#define UART_STAT REGISTER(BOARD_UART_BASE + 0x14u)
#define UART_CTRL REGISTER(BOARD_UART_BASE + 0x18u)
#define UART_DATA REGISTER(BOARD_UART_BASE + 0x1Cu)
#define UART_FIFO REGISTER(BOARD_UART_BASE + 0x28u)
#define UART_WATER REGISTER(BOARD_UART_BASE + 0x2Cu)

#define STAT_ERRORS (1u << 19 | 1u << 18 | 1u << 17 | 1u << 16)
#define STAT_RX_FULL (1u << 21)
#define STAT_TX_COMPLETE (1u << 22)
#define STAT_TX_EMPTY (1u << 23)
#define CTRL_RX_ENABLE (1u << 18)
#define CTRL_TX_ENABLE (1u << 19)
#define CTRL_RX_INTERRUPT (1u << 21)
#define FIFO_RX_ENABLE (1u << 3)

// Samples in a bit: the fewest that need no sampling at both edges.
#define SAMPLES 8u
#define DIVISOR                                                                                    \
    ((BOARD_UART_CLOCK_HZ + SAMPLES * BOARD_UART_BAUD / 2u) / (SAMPLES * BOARD_UART_BAUD))
#define REAL_BAUD (BOARD_UART_CLOCK_HZ / (SAMPLES * DIVISOR))

_Static_assert(DIVISOR >= 1u && DIVISOR < 8192u && REAL_BAUD < BOARD_UART_BAUD / 50u * 51u &&
                   REAL_BAUD > BOARD_UART_BAUD / 50u * 49u,
               "the UART's clock does not make the baud rate of the board's file");

void uart_start(void) {
    UART_CTRL = 0u;
    UART_BAUD = (SAMPLES - 1u) << 24 | DIVISOR;
    UART_FIFO = FIFO_RX_ENABLE;
    UART_WATER = 0u; // one received byte interrupts
    UART_STAT = STAT_ERRORS;
    UART_CTRL = CTRL_RX_ENABLE | CTRL_TX_ENABLE | CTRL_RX_INTERRUPT;
    enable_interrupt(BOARD_UART_RX_IRQ);
}

void uart_rx_isr(void) {
    // An overrun that is not cleared stops the receiver.
    UART_STAT = STAT_ERRORS;
    while (UART_STAT & STAT_RX_FULL) {
        receive((uint8_t)UART_DATA);
    }
}

size_t uart_write(const uint8_t *data, size_t size) {
    size_t n = 0u;
    while (n < size && (UART_STAT & STAT_TX_EMPTY)) {
        UART_DATA = data[n++];
    }
    is_tx_full = n < size;
    return n;
}

void uart_drain(void) {
    while (!(UART_STAT & STAT_TX_COMPLETE)) {
    }
}
