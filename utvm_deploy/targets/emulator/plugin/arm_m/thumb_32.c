// 32-bit encodings: data processing with constants and shifted registers, branches, system.
//
// SPDX-License-Identifier: Apache-2.0

#include "thumb.h"
#include "timing_table.h"

#define FLAGS REGISTER(REGISTER_FLAGS)

// Operations of both data-processing groups (DDI 0403, A5.3.1 and A5.3.11).
enum operation {
    OP_AND = 0,
    OP_BIC = 1,
    OP_ORR = 2,
    OP_ORN = 3,
    OP_EOR = 4,
    OP_PKH = 6,
    OP_ADD = 8,
    OP_ADC = 10,
    OP_SBC = 11,
    OP_SUB = 13,
    OP_RSB = 14,
};

// Fills in who is read and written; false if there is no such operation. `kind` is what a plain
// second operand makes of it.
static bool operate(struct instruction *i, uint16_t h, unsigned d, uint64_t second) {
    const unsigned op = field(h, 5, 4);
    const unsigned n = field(h, 0, 4);
    const bool sets_flags = h & 0x10;
    const bool compares = d == 15 && sets_flags;
    if (op > OP_RSB || op == 5 || op == 7 || op == 9 || op == 12) {
        return false;
    }
    const bool no_first = n == 15 && (op == OP_ORR || op == OP_ORN);
    const bool moves = n == 15 && op == OP_ORR;
    i->kind = moves                                         ? KIND_MOVE
              : (op == OP_ADD || op == OP_SUB) && !compares ? KIND_ADD_SUB
                                                            : KIND_LOGIC;
    i->first = (no_first ? 0 : REGISTER(n)) | (op == OP_ADC || op == OP_SBC ? FLAGS : 0);
    i->second = second;
    i->written = (compares ? 0 : REGISTER(d)) | (sets_flags ? FLAGS : 0);
    return true;
}

static void shifted_register(struct instruction *i, uint16_t h, uint16_t l) {
    const unsigned op = field(h, 5, 4);
    const unsigned d = field(l, 8, 4);
    const unsigned amount = field(l, 12, 3) << 2 | field(l, 6, 2);
    const unsigned type = field(l, 4, 2);
    const uint64_t m = REGISTER(field(l, 0, 4));
    if (decode_select_or_shift(i, h, l)) {
        return;
    }
    if (op == OP_PKH) {
        i->kind = type & 2 ? KIND_PACK_TOP : KIND_PACK;
        i->first = REGISTER(field(h, 0, 4));
        i->second = m;
        i->written = REGISTER(d);
        return;
    }
    if (!operate(i, h, d, m)) {
        return;
    }
    if (amount || type) { // ror #0 is rrx, lsr and asr #0 mean 32
        i->kind = i->kind == KIND_MOVE ? KIND_SHIFT : KIND_SHIFTED_OPERAND;
        if (type == 3 && !amount) {
            i->kind = KIND_SHIFTED_OPERAND; // rrx: jnk0le excepts it from the early ALU
            i->first |= FLAGS;
        }
    }
    note_pc_write(i);
}

static void modified_constant(struct instruction *i, uint16_t h, uint16_t l) {
    const unsigned pattern = field(h, 10, 1) << 3 | field(l, 12, 3);
    if (operate(i, h, field(l, 8, 4), 0) && pattern >= 4) {
        i->kind = KIND_SHIFTED_CONSTANT;
    }
    note_pc_write(i);
}

static void plain_constant(struct instruction *i, uint16_t h, uint16_t l) {
    const unsigned n = field(h, 0, 4);
    const uint64_t d = REGISTER(field(l, 8, 4));
    const uint64_t source = n == 15 ? 0 : REGISTER(n);
    i->written = d;
    switch (field(h, 4, 5)) {
    case 0:
    case 10:
        i->kind = KIND_ADD_SUB;
        i->first = source;
        break;
    case 4:
        i->kind = KIND_MOVE;
        break;
    case 12:
        i->kind = KIND_MOVE_TOP;
        i->first = d;
        break;
    case 16:
    case 18:
    case 24:
    case 26:
        i->kind = KIND_SATURATE;
        i->first = REGISTER(n);
        break;
    case 20:
    case 28:
        i->kind = KIND_FIELD_EXTRACT;
        i->first = REGISTER(n);
        break;
    case 22:
        i->kind = KIND_FIELD_INSERT;
        i->first = source;
        i->accumulator = d;
        break;
    default:
        break;
    }
}

