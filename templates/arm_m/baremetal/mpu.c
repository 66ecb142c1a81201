// What tasks may touch: code, the workspace and their stack. The runtime is
// privileged and keeps the core's ordinary memory map.
//
// Windows have the memory types of that map, so that nothing runs at another
// speed for being guarded: write-through below 0x20000000, write-back above.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "guard.h"

#define MPU_TYPE REGISTER(0xE000ED90u)
#define MPU_CTRL REGISTER(0xE000ED94u)
#define MPU_RNR REGISTER(0xE000ED98u)
#define MPU_RBAR REGISTER(0xE000ED9Cu)
#define MPU_RASR REGISTER(0xE000EDA0u) // v7-M
#define MPU_RLAR REGISTER(0xE000EDA0u) // v8-M
#define MPU_MAIR0 REGISTER(0xE000EDC0u)

#define CTRL_ENABLE 1u
#define CTRL_PRIVILEGED_DEFAULT (1u << 2) // the runtime keeps the default map
#define RAM_BEGIN 0x20000000u

extern uint8_t utvm_workspace[], utvm_workspace_end[];

enum access { READ_EXECUTE, READ_WRITE, READ_WRITE_EXECUTE, NOTHING, REGISTERS };

// Registers that a model's backend uses.
#ifdef BOARD_DEVICE_WINDOWS
static const uint32_t device_windows[][2] = {BOARD_DEVICE_WINDOWS};
#define DEVICE_WINDOW_COUNT (sizeof device_windows / sizeof device_windows[0])
#define IS_REGISTERS(access) ((access) == REGISTERS)
#else
#define IS_REGISTERS(access) 0
#endif

// Memory besides the workspace that a model uses.
#ifdef BOARD_POOLS
static const uint32_t pools[][2] = {BOARD_POOLS};
#define POOL_COUNT (sizeof pools / sizeof pools[0])
#endif

// A core without an MPU has none.
#define WINDOW_COUNT (MPU_TYPE >> 8 & 0xFFu)

#if __ARM_ARCH >= 8

// Windows are 32-byte exact and must not overlap.
static void window(uint32_t number, uint32_t begin, uint32_t end, enum access access) {
    const uint32_t read_only = access == READ_EXECUTE ? 1u : 0u;
    const uint32_t no_execute = access == READ_WRITE || IS_REGISTERS(access) ? 1u : 0u;
    const uint32_t type = IS_REGISTERS(access) ? 2u : begin < RAM_BEGIN ? 1u : 0u;
    if (number >= WINDOW_COUNT) {
        return;
    }
    MPU_RNR = number;
    MPU_RBAR = begin | read_only << 2 | 1u << 1 | no_execute;
    MPU_RLAR = ((end - 1u) & ~31u) | type << 1 | 1u;
}

static void prepare(void) {
#ifdef BOARD_DEVICE_WINDOWS
    MPU_MAIR0 = 0x04AAFFu; // type 0: write-back, 1: write-through, 2: device
#else
    MPU_MAIR0 = 0xAAFFu; // type 0: write-back, 1: write-through
#endif
}

#else

// A window is a power of two, aligned to itself, and its eighths can be left
// out. What does not fit is rounded towards more access; the linker script
// makes fit what matters.
static void window(uint32_t number, uint32_t begin, uint32_t end, enum access access) {
    uint32_t bits = 8u; // the smallest that has eighths
    while (begin >> bits != (end - 1u) >> bits) {
        ++bits;
    }
    const uint32_t base = begin >> bits << bits;
    const uint32_t eighth = 1u << (bits - 3u);
    uint32_t first = (begin - base) / eighth;
    uint32_t count = (end - base + eighth - 1u) / eighth - first;
    if (access == NOTHING) {
        first = (begin - base + eighth - 1u) / eighth;
        count = (end - base) / eighth - first;
    }
    const uint32_t left_out = ~(((1u << count) - 1u) << first) & 0xFFu;
    // Shareable device memory, write-through, or write-back.
    const uint32_t types = IS_REGISTERS(access) ? 5u << 16
                           : begin < RAM_BEGIN  ? 2u << 16
                                                : 1u << 19 | 3u << 16;
    const uint32_t rights = access == NOTHING ? 1u : access == READ_EXECUTE ? 6u : 3u;
    const uint32_t no_execute = access == READ_WRITE || IS_REGISTERS(access) ? 1u : 0u;
    if (number >= WINDOW_COUNT) {
        return;
    }
    MPU_RNR = number;
    MPU_RBAR = base;
    MPU_RASR = no_execute << 28 | rights << 24 | types | left_out << 8 | (bits - 1u) << 1 | 1u;
}

static void prepare(void) {
}

#endif

// The most important windows come first. If there are too few, tasks may not use
// what comes last: they are stopped there, and the guard stays.
void mpu_start(const struct utvm_region *regions, uint32_t count) {
    const uint32_t workspace = (uint32_t)(uintptr_t)utvm_workspace;
    const uint32_t workspace_end = (uint32_t)(uintptr_t)utvm_workspace_end;
    const uint32_t stack = (uint32_t)(uintptr_t)utvm_task_stack;
    if (WINDOW_COUNT == 0u) {
        return;
    }
    prepare();
    uint32_t number = 0u;
    for (uint32_t i = 0u; i < count; ++i) {
        const uint32_t begin = (uint32_t)(uintptr_t)regions[i].begin;
        const uint32_t end = (uint32_t)(uintptr_t)regions[i].end;
        if (!(regions[i].rights & UTVM_RIGHT_WRITE)) {
            window(number++, begin, end, READ_EXECUTE);
        } else if (workspace >= begin && workspace < end) {
            const enum access access =
                regions[i].rights & UTVM_RIGHT_EXECUTE ? READ_WRITE_EXECUTE : READ_WRITE;
#if __ARM_ARCH >= 8
            window(number++, workspace, workspace_end, access);
#else
            // A later window counts more than an earlier one.
            window(number++, begin, workspace_end, access);
            if (workspace > begin) {
                window(number++, begin, workspace, NOTHING);
            }
#endif
        }
    }
    window(number++, stack, (uint32_t)(uintptr_t)utvm_task_stack_end, READ_WRITE);
#ifdef BOARD_DEVICE_WINDOWS
    for (uint32_t i = 0u; i < DEVICE_WINDOW_COUNT; ++i) {
        window(number++, device_windows[i][0], device_windows[i][1], REGISTERS);
    }
#endif
#ifdef BOARD_POOLS
    for (uint32_t i = 0u; i < POOL_COUNT; ++i) {
        window(number++, pools[i][0], pools[i][1], READ_WRITE);
    }
#endif
    for (; number < WINDOW_COUNT; ++number) {
        MPU_RNR = number;
        MPU_RASR = 0u;
    }
    MPU_CTRL = CTRL_ENABLE | CTRL_PRIVILEGED_DEFAULT;
    barrier();
}
