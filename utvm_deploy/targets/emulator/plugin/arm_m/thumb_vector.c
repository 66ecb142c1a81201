// Helium and low-overhead loops (Armv8.1-M Architecture Reference Manual, Arm DDI 0553, C2.4).
//
// SPDX-License-Identifier: Apache-2.0

#include "thumb.h"
#include "timing_table.h"

// A vector is four of the registers s0 to s31.
static uint64_t vector(unsigned number) {
    return (uint64_t)15 << (REGISTER_S0 + 4 * (number & 7));
}

static uint64_t destination(uint16_t l) {
    return vector(field(l, 13, 3));
}

static uint64_t left(uint16_t h) {
    return vector(field(h, 1, 3));
}

static uint64_t right(uint16_t l) {
    return vector(field(l, 1, 3));
}

// Four bits that name a core register; 15 is none.
static uint64_t core(unsigned number) {
    return REGISTER(number) & ~REGISTER_PC;
}

static void compute(struct instruction *i, unsigned kind, uint64_t first, uint64_t second,
                    uint64_t written) {
    i->kind = (uint8_t)kind;
    i->first = first;
    i->second = second;
    i->written = written;
}

static void accumulate(struct instruction *i, unsigned kind, uint64_t first, uint64_t second,
                       uint64_t written) {
    compute(i, kind, first, second, written);
    i->accumulator = written;
}

static void move_data(struct instruction *i, bool load, unsigned kind, uint64_t data) {
    i->kind = (uint8_t)kind;
    i->access_bytes = 4;
    i->is_store = !load;
    if (load) {
        i->written = data;
    } else {
        i->stored = data;
    }
}

// Vector loads and stores; h and 0xee00 are 0xec00, bits 11 to 9 are set.
static void load_store(struct instruction *i, uint16_t h, uint16_t l) {
    const bool load = h & 0x10;
    const bool writes_back = h & 0x20;
    uint64_t data = destination(l);
    if ((h & 0xffa0) == 0xec00) { // two lanes and two core registers
        const uint64_t cores = REGISTER(field(l, 0, 4)) | REGISTER(field(h, 0, 4));
        compute(i, load ? KIND_VECTOR_FROM_CORE : KIND_VECTOR_TO_CORE, load ? cores : data, 0,
                load ? data : cores);
        i->accumulator = load ? data : 0;
    } else if ((h & 0xff80) == 0xfc80 && l & 0x1000) { // vld2, vld4, vst2, vst4
        data |= vector(field(l, 13, 3) + 1);
        data |= l & 1 ? vector(field(l, 13, 3) + 2) | vector(field(l, 13, 3) + 3) : 0;
        move_data(i, load, load ? KIND_VECTOR_LOAD_PARTS : KIND_VECTOR_STORE_PARTS, data);
        i->accumulator = load ? data : 0;
        i->base = REGISTER(field(h, 0, 4));
        i->written_back = writes_back ? i->base : 0;
    } else if ((h & 0xff00) == 0xfd00 && l & 0x1000) { // addresses in a vector
        move_data(i, load, load ? KIND_VECTOR_GATHER : KIND_VECTOR_SCATTER, data);
        i->second = left(h);
        i->written_back = writes_back ? left(h) : 0;
    } else if (!(h & 0x120) && !(l & 0x1000)) { // offsets in a vector
        move_data(i, load, load ? KIND_VECTOR_GATHER : KIND_VECTOR_SCATTER, data);
        i->base = REGISTER(field(h, 0, 4));
        i->second = right(l);
    } else if (h & 0x120 && (l & 0x1000 ? !(h & 0x1000) : true)) {
        move_data(i, load, load ? KIND_VECTOR_LOAD : KIND_VECTOR_STORE, data);
        // Loads that widen have three bits for the base.
        i->base = REGISTER(field(h, 0, l & 0x1000 ? 4 : 3));
        i->written_back = writes_back ? i->base : 0;
    }
}

