// CRC-32 as in zlib, Ethernet and PNG, a nibble at a time: 64 bytes of table.
//
// SPDX-License-Identifier: Apache-2.0
#include "utvm_private.h"

uint32_t utvm_crc32(uint32_t crc, const void *data, uint32_t size) {
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    const uint8_t *bytes = (const uint8_t *)data;
    crc = ~crc;
    for (uint32_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        crc = (crc >> 4) ^ table[crc & 15];
        crc = (crc >> 4) ^ table[crc & 15];
    }
    return ~crc;
}

void utvm_crc32_of(const void *data, uint32_t size, uint32_t *out) {
    *out = utvm_crc32(0, data, size);
}
