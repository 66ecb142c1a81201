// Text and numbers over the UART.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef PRINT_H
#define PRINT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "port.h"

static inline void print(const char *text) {
    size_t left = strlen(text);
    while (left > 0u) {
        const size_t n = uart_write((const uint8_t *)text, left);
        text += n;
        left -= n;
    }
}

static inline void print_number(uint64_t number) {
    char digits[21];
    char *first = digits + sizeof digits - 1;
    *first = '\0';
    do {
        *--first = (char)('0' + (char)(number % 10u));
        number /= 10u;
    } while (number);
    print(first);
}

#endif
