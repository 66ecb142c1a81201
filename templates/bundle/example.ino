// Runs @NAME@ over and over on @ZEROS@ of zeros (real values); prints output 0.
//
// SPDX-License-Identifier: Apache-2.0

#include <@NAME@.h>

static uint8_t arena[@UPPER@_ARENA_BYTES] __attribute__((aligned(@UPPER@_ARENA_ALIGNMENT)));
@POOLS@
void setup() {
    Serial.begin(115200);
@LOAD_POOLS@@RESET_ONCE@}

void loop() {
@FILL_INPUTS@
    unsigned long start = micros();
@RUN_ARENA@
    unsigned long spent = micros() - start;

@WAIT@    const @OUTPUT_TYPE@ *output = @NAME@_output_0(arena);
    for (uint32_t i = 0; i < @UPPER@_OUTPUT_0_ELEMENTS; i++) {
        Serial.println(@OUTPUT_VALUE@);
    }
    Serial.print(spent);
    Serial.println(" us");
    delay(1000);
}