static uint32_t far_target(const struct instruction *i, uint16_t h, uint16_t l) {
    const unsigned sign = field(h, 10, 1);
    const unsigned i1 = !(field(l, 13, 1) ^ sign);
    const unsigned i2 = !(field(l, 11, 1) ^ sign);
    const uint32_t offset =
        sign << 24 | i1 << 23 | i2 << 22 | field(h, 0, 10) << 12 | field(l, 0, 11) << 1;
    return i->address + 4 + (uint32_t)sign_extend(offset, 25);
}

static void conditional_branch(struct instruction *i, uint16_t h, uint16_t l) {
    const uint32_t offset = field(h, 10, 1) << 20 | field(l, 11, 1) << 19 | field(l, 13, 1) << 18 |
                            field(h, 0, 6) << 12 | field(l, 0, 11) << 1;
    i->kind = KIND_BRANCH_CONDITIONAL;
    i->flow = FLOW_CONDITIONAL;
    i->target = i->address + 4 + (uint32_t)sign_extend(offset, 21);
}

static void system_control(struct instruction *i, uint16_t h, uint16_t l) {
    switch (field(h, 4, 7)) {
    case 0x38: // msr
    case 0x39:
        i->kind = KIND_SYSTEM;
        i->first = REGISTER(field(h, 0, 4));
        i->written = FLAGS;
        break;
    case 0x3a: // hints: nop.w, yield, wfe, wfi, sev, dbg
        i->kind = KIND_NOP;
        break;
    case 0x3b: // clrex, dsb, dmb, isb
        i->kind = KIND_BARRIER;
        break;
    case 0x3e: // mrs
    case 0x3f:
        i->kind = KIND_SYSTEM;
        i->written = REGISTER(field(l, 8, 4));
        break;
    default:
        break;
    }
}

static void branch_or_system(struct instruction *i, uint16_t h, uint16_t l) {
    switch (field(l, 12, 3) & 5) {
    case 0:
        if (field(h, 7, 3) == 7) {
            system_control(i, h, l);
        } else {
            conditional_branch(i, h, l);
        }
        break;
    case 1:
        i->kind = KIND_BRANCH;
        i->flow = FLOW_DIRECT;
        i->target = far_target(i, h, l);
        break;
    case 4:
        decode_loop(i, h, l);
        break;
    case 5:
        i->kind = KIND_CALL;
        i->flow = FLOW_DIRECT;
        i->target = far_target(i, h, l);
        i->written = REGISTER(14);
        break;
    default:
        break;
    }
}

void decode_32(struct instruction *i, uint16_t h, uint16_t l) {
    if ((h & 0xec00) == 0xec00) { // coprocessors; 10 and 11 are the floating-point unit
        const unsigned coprocessor = (h & 0xef00) == 0xef00 ? 15 : field(l, 8, 4);
        if (coprocessor == 10 || coprocessor == 11) {
            decode_fp(i, h, l);
        } else if (coprocessor == 9) { // half precision is encoded, and timed, as single
            decode_fp(i, h, l ^ 0x300);
        } else {
            decode_vector(i, h, l);
        }
    } else if ((h & 0xfe00) == 0xe800 || (h & 0xfe00) == 0xf800) {
        decode_32_memory(i, h, l);
    } else if ((h & 0xfe00) == 0xea00) {
        shifted_register(i, h, l);
    } else if ((h & 0xf800) == 0xf000) {
        if (l & 0x8000) {
            branch_or_system(i, h, l);
        } else if (h & 0x200) {
            plain_constant(i, h, l);
        } else {
            modified_constant(i, h, l);
        }
    } else if ((h & 0xff00) == 0xfa00) {
        decode_32_register(i, h, l);
    } else if ((h & 0xff00) == 0xfb00) {
        decode_32_multiply(i, h, l);
    }
}
