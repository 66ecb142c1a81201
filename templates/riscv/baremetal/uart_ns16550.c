// A 16550 UART with byte registers, whose interrupt goes through the platform's
// interrupt controller (PLIC).
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "port.h"
#include "ring.h"
#include "core.h"

#define UART_DATA REGISTER_8(BOARD_UART_BASE + 0u) // with DLAB: the divisor's low byte
#define UART_IER REGISTER_8(BOARD_UART_BASE + 1u)  // with DLAB: its high byte
#define UART_FCR REGISTER_8(BOARD_UART_BASE + 2u)
#define UART_LCR REGISTER_8(BOARD_UART_BASE + 3u)
#define UART_LSR REGISTER_8(BOARD_UART_BASE + 5u)
#define IER_RECEIVED 1u
#define FCR_ON_EMPTY 7u // FIFOs on and emptied; an interrupt from the first byte on
#define LCR_8_BITS 3u
#define LCR_DLAB (1u << 7)
#define LSR_RECEIVED 1u
#define LSR_TX_EMPTY (1u << 5)
#define LSR_TX_IDLE (1u << 6)

// Those of hart 0 in machine mode.
#define PLIC_PRIORITY(irq) REGISTER(BOARD_UART_PLIC_BASE + 4u * (irq))
#define PLIC_ENABLE(irq) REGISTER(BOARD_UART_PLIC_BASE + 0x2000u + (irq) / 32u * 4u)
#define PLIC_THRESHOLD REGISTER(BOARD_UART_PLIC_BASE + 0x200000u)
#define PLIC_CLAIM REGISTER(BOARD_UART_PLIC_BASE + 0x200004u)

static struct ring received;
static bool is_tx_full;

void uart_start(void) {
    const uint32_t divisor = BOARD_UART_CLOCK_HZ / (16u * BOARD_UART_BAUD);
    UART_LCR = LCR_DLAB;
    UART_DATA = (uint8_t)divisor;
    UART_IER = (uint8_t)(divisor >> 8);
    UART_LCR = LCR_8_BITS;
    UART_FCR = FCR_ON_EMPTY;
    UART_IER = IER_RECEIVED;
    PLIC_PRIORITY(BOARD_UART_RX_IRQ) = 1u;
    PLIC_ENABLE(BOARD_UART_RX_IRQ) = 1u << (BOARD_UART_RX_IRQ % 32u);
    PLIC_THRESHOLD = 0u;
    PLIC_CLAIM = BOARD_UART_RX_IRQ; // in work when a fault restarted the runtime
    enable_interrupts(MIE_EXTERNAL);
}

// With a full ring the rest waits in the UART, which must not interrupt again and again.
static void drain(void) {
    while ((UART_LSR & LSR_RECEIVED) && !ring_is_full(&received)) {
        ring_put(&received, UART_DATA);
    }
    UART_IER = ring_is_full(&received) ? 0u : IER_RECEIVED;
}

void uart_rx_isr(void) {
    const uint32_t irq = PLIC_CLAIM;
    drain();
    PLIC_CLAIM = irq;
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
    while (n < size && (UART_LSR & LSR_TX_EMPTY)) {
        UART_DATA = data[n++];
    }
    is_tx_full = n < size;
    return n;
}

void uart_drain(void) {
    while (!(UART_LSR & LSR_TX_IDLE)) {
    }
}

bool uart_is_busy(void) {
    return is_tx_full || !ring_is_empty(&received);
}
