// The Thumb-2 decoder's parts.
//
// Encodings: Armv7-M Architecture Reference Manual, Arm DDI 0403, chapter A5 and A7; of Armv8.1-M,
// Arm DDI 0553, chapter C2.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_THUMB_H
#define UTVM_THUMB_H

#include "decode.h"

// Each for its share of the encodings; `i` comes in with address and size set.
void decode_16(struct instruction *i, uint16_t h, bool in_it);
void decode_32(struct instruction *i, uint16_t h, uint16_t l);
void decode_32_memory(struct instruction *i, uint16_t h, uint16_t l);
void decode_32_register(struct instruction *i, uint16_t h, uint16_t l);
void decode_32_multiply(struct instruction *i, uint16_t h, uint16_t l);
void decode_fp(struct instruction *i, uint16_t h, uint16_t l);
void decode_vector(struct instruction *i, uint16_t h, uint16_t l);
// Low-overhead loops, and VCTP, which is encoded among them.
void decode_loop(struct instruction *i, uint16_t h, uint16_t l);
// CSEL and its like, and shifts of two registers; false: it is none of them.
bool decode_select_or_shift(struct instruction *i, uint16_t h, uint16_t l);

// What a write to the program counter means for an instruction that is no branch by name.
static inline void note_pc_write(struct instruction *i) {
    if (i->written & REGISTER_PC) {
        i->written &= ~REGISTER_PC;
        i->flow = FLOW_INDIRECT;
    }
}

#endif
