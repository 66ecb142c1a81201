// The plugin's arguments.
//
// SPDX-License-Identifier: Apache-2.0

#define UTVM_TIMING_TABLES
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "timing_table.h"

#define NUMBERS_MAX 3

// "a:b:c" to numbers; how many, or -1.
static int numbers(const char *text, uint32_t *values) {
    int count = 0;
    while (count < NUMBERS_MAX) {
        char *end;
        values[count++] = (uint32_t)strtoul(text, &end, 0);
        if (end == text) {
            return -1;
        }
        if (!*end) {
            return count;
        }
        if (*end != ':') {
            return -1;
        }
        text = end + 1;
    }
    return -1;
}

static bool set_core(struct parameters *p, const char *name) {
    for (size_t n = 0; n < sizeof timings / sizeof *timings; ++n) {
        if (!strcmp(timings[n].core, name)) {
            p->timing = &timings[n];
            return true;
        }
    }
    return false;
}

static bool add_range(struct parameters *p, enum memory_kind kind, const uint32_t *v, int count) {
    if (count != 2 || p->range_count == RANGES_MAX) {
        return false;
    }
    p->ranges[p->range_count++] = (struct range){v[0], v[1], kind};
    return true;
}

static bool set(struct model *model, struct options *options, const char *key, const char *text) {
    struct parameters *p = &model->parameters;
    if (!strcmp(key, "core")) {
        return set_core(p, text);
    }
    if (!strcmp(key, "snapshots")) {
        options->snapshots = text;
        return true;
    }
    if (!strcmp(key, "report")) {
        options->report = text;
        return true;
    }
    uint32_t v[NUMBERS_MAX];
    const int count = numbers(text, v);
    if (!strcmp(key, "dcache")) {
        return count == 3 && cache_configure(&model->data, v[0], v[1], v[2]);
    }
    if (!strcmp(key, "icache")) {
        return count == 3 && cache_configure(&model->code, v[0], v[1], v[2]);
    }
    if (!strcmp(key, "flash")) {
        return add_range(p, MEMORY_FLASH, v, count);
    }
    if (!strcmp(key, "ram")) {
        return add_range(p, MEMORY_RAM, v, count);
    }
    if (!strcmp(key, "free")) {
        p->free = (struct range){v[0], v[1], 0};
        return count == 2;
    }
    if (!strcmp(key, "miss")) { // flash, RAM
        p->miss_cycles[MEMORY_FLASH] = v[0];
        p->miss_cycles[MEMORY_RAM] = v[1];
        return count == 2;
    }
    if (!strcmp(key, "fetch_miss")) {
        p->fetch_miss_cycles[MEMORY_FLASH] = v[0];
        p->fetch_miss_cycles[MEMORY_RAM] = v[1];
        return count == 2;
    }
    if (!strcmp(key, "counters")) { // block; memory that holds it
        options->counters = v[0];
        options->window = (struct range){v[1], v[2], 0};
        return count == 3;
    }
    if (!strcmp(key, "hot")) {
        options->hot = v[0];
        return count == 1;
    }
    return false;
}

bool options_read(struct model *model, struct options *options, int count, char **arguments) {
    for (int n = 0; n < count; ++n) {
        char *equals = strchr(arguments[n], '=');
        bool is_right = false;
        if (equals) {
            *equals = '\0';
            is_right = set(model, options, arguments[n], equals + 1);
            *equals = '=';
        }
        if (!is_right) {
            fprintf(stderr, "cycle model: the argument '%s' is not known or out of range\n",
                    arguments[n]);
            return false;
        }
    }
    if (!model->parameters.timing) {
        fprintf(stderr, "cycle model: the argument core=NAME is missing\n");
        return false;
    }
    return true;
}
