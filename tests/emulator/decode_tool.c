// Prints what the decoder makes of each instruction read from standard input.
//
// Its argument: QEMU's name of the target. In: "ADDRESS FIRST SECOND" in hexadecimal, or "it" to
// leave an IT block behind.
// Out: kind, size, flow, target, registers read, registers written, bytes of each access.
//
// SPDX-License-Identifier: Apache-2.0

#include <inttypes.h>
#include <stdio.h>

#define UTVM_TIMING_TABLES
#include "decode.h"
#include "timing_table.h"

int main(int count, char **arguments) {
    const struct decoder *decoder = count == 2 ? decoder_for(arguments[1]) : NULL;
    unsigned address, first, second;
    struct it_state it = {0};
    if (!decoder) {
        return 2;
    }
    while (scanf("%x %x %x", &address, &first, &second) == 3) {
        const struct instruction i =
            decoder->decode(address, (uint16_t)first, (uint16_t)second, &it);
        const uint64_t read = i.first | i.second | i.accumulator | i.base | i.stored;
        printf("%s %u %u %x %" PRIx64 " %" PRIx64 " %u %u %d\n", kind_names[i.kind], i.size, i.flow,
               i.target, read, i.written | i.written_back, i.access_bytes, i.is_store,
               i.base_register == NO_REGISTER ? 0 : i.offset);
    }
    return timings[0].width == 0;
}
