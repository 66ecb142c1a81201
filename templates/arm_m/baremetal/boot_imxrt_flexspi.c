// What the i.MX RT10xx's boot ROM reads from serial NOR flash (reference manual,
// chapter "System Boot"): the FlexSPI configuration block, and from 4 KiB on the
// image vector table and boot data. The vectors are 8 KiB behind the beginning.
//
// Flash is read by "fast read" (0Bh) over one data line at 60 MHz, which every chip
// knows, and which needs no setting in it. Four lines are faster, but chips differ
// in how these are switched on.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include <stddef.h>
#include <stdint.h>

// An instruction of the look-up table: operation, data lines (0: one), operand.
#define LUT(operation, operand) ((uint32_t)(operation) << 10 | (operand))
#define LUT_PAIR(first, second) ((first) | (second) << 16)
#define COMMAND 0x01u
#define ROW_ADDRESS 0x02u
#define DUMMY 0x0Cu
#define READ 0x09u

struct boot_head {
    // The common configuration block of FlexSPI.
    uint32_t tag; // "FCFB"
    uint32_t version;
    uint32_t reserved_08;
    uint8_t sample_clock; // 1: looped back from the DQS pad
    uint8_t cs_hold_time;
    uint8_t cs_setup_time;
    uint8_t column_address_width;
    uint32_t reserved_10[13];
    uint8_t device_type; // 1: serial NOR
    uint8_t data_lines;
    uint8_t clock; // 3: 60 MHz
    uint8_t has_own_sequences;
    uint32_t reserved_48[2];
    uint32_t flash_bytes;
    uint32_t reserved_54[11];
    uint32_t lookup[64];
    uint32_t reserved_180[16];
    // The block of serial NOR.
    uint32_t page_bytes;
    uint32_t sector_bytes;
    uint8_t command_clock;
    uint8_t reserved_1c9[3];
    uint32_t reserved_1cc;
    uint32_t block_bytes;
    uint32_t reserved_1d4[11];
    uint32_t reserved_200[(0x1000 - 0x200) / 4];
    // The image vector table.
    uint32_t header;
    void (*entry)(void);
    uint32_t reserved_1008;
    uint32_t device_configuration;
    const void *boot_data;
    const void *self;
    uint32_t signature;
    uint32_t reserved_101c;
    // Boot data.
    uint32_t image_start;
    uint32_t image_bytes;
    uint32_t is_plugin;
    uint32_t reserved_102c[(0x2000 - 0x102C) / 4];
};

_Static_assert(offsetof(struct boot_head, device_type) == 0x44, "");
_Static_assert(offsetof(struct boot_head, flash_bytes) == 0x50, "");
_Static_assert(offsetof(struct boot_head, lookup) == 0x80, "");
_Static_assert(offsetof(struct boot_head, page_bytes) == 0x1C0, "");
_Static_assert(offsetof(struct boot_head, block_bytes) == 0x1D0, "");
_Static_assert(offsetof(struct boot_head, header) == 0x1000, "");
_Static_assert(offsetof(struct boot_head, image_start) == 0x1020, "");
_Static_assert(sizeof(struct boot_head) == 0x2000, "");

void boot_entry(void);
extern const struct boot_head boot_head;

// Takes the stack of the vectors, as a reset would: the ROM has its own.
__attribute__((naked, used)) void boot_entry(void) {
    __asm volatile("cpsid i\n\t"
                   "ldr r0, =vector_table\n\t"
                   "ldr r1, [r0]\n\t"
                   "msr msp, r1\n\t"
                   "cpsie i\n\t"
                   "ldr r0, [r0, #4]\n\t"
                   "bx r0\n\t"
                   ".ltorg");
}

__attribute__((section(".boot_before_vectors"), used)) const struct boot_head boot_head = {
    .tag = 0x42464346u,
    .version = 0x56010000u,
    .sample_clock = 1u,
    .cs_hold_time = 3u,
    .cs_setup_time = 3u,
    .device_type = 1u,
    .data_lines = 1u,
    .clock = 3u,
    .flash_bytes = BOARD_BOOT_BYTES,
    .lookup =
        {
            LUT_PAIR(LUT(COMMAND, 0x0Bu), LUT(ROW_ADDRESS, 24u)),
            LUT_PAIR(LUT(DUMMY, 8u), LUT(READ, 4u)),
        },
    .page_bytes = 256u,
    .sector_bytes = 4096u,
    .command_clock = 1u,
    .block_bytes = 65536u,
    .header = 0x432000D1u,
    .entry = boot_entry,
    .boot_data = &boot_head.image_start,
    .self = &boot_head.header,
    .image_start = BOARD_BOOT_START,
    .image_bytes = BOARD_BOOT_BYTES,
};
