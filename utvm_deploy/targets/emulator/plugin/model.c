// Executing a block: its cost from memory, the branch before it, its instruction fetch.
//
// SPDX-License-Identifier: Apache-2.0

#include <stddef.h>
#include <stdlib.h>

#include "model.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

bool model_start(struct model *model) {
    model->linefills.store_line = CACHE_NO_LINE;
    return states_start(&model->states);
}

uint64_t model_memory_cycles(const struct model *model) {
    const struct parameters *p = &model->parameters;
    return model->misses[MEMORY_FLASH] * p->miss_cycles[MEMORY_FLASH] +
           model->misses[MEMORY_RAM] * p->miss_cycles[MEMORY_RAM] + model->linefill_waits;
}

uint64_t model_rich_cycles(const struct model *model) {
    const struct parameters *p = &model->parameters;
    return model->fetch_misses[MEMORY_FLASH] * p->fetch_miss_cycles[MEMORY_FLASH] +
           model->fetch_misses[MEMORY_RAM] * p->fetch_miss_cycles[MEMORY_RAM] +
           model->bank_conflicts + model->unaligned_cycles + model->store_stalls;
}

// When each instruction issues if the block is entered as it was now. Without memory for that, all
// count as issued at the block's beginning.
static void keep_issues(struct memo *memo, const struct issue *issues, unsigned count) {
    if (!memo->issue) {
        memo->issue = malloc(count * sizeof *memo->issue);
    }
    for (unsigned n = 0; memo->issue && n < count; ++n) {
        memo->issue[n] = (uint16_t)(issues[n].cycle < UINT16_MAX ? issues[n].cycle : UINT16_MAX);
    }
}

// Both pipelines run the block; what they say is kept for the next time.
static void simulate(struct model *model, struct block *block, struct memo *memo, state_key key) {
    const struct timing *timing = model->parameters.timing;
    struct issue issues[block->count];
    struct pipeline_state plain = model->states.states[key & 0xffff];
    struct pipeline_state pessimistic = model->states.states[key >> 16];
    const struct pipeline_run run =
        pipeline_run(timing, timing->pairs, &plain, block->instructions, block->count, issues);
    const struct pipeline_run worse = pipeline_run(timing, timing->pairs_pessimistic, &pessimistic,
                                                   block->instructions, block->count, NULL);
    uint32_t number = states_number(&model->states, &plain);
    uint32_t number_worse = states_number(&model->states, &pessimistic);
    if (number == STATE_FULL || number_worse == STATE_FULL) {
        // Rare enough to begin anew: costs are worked out again as blocks are entered.
        states_clear(&model->states);
        block_forget_costs(&model->blocks);
        number = states_number(&model->states, &plain);
        number_worse = states_number(&model->states, &pessimistic);
    }
    block_retire(memo);
    memo->key = key + 1;
    memo->next = number_worse << 16 | number;
    memo->core = run.cycles;
    memo->pessimistic = worse.cycles & 0x7fffffffu;
    memo->flags_late = run.flags_late;
    keep_issues(memo, issues, block->count);
    for (unsigned n = 0; n < block->count; ++n) {
        block->accesses[n].pairs_with_load_before = issues[n].pairs_loads;
    }
}

// The block before did not run to its end: an exception, or QEMU's second try at an instruction
// that reaches a device. What lies beyond `address` was counted too early.
static void take_back(struct model *model, const struct memo *memo, uint32_t address) {
    const struct timing *timing = model->parameters.timing;
    struct block *block = memo->block;
    // Without a key the states were forgotten meanwhile, and with them where it began.
    if (address <= block->address || address >= block->end || !memo->key) {
        return;
    }
    unsigned count = 0;
    while (count < block->count && block->instructions[count].address < address) {
        ++count;
    }
    const state_key key = memo->key - 1;
    struct pipeline_state plain = model->states.states[key & 0xffff];
    struct pipeline_state pessimistic = model->states.states[key >> 16];
    const struct pipeline_run run =
        pipeline_run(timing, timing->pairs, &plain, block->instructions, count, NULL);
    const struct pipeline_run worse = pipeline_run(timing, timing->pairs_pessimistic, &pessimistic,
                                                   block->instructions, count, NULL);
    model->core -= memo->core - run.cycles;
    model->pessimistic -= memo->pessimistic - worse.cycles;
    block->extra_core -= memo->core - run.cycles;
    for (; count < block->count; ++count) {
        ++model->not_executed[block->instructions[count].kind];
    }
}

static void mispredict(struct model *model, const struct memo *before) {
    const struct timing *timing = model->parameters.timing;
    struct block *block = before->block;
    const uint32_t cycles = block->flow == FLOW_CONDITIONAL && !before->flags_late
                                ? timing->mispredict_early_cycles
                                : timing->mispredict_cycles;
    ++model->mispredictions;
    model->core += cycles;
    model->pessimistic += cycles;
    block->extra_core += cycles;
}

enum turn { TURN_SURE, TURN_UNSURE, TURN_WRONG };

