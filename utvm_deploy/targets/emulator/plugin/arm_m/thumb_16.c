// 16-bit encodings (DDI 0403, A5.2).
//
// SPDX-License-Identifier: Apache-2.0

#include "thumb.h"
#include "timing_table.h"

#define FLAGS REGISTER(REGISTER_FLAGS)
#define SP 13

static void compute(struct instruction *i, unsigned kind, uint64_t first, uint64_t second,
                    uint64_t written) {
    i->kind = (uint8_t)kind;
    i->first = first;
    i->second = second;
    i->written = written;
}

static void transfer(struct instruction *i, bool load, unsigned bytes, unsigned t) {
    i->access_bytes = (uint8_t)bytes;
    if (load) {
        i->kind = bytes == 4 ? KIND_LOAD_WORD : KIND_LOAD_PART;
        i->written = REGISTER(t);
    } else {
        i->kind = bytes == 4 ? KIND_STORE_WORD : KIND_STORE_PART;
        i->stored = REGISTER(t);
        i->is_store = true;
    }
}

static void at_offset(struct instruction *i, unsigned base, unsigned offset) {
    i->base = REGISTER(base);
    i->base_register = (uint8_t)base;
    i->offset = (int32_t)offset;
}

static void shift_add_compare(struct instruction *i, unsigned h, uint64_t flags) {
    const unsigned op = field(h, 11, 5);
    const uint64_t low = REGISTER(field(h, 0, 3));
    const uint64_t middle = REGISTER(field(h, 3, 3));
    const uint64_t high = REGISTER(field(h, 8, 3));
    if (op == 0 && field(h, 6, 5) == 0) {
        compute(i, KIND_MOVE, 0, middle, low | flags); // movs, which is no mov
    } else if (op < 3) {
        compute(i, KIND_SHIFT, 0, middle, low | flags);
    } else if (op == 3) {
        const bool is_constant = h & 0x400;
        compute(i, KIND_ADD_SUB, middle, is_constant ? 0 : REGISTER(field(h, 6, 3)), low | flags);
        i->joins = is_constant;
    } else if (op == 4) {
        compute(i, KIND_MOVE, 0, 0, high | flags);
        i->joins = true;
    } else if (op == 5) {
        compute(i, KIND_LOGIC, high, 0, FLAGS);
    } else {
        compute(i, KIND_ADD_SUB, high, 0, high | flags);
        i->joins = true;
    }
}

static void data_processing(struct instruction *i, unsigned h, uint64_t flags) {
    const uint64_t d = REGISTER(field(h, 0, 3));
    const uint64_t m = REGISTER(field(h, 3, 3));
    switch (field(h, 6, 4)) {
    case 2: // lsl, lsr, asr, ror: the shifted register comes as the second operand
    case 3:
    case 4:
    case 7:
        compute(i, KIND_SHIFT, m, d, d | flags);
        break;
    case 5: // adc, sbc
    case 6:
        compute(i, KIND_LOGIC, d | FLAGS, m, d | flags);
        break;
    case 8: // tst, cmp, cmn
    case 10:
    case 11:
        compute(i, KIND_LOGIC, d, m, FLAGS);
        break;
    case 9: // rsb, mvn
    case 15:
        compute(i, KIND_LOGIC, 0, m, d | flags);
        break;
    case 13:
        compute(i, KIND_MULTIPLY, d, m, d | flags);
        break;
    default:
        compute(i, KIND_LOGIC, d, m, d | flags);
        break;
    }
}

static void special(struct instruction *i, unsigned h) {
    const unsigned d = field(h, 0, 3) | field(h, 7, 1) << 3;
    const uint64_t m = REGISTER(field(h, 3, 4));
    switch (field(h, 8, 2)) {
    case 0:
        compute(i, KIND_ADD_SUB, REGISTER(d), m, REGISTER(d));
        note_pc_write(i);
        break;
    case 1:
        compute(i, KIND_LOGIC, REGISTER(d), m, FLAGS);
        break;
    case 2:
        compute(i, KIND_MOVE, 0, m, REGISTER(d));
        i->joins = true;
        note_pc_write(i);
        break;
    default:
        compute(i, KIND_BRANCH_INDIRECT, m, 0, h & 0x80 ? REGISTER(14) : 0);
        i->flow = FLOW_INDIRECT;
        break;
    }
}

static void load_store_register(struct instruction *i, unsigned h) {
    // str, strh, strb, ldrsb, ldr, ldrh, ldrb, ldrsh
    static const uint8_t bytes[] = {4, 2, 1, 1, 4, 2, 1, 2};
    const unsigned op = field(h, 9, 3);
    transfer(i, op >= 3, bytes[op], field(h, 0, 3));
    i->base = REGISTER(field(h, 3, 3)) | REGISTER(field(h, 6, 3));
}