// Two vectors to one: h is 0xef.. or 0xff.., without bit 7.
static void two_vectors(struct instruction *i, uint16_t h, uint16_t l) {
    static const uint8_t kinds[16] = {
        [0] = KIND_VECTOR_SIMPLE,    [1] = KIND_VECTOR_SIMPLE,    [2] = KIND_VECTOR_SIMPLE,
        [4] = KIND_VECTOR_SHIFT,     [5] = KIND_VECTOR_SHIFT,     [6] = KIND_VECTOR_SIMPLE,
        [7] = KIND_VECTOR_SIMPLE,    [8] = KIND_VECTOR_SIMPLE,    [9] = KIND_VECTOR_MULTIPLY,
        [11] = KIND_VECTOR_MULTIPLY, [12] = KIND_VECTOR_FP_FUSED, [13] = KIND_VECTOR_FP_ADD,
        [15] = KIND_VECTOR_FP_SIMPLE};
    const unsigned op = field(l, 8, 4);
    const bool odd = l & 0x10;
    if ((l & 0x1041) == 0x40 && kinds[op]) {
        compute(i, kinds[op], left(h), right(l), destination(l));
        if (op == 12) {
            i->accumulator = i->written;
        } else if (op == 13 && odd) {
            i->kind = KIND_VECTOR_FP_MULTIPLY;
        } else if (op == 4 && !odd) { // vshl does not round
            i->kind = KIND_VECTOR_SIMPLE;
        }
    }
}

// One vector to another: h is 0xff.., with bits 7, 5 and 4; bit 4 of l is clear.
static void one_vector(struct instruction *i, uint16_t h, uint16_t l) {
    const bool is_float = field(h, 0, 2) == 1 && l & 0x400; // vabs, vneg
    const bool converts = h & 2;                            // vcvt, vrint
    compute(i,
            converts   ? KIND_VECTOR_CONVERT
            : is_float ? KIND_VECTOR_FP_SIMPLE
                       : KIND_VECTOR_SIMPLE,
            0, right(l), destination(l));
}

// A vector and a constant: h is 0xef.. or 0xff.., with bit 7; bit 4 of l is set.
static void with_constant(struct instruction *i, uint16_t h, uint16_t l) {
    const unsigned op = field(l, 8, 4);
    if ((l & 0x1040) != 0x40) {
        return;
    }
    if (!(h & 0x38)) { // vmov, vmvn, vorr and vbic of a constant
        const bool changes = op & 1 && op < 12;
        const bool moves = !changes && (!(l & 0x20) || op == 14);
        compute(i, moves ? KIND_VECTOR_CONSTANT : KIND_VECTOR_SIMPLE, 0, 0, destination(l));
        i->accumulator = changes ? i->written : 0;
        return;
    }
    compute(i,
            op >= 12                        ? KIND_VECTOR_CONVERT
            : op == 2 || op == 6 || op == 7 ? KIND_VECTOR_SHIFT
                                            : KIND_VECTOR_SIMPLE,
            0, right(l), destination(l));
    if (h & 0x1000 && (op == 4 || op == 5)) { // vsri, vsli keep bits
        i->accumulator = i->written;
    }
}

// Sums of a vector or of products, to core registers: h is 0xee.. or 0xfe.., with bit 7.
static void to_core(struct instruction *i, uint16_t h, uint16_t l) {
    const bool is_long = field(h, 4, 3) != 7;
    const bool is_second = field(l, 8, 4) == 15;
    const uint64_t low = REGISTER(field(l, 12, 4) & 14);
    const uint64_t high = is_long ? REGISTER(field(h, 4, 3) << 1 | 1) : 0;
    const uint64_t four = REGISTER(field(l, 12, 4));
    const uint64_t old = l & 0x20 ? low | high : 0;
    if (is_second && l & 1 && !(h & 0x40)) { // vabav
        accumulate(i, KIND_VECTOR_ACROSS_16, left(h), right(l), four);
    } else if (is_second && field(h, 4, 3) == 6 && !(h & 1)) { // vmaxv, vminv
        static const uint8_t kinds[] = {KIND_VECTOR_ACROSS_8, KIND_VECTOR_ACROSS_16,
                                        KIND_VECTOR_ACROSS_32, KIND_VECTOR_FP_SIMPLE};
        accumulate(i, kinds[field(h, 2, 2)], 0, right(l), four);
    } else if (is_second && h & 1) { // vaddv, vaddlv
        compute(i, KIND_VECTOR_DOT, 0, right(l), low | high);
        i->accumulator = old;
    } else {
        compute(i, KIND_VECTOR_DOT, left(h), right(l), low | high);
        i->accumulator = old;
    }
}

