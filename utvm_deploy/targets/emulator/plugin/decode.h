// What a decoder is: bytes to struct instruction. It knows encodings, not timing.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_DECODE_H
#define UTVM_DECODE_H

#include "instruction.h"

// Of Thumb: where in an IT block the next instruction stands, as EPSR.IT, zero outside; and how
// many vector instructions still depend on the predicate.
struct it_state {
    uint8_t bits;
    uint8_t predicated;
};

struct decoder {
    const char *target; // as QEMU names it
    // Size in bytes of the instruction that starts with this halfword.
    unsigned (*size)(uint16_t first);
    // Decodes one instruction and moves `it` on. An encoding it does not know gets KIND_UNKNOWN.
    struct instruction (*decode)(uint32_t address, uint16_t first, uint16_t second,
                                 struct it_state *it);
    // Halfwords of the instructions by which code speaks to the model, and which do nothing
    // elsewhere. `mark` asks for the counters, `forget` makes the model what it was at first.
    // Behind them stands an instruction that ends a block, so that nothing after it is counted yet.
    uint16_t mark[2];
    uint16_t forget[2];
};

extern const struct decoder thumb_decoder;
extern const struct decoder riscv_decoder;

// NULL for a target that has none.
const struct decoder *decoder_for(const char *target);

// The bits from `low` up, `count` of them.
static inline unsigned field(unsigned word, unsigned low, unsigned count) {
    return word >> low & ((1u << count) - 1u);
}

static inline int32_t sign_extend(uint32_t value, unsigned bits) {
    const uint32_t sign = 1u << (bits - 1);
    return (int32_t)((value ^ sign) - sign);
}

#endif
