// Counters, snapshots and the JSON report.
//
// SPDX-License-Identifier: Apache-2.0

#define _POSIX_C_SOURCE 200809L
#define UTVM_TIMING_TABLES
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "counters_table.h"
#include "report.h"
#include "timing_table.h"

#define HEADER_WORDS 2
#define FILE_BYTES ((HEADER_WORDS + (size_t)SNAPSHOT_CAPACITY * COUNTER_COUNT) * sizeof(uint64_t))

static void count_kinds(const struct model *model, uint64_t *kinds) {
    memset(kinds, 0, KIND_COUNT * sizeof *kinds);
    for (uint32_t n = 0; n < model->blocks.bucket_count; ++n) {
        for (const struct block *b = model->blocks.buckets[n]; b; b = b->next_in_bucket) {
            const uint64_t executions = block_executions(b);
            for (unsigned k = 0; executions && k < b->count; ++k) {
                kinds[b->instructions[k].kind] += executions;
            }
        }
    }
    for (unsigned k = 0; k < KIND_COUNT; ++k) {
        kinds[k] -= model->not_executed[k];
    }
}

void report_counters(const struct model *model, uint64_t *values) {
    uint64_t kinds[KIND_COUNT];
    count_kinds(model, kinds);
    memset(values, 0, COUNTER_COUNT * sizeof *values);
    const uint64_t misses = model_memory_cycles(model);
    values[COUNTER_CORE] = model->core;
    values[COUNTER_MEMORY] = model->core + misses;
    values[COUNTER_PESSIMISTIC] = model->pessimistic + misses;
    values[COUNTER_RICH] = model->core + misses + model_rich_cycles(model);
    values[COUNTER_DCACHE_MISSES_FLASH] = model->misses[MEMORY_FLASH];
    values[COUNTER_DCACHE_MISSES_RAM] = model->misses[MEMORY_RAM];
    values[COUNTER_DCACHE_STORE_MISSES] = model->store_misses;
    values[COUNTER_LINEFILL_WAITS] = model->linefill_waits;
    values[COUNTER_ICACHE_MISSES] =
        model->fetch_misses[MEMORY_FLASH] + model->fetch_misses[MEMORY_RAM];
    values[COUNTER_MISPREDICTIONS] = model->mispredictions;
    values[COUNTER_BANK_CONFLICTS] = model->bank_conflicts;
    values[COUNTER_UNALIGNED] = model->unaligned;
    values[COUNTER_STORE_STALLS] = model->store_stalls;
    for (unsigned k = 0; k < KIND_COUNT; ++k) {
        values[COUNTER_INSTRUCTIONS] += kinds[k];
        values[COUNTER_MIX + mix_group[k]] += kinds[k];
    }
}

