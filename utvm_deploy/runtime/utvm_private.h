// What the runtime's own files share; ports include utvm.h.
//
//     utvm.c         states, sessions, dispatch
//     utvm_frame.c   bytes <-> frames
//     utvm_memory.c  regions; READ, WRITE, CHECKSUM, REGIONS
//     utvm_tasks.c   EXECUTE
//     utvm_crc.c     CRC-32
//
// SPDX-License-Identifier: Apache-2.0
#ifndef UTVM_PRIVATE_H
#define UTVM_PRIVATE_H

#include "utvm.h"

#ifdef UTVM_NO_ERRMSG
#define UTVM_ERROR(utvm, text) ((void)(utvm))
#else
// Keeps the first one: what followed is often its consequence.
#define UTVM_ERROR(utvm, text) ((utvm)->error = (utvm)->error ? (utvm)->error : (text))
#endif

enum utvm_state {
    UTVM_STATE_RECEIVE,
    UTVM_STATE_SEND,
    UTVM_STATE_RUN,
    UTVM_STATE_CHECKSUM,
    UTVM_STATE_RESET,
};

/// Little-endian integers at any address ///

uint32_t utvm_get16(const uint8_t *at);
uint32_t utvm_get32(const uint8_t *at);
void utvm_put16(uint8_t *at, uint32_t value);
void utvm_put32(uint8_t *at, uint32_t value);

/// Frames ///

// Decode one byte. Returns 1 when it completes a frame that is whole: its
// rx_length bytes lie in rx_buffer.
int utvm_frame_decode(utvm_t *utvm, uint8_t byte);

// Close the reply whose payload has been made, encode it and start sending;
// state_after_send follows. Opcode, number and session are those in rx_buffer.
// It is kept in case the request comes again.
void utvm_frame_send(utvm_t *utvm);

// Send an outcome from rx_buffer, whose request is lost: the kept reply stays.
void utvm_frame_send_aside(utvm_t *utvm, uint32_t status, uint32_t detail);

// Send an encoded frame.
void utvm_send(utvm_t *utvm, const uint8_t *frame, uint32_t length);

// Longest payloads that fit the buffers.
uint32_t utvm_request_max(const utvm_t *utvm);
uint32_t utvm_reply_max(const utvm_t *utvm);

/// Requests ///

// A request's payload, checked to lie in rx_buffer.
struct utvm_request {
    const uint8_t *payload;
    uint32_t length;
};

// Where the payload of the reply being made lies.
uint8_t *utvm_reply(utvm_t *utvm);

// Write an outcome.
void utvm_put_outcome(uint8_t *at, uint32_t status, uint32_t index, uint32_t detail);

// Begin the reply with an outcome; what follows it is added by the caller, who
// raises reply_length.
void utvm_outcome(utvm_t *utvm, uint32_t status, uint32_t index, uint32_t detail);

// Where the host may use size bytes from address on with that right; NULL if
// it may not.
const struct utvm_region *utvm_region_of(const utvm_t *utvm, uint32_t address, uint32_t size,
                                         uint32_t right);

// Each makes its reply, or moves the state machine to where it is made.
void utvm_on_read(utvm_t *utvm, struct utvm_request request);
void utvm_on_write(utvm_t *utvm, struct utvm_request request);
void utvm_on_checksum(utvm_t *utvm, struct utvm_request request);
void utvm_on_regions(utvm_t *utvm, struct utvm_request request);
void utvm_on_execute(utvm_t *utvm, struct utvm_request request);

// One poll's worth of a checksum, and of a task list. Returns 1 when it is done.
int utvm_checksum_step(utvm_t *utvm);
int utvm_execute_step(utvm_t *utvm, struct utvm_request request);

#endif
