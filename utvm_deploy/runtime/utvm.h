// utvm: the runtime that a host drives over a byte stream.
//
// It reads and writes memory, runs lists of tasks (a task is a function's
// address and some words of arguments), times them, and answers in frames
// that survive a bad line. PROTOCOL.md has the bytes; link/ has the other end.
//
// A port in ten lines, for a board whose UART has two non-blocking functions:
//
//     static uint8_t rx[UTVM_RX_BYTES(1024)], tx[UTVM_TX_BYTES(1024)];
//     static const struct utvm_region regions[] = {
//         {utvm_workspace, utvm_workspace_end,
//             UTVM_RIGHT_READ | UTVM_RIGHT_WRITE | UTVM_RIGHT_EXECUTE},
//         {text_begin, text_end, UTVM_RIGHT_READ | UTVM_RIGHT_EXECUTE},
//     };
//     static const struct utvm_config config = {
//         .read = uart_read, .write = uart_write, .ticks = cycle_count,
//         .rx_buffer = rx, .rx_size = sizeof rx,
//         .tx_buffer = tx, .tx_size = sizeof tx,
//         .regions = regions, .region_count = 2,
//         .workspace = utvm_workspace, .workspace_end = utvm_workspace_end,
//         .ticks_per_second = 216000000, .tick_unit = UTVM_TICK_UNIT_CYCLES,
//     };
//     utvm_t utvm;
//     int err = utvm_init(&utvm, &config, boot_nonce());
//     while (err >= 0) {
//         err = utvm_poll(&utvm);    // 0: nothing to do, so the core may sleep
//     }
//
// Link with -Wl,-u,utvm_crc32_of -Wl,-u,utvm_fill -Wl,-u,utvm_fill_zones
// -Wl,-u,utvm_check_zones: the host finds them in the ELF and calls them as
// tasks, but nothing in the image refers to them.
//
// There is no heap, no global variable, no recursion; of the C library only
// memcpy and memset. Several runtimes may live in one image.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef UTVM_H
#define UTVM_H

#include <stdint.h>

#include "utvm_protocol.h"

#if UTVM_PROTOCOL_VERSION != 4
#error "utvm_protocol.h is of another version: take it and utvm.h from one release"
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Version of this code; what the host may use is said by the protocol's own
// version. Major (top 16 bits) changes when a port must be changed, minor
// when the runtime learns something.
#define UTVM_VERSION 0x00020000u

// Bytes taken from the port per poll, kept in utvm_t. More makes fewer calls
// of read; what a poll may take grows with it.
#ifndef UTVM_CHUNK_BYTES
#define UTVM_CHUNK_BYTES 64
#endif

// Bytes that one poll may checksum: the bound on a poll's time while no task
// runs, some 15 cycles each.
#ifndef UTVM_CRC_BYTES_PER_POLL
#define UTVM_CRC_BYTES_PER_POLL 1024
#endif

// Define UTVM_NO_ERRMSG to leave the error sentences out of the image.

// A condition that holds for any bytes on the line. Define it to check the
// condition, as the fuzzer does. Empty by default.
#ifndef UTVM_ASSERT
#define UTVM_ASSERT(condition) ((void)0)
#endif

// Sizes of the buffers that take payloads of this many bytes, at least
// UTVM_MIN_PAYLOAD_BYTES, at most 65535. What is moved in one exchange: 1024
// is good for a UART, more for a faster link.
#define UTVM_RX_BYTES(payload) ((payload) + UTVM_HEADER_BYTES + UTVM_CRC_BYTES)
// The reply is COBS-encoded where it lies, so it starts behind a gap that the
// encoding eats up.
#define UTVM_TX_BYTES(payload) ((payload) + (payload) / 64u + 24u)

// What utvm_init and utvm_poll return. Positive is good news; what a port's
// read or write returns below zero is passed through unchanged.
enum utvm_error {
    UTVM_OK = 0,
    UTVM_ERR_CONFIG = -1000, // the configuration cannot work
};

// Memory that the host may use. Addresses on the wire have 32 bits: what lies
// above 4 GiB is out of reach.
struct utvm_region {
    // First byte.
    const void *begin;

    // The byte after the last one.
    const void *end;

