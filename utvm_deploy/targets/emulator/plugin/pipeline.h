// The in-order pipeline: what a run of instructions costs, given what came before.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_PIPELINE_H
#define UTVM_PIPELINE_H

#include "instruction.h"
#include "timing.h"

// What of the past matters: results still on their way, and an issue slot still open. Times count
// back from the next cycle in which a pair can issue.
struct pipeline_state {
    uint8_t result[REGISTER_COUNT]; // enum result; 0: ready for everybody
    uint8_t age[REGISTER_COUNT];
    uint8_t open_kind; // older instruction of the last pair plus 1; 0: its place is taken
    uint8_t open_base; // of that instruction, if it is a load: base register and bank
    uint8_t open_bank;
    uint8_t flags_age; // cycles since flags were set, saturating
    uint8_t last_kind;
    bool open_joins;            // of that instruction
    uint8_t busy[TIMING_PIPES]; // cycles until each pipe takes another instruction
    uint8_t results_left;       // cycles until the latest result is written
};

enum stall {
    STALL_NONE,
    STALL_PAIRED,  // issued together with the one before
    STALL_OPERAND, // waited for a result
    STALL_BANK,    // a load of the same bank kept it from pairing
    STALL_UNIT,    // the kinds do not pair
    STALL_BUSY,    // the one before takes its cycles alone, or its pipe
};

// What happened to one instruction; for reports.
struct issue {
    uint32_t cycle; // from the start of the run
    uint8_t stall;
    bool is_younger;
    bool pairs_loads; // both of the pair are loads, their banks unknown
};

struct pipeline_run {
    uint32_t cycles;
    bool flags_late; // the last instruction branches on flags set just before it
};

// Runs `count` instructions; `state` is what came before and becomes what comes after. `pairs` is
// one of the two tables in `timing`. `issues` may be null.
struct pipeline_run pipeline_run(const struct timing *timing, const kind_set *pairs,
                                 struct pipeline_state *state, const struct instruction *i,
                                 unsigned count, struct issue *issues);

#endif
