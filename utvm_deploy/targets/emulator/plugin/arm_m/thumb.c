// The Thumb-2 decoder's entry: IT blocks, and the choice between 16 and 32 bits.
//
// SPDX-License-Identifier: Apache-2.0

#include "thumb.h"
#include "timing_table.h"

static unsigned decode_size(uint16_t first) {
    return first >> 11 >= 0x1d ? 4 : 2;
}

static void advance(struct it_state *it) {
    const unsigned bits = it->bits;
    it->bits = (uint8_t)(bits & 7 ? (bits & 0xe0) | (bits << 1 & 0x1f) : 0);
}

// Instructions behind a VPST or VPT that it makes depend on the predicate: the place of the lowest
// 1 of its mask tells.
static unsigned predicated_behind(const struct instruction *i, uint16_t first, uint16_t second) {
    const unsigned mask = field(first, 6, 1) << 3 | field(second, 13, 3);
    const bool begins = i->kind == KIND_VECTOR_COMPARE ||
                        (i->kind == KIND_VECTOR_PREDICATE && first >> 12 == 15 && first & 0xe00);
    return begins && mask ? 4u - (unsigned)__builtin_ctz(mask) : 0;
}

static struct instruction decode(uint32_t address, uint16_t first, uint16_t second,
                                 struct it_state *it) {
    struct instruction i = {.address = address,
                            .size = (uint8_t)decode_size(first),
                            .kind = KIND_UNKNOWN,
                            .base_register = NO_REGISTER};
    const bool in_it = it->bits & 0xf;
    if (i.size == 2) {
        decode_16(&i, first, in_it);
    } else {
        decode_32(&i, first, second);
    }
    if (i.kind == KIND_UNKNOWN) {
        i = (struct instruction){
            .address = address, .size = i.size, .kind = KIND_UNKNOWN, .base_register = NO_REGISTER};
    }
    if (it->predicated) { // lanes that are not written keep what they hold
        --it->predicated;
        i.is_predicated = true;
        i.accumulator |= i.written;
    } else {
        it->predicated = (uint8_t)predicated_behind(&i, first, second);
    }
    if (i.kind == KIND_IT) {
        it->bits = (uint8_t)first;
    } else if (in_it) {
        i.is_predicated = true;
        i.first |= REGISTER(REGISTER_FLAGS);
        if (i.flow == FLOW_DIRECT) {
            i.flow = FLOW_CONDITIONAL;
        }
        advance(it);
    }
    return i;
}

const struct decoder thumb_decoder = {
    .target = "arm",
    .size = decode_size,
    .decode = decode,
    .mark = {0xf3af, 0x80fd},   // dbg #13
    .forget = {0xf3af, 0x80fc}, // dbg #12
};
