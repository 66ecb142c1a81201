// The whole model: pipelines, predictor, caches, store buffer, and what they have counted.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_MODEL_H
#define UTVM_MODEL_H

#include "block.h"
#include "cache.h"
#include "states.h"
#include "timing.h"

#define RANGES_MAX 8
#define STORE_BUFFER_MAX 16

enum memory_kind { MEMORY_FLASH, MEMORY_RAM, MEMORY_KINDS };

// Cached memory; what lies in no range is reached in one cycle (TCM) or is none of our business.
struct range {
    uint32_t address;
    uint32_t size;
    uint32_t kind;
};

struct parameters {
    const struct timing *timing;
    struct range ranges[RANGES_MAX];
    uint32_t range_count;
    struct range free; // the range tried first, because hot: uncached memory (TCM)
    uint32_t miss_cycles[MEMORY_KINDS];
    uint32_t fetch_miss_cycles[MEMORY_KINDS];
};

// Linefills go over one bus, one after the other. A load that misses waits for its own; a store
// that misses leaves it to the store buffer, which holds it, and the stores to the same line that
// follow, until the line is there.
struct linefills {
    uint64_t bus_free;   // when the last of them ends
    uint32_t store_line; // the line that a store waits for, while it is on its way
    uint32_t held;       // how many stores the buffer holds for it
};

// Stores that are not whole words, for the rich figure.
struct store_buffer {
    uint64_t done[STORE_BUFFER_MAX]; // when each entry is written
    uint32_t count;
    uint64_t bank_free[2];
};

struct model {
    struct parameters parameters;
    // What the callbacks touch most.
    struct memo *last; // of the block that executes
    uint64_t core;
    uint64_t pessimistic;
    uint64_t misses[MEMORY_KINDS]; // of loads
    uint64_t store_misses;
    uint64_t linefill_waits; // cycles that the core waited for linefills of others
    uint64_t fetch_misses[MEMORY_KINDS];
    uint64_t mispredictions;
    uint64_t bank_conflicts;
    uint64_t unaligned;
    uint64_t store_stalls; // cycles
    uint64_t unaligned_cycles;
    uint32_t paired_address; // of the last load that may share its cycle with the next
    struct cache data;
    struct cache code;
    struct linefills linefills;
    struct store_buffer stores;
    struct block_table blocks;
    struct state_table states;
    // Instructions of blocks that an exception cut short: by kind, to be taken off.
    uint64_t not_executed[TIMING_KINDS];
};

// Sets up everything but the parameters, caches and their sizes, which must be there.
bool model_start(struct model *model);

// A block begins to execute, whole; what ran before it is known.
void model_enter(struct model *model, struct block *block);

// One memory access of the block that executes.
void model_access(struct model *model, const struct access *access, uint32_t address);

// One memory access of the block that executes, on a core that loses cycles in any figure if it
// takes two words of memory.
void model_split(struct model *model, const struct access *access, uint32_t address);

// What follows finds an empty pipeline and store buffer, cold caches and branches never seen. The
// block that executes must end here: an ISB follows.
void model_forget(struct model *model);

// Tells a new block how it is fetched.
void model_place(const struct model *model, struct block *block);

uint64_t model_memory_cycles(const struct model *model); // all that data cache misses cost
uint64_t model_rich_cycles(const struct model *model);   // beyond those

#endif
