// The in-order pipeline: issue by issue, by the rules of the timing table.
//
// SPDX-License-Identifier: Apache-2.0

#include <stddef.h>
#include <string.h>

#include "pipeline.h"
#include "timing_table.h"

#define AGE_MAX 40

struct machine {
    const struct timing *timing;
    const kind_set *pairs;
    int32_t time[REGISTER_COUNT]; // of issue of the last writer
    uint8_t result[REGISTER_COUNT];
    int32_t next;               // cycle in which the next pair can issue
    int32_t flags_time;         // cycle in which flags were last set
    bool is_alone;              // the instruction before lets none join it
    int32_t free[TIMING_PIPES]; // cycle in which each pipe takes another instruction
    int32_t results;            // cycle in which the latest result is written
    struct pipeline_state *state;
};

static int32_t later(int32_t a, int32_t b) {
    return a > b ? a : b;
}

// When `set` is ready for `need`.
static int32_t ready_for(const struct machine *m, uint64_t set, unsigned need) {
    int32_t ready = INT32_MIN;
    for (; set; set &= set - 1) {
        const unsigned r = (unsigned)__builtin_ctzll(set);
        if (m->result[r]) {
            const unsigned use = r == REGISTER_FLAGS ? NEED_LATE : need;
            ready = later(ready, m->time[r] + m->timing->latency[m->result[r]][use]);
        }
    }
    return ready;
}

static int32_t ready_to_issue(const struct machine *m, const struct instruction *i,
                              const struct timing_row *row) {
    int32_t ready = ready_for(m, i->first, row->first);
    ready = later(ready, ready_for(m, i->second, row->second));
    ready = later(ready, ready_for(m, i->accumulator, row->accumulator));
    ready = later(ready, ready_for(m, i->base, NEED_ADDRESS));
    return later(ready, ready_for(m, i->stored, row->stored));
}

// The pipe that is free first of those that the instruction can take; only for one that takes any.
static unsigned pipe_of(const struct machine *m, const struct timing_row *row) {
    unsigned best = (unsigned)__builtin_ctz(row->pipes);
    for (unsigned pipe = best + 1; pipe < TIMING_PIPES; ++pipe) {
        if (row->pipes >> pipe & 1 && m->free[pipe] < m->free[best]) {
            best = pipe;
        }
    }
    return best;
}

// When its pipe is free and, on a core that writes results in order, its own is not the first.
static int32_t free_to_issue(const struct machine *m, const struct timing_row *row) {
    int32_t ready = row->pipes ? m->free[pipe_of(m, row)] : INT32_MIN;
    if (m->timing->results_in_order && row->cycles) {
        ready = later(ready, m->results - m->timing->latency[row->result][NEED_LATE]);
    }
    return ready;
}

static void occupy(struct machine *m, const struct timing_row *row, int32_t time) {
    if (row->pipes) {
        m->free[pipe_of(m, row)] = time + row->busy_cycles;
    }
    if (m->timing->results_in_order && row->cycles) {
        m->results = later(m->results, time + m->timing->latency[row->result][NEED_LATE]);
    }
}

static bool is_load(unsigned kind) {
    return kind == KIND_LOAD_WORD || kind == KIND_LOAD_PART || kind == KIND_FP_LOAD;
}

static uint8_t bank_of(const struct machine *m, const struct instruction *i) {
    const uint32_t base = i->base_register == 15 ? (i->address + 4) & ~3u : 0;
    return (uint8_t)((base + (uint32_t)i->offset) / 4 % m->timing->load_banks);
}

static void write(struct machine *m, uint64_t set, unsigned result, int32_t time) {
    for (; set; set &= set - 1) {
        const unsigned r = (unsigned)__builtin_ctzll(set);
        m->result[r] = (uint8_t)result;
        m->time[r] = time;
    }
}

// Whether the first ALU is free for the instruction; `older` is who shares its cycle, or NULL.
static bool can_be_early(const struct timing_row *row, const struct timing_row *older) {
    if (row->early == EARLY_EITHER) {
        return !older || !older->uses_shifter;
    }
    return row->early == EARLY_OLDER && !older;
}

static void note_results(struct machine *m, const struct instruction *i,
                         const struct timing_row *row, int32_t time,
                         const struct timing_row *older) {
    unsigned result = row->result;
    if (can_be_early(row, older)) {
        if (later(ready_for(m, i->first, NEED_EARLY), ready_for(m, i->second, NEED_EARLY)) <=
            time) {
            result = RESULT_EARLY;
        }
    }
    write(m, i->written & ~REGISTER(REGISTER_FLAGS), result, time);
    write(m, i->written_back, RESULT_ADDRESS, time);
    if (i->written & REGISTER(REGISTER_FLAGS)) {
        write(m, REGISTER(REGISTER_FLAGS), RESULT_LATE, time);
        m->flags_time = time;
    }
}

static int32_t occupied(const struct machine *m, const struct instruction *i,
                        const struct timing_row *row) {
    int32_t cycles = row->cycles;
    if (row->pipelined_cycles && row->pipelined_after[m->state->last_kind]) {
        cycles = row->pipelined_cycles;
    }
    if (row->registers_per_cycle) {
        cycles += (i->registers + row->registers_per_cycle - 1) / row->registers_per_cycle;
    }
    return cycles;
}

