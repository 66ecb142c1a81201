// Bytes to frames and back.
//
//     0x00 | COBS(header, payload, CRC-32) | 0x00
//
// COBS leaves zero bytes to the ends of frames: whatever went wrong before,
// the next zero begins anew.
//
// SPDX-License-Identifier: Apache-2.0
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

uint32_t utvm_reply_max(const utvm_t *utvm) {
    // one byte for the zero at the end
    uint32_t max = utvm->config->tx_size - utvm->tx_gap - UTVM_HEADER_BYTES - UTVM_CRC_BYTES - 1;
    return max < 0xffff ? max : 0xffff;
}

uint8_t *utvm_reply(utvm_t *utvm) {
    return utvm->config->tx_buffer + utvm->tx_gap + UTVM_HEADER_BYTES;
}

void utvm_frame_send(utvm_t *utvm, uint32_t opcode, uint32_t sequence) {
    UTVM_ASSERT(utvm->reply_length >= UTVM_OUTCOME_BYTES);
    UTVM_ASSERT(utvm->reply_length <= utvm_reply_max(utvm));
    uint8_t *out = utvm->config->tx_buffer;
    uint8_t *frame = out + utvm->tx_gap;
    uint32_t length = UTVM_HEADER_BYTES + utvm->reply_length;
    frame[UTVM_HEADER_VERSION] = UTVM_PROTOCOL_VERSION;
    frame[UTVM_HEADER_OPCODE] = (uint8_t)(opcode | UTVM_REPLY_BIT);
    utvm_put16(frame + UTVM_HEADER_LENGTH, utvm->reply_length);
    utvm_put32(frame + UTVM_HEADER_SEQUENCE, sequence);
    utvm_put32(frame + UTVM_HEADER_NONCE, utvm->nonce);
    utvm_put32(frame + length, utvm_crc32(0, frame, length));
    length += UTVM_CRC_BYTES;

    // Encoding adds a byte at the front and one per 254: tx_gap is more than
    // that, so writing never overtakes reading.
    uint32_t at = 0;
    out[at++] = 0;
    uint32_t code_at = at++;
    uint8_t code = 1;
    for (uint32_t i = 0; i < length; i++) {
        uint8_t byte = frame[i];
        UTVM_ASSERT(at <= utvm->tx_gap + i);
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

    utvm->tx_length = at;
    utvm->tx_sent = 0;
    utvm->state = UTVM_STATE_SEND;
}