    // Sum of UTVM_RIGHT_READ, UTVM_RIGHT_WRITE, UTVM_RIGHT_EXECUTE. An access
    // must be within one region that has the right.
    uint32_t rights;
};

// One call of a task's function.
struct utvm_call {
    // Address; on Thumb with bit 0 set.
    uintptr_t function;

    // All of them are passed, even if the function takes fewer.
    uintptr_t arguments[UTVM_MAX_ARGUMENTS];
};

// Where a call was stopped, and why, in words that only the architecture gives
// a meaning: PROTOCOL.md lists them. What a port does not know is 0.
struct utvm_fault {
    uint16_t architecture; // enum utvm_architecture
    // The words that go to the host, at most UTVM_MAX_FAULT_WORDS.
    uint16_t count;
    uint32_t words[UTVM_MAX_FAULT_WORDS];
};

// What a port gives the runtime. It may be in flash; it must outlive utvm_t.
struct utvm_config {
    // Passed to every function below and not used otherwise.
    void *context;

    // Take up to size bytes that have arrived. Returns their number, 0 if
    // there are none now, negative if there never will be again. Must not
    // wait.
    int32_t (*read)(void *context, uint8_t *data, uint32_t size);

    // Send up to size bytes. Returns how many were taken, 0 if none can be
    // taken now, negative if none ever will be again. Must not wait for the
    // other end; waiting for a UART's data register is fine.
    int32_t (*write)(void *context, const uint8_t *data, uint32_t size);

    // The timer: counts up from anywhere, at ticks_per_second, and does not
    // wrap within 64 bits. A port with a 32-bit counter extends it; utvm calls
    // only before and after a task, so that must not depend on calls.
    uint64_t (*ticks)(void *context);

    // Restart the device; called when the reply to RESET has been written, so
    // it must let the UART run dry first. It may instead clear what a restart
    // would clear and call utvm_init with a new nonce. NULL if neither can be
    // done: RESET is then refused.
    void (*reset)(void *context);

    // Make a call, by utvm_call_function or otherwise, so that nothing that goes
    // wrong in it harms the runtime. Returns UTVM_STATUS_OK if the function
    // returned; UTVM_STATUS_FAULT or UTVM_STATUS_TIMEOUT if it was stopped, and
    // *fault, all zeros before, says where. What it costs is measured as part
    // of the call, so it must cost the same each time. NULL: nothing stands
    // between a task and the rest of the image.
    enum utvm_status (*call)(void *context, const struct utvm_call *call, struct utvm_fault *fault);

    // From now on all calls together may take this number of microseconds. Then
    // the call that runs, or the next one, ends with UTVM_STATUS_TIMEOUT. 0: no
    // limit any more. Called before and after each task that has a deadline.
    // NULL: the host keeps deadlines.
    void (*deadline)(void *context, uint32_t us);

    // Called after the host wrote into a region with the right to execute, so
    // that a core with caches can clean and invalidate these bytes. NULL where
    // writing is enough.
    void (*code_written)(void *context, const void *address, uint32_t size);

    // Where requests are put together; UTVM_RX_BYTES gives the size in bytes.
    uint8_t *rx_buffer;
    uint32_t rx_size;

    // Where replies are made, and kept in case they must be sent again;
    // UTVM_TX_BYTES gives the size in bytes.
    uint8_t *tx_buffer;
    uint32_t tx_size;

    // What the host may touch, and the number of regions, up to 65535.
    const struct utvm_region *regions;
    uint32_t region_count;

    // Memory that only the host allocates: for arenas, tensors, modules. It must
    // be in a region with the rights to read and write.
    const void *workspace;
    const void *workspace_end;

    // Rate of the timer in ticks per second, and the unit of a tick.
    uint32_t ticks_per_second;
    enum utvm_tick_unit tick_unit;

    // Says which image this is, for instance a digest: ASCII, of which OPEN
    // reports UTVM_MAX_IMAGE_BYTES. NULL: none.
    const char *image;
};

