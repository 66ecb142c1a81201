// Messages that move memory, and the check that every address passes.
//
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "utvm_private.h"

const struct utvm_region *utvm_region_of(const utvm_t *utvm, uint32_t address, uint32_t size,
                                         uint32_t right) {
    for (uint32_t i = 0; i < utvm->config->region_count; i++) {
        const struct utvm_region *region = &utvm->config->regions[i];
        uintptr_t begin = (uintptr_t)region->begin;
        uintptr_t end = (uintptr_t)region->end;
        // as differences, so that nothing wraps
        if ((region->rights & right) && address >= begin && address <= end &&
            size <= end - address) {
            return region;
        }
    }
    return NULL;
}

static void refuse_length(utvm_t *utvm, struct utvm_request request) {
    utvm_outcome(utvm, UTVM_STATUS_LENGTH, 0, request.length);
}

static void refuse_address(utvm_t *utvm, uint32_t address) {
    utvm_outcome(utvm, UTVM_STATUS_ADDRESS, 0, address);
}

void utvm_on_read(utvm_t *utvm, struct utvm_request request) {
    if (request.length != UTVM_READ_BYTES) {
        refuse_length(utvm, request);
        return;
    }
    uint32_t address = utvm_get32(request.payload + UTVM_READ_ADDRESS);
    uint32_t size = utvm_get32(request.payload + UTVM_READ_SIZE);
    uint32_t room = utvm_reply_max(utvm) - UTVM_READ_REPLY_BYTES;
    if (size > room) {
        utvm_outcome(utvm, UTVM_STATUS_TOO_LARGE, 0, room);
        return;
    }
    if (!utvm_region_of(utvm, address, size, UTVM_RIGHT_READ)) {
        refuse_address(utvm, address);
        return;
    }
    utvm_outcome(utvm, UTVM_STATUS_OK, 0, 0);
    memcpy(utvm_reply(utvm) + UTVM_READ_REPLY_BYTES, (const void *)(uintptr_t)address, size);
    utvm->reply_length += size;
}

void utvm_on_write(utvm_t *utvm, struct utvm_request request) {
    if (request.length < UTVM_WRITE_BYTES) {
        refuse_length(utvm, request);
        return;
    }
    uint32_t address = utvm_get32(request.payload + UTVM_WRITE_ADDRESS);
    uint32_t size = request.length - UTVM_WRITE_BYTES;
    const struct utvm_region *region = utvm_region_of(utvm, address, size, UTVM_RIGHT_WRITE);
    if (!region) {
        refuse_address(utvm, address);
        return;
    }
    void *to = (void *)(uintptr_t)address;
    memcpy(to, request.payload + UTVM_WRITE_BYTES, size);
    if ((region->rights & UTVM_RIGHT_EXECUTE) && utvm->config->code_written) {
        utvm->config->code_written(utvm->config->context, to, size);
    }
    utvm_outcome(utvm, UTVM_STATUS_OK, 0, 0);
}

void utvm_on_checksum(utvm_t *utvm, struct utvm_request request) {
    if (request.length != UTVM_CHECKSUM_BYTES) {
        refuse_length(utvm, request);
        return;
    }
    utvm->crc_address = utvm_get32(request.payload + UTVM_CHECKSUM_ADDRESS);
    utvm->crc_left = utvm_get32(request.payload + UTVM_CHECKSUM_SIZE);
    utvm->crc = utvm_get32(request.payload + UTVM_CHECKSUM_CRC);
    if (!utvm_region_of(utvm, utvm->crc_address, utvm->crc_left, UTVM_RIGHT_READ)) {
        refuse_address(utvm, utvm->crc_address);
        return;
    }
    utvm->state = UTVM_STATE_CHECKSUM;
}

int utvm_checksum_step(utvm_t *utvm) {
    uint32_t size = utvm->crc_left;
    if (size > UTVM_CRC_BYTES_PER_POLL) {
        size = UTVM_CRC_BYTES_PER_POLL;
    }
    utvm->crc = utvm_crc32(utvm->crc, (const void *)(uintptr_t)utvm->crc_address, size);
    utvm->crc_address += size;
    utvm->crc_left -= size;
    if (utvm->crc_left) {
        return 0;
    }
    utvm_outcome(utvm, UTVM_STATUS_OK, 0, 0);
    utvm_put32(utvm_reply(utvm) + UTVM_CHECKSUM_REPLY_CRC, utvm->crc);
    utvm->reply_length = UTVM_CHECKSUM_REPLY_BYTES;
    return 1;
}

void utvm_on_regions(utvm_t *utvm, struct utvm_request request) {
    if (request.length != UTVM_REGIONS_BYTES) {
        refuse_length(utvm, request);
        return;
    }
    utvm_outcome(utvm, UTVM_STATUS_OK, 0, 0);
    uint32_t i = utvm_get32(request.payload + UTVM_REGIONS_FIRST);
    uint32_t max = utvm_reply_max(utvm);
    for (; i < utvm->config->region_count && max - utvm->reply_length >= UTVM_REGION_BYTES; i++) {
        const struct utvm_region *region = &utvm->config->regions[i];
        uint8_t *record = utvm_reply(utvm) + utvm->reply_length;
        uintptr_t begin = (uintptr_t)region->begin;
        utvm_put32(record + UTVM_REGION_ADDRESS, (uint32_t)begin);
        utvm_put32(record + UTVM_REGION_SIZE, (uint32_t)((uintptr_t)region->end - begin));
        utvm_put32(record + UTVM_REGION_RIGHTS, region->rights);
        utvm->reply_length += UTVM_REGION_BYTES;
    }
}
