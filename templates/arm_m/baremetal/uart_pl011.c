// Arm's PrimeCell UART (PL011; technical reference manual DDI 0183), as on RP2040
// and RP2350. Pins, resets and clocks are steps of the board's clock.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "received.h"

#define UART_DR REGISTER(BOARD_UART_BASE + 0x00u)
#define UART_FR REGISTER(BOARD_UART_BASE + 0x18u)
#define UART_IBRD REGISTER(BOARD_UART_BASE + 0x24u)
#define UART_FBRD REGISTER(BOARD_UART_BASE + 0x28u)
#define UART_LCR_H REGISTER(BOARD_UART_BASE + 0x2Cu)
#define UART_CR REGISTER(BOARD_UART_BASE + 0x30u)
#define UART_IFLS REGISTER(BOARD_UART_BASE + 0x34u)
#define UART_IMSC REGISTER(BOARD_UART_BASE + 0x38u)
#define UART_ICR REGISTER(BOARD_UART_BASE + 0x44u)

#define FR_BUSY (1u << 3)
#define FR_RX_EMPTY (1u << 4)
#define FR_TX_FULL (1u << 5)
#define LCR_8_BITS_FIFO (3u << 5 | 1u << 4)
#define CR_ENABLE (1u << 0 | 1u << 8 | 1u << 9) // UART, transmit, receive
// Received bytes reach an eighth of the FIFO, or wait there for 32 bit times.
#define INT_RX (1u << 4)
#define INT_RX_TIMEOUT (1u << 6)

// The divisor has six bits of fraction.
#define DIVISOR ((uint32_t)(((uint64_t)BOARD_UART_CLOCK_HZ * 8u / BOARD_UART_BAUD + 1u) / 2u))

void uart_start(void) {
    UART_CR = 0u;
    UART_IBRD = DIVISOR >> 6;
    UART_FBRD = DIVISOR & 63u;
    UART_LCR_H = LCR_8_BITS_FIFO; // after the divisor, which this write takes over
    UART_IFLS = 0u;
    UART_ICR = 0x7FFu;
    UART_IMSC = INT_RX | INT_RX_TIMEOUT;
    UART_CR = CR_ENABLE;
    enable_interrupt(BOARD_UART_RX_IRQ);
}

void uart_rx_isr(void) {
    UART_ICR = 0x7FFu;
    while (!(UART_FR & FR_RX_EMPTY)) {
        receive((uint8_t)UART_DR);
    }
}

size_t uart_write(const uint8_t *data, size_t size) {
    size_t n = 0u;
    while (n < size && !(UART_FR & FR_TX_FULL)) {
        UART_DR = data[n++];
    }
    is_tx_full = n < size;
    return n;
}

void uart_drain(void) {
    while (UART_FR & FR_BUSY) {
    }
}
