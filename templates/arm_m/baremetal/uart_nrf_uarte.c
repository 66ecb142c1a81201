// Nordic's UART with DMA (UARTE), the only one of an nRF53: a byte in, up to 64 out
// at a time. Received bytes wait in the peripheral's FIFO until the next one is
// asked for.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "received.h"

#define UARTE_START_RX REGISTER(BOARD_UART_BASE + 0x000u)
#define UARTE_START_TX REGISTER(BOARD_UART_BASE + 0x008u)
#define UARTE_END_RX REGISTER(BOARD_UART_BASE + 0x110u)
#define UARTE_END_TX REGISTER(BOARD_UART_BASE + 0x120u)
#define UARTE_INTENSET REGISTER(BOARD_UART_BASE + 0x304u)
#define UARTE_ERRORSRC REGISTER(BOARD_UART_BASE + 0x480u)
#define UARTE_ENABLE REGISTER(BOARD_UART_BASE + 0x500u)
#define UARTE_PSEL_TXD REGISTER(BOARD_UART_BASE + 0x50Cu)
#define UARTE_PSEL_RXD REGISTER(BOARD_UART_BASE + 0x514u)
#define UARTE_BAUDRATE REGISTER(BOARD_UART_BASE + 0x524u)
#define UARTE_RXD_PTR REGISTER(BOARD_UART_BASE + 0x534u)
#define UARTE_RXD_MAXCNT REGISTER(BOARD_UART_BASE + 0x538u)
#define UARTE_TXD_PTR REGISTER(BOARD_UART_BASE + 0x544u)
#define UARTE_TXD_MAXCNT REGISTER(BOARD_UART_BASE + 0x548u)

#define ENABLED 8u
#define INT_END_RX (1u << 4)
#define TX_BYTES 64u

// The codes of the product specification follow from no formula.
#if BOARD_UART_BAUD == 115200
#define BAUD_CODE 0x01D60000u
#elif BOARD_UART_BAUD == 230400
#define BAUD_CODE 0x03B00000u
#elif BOARD_UART_BAUD == 460800
#define BAUD_CODE 0x07400000u
#elif BOARD_UART_BAUD == 1000000
#define BAUD_CODE 0x10000000u
#else
#error "a UARTE has 115200, 230400, 460800 or 1000000 baud here"
#endif

static volatile uint8_t rx_byte;
// DMA reads RAM only, and what is sent may be in flash.
static uint8_t tx_bytes[TX_BYTES];
static bool is_sending;

static uint32_t address_of(const volatile void *data) {
    return (uint32_t)(uintptr_t)data;
}

void uart_start(void) {
    UARTE_PSEL_TXD = BOARD_UART_TX_PIN;
    UARTE_PSEL_RXD = BOARD_UART_RX_PIN;
    UARTE_BAUDRATE = BAUD_CODE;
    UARTE_ENABLE = ENABLED;
    UARTE_RXD_PTR = address_of(&rx_byte);
    UARTE_RXD_MAXCNT = 1u;
    UARTE_END_RX = 0u;
    UARTE_END_TX = 0u;
    UARTE_INTENSET = INT_END_RX;
    UARTE_START_RX = 1u;
    enable_interrupt(BOARD_UART_RX_IRQ);
}

void uart_rx_isr(void) {
    UARTE_ERRORSRC = 0xFu;
    while (UARTE_END_RX) {
        UARTE_END_RX = 0u;
        // Before the next one is asked for, which takes its place.
        const uint8_t byte = rx_byte;
        UARTE_START_RX = 1u;
        receive(byte);
    }
}

size_t uart_write(const uint8_t *data, size_t size) {
    size_t n = 0u;
    if (!is_sending || UARTE_END_TX) {
        while (n < size && n < TX_BYTES) {
            tx_bytes[n] = data[n];
            ++n;
        }
        is_sending = n > 0u;
        if (is_sending) {
            UARTE_END_TX = 0u;
            UARTE_TXD_PTR = address_of(tx_bytes);
            UARTE_TXD_MAXCNT = (uint32_t)n;
            barrier(); // the bytes are in RAM before DMA reads them
            UARTE_START_TX = 1u;
        }
    }
    is_tx_full = n < size;
    return n;
}

void uart_drain(void) {
    while (is_sending && !UARTE_END_TX) {
    }
}