// The predictor meets the branch at the end of a block; whether it was right, and will be again
// without having to learn.
static enum turn predict(const struct block *before, bool taken, uint32_t address) {
    struct branch *known = before->branch;
    if (before->flow == FLOW_INDIRECT) {
        const bool right = known->last_target == address;
        known->last_target = address;
        return right ? TURN_SURE : TURN_WRONG;
    }
    if (before->flow != FLOW_CONDITIONAL) {
        return TURN_SURE;
    }
    const bool expected = known->taken >= 2;
    if (taken && known->taken < 3) {
        ++known->taken;
    } else if (!taken && known->taken > 0) {
        --known->taken;
    }
    const bool is_settled = known->taken == (taken ? 3 : 0);
    return expected != taken ? TURN_WRONG : is_settled ? TURN_SURE : TURN_UNSURE;
}

// What is lost by a branch or jump at the end of a block that was taken.
static uint32_t lost_by_turn(const struct timing *timing, const struct block *before,
                             const struct block *target) {
    const uint32_t cycles =
        before->flow == FLOW_CONDITIONAL ? timing->taken_branch_cycles : timing->jump_cycles;
    // Its first instruction is in two words of memory.
    const bool straddles = target->address & 2u && target->instructions[0].size == 4;
    return cycles + (straddles ? timing->straddling_target_cycles : 0);
}

// The branch at the end of `memo`'s block led to `block`: the state in which that is entered.
static state_key branch(struct model *model, struct memo *memo, struct block *block) {
    const struct timing *timing = model->parameters.timing;
    struct block *before = memo->block;
    const bool taken = before->flow != FLOW_ON &&
                       (before->flow == FLOW_INDIRECT || block->address == before->target);
    memo->follower = NULL;
    if (!taken && (before->flow == FLOW_DIRECT || block->address != before->end)) {
        take_back(model, memo, block->address);
        return memo->next;
    }
    const enum turn turn =
        timing->predicts_branches ? predict(before, taken, block->address) : TURN_SURE;
    if (turn != TURN_SURE) {
        branch_forget_followers(before->branch);
    }
    if (turn == TURN_WRONG) {
        mispredict(model, memo);
        return 0;
    }
    memo->turn = taken ? lost_by_turn(timing, before, block) : 0;
    model->core += memo->turn;
    model->pessimistic += memo->turn;
    before->extra_core += memo->turn;
    if (turn == TURN_SURE) {
        memo->follower = block;
    }
    return memo->next;
}

static const struct range *range_of(const struct parameters *p, uint32_t address) {
    for (uint32_t n = 0; n < p->range_count; ++n) {
        if (address - p->ranges[n].address < p->ranges[n].size) {
            return &p->ranges[n];
        }
    }
    return NULL;
}

__attribute__((noinline)) static void fetch(struct model *model, const struct block *block) {
    for (uint32_t n = 0; n < block->line_count; ++n) {
        const uint32_t line = block->first_line + n;
        if (!cache_is_latest(&model->code, line) && !cache_touch_slowly(&model->code, line)) {
            const struct range *range = range_of(&model->parameters, block->address);
            ++model->fetch_misses[range ? range->kind : MEMORY_FLASH];
        }
    }
}

void model_forget(struct model *model) {
    model->last = NULL;
    model->linefills = (struct linefills){.store_line = CACHE_NO_LINE};
    model->stores = (struct store_buffer){0};
    model->paired_address = 0;
    cache_clear(&model->data);
    cache_clear(&model->code);
    blocks_forget_branches(&model->blocks);
}

void model_place(const struct model *model, struct block *block) {
    if (model->code.ways && range_of(&model->parameters, block->address)) {
        block->first_line = block->address >> model->code.line_shift;
        block->line_count = ((block->end - 1) >> model->code.line_shift) - block->first_line + 1;
    }
}

// Out of line, so that the short way through model_enter stays short.
__attribute__((noinline)) static struct memo *enter_slowly(struct model *model,
                                                           struct block *block) {
    struct memo *before = model->last;
    const state_key key = before ? branch(model, before, block) : 0;
    struct memo *memo = &block->memo[(key * 2654435761u) >> (32 - MEMO_BITS)];
    if (memo->key != key + 1) {
        // The one in this place may be the one before, which must not be lost meanwhile.
        const bool replaces = memo == before;
        simulate(model, block, memo, key);
        before = replaces ? NULL : before;
    }
    if (before && before->follower == block) {
        before->follower_memo = memo;
    }
    return memo;
}

void model_enter(struct model *model, struct block *block) {
    struct memo *before = model->last;
    struct memo *memo;
    if (LIKELY(before && before->follower == block &&
               before->follower_memo->key == before->next + 1)) {
        memo = before->follower_memo;
        if (UNLIKELY(before->turn)) {
            model->core += before->turn;
            model->pessimistic += before->turn;
            before->block->extra_core += before->turn;
        }
    } else {
        memo = enter_slowly(model, block);
    }
    model->core += memo->core;
    model->pessimistic += memo->pessimistic;
    ++memo->count;
    model->last = memo;
    // A loop of one block finds its lines where it left them.
    if (block->line_count && (!before || block != before->block)) {
        fetch(model, block);
    }
}

