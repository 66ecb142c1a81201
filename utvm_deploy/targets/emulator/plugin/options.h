// The plugin's arguments, KEY=VALUE each (targets/emulator/model.py writes them).
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_OPTIONS_H
#define UTVM_OPTIONS_H

#include "model.h"

struct options {
    const char *snapshots;
    const char *report;
    unsigned hot;
    uint32_t counters;   // address of the block in guest memory; 0: none
    struct range window; // guest memory that holds the block and code
};

// Reads the arguments into `model` and `options`; false, with a sentence on standard error, if one
// is wrong.
bool options_read(struct model *model, struct options *options, int count, char **arguments);

#endif
