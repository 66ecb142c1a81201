// A part of the double of ESP-IDF: double.c.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "esp_err.h"
#include "freertos/FreeRTOS.h"

typedef struct {
    uint32_t tx_buffer_size, rx_buffer_size;
} usb_serial_jtag_driver_config_t;
esp_err_t usb_serial_jtag_driver_install(usb_serial_jtag_driver_config_t *config);
int usb_serial_jtag_read_bytes(void *data, uint32_t size, TickType_t wait);
int usb_serial_jtag_write_bytes(const void *data, size_t size, TickType_t wait);
