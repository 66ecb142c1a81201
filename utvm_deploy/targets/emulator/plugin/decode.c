// Which decoder is for which target.
//
// SPDX-License-Identifier: Apache-2.0

#include <stddef.h>
#include <string.h>

#include "decode.h"

const struct decoder *decoder_for(const char *target) {
    const struct decoder *const all[] = {&thumb_decoder, &riscv_decoder};
    for (size_t n = 0; n < sizeof all / sizeof *all; ++n) {
        if (!strcmp(all[n]->target, target)) {
            return all[n];
        }
    }
    return NULL;
}
