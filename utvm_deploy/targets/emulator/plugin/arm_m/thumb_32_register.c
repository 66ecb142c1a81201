// 32-bit data processing between registers, and multiplication (DDI 0403, A5.3.12 to A5.3.17).
//
// SPDX-License-Identifier: Apache-2.0

#include "thumb.h"
#include "timing_table.h"

#define FLAGS REGISTER(REGISTER_FLAGS)

static void compute(struct instruction *i, unsigned kind, uint64_t first, uint64_t second,
                    uint64_t written) {
    i->kind = (uint8_t)kind;
    i->first = first;
    i->second = second;
    i->written = written;
}

static void parallel(struct instruction *i, unsigned op, unsigned variant, uint64_t n, uint64_t m,
                     uint64_t d) {
    const bool known = op != 11 && op <= 14 && (variant & 3) != 3;
    const bool saturates = (variant & 3) == 1;
    // sadd16 and its like also set the GE bits, which sel reads; they travel with the flags.
    if (known) {
        compute(i, saturates ? KIND_SIMD_SATURATE : KIND_SIMD, n, m, d);
    }
}

static void miscellaneous(struct instruction *i, unsigned op, unsigned variant, uint64_t n,
                          uint64_t m, uint64_t d) {
    switch (op) {
    case 8: // qadd, qdadd, qsub, qdsub; qd... doubles before it adds
        compute(i, variant & 1 ? KIND_SATURATE : KIND_SIMD_SATURATE, n, m, d);
        break;
    case 9:
        compute(i, KIND_REVERSE, 0, m, d);
        break;
    case 10:
        if (variant == 8) { // sel
            compute(i, KIND_SIMD, n, m, d);
        }
        break;
    case 11:
        if (variant == 8) { // clz
            compute(i, KIND_SIMD, 0, m, d);
        }
        break;
    default:
        break;
    }
}

void decode_32_register(struct instruction *i, uint16_t h, uint16_t l) {
    const unsigned op = field(h, 4, 4);
    const unsigned variant = field(l, 4, 4);
    const unsigned n = field(h, 0, 4);
    const uint64_t m = REGISTER(field(l, 0, 4));
    const uint64_t d = REGISTER(field(l, 8, 4));
    if ((l & 0xf000) != 0xf000) {
        return;
    }
    if (op < 8 && variant == 0) { // the shifted register comes as the second operand
        compute(i, KIND_SHIFT, m, REGISTER(n), d | (op & 1 ? FLAGS : 0));
    } else if (op < 6 && variant & 8) {
        compute(i, n == 15 ? KIND_EXTEND : KIND_EXTEND_ADD, n == 15 ? 0 : REGISTER(n), m, d);
    } else if (op >= 8 && variant < 8) {
        parallel(i, op, variant, REGISTER(n), m, d);
    } else if (op >= 8 && variant < 12) {
        miscellaneous(i, op, variant, REGISTER(n), m, d);
    }
}

static void long_multiply(struct instruction *i, unsigned op, unsigned variant, uint64_t n,
                          uint64_t m, uint64_t low, uint64_t high) {
    const bool divides = (op == 1 || op == 3) && variant == 15;
    const bool multiplies = (op == 0 || op == 2) && variant == 0;
    const bool adds = (op == 4 && (variant == 0 || (variant >= 8 && variant < 14))) ||
                      (op == 5 && (variant == 12 || variant == 13)) ||
                      (op == 6 && (variant == 0 || variant == 6));
    if (divides) {
        compute(i, KIND_DIVIDE, n, m, high); // Rd stands where RdHi does
    } else if (multiplies) {
        compute(i, KIND_MULTIPLY_LONG, n, m, low | high);
    } else if (adds) {
        compute(i, KIND_MULTIPLY_ADD_LONG, n, m, low | high);
        i->accumulator = low | high;
    }
}

void decode_32_multiply(struct instruction *i, uint16_t h, uint16_t l) {
    const unsigned op = field(h, 4, 3);
    const unsigned variant = field(l, 4, 4);
    const uint64_t n = REGISTER(field(h, 0, 4));
    const uint64_t m = REGISTER(field(l, 0, 4));
    const uint64_t d = REGISTER(field(l, 8, 4));
    const unsigned a = field(l, 12, 4);
    if (h & 0x80) {
        long_multiply(i, op, variant, n, m, REGISTER(a), d);
        return;
    }
    // mla and mls; smlaxy; smlad; smlawy; smlsd; smmla; smmls; usada8
    static const uint8_t variants[] = {2, 4, 2, 2, 2, 2, 2, 1};
    if (variant >= variants[op]) {
        return;
    }
    const bool sums_differences = op == 7; // usad8, usada8
    compute(i,
            sums_differences ? KIND_SIMD_SATURATE
            : a == 15        ? KIND_MULTIPLY
                             : KIND_MULTIPLY_ADD,
            n, m, d);
    i->accumulator = a == 15 ? 0 : REGISTER(a);
}
