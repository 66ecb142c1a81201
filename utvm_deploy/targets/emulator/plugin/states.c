// Pipeline states as small numbers.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdlib.h>
#include <string.h>

#include "states.h"

#define SLOT_COUNT (2 * STATE_COUNT_MAX)

static const struct pipeline_state EMPTY = {.open_base = NO_REGISTER, .flags_age = UINT8_MAX};

static uint32_t hash(const struct pipeline_state *state) {
    const unsigned char *bytes = (const unsigned char *)state;
    uint32_t h = 2166136261u;
    for (size_t n = 0; n < sizeof *state; ++n) {
        h = (h ^ bytes[n]) * 16777619u;
    }
    return h;
}

bool states_start(struct state_table *table) {
    table->states = calloc(STATE_COUNT_MAX, sizeof *table->states);
    table->slots = calloc(SLOT_COUNT, sizeof *table->slots);
    if (!table->states || !table->slots) {
        return false;
    }
    table->count = 0;
    return states_number(table, &EMPTY) == 0;
}

uint32_t states_number(struct state_table *table, const struct pipeline_state *state) {
    uint32_t slot = hash(state) % SLOT_COUNT;
    while (table->slots[slot]) {
        const uint32_t number = table->slots[slot] - 1;
        if (!memcmp(&table->states[number], state, sizeof *state)) {
            return number;
        }
        slot = (slot + 1) % SLOT_COUNT;
    }
    if (table->count == STATE_COUNT_MAX) {
        return STATE_FULL;
    }
    table->states[table->count] = *state;
    table->slots[slot] = ++table->count;
    return table->count - 1;
}

void states_clear(struct state_table *table) {
    memset(table->slots, 0, SLOT_COUNT * sizeof *table->slots);
    table->count = 0;
    (void)states_number(table, &EMPTY);
}