// Shifts that change the width: h is 0xee.. or 0xfe.., with bit 7; bit 6 of l is set.
static void widen_or_narrow(struct instruction *i, uint16_t h, uint16_t l) {
    if (!(h & 0x20)) {
        accumulate(i, KIND_VECTOR_NARROW, 0, right(l), destination(l));
    } else if ((l & 0xf0) == 0xc0) { // vshlc
        const uint64_t carry = REGISTER(field(l, 0, 4));
        accumulate(i, KIND_VECTOR_SIMPLE, 0, carry, destination(l) | carry);
    } else { // vshll, vmovl
        compute(i, KIND_VECTOR_SIMPLE, 0, right(l), destination(l));
    }
}

// Of vectors alone: h is 0xee.. or 0xfe.., without bit 7; bits 6 and 4 of l are clear.
static void of_vectors(struct instruction *i, uint16_t h, uint16_t l) {
    const bool is_odd = h & 1;
    const bool has_size = (h & 0x30) != 0x30;
    const uint64_t d = destination(l);
    compute(i, KIND_VECTOR_MULTIPLY, left(h), right(l), d);
    if (l & 0x100) {
        const bool selects = is_odd && !has_size && (l & 0x1001) == 1;
        const bool compares = is_odd && !selects && (h & 0x1000 || !has_size);
        i->kind = compares              ? KIND_VECTOR_COMPARE
                  : selects || has_size ? KIND_VECTOR_SIMPLE   // vpsel, vcadd
                  : l & 1               ? KIND_VECTOR_MULTIPLY // vqdmull
                                        : KIND_VECTOR_SHIFT;   // vadc, vsbc
        i->written = compares ? 0 : d;
    } else if (!is_odd) { // vcmul, vqdmladh
        i->kind = has_size ? KIND_VECTOR_MULTIPLY : KIND_VECTOR_FP_MULTIPLY;
        i->accumulator = has_size ? d : 0;
    } else if (!has_size && !(l & 1)) { // vmull of polynomials
        i->kind = KIND_VECTOR_SHIFT;
    } else if (!has_size) { // one vector, of another width
        const bool high = l & 0x80;
        const bool is_float = (h & 0x0e) == 0x0e;
        i->kind = is_float            ? high         ? KIND_VECTOR_FP_SIMPLE
                                        : h & 0x1000 ? KIND_VECTOR_CONVERT
                                                     : KIND_VECTOR_NARROW
                  : !(h & 2) == !high ? KIND_VECTOR_SIMPLE // vshll, vmaxa, vmina
                                      : KIND_VECTOR_NARROW;
        i->first = 0;
        // All but those that widen keep lanes or compare with them.
        const bool widens = is_float ? !high && h & 0x1000 : !(h & 2) && !high;
        i->accumulator = widens ? 0 : d;
    }
}

// vidup, vddup and those that wrap.
static void count_up(struct instruction *i, uint16_t h, uint16_t l) {
    const uint64_t start = REGISTER(field(h, 0, 4) & 14);
    compute(i, KIND_VECTOR_SIMPLE, 0, core(field(l, 0, 4) | 1), destination(l) | start);
    i->accumulator = start;
}

// Of vectors and a core register: h is 0xee.. or 0xfe.., without bit 7; bit 6 of l is set.
static void with_core(struct instruction *i, uint16_t h, uint16_t l) {
    const bool is_odd = h & 1;
    const bool has_size = (h & 0x30) != 0x30;
    const uint64_t d = destination(l);
    compute(i, KIND_VECTOR_SIMPLE, left(h), core(field(l, 0, 4)), d);
    if ((h & 0xffbf) == 0xfe31 && (l & 0x1fff) == 0x0f4d) { // vpst, vpnot
        compute(i, KIND_VECTOR_PREDICATE, 0, 0, 0);
    } else if (l & 0x100 && is_odd && (h & 0x1000 || !has_size)) {
        i->kind = KIND_VECTOR_COMPARE;
        i->written = 0;
    } else if (l & 0x100 && is_odd && l & 0x20) {
        count_up(i, h, l);
    } else if (l & 0x100) {
        i->kind = has_size || is_odd ? KIND_VECTOR_SIMPLE
                  : l & 0x20         ? KIND_VECTOR_MULTIPLY // vqdmull
                                     : KIND_VECTOR_FP_ADD_CORE;
    } else if (!is_odd || !(l & 0x20)) { // vmla, vfma and their like
        i->kind = has_size || !is_odd ? KIND_VECTOR_MULTIPLY : KIND_VECTOR_FP_FUSED;
        i->accumulator = d;
    } else if (has_size) {
        const bool is_vbrsr = (h & 0x1000) && (l & 0x1000);
        i->kind = is_vbrsr ? KIND_VECTOR_SIMPLE : KIND_VECTOR_MULTIPLY;
    } else if (!(l & 0x1000)) {
        i->kind = KIND_VECTOR_FP_MULTIPLY;
    } else { // shifts by a core register
        i->kind = (h & 2) || (l & 0x80) ? KIND_VECTOR_SHIFT : KIND_VECTOR_SIMPLE;
        i->first = 0;
        i->accumulator = d;
    }
}

