// 32-bit loads and stores, exclusives and table branches (DDI 0403, A5.3.5 to A5.3.10).
//
// SPDX-License-Identifier: Apache-2.0

#include "thumb.h"
#include "timing_table.h"

static void move_data(struct instruction *i, bool load, unsigned kind, uint64_t data) {
    i->kind = (uint8_t)kind;
    i->is_store = !load;
    if (load) {
        i->written = data;
        note_pc_write(i);
    } else {
        i->stored = data;
    }
}

static void address_by_offset(struct instruction *i, unsigned n, bool adds, bool first,
                              bool writes_back, unsigned offset) {
    i->base = REGISTER(n);
    // Post-indexed: the address is the base as it was.
    i->base_register = (uint8_t)n;
    i->offset = !first ? 0 : adds ? (int32_t)offset : -(int32_t)offset;
    i->written_back = writes_back ? REGISTER(n) : 0;
}

static void multiple(struct instruction *i, uint16_t h, uint16_t l) {
    const unsigned n = field(h, 0, 4);
    const bool load = h & 0x10;
    const unsigned mode = field(h, 7, 2);
    if (mode != 1 && mode != 2) {
        return;
    }
    i->registers = (uint8_t)__builtin_popcount(l);
    i->access_bytes = 4;
    i->base = REGISTER(n);
    i->written_back = h & 0x20 ? REGISTER(n) : 0;
    move_data(i, load, load ? KIND_LOAD_MULTIPLE : KIND_STORE_MULTIPLE, l);
}

static void two(struct instruction *i, uint16_t h, uint16_t l) {
    const bool load = h & 0x10;
    i->registers = 2;
    i->access_bytes = 4;
    move_data(i, load, load ? KIND_LOAD_DOUBLE : KIND_STORE_DOUBLE,
              REGISTER(field(l, 12, 4)) | REGISTER(field(l, 8, 4)));
    address_by_offset(i, field(h, 0, 4), h & 0x80, h & 0x100, h & 0x20, field(l, 0, 8) * 4);
}

static void exclusive_or_table(struct instruction *i, uint16_t h, uint16_t l) {
    const bool load = h & 0x10;
    const unsigned t = field(l, 12, 4);
    const unsigned op = field(l, 4, 4);
    i->base = REGISTER(field(h, 0, 4));
    if (!(h & 0x80)) { // ldrex, strex with an offset
        i->access_bytes = 4;
        move_data(i, load, KIND_EXCLUSIVE, REGISTER(t));
        i->written |= load ? 0 : REGISTER(field(l, 8, 4));
    } else if (load && op < 2) {
        i->kind = KIND_TABLE_BRANCH;
        i->flow = FLOW_INDIRECT;
        i->access_bytes = (uint8_t)(1u << op);
        i->base |= REGISTER(field(l, 0, 4));
    } else if (op == 4 || op == 5) { // byte, halfword
        i->access_bytes = (uint8_t)(op == 4 ? 1 : 2);
        move_data(i, load, KIND_EXCLUSIVE, REGISTER(t));
        i->written |= load ? 0 : REGISTER(field(l, 0, 4));
    }
}

static void single(struct instruction *i, uint16_t h, uint16_t l) {
    const unsigned n = field(h, 0, 4);
    const unsigned t = field(l, 12, 4);
    const unsigned size = field(h, 5, 2);
    const bool load = h & 0x10;
    const bool is_signed = h & 0x100;
    const bool far_offset = h & 0x80; // 12 bits
    if (size == 3 || (is_signed && (!load || size == 2)) || (n == 15 && !load)) {
        return;
    }
    if (n == 15) {
        address_by_offset(i, n, far_offset, true, false, field(l, 0, 12));
    } else if (far_offset) {
        address_by_offset(i, n, true, true, false, field(l, 0, 12));
    } else if (l & 0x800) {
        const bool first = l & 0x400;
        address_by_offset(i, n, l & 0x200, first, l & 0x100, field(l, 0, 8));
    } else if (field(l, 6, 5) == 0) {
        i->base = REGISTER(n) | REGISTER(field(l, 0, 4));
    } else {
        return;
    }
    if (load && t == 15 && size < 2) {
        i->kind = KIND_PRELOAD; // pld, pli
        return;
    }
    i->access_bytes = (uint8_t)(1u << size);
    move_data(i, load,
              load        ? size == 2 ? KIND_LOAD_WORD : KIND_LOAD_PART
              : size == 2 ? KIND_STORE_WORD
                          : KIND_STORE_PART,
              REGISTER(t));
}

void decode_32_memory(struct instruction *i, uint16_t h, uint16_t l) {
    if (h & 0x1000) {
        single(i, h, l);
    } else if (!(h & 0x40)) {
        multiple(i, h, l);
    } else if (h & 0x120) {
        two(i, h, l);
    } else {
        exclusive_or_table(i, h, l);
    }
}
