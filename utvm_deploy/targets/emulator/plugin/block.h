// Blocks of code as QEMU translates them: their instructions, and what they cost.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_BLOCK_H
#define UTVM_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "decode.h"
#include "pipeline.h"

// Costs remembered for each block, by the state in which it was entered.
#define MEMO_BITS 4
#define MEMO_COUNT (1 << MEMO_BITS)

// The states of both pipelines (plain, pessimistic), as numbers: see states.h.
typedef uint32_t state_key;

struct memo {
    state_key key; // plus 1, so that 0 means empty
    state_key next;
    uint32_t core;
    uint32_t pessimistic : 31;
    uint32_t flags_late : 1;
    uint64_t count;  // executions at this cost
    uint16_t *issue; // the cycle of the block in which each instruction issues; may be NULL
    struct block *block;
    // The block that followed last, if that is sure to cost nothing by itself but what `turn` says,
    // and what it cost: the shortest way through the model.
    struct block *follower;
    struct memo *follower_memo;
    uint32_t turn;
};

// What the callbacks of one instruction's memory accesses need to know.
struct access {
    uint32_t unaligned_mask;
    uint16_t index; // of the instruction in its block
    uint8_t bytes;
    bool is_store;
    bool is_partial;             // a store that is not one whole word
    bool pairs_with_load_before; // issued together, their banks not known beforehand
};

// What the predictor knows of one branch. A branch has as many blocks as there are ways to come to
// it (QEMU begins one at every target and at every page), and they share this.
struct branch {
    uint32_t address;
    uint16_t halfwords[2];
    uint8_t taken;        // two-bit counter, if it is conditional
    uint32_t last_target; // if it is indirect
    struct block *blocks;
    struct branch *next_in_bucket;
};

struct block {
    uint32_t address;
    uint32_t end; // address of what follows
    uint32_t target;
    uint8_t flow;
    uint16_t count;
    uint32_t first_line; // of the instruction cache
    uint32_t line_count; // 0: not fetched through it
    uint64_t extra_core; // cycles spent here beyond those of `memo`
    uint64_t extra_executions;
    struct memo memo[MEMO_COUNT];
    struct instruction *instructions;
    struct access *accesses;
    uint16_t *halfwords;   // the code, two for each instruction
    struct branch *branch; // at the end
    struct block *next_at_branch;
    struct block *next_in_bucket;
};

#define BRANCH_BUCKETS 4096

// All blocks ever seen. Code loaded over other code is a block of its own.
struct block_table {
    const struct decoder *decoder;
    struct block **buckets;
    uint32_t bucket_count;
    uint32_t count;
    struct branch *branches[BRANCH_BUCKETS];
};

// Finds or makes the block with this code; NULL if memory runs out. `halfwords` holds two for each
// instruction, the second 0 where there is none.
struct block *block_find(struct block_table *table, uint32_t address, const uint16_t *halfwords,
                         unsigned count);

// How often it was executed, and the cycles of the core spent there.
uint64_t block_executions(const struct block *block);
uint64_t block_core_cycles(const struct block *block);

// Empties a place for costs; what was counted there is kept by the block.
void block_retire(struct memo *memo);

// Makes the branch be looked at anew when it is met next.
void branch_forget_followers(struct branch *branch);

// Makes every branch one that was never seen.
void blocks_forget_branches(struct block_table *table);

// Forgets every block's remembered costs.
void block_forget_costs(struct block_table *table);

#endif
