// A runtime in memory: what the host sends is an array, what the device sends
// another one. Used by the unit tests and the fuzzer.
#ifndef MEMORY_PORT_H
#define MEMORY_PORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utvm_private.h"

#define BENCH_PAYLOAD 256u
#define BENCH_NONCE 0xbeefcafeu
#define WORKSPACE_BYTES 4096u

// Wire addresses have 32 bits: the tests are linked non-PIE, so that these are
// in reach.
extern uint8_t port_workspace[WORKSPACE_BYTES];
extern const uint8_t port_constants[64];

// What the test tasks were called with.
extern uint32_t port_calls;
extern uintptr_t port_arguments[UTVM_MAX_ARGUMENTS];
void port_task(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f,
               uintptr_t g, uintptr_t h, uintptr_t i, uintptr_t j, uintptr_t k, uintptr_t l);

struct port {
    utvm_t utvm;
    struct utvm_config config;
    struct utvm_region regions[4];

    // To the device, and how much of it the port gave so far.
    uint8_t *in;
    uint32_t in_length, in_at;
    // Most that one read gives and one write takes; 0: nothing for now.
    uint32_t read_max, write_max;
    // From the device.
    uint8_t out[65536];
    uint32_t out_length;
    // Returned by read and write instead of anything else, if negative.
    int32_t fail;

    // With port_guard: the call, of all since the program began, that is
    // stopped; how; and what the runtime said of deadlines.
    uint32_t stop_after;
    enum utvm_status stop_status;
    struct utvm_fault stop_fault;
    uint32_t deadlines[8], deadline_count;

    uint64_t ticks;
    uint32_t resets;
    // Last call of code_written.
    const void *code;
    uint32_t code_size;
    // Number of the next request.
    uint32_t sequence;
};

struct reply {
    bool found;
    uint32_t opcode, sequence, session, status, index, detail;
    // What follows the outcome.
    uint8_t data[BENCH_PAYLOAD + 64];
    uint32_t length;
};

// Make a port whose buffers are on the heap, exactly as large as asked, so
// that the sanitizers see a byte too many. The boot frame is already out.
struct port *port_new(void);
void port_free(struct port *port);

// From now on the port makes the calls and knows deadlines.
void port_guard(struct port *port);

// COBS of size bytes, without zeros around; its length.
uint32_t port_cobs(const uint8_t *data, uint32_t size, uint8_t *out);

// A whole frame from zero to zero; its length.
uint32_t port_frame(uint8_t version, uint8_t opcode, uint32_t sequence, uint32_t session,
                    const uint8_t *payload, uint32_t size, uint8_t *out);

// Append to what the device will read.
void port_give(struct port *port, const uint8_t *data, uint32_t size);

// Poll until there is nothing to do; what the last poll returned.
int port_run(struct port *port);

// The next frame that the device sent, if there is one.
struct reply port_take(struct port *port);

// Send a request, run, take the reply.
struct reply port_ask(struct port *port, uint8_t opcode, const uint8_t *payload, uint32_t size);

// Send a request of any session, run, take the reply.
struct reply port_ask_as(struct port *port, uint8_t opcode, uint32_t session,
                         const uint8_t *payload, uint32_t size);

// HELLO and OPEN, with the next two numbers; the reply to OPEN.
struct reply port_open(struct port *port);

#endif
