// Bytes to frames and back.
//
//     0x00 | COBS(header, payload, CRC-32) | 0x00
//
// COBS leaves zero bytes to the ends of frames: whatever went wrong before,
// the next zero begins anew.
//
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "utvm_private.h"

uint32_t utvm_get16(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

uint32_t utvm_get32(const uint8_t *at) {
    return utvm_get16(at) | utvm_get16(at + 2) << 16;
}

void utvm_put16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

void utvm_put32(uint8_t *at, uint32_t value) {
    utvm_put16(at, value);
    utvm_put16(at + 2, value >> 16);
}

/// Receiving ///

// The one place that writes to rx_buffer.
static void append(utvm_t *utvm, uint8_t byte) {
    if (utvm->rx_length < utvm->config->rx_size) {
        utvm->config->rx_buffer[utvm->rx_length++] = byte;
    } else {
        utvm->frame_lost = 1;
    }
}

static int is_whole(utvm_t *utvm) {
    const uint8_t *frame = utvm->config->rx_buffer;
    if (utvm->frame_lost) {
        UTVM_ERROR(utvm, "a frame was longer than rx_buffer");
        return 0;
    }
    if (utvm->block_left || utvm->rx_length < UTVM_HEADER_BYTES + UTVM_CRC_BYTES) {
        UTVM_ERROR(utvm, "a frame ended early");
        return 0;
    }
    uint32_t body = utvm->rx_length - UTVM_CRC_BYTES;
    if (utvm_get16(frame + UTVM_HEADER_LENGTH) != body - UTVM_HEADER_BYTES ||
        utvm_get32(frame + body) != utvm_crc32(0, frame, body)) {
        UTVM_ERROR(utvm, "a frame was damaged");
        return 0;
    }
    return 1;
}

int utvm_frame_decode(utvm_t *utvm, uint8_t byte) {
    // end of a frame?
    if (byte == 0) {
        // nothing between two zeros?
        int whole = 0;
        if (utvm->rx_length || utvm->block_left || utvm->block_zero) {
            whole = is_whole(utvm);
        }
        utvm->block_left = 0;
        utvm->block_zero = 0;
        utvm->frame_lost = 0;
        if (!whole) {
            utvm->rx_length = 0;
        }
        return whole;
    }

    // a block's length?
    if (utvm->block_left == 0) {
        if (utvm->block_zero) {
            append(utvm, 0);
        }
        utvm->block_left = (uint8_t)(byte - 1);
        utvm->block_zero = byte != 0xff;
        return 0;
    }

    append(utvm, byte);
    utvm->block_left--;
    return 0;
}

uint32_t utvm_request_max(const utvm_t *utvm) {
    uint32_t max = utvm->config->rx_size - UTVM_HEADER_BYTES - UTVM_CRC_BYTES;
    return max < 0xffff ? max : 0xffff;
}

/// Sending ///

// The reply lies behind the header of its request.
#define ASIDE_GAP UTVM_HEADER_BYTES

uint32_t utvm_reply_max(const utvm_t *utvm) {
    // one byte for the zero at the end
    uint32_t max = utvm->config->tx_size - utvm->tx_gap - UTVM_HEADER_BYTES - UTVM_CRC_BYTES - 1;
    return max < 0xffff ? max : 0xffff;
}

uint8_t *utvm_reply(utvm_t *utvm) {
    return utvm->config->tx_buffer + utvm->tx_gap + UTVM_HEADER_BYTES;
}

void utvm_send(utvm_t *utvm, const uint8_t *frame, uint32_t length) {
    utvm->tx = frame;
    utvm->tx_length = length;
    utvm->tx_sent = 0;
    utvm->state = UTVM_STATE_SEND;
}

// Close and encode, at out, the frame whose payload lies behind gap and room
// for the header.
static void send_from(utvm_t *utvm, uint8_t *out, uint32_t gap, uint32_t length) {
    uint8_t *frame = out + gap;
    memcpy(frame, utvm->config->rx_buffer, UTVM_HEADER_BYTES);
    frame[UTVM_HEADER_VERSION] = UTVM_PROTOCOL_VERSION;
    frame[UTVM_HEADER_OPCODE] |= UTVM_REPLY_BIT;
    utvm_put16(frame + UTVM_HEADER_LENGTH, length);
    length += UTVM_HEADER_BYTES;
    utvm_put32(frame + length, utvm_crc32(0, frame, length));
    length += UTVM_CRC_BYTES;

    // Encoding adds a byte at the front and one per 254: gap is more than that,
    // so writing never overtakes reading.
    uint32_t at = 0;
    out[at++] = 0;
    uint32_t code_at = at++;
    uint8_t code = 1;
    for (uint32_t i = 0; i < length; i++) {
        uint8_t byte = frame[i];
        UTVM_ASSERT(at <= gap + i);
        if (byte) {
            out[at++] = byte;
            code++;
        }
        // end of the block?
        if (!byte || code == 0xff) {
            out[code_at] = code;
            code_at = at++;
            code = 1;
        }
    }
    out[code_at] = code;
    out[at++] = 0;
    utvm_send(utvm, out, at);
}

void utvm_frame_send(utvm_t *utvm) {
    UTVM_ASSERT(utvm->reply_length >= UTVM_OUTCOME_BYTES);
    UTVM_ASSERT(utvm->reply_length <= utvm_reply_max(utvm));
    send_from(utvm, utvm->config->tx_buffer, utvm->tx_gap, utvm->reply_length);
    utvm->kept_length = utvm->tx_length;
}

void utvm_frame_send_aside(utvm_t *utvm, uint32_t status, uint32_t detail) {
    uint8_t *out = utvm->config->rx_buffer;
    utvm_put_outcome(out + ASIDE_GAP + UTVM_HEADER_BYTES, status, 0, detail);
    send_from(utvm, out, ASIDE_GAP, UTVM_OUTCOME_BYTES);
}
