// Floating point: FPv4-SP and FPv5 (DDI 0403, A6).
//
// SPDX-License-Identifier: Apache-2.0

#include "thumb.h"
#include "timing_table.h"

#define FP_FLAGS REGISTER(REGISTER_FP_FLAGS)

// The register named by four bits and a fifth; a double is two singles.
static uint64_t fp_register(unsigned four, unsigned one, bool is_double) {
    if (is_double) {
        return (uint64_t)3 << (REGISTER_S0 + 2 * (four & 15));
    }
    return REGISTER(REGISTER_S0 + (four << 1 | one));
}

static uint64_t destination(uint16_t h, uint16_t l, bool is_double) {
    return fp_register(field(l, 12, 4), field(h, 6, 1), is_double);
}

static uint64_t left(uint16_t h, uint16_t l, bool is_double) {
    return fp_register(field(h, 0, 4), field(l, 7, 1), is_double);
}

static uint64_t right(uint16_t l, bool is_double) {
    return fp_register(field(l, 0, 4), field(l, 5, 1), is_double);
}

static void compute(struct instruction *i, unsigned kind, uint64_t first, uint64_t second,
                    uint64_t written) {
    i->kind = (uint8_t)kind;
    i->first = first;
    i->second = second;
    i->written = written;
}

static void pair(struct instruction *i, uint16_t h, uint16_t l) {
    const bool is_double = l & 0x100;
    const unsigned m = field(l, 0, 4) << 1 | field(l, 5, 1);
    const uint64_t core = REGISTER(field(l, 12, 4)) | REGISTER(field(h, 0, 4));
    const uint64_t fp =
        is_double ? right(l, true) : (uint64_t)3 << (REGISTER_S0 + (m < 31 ? m : 30));
    i->kind = KIND_FP_PAIR;
    i->first = h & 0x10 ? fp : core;
    i->written = h & 0x10 ? core : fp;
}

static void load_store(struct instruction *i, uint16_t h, uint16_t l) {
    const bool is_double = l & 0x100;
    const bool load = h & 0x10;
    const unsigned n = field(h, 0, 4);
    const unsigned words = field(l, 0, 8);
    uint64_t data = destination(h, l, is_double);
    i->base = REGISTER(n);
    i->access_bytes = is_double ? 8 : 4;
    if ((h & 0x120) == 0x100) {
        i->base_register = (uint8_t)n;
        i->offset = (h & 0x80 ? 4 : -4) * (int32_t)words;
        i->kind = load        ? is_double ? KIND_FP_LOAD_DOUBLE : KIND_FP_LOAD
                  : is_double ? KIND_FP_STORE_DOUBLE
                              : KIND_FP_STORE;
        i->registers = 1;
    } else {
        const unsigned first = (unsigned)__builtin_ctzll(data);
        data = 0;
        for (unsigned r = first; r < first + words && r < REGISTER_FP_FLAGS; ++r) {
            data |= REGISTER(r);
        }
        i->kind = load ? KIND_FP_LOAD_MULTIPLE : KIND_FP_STORE_MULTIPLE;
        i->registers = (uint8_t)words;
        i->written_back = h & 0x20 ? REGISTER(n) : 0;
    }
    i->is_store = !load;
    if (load) {
        i->written = data;
    } else {
        i->stored = data;
    }
}

// Everything with one source: DDI 0403, table A6-3.
static void other(struct instruction *i, uint16_t h, uint16_t l, bool is_double) {
    const uint64_t d = destination(h, l, is_double);
    const uint64_t m = right(l, is_double);
    const bool high = l & 0x80;
    const unsigned add = is_double ? KIND_FP64_ADD : KIND_FP_ADD;
    if (!(l & 0x40)) {
        compute(i, KIND_FP_CONSTANT, 0, 0, d);
        return;
    }
    switch (field(h, 0, 4)) {
    case 0: // vmov, vabs
        compute(i, KIND_FP_MOVE, 0, m, d);
        break;
    case 1: // vneg, vsqrt
        compute(i, !high ? KIND_FP_MOVE : is_double ? KIND_FP64_DIVIDE : KIND_FP_ROOT, 0, m, d);
        break;
    case 2: // half precision: vcvtb, vcvtt
    case 3:
        compute(i, add, 0, m, d);
        break;
    case 4: // vcmp
        compute(i, add, d, m, FP_FLAGS);
        break;
    case 5: // vcmp with zero
        compute(i, add, d, 0, FP_FLAGS);
        break;
    case 6: // vrint
        compute(i, add, 0, m, d);
        break;
    case 7: // vrintx, or between the precisions
        compute(i, add, 0, m, high ? destination(h, l, !is_double) : d);
        break;
    case 8: // from an integer, which always lies in a single
        compute(i, add, 0, right(l, false), d);
        break;
    case 12: // to an integer
    case 13:
        compute(i, add, 0, m, destination(h, l, false));
        break;
    case 10: // fixed point, in place
    case 11:
    case 14:
    case 15:
        compute(i, add, 0, d, d);
        break;
    default:
        break;
    }
}

