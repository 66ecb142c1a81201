// What the model tells: to the guest, to the snapshot file, and in JSON at the end.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_REPORT_H
#define UTVM_REPORT_H

#include <stdint.h>

#include "model.h"

// All counters, in the order of the generated counters_table.h.
void report_counters(const struct model *model, uint64_t *values);

// Makes the snapshot file of this name and maps it; NULL, with errno, if it cannot be had.
uint64_t *report_open_snapshots(const char *path);

// Appends a snapshot to a file that report_open_snapshots mapped.
void report_snapshot(uint64_t *file, const uint64_t *values);

// Writes the report; `hot` is the number of blocks to show in full. False if it cannot be written.
bool report_write(const struct model *model, const char *path, unsigned hot);

#endif
