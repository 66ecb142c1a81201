// A part of the double of ESP-IDF: double.c.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdint.h>
// Of UTVM_CPU_HZ, in 32 bits.
uint32_t esp_cpu_get_cycle_count(void);
