// The second stage that the RP2040's boot ROM copies from the first 256 bytes of
// flash into RAM and runs, if the last word is the CRC of those before it
// (datasheet 2.8.1). It sets up the serial interface to flash (4.10) for reading
// words in place by "read" (03h) at a fourth of the core's clock, which every chip
// of flash knows. Then it enters the image as a reset would: vectors, stack, start.
//
// It is machine code because it has to be complete before it is linked: a test
// assembles the comments and computes the CRC.
//
//   0x08 SSIENR: off, then on          0x04 CTRLR1: one word at a time
//   0x14 BAUDR: the clock's divisor    0x10 SER: the one chip
//   0x00 CTRLR0: frames of 32 bits, what is sent and then data
//   0xF4 SPI_CTRLR0: 03h, eight bits of command, 24 bits of address
//
// SPDX-License-Identifier: Apache-2.0

#include <stdint.h>

__attribute__((section(".boot_before_vectors"), used)) const uint32_t second_stage[64] = {
    0x21004B0Au,        // ldr r3, ssi; movs r1, #0
    0x60596099u,        // str r1, [r3, #0x08]; str r1, [r3, #0x04]
    0x615A2204u,        // movs r2, #4; str r2, [r3, #0x14]
    0x601A4A08u,        // ldr r2, control; str r2, [r3, #0x00]
    0x20F44A08u,        // ldr r2, command; movs r0, #0xF4
    0x2101501Au,        // str r2, [r3, r0]; movs r1, #1
    0x60996119u,        // str r1, [r3, #0x10]; str r1, [r3, #0x08]
    0x49074806u,        // ldr r0, vectors; ldr r1, vtor
    0x68016008u,        // str r0, [r1]; ldr r1, [r0]
    0x8808F381u,        // msr msp, r1
    0x47006840u,        // ldr r0, [r0, #4]; bx r0
    0x18000000u,        // ssi
    0x001F0300u,        // control
    0x03000218u,        // command
    0x10000100u,        // vectors
    0xE000ED08u,        // vtor
    [63] = 0x56626144u, // CRC-32 of the 252 bytes: polynomial 0x04C11DB7, not reflected
};
