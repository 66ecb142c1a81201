// The Thumb-2 decoder: bytes to struct instruction. It knows encodings, not timing.
//
// Encodings: Armv7-M Architecture Reference Manual, Arm DDI 0403, chapter A5 and A7.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_DECODE_H
#define UTVM_DECODE_H

#include "instruction.h"

// Where in an IT block the next instruction stands: as EPSR.IT, zero outside.
struct it_state {
    uint8_t bits;
};

// Size in bytes of the instruction that starts with this halfword.
unsigned decode_size(uint16_t first);

// Decodes one instruction and moves `it` on. An encoding it does not know gets KIND_UNKNOWN.
struct instruction decode(uint32_t address, uint16_t first, uint16_t second, struct it_state *it);

// The parts, each for its share of the encodings; `i` comes in with address and size set.
void decode_16(struct instruction *i, uint16_t h, bool in_it);
void decode_32(struct instruction *i, uint16_t h, uint16_t l);
void decode_32_memory(struct instruction *i, uint16_t h, uint16_t l);
void decode_32_register(struct instruction *i, uint16_t h, uint16_t l);
void decode_32_multiply(struct instruction *i, uint16_t h, uint16_t l);
void decode_fp(struct instruction *i, uint16_t h, uint16_t l);

// The bits from `low` up, `count` of them.
static inline unsigned field(unsigned word, unsigned low, unsigned count) {
    return word >> low & ((1u << count) - 1u);
}

static inline int32_t sign_extend(uint32_t value, unsigned bits) {
    const uint32_t sign = 1u << (bits - 1);
    return (int32_t)((value ^ sign) - sign);
}

// What a write to the program counter means for an instruction that is no branch by name.
static inline void note_pc_write(struct instruction *i) {
    if (i->written & REGISTER_PC) {
        i->written &= ~REGISTER_PC;
        i->flow = FLOW_INDIRECT;
    }
}

#endif