void decode_loop(struct instruction *i, uint16_t h, uint16_t l) {
    const uint32_t offset = field(l, 1, 10) << 2 | field(l, 11, 1) << 1;
    const bool is_end = (h & 0xffcf) == 0xf00f;
    const uint64_t n = is_end ? 0 : REGISTER(field(h, 0, 4));
    if ((h & 0xff80) != 0xf000) {
        return;
    }
    if (l == 0xe801) { // vctp
        compute(i, KIND_VECTOR_PREDICATE, n, 0, 0);
    } else if (l == 0xe001) { // dls, dlstp, lctp
        compute(i, KIND_LOOP_START, n, 0, is_end ? 0 : REGISTER(14));
    } else if ((l & 0xf001) == 0xc001 && is_end) { // le, letp
        const uint64_t count = h & 0x20 ? 0 : REGISTER(14);
        compute(i, KIND_LOOP_END, count, 0, count);
        i->flow = FLOW_LOOP;
        i->target = i->address + 4 - offset;
    } else if ((l & 0xf001) == 0xc001) { // wls, wlstp
        compute(i, KIND_LOOP_START, n, 0, REGISTER(14));
        i->flow = FLOW_CONDITIONAL;
        i->target = i->address + 4 + offset;
    }
}

bool decode_select_or_shift(struct instruction *i, uint16_t h, uint16_t l) {
    const uint64_t n = REGISTER(field(h, 0, 4));
    const bool by_register = (l & 0x10f) == 0x10d;
    if ((h & 0xfff0) != 0xea50) {
        return false;
    }
    if (by_register || ((l & 0x810f) == 0x10f && field(h, 0, 4) != 15)) {
        const bool is_long = field(l, 8, 4) != 15;
        const uint64_t both = REGISTER(field(h, 0, 4) & 14) | REGISTER(field(l, 8, 4));
        accumulate(i, KIND_LONG_SHIFT, 0, by_register ? REGISTER(field(l, 12, 4)) : 0,
                   is_long ? both : n);
        return true;
    }
    if (l & 0x8000) { // csel, csinc, csinv, csneg
        compute(i, KIND_CONDITIONAL_SELECT, (n & ~REGISTER_PC) | REGISTER(REGISTER_FLAGS),
                core(field(l, 0, 4)), REGISTER(field(l, 8, 4)));
        return true;
    }
    return false;
}

void decode_vector(struct instruction *i, uint16_t h, uint16_t l) {
    const bool is_rest = (l & 0x0e00) == 0x0e00;
    if ((h & 0xef00) == 0xef00) {
        if (!(h & 0x80)) {
            two_vectors(i, h, l);
        } else if (l & 0x10) {
            with_constant(i, h, l);
        } else if ((h & 0x1030) == 0x1030) {
            one_vector(i, h, l);
        }
    } else if ((h & 0xfe00) == 0xfc00 && (l & 0x0f50) == 0x0840) { // vcmla, vcadd
        compute(i, h & 0x20 ? KIND_VECTOR_FP_FUSED : KIND_VECTOR_FP_ADD, left(h), right(l),
                destination(l));
        i->accumulator = h & 0x20 ? i->written : 0;
    } else if (is_rest && (h & 0xee00) == 0xec00) {
        load_store(i, h, l);
    } else if (is_rest && (h & 0xef00) == 0xee00 && !(l & 0x10)) {
        if (h & 0x80) {
            if (l & 0x40) {
                widen_or_narrow(i, h, l);
            } else {
                to_core(i, h, l);
            }
        } else if (l & 0x40) {
            with_core(i, h, l);
        } else {
            of_vectors(i, h, l);
        }
    }
}