// The cycle with memory in which the access is made.
static uint64_t access_time(const struct model *model, const struct access *access) {
    const struct memo *memo = model->last;
    const uint32_t issue = memo->issue ? memo->issue[access->index] : 0;
    return model->core - memo->core + issue + model_memory_cycles(model);
}

// Rich model: a store that is not a whole aligned word keeps its bank busy; when the buffer is full
// the pipeline waits.
static void store_partially(struct model *model, const struct access *access, uint32_t address,
                            bool is_unaligned) {
    const struct timing *timing = model->parameters.timing;
    struct store_buffer *s = &model->stores;
    if (!timing->store_buffer_entries) {
        return;
    }
    uint64_t now = access_time(model, access) + model_rich_cycles(model);
    uint32_t kept = 0;
    uint64_t first = UINT64_MAX;
    for (uint32_t n = 0; n < s->count; ++n) {
        if (s->done[n] > now) {
            first = s->done[n] < first ? s->done[n] : first;
            s->done[kept++] = s->done[n];
        }
    }
    s->count = kept;
    if (s->count == timing->store_buffer_entries) {
        model->store_stalls += first - now;
        now = first;
        kept = 0;
        for (uint32_t n = 0; n < s->count; ++n) {
            if (s->done[n] > now) {
                s->done[kept++] = s->done[n];
            }
        }
        s->count = kept;
    }
    const unsigned bank = address >> 2 & 1;
    uint64_t begin = now > s->bank_free[bank] ? now : s->bank_free[bank];
    if (is_unaligned && s->bank_free[!bank] > begin) {
        begin = s->bank_free[!bank];
    }
    s->bank_free[bank] = begin + timing->partial_store_cycles;
    if (is_unaligned) {
        s->bank_free[!bank] = s->bank_free[bank];
    }
    s->done[s->count++] = s->bank_free[bank];
}

// The core waits until the bus is free; returns when that is.
static uint64_t wait_for_bus(struct model *model, uint64_t now) {
    const uint64_t bus_free = model->linefills.bus_free;
    model->linefills.store_line = CACHE_NO_LINE;
    if (bus_free > now) {
        model->linefill_waits += bus_free - now;
        return bus_free;
    }
    return now;
}

// A line is fetched. A load waits for it, at the price of a miss; a store leaves it to the buffer.
static void fetch_line(struct model *model, const struct access *access, uint32_t line,
                       unsigned kind) {
    struct linefills *l = &model->linefills;
    const uint64_t now = wait_for_bus(model, access_time(model, access));
    l->bus_free = now + model->parameters.miss_cycles[kind];
    if (access->is_store) {
        ++model->store_misses;
        l->store_line = line;
        l->held = 1;
    } else {
        ++model->misses[kind];
    }
}

// A store to the line that a store before it waits for takes a place in the buffer, too.
static void hold_store(struct model *model, const struct access *access) {
    struct linefills *l = &model->linefills;
    const uint64_t now = access_time(model, access);
    if (l->bus_free <= now || ++l->held > model->parameters.timing->store_buffer_entries) {
        (void)wait_for_bus(model, now);
    }
}

static void miss_or_not(struct model *model, const struct access *access, uint32_t address) {
    const struct range *range = range_of(&model->parameters, address);
    const uint32_t line = address >> model->data.line_shift;
    if (range && !cache_touch_slowly(&model->data, line)) {
        fetch_line(model, access, line, range->kind);
    }
}

void model_split(struct model *model, const struct access *access, uint32_t address) {
    if (UNLIKELY((address & 3u) + access->bytes > 4u)) {
        const uint32_t cycles = model->parameters.timing->split_access_cycles;
        ++model->unaligned;
        model->core += cycles;
        model->pessimistic += cycles;
        model->last->block->extra_core += cycles;
    }
}

void model_access(struct model *model, const struct access *access, uint32_t address) {
    if (UNLIKELY(address & access->unaligned_mask)) {
        ++model->unaligned;
        const uint32_t last = address + access->bytes - 1u;
        if (access->is_store) {
            store_partially(model, access, address, true);
        } else {
            model->unaligned_cycles += model->parameters.timing->unaligned_load_cycles;
        }
        if (last >> model->data.line_shift != address >> model->data.line_shift) {
            miss_or_not(model, access, last);
        }
    } else if (access->is_partial) {
        store_partially(model, access, address, false);
    }
    if (!access->is_store) {
        if (access->pairs_with_load_before && !((address ^ model->paired_address) & 4u)) {
            ++model->bank_conflicts;
        }
        model->paired_address = address;
    }
    if (access->is_store && address >> model->data.line_shift == model->linefills.store_line) {
        hold_store(model, access);
    }
    if (LIKELY(cache_is_latest(&model->data, address >> model->data.line_shift)) ||
        address - model->parameters.free.address < model->parameters.free.size) {
        return;
    }
    miss_or_not(model, access, address);
}
