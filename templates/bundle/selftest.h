// Self-test of @NAME@: golden vectors through the model, byte by byte.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef @UPPER@_SELFTEST_H
#define @UPPER@_SELFTEST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Runs every golden vector in an arena of @UPPER@_ARENA_BYTES and prints one
// line through put(character, context), which ends in '\n' and begins with
// PASS, or with FAIL and names the first mismatch. Returns 0 if all passed.
int @NAME@_selftest(uint8_t *arena, void (*put)(char character, void *context), void *context);

#ifdef __cplusplus
}
#endif

#endif
