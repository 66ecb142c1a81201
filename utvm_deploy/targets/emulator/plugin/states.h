// Pipeline states as small numbers, so that a block's cost can be looked up by the state in which
// it is entered.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_STATES_H
#define UTVM_STATES_H

#include "pipeline.h"

#define STATE_COUNT_MAX 65536
#define STATE_FULL UINT32_MAX

struct state_table {
    struct pipeline_state *states;
    uint32_t count;
    uint32_t *slots; // open hash table of state numbers plus 1
};

// False if memory runs out. State 0 is the empty pipeline.
bool states_start(struct state_table *table);

// The number of a state; STATE_FULL when the table has no place left.
uint32_t states_number(struct state_table *table, const struct pipeline_state *state);

// Forgets all but the empty pipeline.
void states_clear(struct state_table *table);

#endif
