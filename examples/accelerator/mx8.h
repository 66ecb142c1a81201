// MX8, a matrix unit for int8: its registers and commands (SPEC.md). The driver and the model of
// the device share this file, and nothing else.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef MX8_H
#define MX8_H

#include <stdint.h>

#define MX8_ID 0x4D583801u
#define MX8_LOCAL_BYTES 32768u // local memory
#define MX8_COMMAND_WORDS 12u
#define MX8_SLOTS 64u // the most commands in the queue
#define MX8_REGIONS 8u

// Bits of the register control.
#define MX8_RESET 1u
#define MX8_RUN 2u
#define MX8_INTERRUPT 4u // raise the interrupt when all commands are done, and on a fault

// Values of the register fault.
#define MX8_BAD_COMMAND 1u
#define MX8_BAD_ADDRESS 2u

// Values of the register test: what the device does wrong.
#define MX8_TEST_HANG 1u
#define MX8_TEST_COMMAND 2u
#define MX8_TEST_HALF 3u

// An address takes a register. Where addresses have 64 bits, as on a PC, the registers from
// queue on are wider than the specification says.
struct mx8_registers {
    uint32_t id;                    // read
    uint32_t control;               // write
    uint32_t fault;                 // read
    uint32_t head;                  // read: commands that are done since the reset
    uint32_t tail;                  // write: commands that the queue has got since the reset
    uint32_t written;               // read: bytes that STORE commands wrote since the reset
    uint32_t cycles;                // read: since the reset
    uint32_t test;                  // write
    uint32_t slots;                 // write: the queue's size in commands; 1 to MX8_SLOTS
    uint32_t bytes[MX8_REGIONS];    // write: the size of each region
    uintptr_t queue;                // write: its address
    uintptr_t address[MX8_REGIONS]; // write: the address of each region
};

// Word 0 of a command: bits 0 to 7 are the operation, 8 to 15 the region. Word 1: two distances of
// 16 bits back to commands that must be done before; 0 is none.
enum mx8_operation { MX8_LOAD = 1, MX8_STORE = 2, MX8_FILL = 3, MX8_MATRIX = 4 };

// The other words of LOAD, STORE and FILL: rows of bytes.
enum mx8_transfer {
    MX8_OFFSET = 2, // in the region; of FILL: the value
    MX8_LOCAL = 3,  // in the local memory
    MX8_BYTES = 4,  // of a row
    MX8_ROWS = 5,
    MX8_PITCH = 6, // from row to row in the region
    MX8_LOCAL_PITCH = 7
};

// The other words of MATRIX. Pairs have the columns in the low half, and the rows in the high half.
enum mx8_matrix {
    MX8_INPUT = 2,
    MX8_WEIGHTS = 3,
    MX8_PARAMETERS = 4,
    MX8_OUTPUT = 5,
    MX8_POSITIONS = 6, // a pair: of the output
    MX8_KERNEL = 7,    // a pair
    MX8_CHANNELS = 8,  // a pair: of the input, of the output
    MX8_STRIDES = 9,   // a pair
    MX8_INPUT_PITCH = 10,
    MX8_RANGE = 11 // bytes: zero point of the output, least, most; 0: two roundings, 1: one
};

// Of each output channel: bias, and high, low and shift of its scale. Where the device rounds
// twice, high is the multiplier, and low is not used.
#define MX8_PARAMETER_WORDS 4u

#endif
