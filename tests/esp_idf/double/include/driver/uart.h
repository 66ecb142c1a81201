// A part of the double of ESP-IDF: double.c.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "esp_err.h"
#include "freertos/FreeRTOS.h"

enum { UART_NUM_0, UART_DATA_8_BITS = 3, UART_STOP_BITS_1 = 1 };
enum { UART_PARITY_DISABLE, UART_HW_FLOWCTRL_DISABLE = 0, UART_SCLK_DEFAULT = 4 };
typedef struct {
    int baud_rate, data_bits, parity, stop_bits, flow_ctrl, source_clk;
} uart_config_t;
esp_err_t uart_driver_install(int port, int rx_bytes, int tx_bytes, int queue, void *out,
                              int flags);
esp_err_t uart_param_config(int port, const uart_config_t *config);
int uart_read_bytes(int port, void *data, uint32_t size, TickType_t wait);
int uart_write_bytes(int port, const void *data, size_t size);
esp_err_t uart_get_tx_buffer_free_size(int port, size_t *size);
esp_err_t uart_wait_tx_done(int port, TickType_t wait);
