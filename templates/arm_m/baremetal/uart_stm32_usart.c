// STM32's second-generation USART (F0, F3, F7, G, H, L4, U families), and its LPUART, which counts
// 256ths of its clock (BOARD_UART_BAUD_FACTOR).
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "received.h"

#define USART_CR1 REGISTER(BOARD_UART_BASE + 0x00u)
#define USART_BRR REGISTER(BOARD_UART_BASE + 0x0Cu)
#define USART_ISR REGISTER(BOARD_UART_BASE + 0x1Cu)
#define USART_ICR REGISTER(BOARD_UART_BASE + 0x20u)
#define USART_RDR REGISTER(BOARD_UART_BASE + 0x24u)
#define USART_TDR REGISTER(BOARD_UART_BASE + 0x28u)

#define CR1_ENABLE (1u << 0)
#define CR1_RX_ENABLE (1u << 2)
#define CR1_TX_ENABLE (1u << 3)
#define CR1_RX_INTERRUPT (1u << 5)
#define ISR_RX_FULL (1u << 5)
#define ISR_TX_COMPLETE (1u << 6)
#define ISR_TX_EMPTY (1u << 7)
#define ICR_ALL_ERRORS 0xFu

#define GPIO_MODER(base) REGISTER((base) + 0x00u)
#define GPIO_OSPEEDR(base) REGISTER((base) + 0x08u)
#define GPIO_AFR(base, pin) REGISTER((base) + 0x20u + (pin) / 8u * 4u)

static void pin_to_usart(uint32_t base, uint32_t pin) {
    const uint32_t nibble = pin % 8u * 4u;
    GPIO_AFR(base, pin) = (GPIO_AFR(base, pin) & ~(0xFu << nibble)) | BOARD_UART_ALTERNATE_FUNCTION
                                                                          << nibble;
    GPIO_OSPEEDR(base) |= 2u << (pin * 2u);
    GPIO_MODER(base) = (GPIO_MODER(base) & ~(3u << (pin * 2u))) | 2u << (pin * 2u);
}

void uart_start(void) {
    REGISTER(BOARD_UART_GPIO_ENABLE_REGISTER) |=
        1u << BOARD_UART_TX_GPIO_ENABLE_BIT | 1u << BOARD_UART_RX_GPIO_ENABLE_BIT;
    REGISTER(BOARD_UART_ENABLE_REGISTER) |= 1u << BOARD_UART_ENABLE_BIT;
    barrier(); // the peripheral answers two bus cycles after its clock is on
    pin_to_usart(BOARD_UART_TX_GPIO_BASE, BOARD_UART_TX_PIN);
    pin_to_usart(BOARD_UART_RX_GPIO_BASE, BOARD_UART_RX_PIN);
    USART_CR1 = 0u;
    USART_BRR =
        (uint32_t)(((uint64_t)BOARD_UART_CLOCK_HZ * BOARD_UART_BAUD_FACTOR + BOARD_UART_BAUD / 2u) /
                   BOARD_UART_BAUD);
    USART_CR1 = CR1_ENABLE | CR1_RX_ENABLE | CR1_TX_ENABLE | CR1_RX_INTERRUPT;
    enable_interrupt(BOARD_UART_RX_IRQ);
}

void uart_rx_isr(void) {
    // An overrun that is not cleared would interrupt for ever.
    USART_ICR = ICR_ALL_ERRORS;
    while (USART_ISR & ISR_RX_FULL) {
        receive((uint8_t)USART_RDR);
    }
}

size_t uart_write(const uint8_t *data, size_t size) {
    size_t n = 0u;
    while (n < size && (USART_ISR & ISR_TX_EMPTY)) {
        USART_TDR = data[n++];
    }
    is_tx_full = n < size;
    return n;
}

void uart_drain(void) {
    while (!(USART_ISR & ISR_TX_COMPLETE)) {
    }
}
