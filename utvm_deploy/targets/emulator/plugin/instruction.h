// One decoded instruction: what it reads, writes and touches.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_INSTRUCTION_H
#define UTVM_INSTRUCTION_H

#include <stdbool.h>
#include <stdint.h>

// Sets of registers. Of Thumb: r0 to r15, the flags, s0 to s31 (a double is two of them, a vector
// four), the FP flags. Of RISC-V: x1 to x15, and x16 to x31 from bit 17 on, as there are no flags.
#define REGISTER_FLAGS 16
#define REGISTER_S0 17
#define REGISTER_FP_FLAGS 49
#define REGISTER_COUNT 50
#define REGISTER(n) ((uint64_t)1 << (n))
#define REGISTER_PC REGISTER(15)

#define NO_REGISTER 0xff

enum flow {
    FLOW_ON,          // to the next instruction
    FLOW_DIRECT,      // to `target`
    FLOW_CONDITIONAL, // to `target` or on
    FLOW_INDIRECT,    // to an address from a register or memory
    FLOW_LOOP,        // to `target` or on, by a counter that the core knows beforehand
};

struct instruction {
    uint32_t address;
    uint32_t target;
    // Registers read, by the role in which the timing table asks for them.
    uint64_t first;       // Rn
    uint64_t second;      // Rm: what is shifted, extended, inserted
    uint64_t accumulator; // Ra, or Rd where it is read
    uint64_t base;        // for the address
    uint64_t stored;
    uint64_t written;
    uint64_t written_back; // the base, by pre- and post-indexing
    int32_t offset;        // from the base register, if that is all there is
    uint8_t kind;          // enum kind of the timing table
    uint8_t size;          // bytes: 2 or 4
    uint8_t registers;     // moved by a load or store of several
    uint8_t access_bytes;  // of each memory access, 0: none
    uint8_t base_register; // NO_REGISTER unless base + offset is the address
    uint8_t flow;
    bool is_store;
    bool is_predicated;
    bool joins; // a narrow one that pairs with any other narrow one (struct timing, narrow_pairs)
};

#endif
