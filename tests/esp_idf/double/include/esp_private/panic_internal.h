// A part of the double of ESP-IDF: double.c.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once
typedef struct {
    const void *frame;
} panic_info_t;
