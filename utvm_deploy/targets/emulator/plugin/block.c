// The table of blocks: a hash table by address and bytes.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "timing_table.h"

#define FIRST_BUCKETS 4096

static uint32_t hash(uint32_t address, const uint16_t *halfwords, unsigned count) {
    uint32_t h = 2166136261u ^ address; // FNV-1a
    for (unsigned n = 0; n < 2 * count; ++n) {
        h = (h ^ halfwords[n]) * 16777619u;
    }
    return h;
}

static bool grow(struct block_table *table) {
    const uint32_t wanted = table->bucket_count ? 2 * table->bucket_count : FIRST_BUCKETS;
    struct block **buckets = calloc(wanted, sizeof *buckets);
    if (!buckets) {
        return false;
    }
    for (uint32_t n = 0; n < table->bucket_count; ++n) {
        for (struct block *b = table->buckets[n], *next; b; b = next) {
            next = b->next_in_bucket;
            struct block **bucket =
                &buckets[hash(b->address, b->halfwords, b->count) & (wanted - 1)];
            b->next_in_bucket = *bucket;
            *bucket = b;
        }
    }
    free(table->buckets);
    table->buckets = buckets;
    table->bucket_count = wanted;
    return true;
}

static bool is_partial(const struct instruction *i) {
    return i->is_store && i->access_bytes < 4;
}

static void describe(struct block *b, const struct decoder *decoder) {
    struct it_state it = {0};
    uint32_t address = b->address;
    for (unsigned n = 0; n < b->count; ++n) {
        const uint16_t *code = &b->halfwords[2 * n];
        struct instruction *i = &b->instructions[n];
        *i = decoder->decode(address, code[0], code[1], &it);
        address += i->size;
        b->accesses[n] = (struct access){
            // A load of several words takes them one by one.
            .unaligned_mask = i->access_bytes == 8 ? 3u
                              : i->access_bytes    ? i->access_bytes - 1u
                                                   : 0,
            .index = (uint16_t)n,
            .bytes = i->access_bytes,
            .is_store = i->is_store,
            .is_partial = is_partial(i),
        };
    }
    const struct instruction *last = &b->instructions[b->count - 1];
    b->end = address;
    b->flow = last->flow;
    b->target = last->target;
}

static void forget_branch(struct branch *branch) {
    // Backward branches are loops: expected to be taken until they are seen not to.
    branch->taken = branch->blocks->target < branch->blocks->end ? 2 : 1;
    branch->last_target = 0;
    branch_forget_followers(branch);
}

// Gives the block what is known of the branch at its end; false if memory runs out.
static bool find_branch(struct block_table *table, struct block *b) {
    const uint16_t *code = &b->halfwords[2 * (b->count - 1)];
    const uint32_t address = b->end - b->instructions[b->count - 1].size;
    struct branch **bucket = &table->branches[hash(address, code, 1) & (BRANCH_BUCKETS - 1)];
    struct branch *branch = *bucket;
    while (branch && (branch->address != address ||
                      memcmp(branch->halfwords, code, sizeof branch->halfwords) != 0)) {
        branch = branch->next_in_bucket;
    }
    const bool is_new = !branch;
    if (is_new) {
        branch = calloc(1, sizeof *branch);
        if (!branch) {
            return false;
        }
        branch->address = address;
        memcpy(branch->halfwords, code, sizeof branch->halfwords);
        branch->next_in_bucket = *bucket;
        *bucket = branch;
    }
    b->branch = branch;
    b->next_at_branch = branch->blocks;
    branch->blocks = b;
    if (is_new) {
        forget_branch(branch);
    }
    return true;
}

static void discard(struct block *b) {
    free(b->instructions);
    free(b->accesses);
    free(b->halfwords);
    free(b);
}

static struct block *make(struct block_table *table, uint32_t address, const uint16_t *halfwords,
                          unsigned count) {
    struct block *b = calloc(1, sizeof *b);
    if (!b) {
        return NULL;
    }
    b->address = address;
    b->count = (uint16_t)count;
    b->instructions = calloc(count, sizeof *b->instructions);
    b->accesses = calloc(count, sizeof *b->accesses);
    b->halfwords = malloc(2 * count * sizeof *b->halfwords);
    if (!b->instructions || !b->accesses || !b->halfwords) {
        discard(b);
        return NULL;
    }
    memcpy(b->halfwords, halfwords, 2 * count * sizeof *halfwords);
    describe(b, table->decoder);
    for (unsigned n = 0; n < MEMO_COUNT; ++n) {
        b->memo[n].block = b;
    }
    if (!find_branch(table, b)) {
        discard(b);
        return NULL;
    }
    return b;
}

struct block *block_find(struct block_table *table, uint32_t address, const uint16_t *halfwords,
                         unsigned count) {
    if (table->count >= table->bucket_count && !grow(table)) {
        return NULL;
    }
    struct block **bucket =
        &table->buckets[hash(address, halfwords, count) & (table->bucket_count - 1)];
    for (struct block *b = *bucket; b; b = b->next_in_bucket) {
        if (b->address == address && b->count == count &&
            !memcmp(b->halfwords, halfwords, 2 * count * sizeof *halfwords)) {
            return b;
        }
    }
    struct block *b = make(table, address, halfwords, count);
    if (b) {
        b->next_in_bucket = *bucket;
        *bucket = b;
        ++table->count;
    }
    return b;
}

uint64_t block_executions(const struct block *block) {
    uint64_t total = block->extra_executions;
    for (unsigned n = 0; n < MEMO_COUNT; ++n) {
        total += block->memo[n].count;
    }
    return total;
}

uint64_t block_core_cycles(const struct block *block) {
    uint64_t total = block->extra_core;
    for (unsigned n = 0; n < MEMO_COUNT; ++n) {
        total += block->memo[n].count * block->memo[n].core;
    }
    return total;
}

void block_retire(struct memo *memo) {
    memo->block->extra_executions += memo->count;
    memo->block->extra_core += memo->count * memo->core;
    *memo = (struct memo){.block = memo->block, .issue = memo->issue};
}

void branch_forget_followers(struct branch *branch) {
    for (struct block *b = branch->blocks; b; b = b->next_at_branch) {
        for (unsigned n = 0; n < MEMO_COUNT; ++n) {
            b->memo[n].follower = NULL;
        }
    }
}

void blocks_forget_branches(struct block_table *table) {
    for (uint32_t n = 0; n < BRANCH_BUCKETS; ++n) {
        for (struct branch *branch = table->branches[n]; branch; branch = branch->next_in_bucket) {
            forget_branch(branch);
        }
    }
}

void block_forget_costs(struct block_table *table) {
    for (uint32_t n = 0; n < table->bucket_count; ++n) {
        for (struct block *b = table->buckets[n]; b; b = b->next_in_bucket) {
            for (unsigned k = 0; k < MEMO_COUNT; ++k) {
                block_retire(&b->memo[k]);
            }
        }
    }
}
