// The form of the generated timing tables (see cores/timing.py for what the numbers mean).
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_TIMING_H
#define UTVM_TIMING_H

#include <stdint.h>

#define TIMING_KINDS 64
#define TIMING_RESULTS 16
#define TIMING_NEEDS 10

enum { EARLY_NEVER, EARLY_OLDER, EARLY_EITHER };

struct timing_row {
    uint8_t cycles;
    uint8_t registers_per_cycle;
    uint8_t pipelined_cycles;
    uint8_t early;
    uint8_t is_alone;
    uint8_t result;
    uint8_t first;
    uint8_t second;
    uint8_t accumulator;
    uint8_t stored;
    uint64_t pipelined_after; // set of kinds
};

struct timing {
    const char *core;
    unsigned width;
    unsigned mispredict_cycles;
    unsigned mispredict_early_cycles;
    unsigned flags_early_cycles;
    unsigned predicts_branches;
    unsigned taken_branch_cycles;
    unsigned load_banks;
    unsigned unaligned_load_cycles;
    unsigned store_buffer_entries;
    unsigned partial_store_cycles;
    struct timing_row rows[TIMING_KINDS];
    uint8_t latency[TIMING_RESULTS][TIMING_NEEDS];
    uint64_t pairs[TIMING_KINDS]; // older kind -> set of younger kinds
    uint64_t pairs_pessimistic[TIMING_KINDS];
};

#endif