uint64_t *report_open_snapshots(const char *path) {
    const int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (file < 0) {
        return NULL;
    }
    void *mapped = MAP_FAILED;
    if (!ftruncate(file, (off_t)FILE_BYTES)) {
        mapped = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    (void)close(file);
    if (mapped == MAP_FAILED) {
        return NULL;
    }
    uint64_t *words = mapped;
    words[0] = SNAPSHOT_MAGIC;
    return words;
}

void report_snapshot(uint64_t *file, const uint64_t *values) {
    const uint64_t number = file[1];
    memcpy(file + HEADER_WORDS + number % SNAPSHOT_CAPACITY * COUNTER_COUNT, values,
           COUNTER_COUNT * sizeof *values);
    // Whoever reads along sees the number only after the values.
    __atomic_store_n(&file[1], number + 1, __ATOMIC_RELEASE);
}

static void write_code(FILE *out, const struct block *b, unsigned n) {
    const uint16_t *code = &b->halfwords[2 * n];
    if (b->instructions[n].size == 4) {
        fprintf(out, "\"%04x%04x\"", code[0], code[1]);
    } else {
        fprintf(out, "\"%04x\"", code[0]);
    }
}

static void write_unknown(FILE *out, const struct model *model) {
    const char *comma = "";
    for (uint32_t n = 0; n < model->blocks.bucket_count; ++n) {
        for (const struct block *b = model->blocks.buckets[n]; b; b = b->next_in_bucket) {
            for (unsigned k = 0; block_executions(b) && k < b->count; ++k) {
                if (b->instructions[k].kind == KIND_UNKNOWN) {
                    fprintf(out, "%s\n    {\"address\": %" PRIu32 ", \"code\": ", comma,
                            b->instructions[k].address);
                    write_code(out, b, k);
                    fprintf(out, ", \"executions\": %" PRIu64 "}", block_executions(b));
                    comma = ",";
                }
            }
        }
    }
}

static int by_cycles(const void *left, const void *right) {
    const struct block *a = *(struct block *const *)left;
    const struct block *b = *(struct block *const *)right;
    const uint64_t cycles = block_core_cycles(a);
    const uint64_t others = block_core_cycles(b);
    if (cycles != others) {
        return cycles < others ? 1 : -1;
    }
    return a->address < b->address ? -1 : a->address > b->address;
}

static const struct block **sorted(const struct model *model) {
    const struct block **all = malloc((model->blocks.count + 1) * sizeof *all);
    if (!all) {
        return NULL;
    }
    uint32_t count = 0;
    for (uint32_t n = 0; n < model->blocks.bucket_count; ++n) {
        for (const struct block *b = model->blocks.buckets[n]; b; b = b->next_in_bucket) {
            all[count++] = b;
        }
    }
    qsort(all, count, sizeof *all, by_cycles);
    return all;
}

// The instructions of a hot block as they issue when the block follows upon itself: the steady
// state of a loop.
static void write_block(FILE *out, const struct model *model, const struct block *b) {
    static const char *const stalls[] = {"", "paired", "operand", "bank", "unit", "busy"};
    const struct timing *timing = model->parameters.timing;
    struct issue *issues = calloc(b->count, sizeof *issues);
    struct pipeline_state state = model->states.states[0];
    if (!issues) {
        return;
    }
    for (unsigned turn = 0; turn < 3; ++turn) {
        (void)pipeline_run(timing, timing->pairs, &state, b->instructions, b->count, issues);
    }
    fprintf(out,
            "    {\"address\": %" PRIu32 ", \"executions\": %" PRIu64 ", \"core\": %" PRIu64
            ", \"instructions\": [",
            b->address, block_executions(b), block_core_cycles(b));
    for (unsigned n = 0; n < b->count; ++n) {
        fprintf(out, "%s\n      {\"address\": %" PRIu32 ", \"code\": ", n ? "," : "",
                b->instructions[n].address);
        write_code(out, b, n);
        fprintf(out, ", \"kind\": \"%s\", \"cycle\": %" PRIu32 ", \"stall\": \"%s\"}",
                kind_names[b->instructions[n].kind], issues[n].cycle, stalls[issues[n].stall]);
    }
    fprintf(out, "]}");
    free(issues);
}

static void write_hot(FILE *out, const struct model *model, unsigned hot) {
    const struct block **all = sorted(model);
    for (uint32_t n = 0; all && n < hot && n < model->blocks.count; ++n) {
        fprintf(out, n ? ",\n" : "\n");
        write_block(out, model, all[n]);
    }
    free(all);
}

bool report_write(const struct model *model, const char *path, unsigned hot) {
    FILE *out = fopen(path, "w");
    if (!out) {
        return false;
    }
    uint64_t values[COUNTER_COUNT];
    uint64_t kinds[KIND_COUNT];
    report_counters(model, values);
    count_kinds(model, kinds);
    fprintf(out, "{\n  \"modelled\": true,\n  \"core_name\": \"%s\",\n  \"counters\": {",
            model->parameters.timing->core);
    for (unsigned n = 0; n < COUNTER_COUNT; ++n) {
        fprintf(out, "%s\n    \"%s\": %" PRIu64, n ? "," : "", counter_names[n], values[n]);
    }
    fprintf(out, "\n  },\n  \"kinds\": {");
    for (unsigned k = 0; k < KIND_COUNT; ++k) {
        fprintf(out, "%s\n    \"%s\": %" PRIu64, k ? "," : "", kind_names[k], kinds[k]);
    }
    fprintf(out, "\n  },\n  \"unknown\": [");
    write_unknown(out, model);
    fprintf(out, "],\n  \"hot\": [");
    write_hot(out, model, hot);
    fprintf(out, "]\n}\n");
    return fclose(out) == 0;
}
