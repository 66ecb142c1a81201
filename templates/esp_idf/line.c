// The link: UART 0, or the chip's USB Serial/JTAG controller. The drivers have
// rings, which their interrupts fill and empty.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdbool.h>

#include "app_config.h"
#include "port.h"

#include "freertos/FreeRTOS.h"
#include "freertos/task.h"

#if UTVM_LINK_USB
#include "driver/usb_serial_jtag.h"
#else
#include "driver/uart.h"
#endif

// A frame as it is on the line is a little longer than in memory.
#define RECEIVED_BYTES (2u * UTVM_RX_BYTES(PAYLOAD_BYTES))
#define SEND_BYTES UTVM_TX_BYTES(PAYLOAD_BYTES)
// Longer than this takes no line for what its ring holds.
#define DRAIN_MS 2000u

// A byte that ended a wait, and is not read yet.
static uint8_t waited_byte;
static bool has_waited_byte;
static bool is_full;

#if UTVM_LINK_USB
// USB's host takes so many bytes at once. The ring takes all of a write or nothing.
#define PACKET_BYTES 64u
// For the host to fetch what the chip still holds.
#define USB_DRAIN_MS 50u

void line_start(void) {
    usb_serial_jtag_driver_config_t config = {
        .tx_buffer_size = SEND_BYTES,
        .rx_buffer_size = RECEIVED_BYTES,
    };
    ESP_ERROR_CHECK(usb_serial_jtag_driver_install(&config));
}

static int receive(uint8_t *data, size_t size, TickType_t wait) {
    return usb_serial_jtag_read_bytes(data, (uint32_t)size, wait);
}

static size_t send(const uint8_t *data, size_t size) {
    size_t sent = 0;
    while (sent < size) {
        const size_t left = size - sent;
        const size_t packet = left < PACKET_BYTES ? left : PACKET_BYTES;
        const int put = usb_serial_jtag_write_bytes(data + sent, packet, 0);
        if (put <= 0) {
            break;
        }
        sent += (size_t)put;
    }
    return sent;
}

void line_drain(void) {
    vTaskDelay(pdMS_TO_TICKS(USB_DRAIN_MS));
}
#else
#define UART UART_NUM_0

void line_start(void) {
    const uart_config_t config = {
        .baud_rate = UTVM_UART_BAUD,
        .data_bits = UART_DATA_8_BITS,
        .parity = UART_PARITY_DISABLE,
        .stop_bits = UART_STOP_BITS_1,
        .flow_ctrl = UART_HW_FLOWCTRL_DISABLE,
        .source_clk = UART_SCLK_DEFAULT,
    };
    // Its pins are those of the boot ROM's console.
    ESP_ERROR_CHECK(uart_driver_install(UART, RECEIVED_BYTES, SEND_BYTES, 0, NULL, 0));
    ESP_ERROR_CHECK(uart_param_config(UART, &config));
}

static int receive(uint8_t *data, size_t size, TickType_t wait) {
    return uart_read_bytes(UART, data, (uint32_t)size, wait);
}

static size_t send(const uint8_t *data, size_t size) {
    size_t room = 0;
    // A write of more than the ring has room for would wait.
    if (uart_get_tx_buffer_free_size(UART, &room) != ESP_OK) {
        return 0;
    }
    const size_t part = size < room ? size : room;
    const int put = part > 0u ? uart_write_bytes(UART, data, part) : 0;
    return put > 0 ? (size_t)put : 0u;
}

void line_drain(void) {
    (void)uart_wait_tx_done(UART, pdMS_TO_TICKS(DRAIN_MS));
}
#endif

size_t line_read(uint8_t *data, size_t size) {
    size_t taken = 0;
    if (has_waited_byte && size > 0u) {
        data[taken++] = waited_byte;
        has_waited_byte = false;
    }
    const int got = taken < size ? receive(data + taken, size - taken, 0) : 0;
    return got > 0 ? taken + (size_t)got : taken;
}

size_t line_write(const uint8_t *data, size_t size) {
    const size_t sent = send(data, size);
    is_full = sent < size;
    return sent;
}

void line_wait(void) {
    if (!has_waited_byte) {
        has_waited_byte = receive(&waited_byte, 1, is_full ? 1 : portMAX_DELAY) == 1;
    }
}