static void arithmetic(struct instruction *i, uint16_t h, uint16_t l) {
    const bool is_double = l & 0x100;
    const uint64_t d = destination(h, l, is_double);
    const uint64_t n = left(h, l, is_double);
    const uint64_t m = right(l, is_double);
    switch (field(h, 4, 4) & 11) {
    case 0: // vmla, vmls, vnmla, vnmls
    case 1:
        compute(i, is_double ? KIND_FP64_FUSED : KIND_FP_CHAINED, n, m, d);
        i->accumulator = d;
        break;
    case 2:
        compute(i, is_double ? KIND_FP64_MULTIPLY : KIND_FP_MULTIPLY, n, m, d);
        break;
    case 3:
        compute(i, is_double ? KIND_FP64_ADD : KIND_FP_ADD, n, m, d);
        break;
    case 8:
        compute(i, is_double ? KIND_FP64_DIVIDE : KIND_FP_DIVIDE, n, m, d);
        break;
    case 9: // vfnma, vfnms, vfma, vfms
    case 10:
        compute(i, is_double ? KIND_FP64_FUSED : KIND_FP_FUSED, n, m, d);
        i->accumulator = d;
        break;
    case 11:
        other(i, h, l, is_double);
        break;
    default:
        break;
    }
}

// One register between the files, and the status register.
static void transfer(struct instruction *i, uint16_t h, uint16_t l) {
    const unsigned op = field(h, 5, 3);
    const bool to_core = h & 0x10;
    const bool is_double = l & 0x100;
    const unsigned t = field(l, 12, 4);
    // vmrs apsr_nzcv writes the flags, which r15 stands for.
    const uint64_t core = t == 15 ? REGISTER(REGISTER_FLAGS) : REGISTER(t);
    if (is_double && (op > 1 || l & 0x60)) { // vdup, and lanes of one or two bytes
        const unsigned d = field(h, 0, 4) | field(l, 7, 1) << 4;
        const bool fills = !to_core && op & 4;
        const unsigned start = fills ? 2 * d : 2 * d + (op & 1);
        const uint64_t fp = (uint64_t)(fills ? 15 : 1) << (REGISTER_S0 + (start < 32 ? start : 0));
        compute(i,
                to_core ? KIND_VECTOR_TO_CORE
                : fills ? KIND_VECTOR_SIMPLE
                        : KIND_VECTOR_FROM_CORE,
                to_core ? fp : 0, to_core ? 0 : core, to_core ? core : fp);
        i->accumulator = to_core || fills ? 0 : fp;
    } else if (!is_double && op == 7) {
        i->kind = KIND_FP_STATUS;
        i->first = to_core ? FP_FLAGS : core;
        i->written = to_core ? core : FP_FLAGS;
    } else if (!is_double ? op == 0 : op < 2) {
        // A half of a double: op tells which.
        const uint64_t fp =
            is_double ? REGISTER(REGISTER_S0 + 2 * field(h, 0, 4) + op) : left(h, l, false);
        i->kind = to_core ? KIND_FP_TO_CORE : KIND_FP_FROM_CORE;
        i->first = to_core ? fp : core;
        i->written = to_core ? core : fp;
    }
}

// FPv5: vsel, vmaxnm, vminnm, vrint and vcvt with a rounding mode.
static void fpv5(struct instruction *i, uint16_t h, uint16_t l) {
    const bool is_double = l & 0x100;
    const unsigned kind = is_double ? KIND_FP64_ADD : KIND_FP_ADD;
    const unsigned op = field(h, 4, 4) & 11;
    if (!(h & 0x80)) {
        compute(i, kind, left(h, l, is_double) | REGISTER(REGISTER_FLAGS), right(l, is_double),
                destination(h, l, is_double));
    } else if (op == 8) {
        compute(i, kind, left(h, l, is_double), right(l, is_double), destination(h, l, is_double));
    } else if (op == 11) {
        const bool to_integer = h & 4;
        compute(i, kind, 0, right(l, is_double), destination(h, l, is_double && !to_integer));
    }
}

void decode_fp(struct instruction *i, uint16_t h, uint16_t l) {
    if ((h & 0xffe0) == 0xec40) {
        pair(i, h, l);
    } else if ((h & 0xfe00) == 0xec00) {
        load_store(i, h, l);
    } else if ((h & 0xff00) == 0xfe00 && !(l & 0x10)) {
        fpv5(i, h, l);
    } else if ((h & 0xff00) == 0xee00) {
        if (l & 0x10) {
            transfer(i, h, l);
        } else {
            arithmetic(i, h, l);
        }
    }
}
