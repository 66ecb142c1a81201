// Runs @NAME@ once on an input of zeros (real values) and prints output 0.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdio.h>

#include "@NAME@.h"

static uint8_t arena[@UPPER@_ARENA_BYTES] __attribute__((aligned(@UPPER@_ARENA_ALIGNMENT)));

int main(void)
{
@FILL_INPUTS@
    @NAME@_run(arena);

    const @OUTPUT_TYPE@ *output = @NAME@_output_0(arena);
    for (uint32_t i = 0; i < @UPPER@_OUTPUT_0_ELEMENTS; i++) {
        printf("%g\n", @OUTPUT_VALUE@);
    }
    return 0;
}