static void several(struct instruction *i, unsigned base, unsigned list, bool load) {
    i->registers = (uint8_t)__builtin_popcount(list);
    i->access_bytes = 4;
    i->base = REGISTER(base);
    i->kind = load ? KIND_LOAD_MULTIPLE : KIND_STORE_MULTIPLE;
    i->is_store = !load;
    if (load) {
        i->written = list;
        note_pc_write(i);
    } else {
        i->stored = list;
    }
    i->written_back = load && (list >> base & 1) ? 0 : REGISTER(base);
}

static void hint(struct instruction *i, unsigned h) {
    if (field(h, 0, 4)) {
        i->kind = KIND_IT;
        i->first = FLAGS;
        i->joins = true;
    } else {
        i->kind = KIND_NOP; // nop, yield, wfe, wfi, sev
    }
}

static void miscellaneous(struct instruction *i, unsigned h) {
    const uint64_t d = REGISTER(field(h, 0, 3));
    const uint64_t m = REGISTER(field(h, 3, 3));

    if ((h & 0xff00) == 0xb000) {
        compute(i, KIND_ADD_SUB, REGISTER(SP), 0, REGISTER(SP));
    } else if ((h & 0xf500) == 0xb100) {
        compute(i, KIND_COMPARE_BRANCH, d, 0, 0);
        i->flow = FLOW_CONDITIONAL;
        i->target = i->address + 4 + (field(h, 3, 5) << 1 | field(h, 9, 1) << 6);
    } else if ((h & 0xff00) == 0xb200) {
        compute(i, KIND_EXTEND, 0, m, d);
        i->joins = true;
    } else if ((h & 0xfe00) == 0xb400) {
        several(i, SP, field(h, 0, 8) | field(h, 8, 1) << 14, false);
    } else if ((h & 0xfe00) == 0xbc00) {
        several(i, SP, field(h, 0, 8) | field(h, 8, 1) << 15, true);
    } else if ((h & 0xffe8) == 0xb660) {
        i->kind = KIND_SYSTEM; // cps
    } else if ((h & 0xff00) == 0xba00 && field(h, 6, 2) != 2) {
        compute(i, KIND_REVERSE, 0, m, d);
    } else if ((h & 0xff00) == 0xbe00) {
        i->kind = KIND_SYSTEM; // bkpt
    } else if ((h & 0xff00) == 0xbf00) {
        hint(i, h);
    }
}

static void conditional_branch(struct instruction *i, unsigned h) {
    const unsigned condition = field(h, 8, 4);
    if (condition == 15) {
        i->kind = KIND_SYSTEM; // svc
    } else if (condition != 14) {
        i->kind = KIND_BRANCH_CONDITIONAL;
        i->flow = FLOW_CONDITIONAL;
        i->target = i->address + 4 + (uint32_t)sign_extend(field(h, 0, 8) << 1, 9);
    }
}

void decode_16(struct instruction *i, uint16_t h, bool in_it) {
    const uint64_t flags = in_it ? 0 : FLAGS;
    switch (h >> 12) {
    case 0x0:
    case 0x1:
    case 0x2:
    case 0x3:
        shift_add_compare(i, h, flags);
        break;
    case 0x4:
        if (!(h & 0x800)) {
            if (h & 0x400) {
                special(i, h);
            } else {
                data_processing(i, h, flags);
            }
        } else {
            transfer(i, true, 4, field(h, 8, 3));
            at_offset(i, 15, field(h, 0, 8) * 4);
        }
        break;
    case 0x5:
        load_store_register(i, h);
        break;
    case 0x6:
    case 0x7:
    case 0x8: {
        const unsigned bytes = h >> 12 == 6 ? 4 : h >> 12 == 7 ? 1 : 2;
        transfer(i, h & 0x800, bytes, field(h, 0, 3));
        at_offset(i, field(h, 3, 3), field(h, 6, 5) * bytes);
        break;
    }
    case 0x9:
        transfer(i, h & 0x800, 4, field(h, 8, 3));
        at_offset(i, SP, field(h, 0, 8) * 4);
        break;
    case 0xa:
        compute(i, KIND_ADD_SUB, h & 0x800 ? REGISTER(SP) : 0, 0, REGISTER(field(h, 8, 3)));
        break;
    case 0xb:
        miscellaneous(i, h);
        break;
    case 0xc:
        several(i, field(h, 8, 3), field(h, 0, 8), h & 0x800);
        break;
    case 0xd:
        conditional_branch(i, h);
        break;
    default: // 0xe: the rest of 0xe and 0xf are 32 bits wide
        i->kind = KIND_BRANCH;
        i->flow = FLOW_DIRECT;
        i->target = i->address + 4 + (uint32_t)sign_extend(field(h, 0, 11) << 1, 12);
        break;
    }
}
