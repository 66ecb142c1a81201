// Nordic's UART without DMA (nRF51, nRF52): a byte out at a time, six in.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "received.h"

#define UART_START_RX REGISTER(BOARD_UART_BASE + 0x000u)
#define UART_START_TX REGISTER(BOARD_UART_BASE + 0x008u)
#define UART_RX_READY REGISTER(BOARD_UART_BASE + 0x108u)
#define UART_TX_READY REGISTER(BOARD_UART_BASE + 0x11Cu)
#define UART_INTENSET REGISTER(BOARD_UART_BASE + 0x304u)
#define UART_ERRORSRC REGISTER(BOARD_UART_BASE + 0x480u)
#define UART_ENABLE REGISTER(BOARD_UART_BASE + 0x500u)
#define UART_PSEL_TXD REGISTER(BOARD_UART_BASE + 0x50Cu)
#define UART_PSEL_RXD REGISTER(BOARD_UART_BASE + 0x514u)
#define UART_RXD REGISTER(BOARD_UART_BASE + 0x518u)
#define UART_TXD REGISTER(BOARD_UART_BASE + 0x51Cu)
#define UART_BAUDRATE REGISTER(BOARD_UART_BASE + 0x524u)

#define ENABLED 4u
#define INT_RX_READY (1u << 2)
// A 32-bit fraction of the peripheral's clock, of which the upper 20 bits count.
#define BAUD_CODE                                                                                  \
    ((uint32_t)(((uint64_t)BOARD_UART_BAUD << 32) / BOARD_UART_CLOCK_HZ + 0x800u) & 0xFFFFF000u)

static bool is_sending;

void uart_start(void) {
    UART_PSEL_TXD = BOARD_UART_TX_PIN;
    UART_PSEL_RXD = BOARD_UART_RX_PIN;
    UART_BAUDRATE = BAUD_CODE;
    UART_ENABLE = ENABLED;
    UART_RX_READY = 0u;
    UART_TX_READY = 0u;
    UART_INTENSET = INT_RX_READY;
    UART_START_RX = 1u;
    UART_START_TX = 1u;
    enable_interrupt(BOARD_UART_RX_IRQ);
}

void uart_rx_isr(void) {
    UART_ERRORSRC = 0xFu;
    while (UART_RX_READY) {
        // Before the byte is taken: that brings the next one, and its event.
        UART_RX_READY = 0u;
        receive((uint8_t)UART_RXD);
    }
}

size_t uart_write(const uint8_t *data, size_t size) {
    size_t n = 0u;
    while (n < size && (!is_sending || UART_TX_READY)) {
        UART_TX_READY = 0u;
        UART_TXD = data[n++];
        is_sending = true;
    }
    is_tx_full = n < size;
    return n;
}

void uart_drain(void) {
    while (is_sending && !UART_TX_READY) {
    }
}
