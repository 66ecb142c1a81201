// A part of the double of ESP-IDF: double.c.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdlib.h>
typedef int esp_err_t;
#define ESP_OK 0
#define ESP_FAIL (-1)
#define ESP_ERROR_CHECK(x) ((x) == ESP_OK ? (void)0 : abort())
