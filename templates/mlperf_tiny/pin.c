// The pin that an energy monitor watches: low, then high, marks a time. Fill this in for your board
// if you measure energy (cmake -DENERGY=ON).
//
// SPDX-License-Identifier: Apache-2.0

#include <stdbool.h>

void mlperf_pin(bool is_high);

void mlperf_pin(bool is_high) {
    (void)is_high;
}
