// Red zones: bytes around a tensor that nobody may write. The host has them
// filled before its tasks run and checked after them, by tasks like any other,
// so both cost no round trip.
//
// SPDX-License-Identifier: Apache-2.0
#include "utvm.h"

// By address, not by position, so that any part of a zone can be looked at.
static uint8_t pattern_byte(const uint8_t *at, uint32_t pattern) {
    return (uint8_t)(pattern >> ((uintptr_t)at % 4u * 8u));
}

void utvm_fill(uint8_t *to, uint32_t size, uint32_t pattern) {
    for (const uint8_t *end = to + size; to < end; to++) {
        *to = pattern_byte(to, pattern);
    }
}

static void check_zone(uint32_t *broken, uint32_t pattern, const uint8_t *zone) {
    if (!zone || *broken) {
        return;
    }
    for (const uint8_t *end = zone + UTVM_ZONE_BYTES; zone < end; zone++) {
        if (*zone != pattern_byte(zone, pattern)) {
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
