// Red zones: bytes around a tensor that nobody may write. The host has them
// filled before its tasks run and checked after them, by tasks like any other,
// so both cost no round trip.
//
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "utvm.h"

void utvm_fill(uint8_t *to, uint32_t size, uint8_t byte) {
    memset(to, byte, size);
}

// Depends on all of the address: whoever copies too much from beside another
// zone's block must not copy just what belongs here.
static uint8_t zone_byte(const uint8_t *at, uint32_t pattern) {
    uint32_t address = (uint32_t)(uintptr_t)at;
    uint32_t line = address >> 5;
    return (uint8_t)(pattern >> (address % 4u * 8u) ^ (line ^ line >> 8) * 0x3Du);
}

void utvm_fill_zones(uint32_t pattern, uint8_t *zone_0, uint8_t *zone_1) {
    for (uint32_t i = 0; i < UTVM_ZONE_BYTES; i++) {
        zone_0[i] = zone_byte(zone_0 + i, pattern);
        zone_1[i] = zone_byte(zone_1 + i, pattern);
    }
}

static void check_zone(uint32_t *broken, uint32_t pattern, const uint8_t *zone) {
    if (!zone || *broken) {
        return;
    }
    for (const uint8_t *end = zone + UTVM_ZONE_BYTES; zone < end; zone++) {
        if (*zone != zone_byte(zone, pattern)) {
            *broken = (uint32_t)(uintptr_t)zone;
            return;
        }
    }
}

void utvm_check_zones(uint32_t *broken, uint32_t pattern, const uint8_t *zone_0,
                      const uint8_t *zone_1, const uint8_t *zone_2, const uint8_t *zone_3,
                      const uint8_t *zone_4, const uint8_t *zone_5, const uint8_t *zone_6,
                      const uint8_t *zone_7, const uint8_t *zone_8, const uint8_t *zone_9) {
    const uint8_t *const zones[] = {zone_0, zone_1, zone_2, zone_3, zone_4,
                                    zone_5, zone_6, zone_7, zone_8, zone_9};
    for (uint32_t i = 0; i < sizeof zones / sizeof zones[0]; i++) {
        check_zone(broken, pattern, zones[i]);
    }
}