// One runtime. The caller owns the memory; the fields are private.
typedef struct utvm {
    const struct utvm_config *config;

    // First error since utvm_init that no reply reports, in words: of the
    // configuration, or of the line. NULL if there was none.
    const char *error;

    // Drawn again at every boot, never 0.
    uint32_t nonce;
    // Of the session in force; 0 before the first one.
    uint32_t session;
    // The number of sessions that began since the boot.
    uint32_t openings;
    // Of the last request taken on, and its CRC: the same once more means that
    // the reply was lost.
    uint32_t sequence;
    uint32_t request_crc;

    // What the next poll does, and what follows when the reply is out.
    uint8_t state;
    uint8_t state_after_send;

    // COBS decoder: bytes left in the block, whether a zero follows the block,
    // whether the frame is already lost.
    uint8_t block_left;
    uint8_t block_zero;
    uint8_t frame_lost;

    // Bytes of the frame decoded so far; the whole frame while it is handled.
    uint32_t rx_length;

    // Bytes taken from the port and not decoded yet.
    uint8_t chunk_at;
    uint8_t chunk_length;
    uint8_t chunk[UTVM_CHUNK_BYTES];

    // Where in tx_buffer a reply is made before it is encoded.
    uint32_t tx_gap;
    // Length of the reply in tx_buffer, which is kept for a request that comes
    // again.
    uint32_t kept_length;
    // What is being sent, that reply or one made in rx_buffer; how many of its
    // bytes are out.
    const uint8_t *tx;
    uint32_t tx_length;
    uint32_t tx_sent;
    // Payload of the reply being made.
    uint32_t reply_length;

    // EXECUTE: bytes of the payload done, and the task's number.
    uint32_t task_at;
    uint32_t task_index;

    // CHECKSUM: the rest to do.
    uint32_t crc;
    uint32_t crc_address;
    uint32_t crc_left;
} utvm_t;

// Begin.
//
// nonce distinguishes this boot from every other one: take it from a hardware random
// number generator, or from a counter that survives a reset. 0 is taken as 1.
// The boot frame is sent first, so that a host notices a restart at once.
//
// Returns UTVM_OK, or UTVM_ERR_CONFIG with a sentence in utvm->error.
int utvm_init(utvm_t *utvm, const struct utvm_config *config, uint32_t nonce);

// Do a bounded amount of work: take one chunk of bytes, or send what the port
// takes, or checksum UTVM_CRC_BYTES_PER_POLL bytes, or run one task with its
// repeats. It waits only for that task.
//
// Returns 1 if there was work, 0 if there was none until bytes arrive or the
// port can send again, negative what a port's read or write returned.
int utvm_poll(utvm_t *utvm);

// The other way in: a debugger puts a request into memory and starts the core
// at a function of the port that calls utvm_serve_mailbox and then comes to a
// breakpoint. No line is needed; what is done, and what is refused, is the
// same. The mailbox is a word-aligned array of UTVM_MAILBOX_BYTES.

// Fill in where requests and replies lie, after utvm_init.
void utvm_open_mailbox(utvm_t *utvm, uint8_t *mailbox);

// Do everything that the request asks, and store the reply.
void utvm_serve_mailbox(utvm_t *utvm, uint8_t *mailbox);

// Make a call with nothing in between.
void utvm_call_function(const struct utvm_call *call);

// CRC-32 (zlib's) of size bytes, continuing from crc, which is 0 at first.
uint32_t utvm_crc32(uint32_t crc, const void *data, uint32_t size);

// The same as a task: the CRC-32 of size bytes to *out.
void utvm_crc32_of(const void *data, uint32_t size, uint32_t *out);

// Bytes of a red zone; there is one on either side of each allocated block.
#define UTVM_ZONE_BYTES 32u

// As a task: size bytes at to become byte.
void utvm_fill(uint8_t *to, uint32_t size, uint8_t byte);

// As a task: make two red zones, of bytes that follow from pattern and their
// addresses.
void utvm_fill_zones(uint32_t pattern, uint8_t *zone_0, uint8_t *zone_1);

// As a task: look at zones filled like that. If *broken is 0, it becomes the
// address of the first byte that differs. Null pointers are passed over.
void utvm_check_zones(uint32_t *broken, uint32_t pattern, const uint8_t *zone_0,
                      const uint8_t *zone_1, const uint8_t *zone_2, const uint8_t *zone_3,
                      const uint8_t *zone_4, const uint8_t *zone_5, const uint8_t *zone_6,
                      const uint8_t *zone_7, const uint8_t *zone_8, const uint8_t *zone_9);

#ifdef __cplusplus
}
#endif

#endif
