// The form of the generated timing tables; targets/contract/timing.py says what the numbers mean.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_TIMING_H
#define UTVM_TIMING_H

#include <stdint.h>

#define TIMING_KINDS 96
#define TIMING_RESULTS 24
#define TIMING_NEEDS 16
#define TIMING_PIPES 4

enum { EARLY_NEVER, EARLY_OLDER, EARLY_EITHER };

// A set of kinds: 1 for each that is in it.
typedef uint8_t kind_set[TIMING_KINDS];

struct timing_row {
    uint8_t cycles;
    uint8_t registers_per_cycle;
    uint8_t pipelined_cycles;
    uint8_t early;
    uint8_t is_alone;
    uint8_t uses_shifter;
    uint8_t result;
    uint8_t first;
    uint8_t second;
    uint8_t accumulator;
    uint8_t stored;
    uint8_t pipes; // a bit for each that it can take; it holds one
    uint8_t busy_cycles;
    kind_set pipelined_after;
};

struct timing {
    const char *core;
    unsigned width;
    unsigned mispredict_cycles;
    unsigned mispredict_early_cycles;
    unsigned flags_early_cycles;
    unsigned predicts_branches;
    unsigned taken_branch_cycles;
    unsigned jump_cycles;
    unsigned straddling_target_cycles;
    unsigned split_access_cycles;
    unsigned load_banks;
    unsigned unaligned_load_cycles;
    unsigned store_buffer_entries;
    unsigned partial_store_cycles;
    unsigned narrow_pairs;
    unsigned results_in_order;
    struct timing_row rows[TIMING_KINDS];
    uint8_t latency[TIMING_RESULTS][TIMING_NEEDS];
    kind_set pairs[TIMING_KINDS]; // older kind -> younger kinds
    kind_set pairs_pessimistic[TIMING_KINDS];
};

#endif
