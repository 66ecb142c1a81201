// Self-test of @NAME@ as a program of an operating system.
//
// SPDX-License-Identifier: Apache-2.0

#include <stdio.h>

#include "@NAME@.h"
#include "@NAME@_selftest.h"

static uint8_t arena[@UPPER@_ARENA_BYTES] __attribute__((aligned(@UPPER@_ARENA_ALIGNMENT)));

static void put(char character, void *context)
{
    (void)context;
    putchar(character);
}

int main(void)
{
    return @NAME@_selftest(arena, put, NULL);
}