// Why the instruction cannot join the one before in its cycle; STALL_PAIRED if it can.
static enum stall joins(const struct machine *m, const struct instruction *i, int32_t ready,
                        bool *unknown_banks) {
    const struct pipeline_state *s = m->state;
    const unsigned older = s->open_kind - 1u;
    if (!s->open_kind) {
        return m->is_alone ? STALL_BUSY : STALL_NONE;
    }
    const bool fit = m->timing->narrow_pairs ? i->size == 2 && (s->open_joins || i->joins)
                                             : m->pairs[older][i->kind];
    if (!fit) {
        return STALL_UNIT;
    }
    if (ready > m->next - 1) {
        return STALL_OPERAND;
    }
    if (is_load(older) && is_load(i->kind)) {
        const bool same_base = s->open_base != NO_REGISTER && s->open_base == i->base_register;
        if (same_base && s->open_bank == bank_of(m, i)) {
            return STALL_BANK;
        }
        *unknown_banks = !same_base;
    }
    return STALL_PAIRED;
}

static void step(struct machine *m, const struct instruction *i, struct issue *issue) {
    struct pipeline_state *s = m->state;
    const struct timing_row *row = &m->timing->rows[i->kind];
    const int32_t operands = ready_to_issue(m, i, row);
    const int32_t ready = later(operands, free_to_issue(m, row));
    bool unknown_banks = false;
    enum stall stall = joins(m, i, ready, &unknown_banks);
    int32_t time;
    if (stall == STALL_PAIRED) {
        time = m->next - 1;
        note_results(m, i, row, time, &m->timing->rows[s->open_kind - 1]);
        s->open_kind = 0;
    } else {
        time = later(m->next, ready);
        stall = operands > m->next ? STALL_OPERAND : ready > m->next ? STALL_BUSY : stall;
        const int32_t cycles = occupied(m, i, row);
        m->next = time + cycles;
        // A load of several delivers the last with its last cycle.
        note_results(m, i, row, m->next - 1, NULL);
        const bool is_wide = m->timing->narrow_pairs && i->size != 2;
        const bool is_alone = row->is_alone || m->timing->width < 2 || is_wide;
        s->open_kind = is_alone ? 0 : (uint8_t)(i->kind + 1);
        s->open_joins = !is_alone && m->timing->narrow_pairs && i->joins;
        s->open_base = is_load(i->kind) ? i->base_register : NO_REGISTER;
        s->open_bank = is_load(i->kind) ? bank_of(m, i) : 0;
    }
    occupy(m, row, time);
    s->last_kind = i->kind;
    m->is_alone = row->is_alone;
    if (issue) {
        *issue = (struct issue){(uint32_t)(time > 0 ? time : 0), (uint8_t)stall,
                                stall == STALL_PAIRED, unknown_banks};
    }
}

static void load_state(struct machine *m) {
    for (unsigned r = 0; r < REGISTER_COUNT; ++r) {
        m->result[r] = m->state->result[r];
        m->time[r] = -(int32_t)m->state->age[r];
    }
    m->next = 0;
    m->flags_time = -(int32_t)m->state->flags_age;
    for (unsigned pipe = 0; pipe < TIMING_PIPES; ++pipe) {
        m->free[pipe] = m->state->busy[pipe];
    }
    m->results = m->state->results_left;
}

// The longest that a result of this kind can keep somebody waiting.
static int32_t horizon(const struct timing *timing, unsigned result) {
    int32_t most = 1;
    for (unsigned need = 0; need < NEED_COUNT; ++need) {
        most = later(most, timing->latency[result][need]);
    }
    return most;
}

static void save_state(struct machine *m) {
    struct pipeline_state *s = m->state;
    for (unsigned r = 0; r < REGISTER_COUNT; ++r) {
        const int32_t age = m->next - m->time[r];
        // An open slot lies one cycle back.
        const bool is_over = !m->result[r] || age >= horizon(m->timing, m->result[r]) + 1;
        s->result[r] = is_over ? 0 : m->result[r];
        s->age[r] = is_over ? 0 : (uint8_t)(age < AGE_MAX ? age : AGE_MAX);
    }
    // The fewer states there are, the more costs are known: what cannot matter is left out.
    const int32_t flags_age = m->next - m->flags_time;
    const int32_t early = (int32_t)m->timing->flags_early_cycles + 1;
    s->flags_age = (uint8_t)(flags_age < early ? flags_age : early);
    if (m->timing->width > 1) {
        s->last_kind = 0;
    }
    for (unsigned pipe = 0; pipe < TIMING_PIPES; ++pipe) {
        s->busy[pipe] = (uint8_t)later(m->free[pipe] - m->next, 0);
    }
    s->results_left = (uint8_t)later(m->results - m->next, 0);
    if (!s->open_kind) {
        s->open_joins = false;
        s->open_base = NO_REGISTER;
        s->open_bank = 0;
    }
}

struct pipeline_run pipeline_run(const struct timing *timing, const kind_set *pairs,
                                 struct pipeline_state *state, const struct instruction *i,
                                 unsigned count, struct issue *issues) {
    struct machine m = {.timing = timing, .pairs = pairs, .state = state};
    struct pipeline_run run = {0, false};
    load_state(&m);
    for (unsigned n = 0; n < count; ++n) {
        if (n + 1 == count && i[n].flow == FLOW_CONDITIONAL) {
            run.flags_late =
                later(m.next, 0) - m.flags_time < (int32_t)timing->flags_early_cycles + 1;
        }
        step(&m, &i[n], issues ? &issues[n] : NULL);
    }
    run.cycles = (uint32_t)m.next;
    save_state(&m);
    return run;
}
