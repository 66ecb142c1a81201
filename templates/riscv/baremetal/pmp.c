// What tasks may touch: code, the workspace and their stack, by physical memory
// protection. It does not hold for the runtime, which is in machine mode.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "guard.h"
#include "core.h"

#define ENTRY_COUNT 16u
#define READ 1u
#define WRITE 2u
#define EXECUTE 4u
#define UP_TO (1u << 3) // from the entry before it, which is often off

extern uint8_t utvm_workspace[], utvm_workspace_end[];

struct entries {
    uint32_t count;
    uint32_t ends[ENTRY_COUNT];
    uint32_t rights[ENTRY_COUNT / 4u];
};

static void add(struct entries *entries, uint32_t end, uint32_t rights) {
    const uint32_t number = entries->count++;
    entries->ends[number] = end >> 2;
    entries->rights[number / 4u] |= rights << (8u * (number % 4u));
}

// A window that does not fit any more is not open: tasks are stopped there.
static void window(struct entries *entries, uint32_t begin, uint32_t end, uint32_t rights) {
    const uint32_t count = entries->count;
    const uint32_t adjoins = count > 0u && entries->ends[count - 1u] == begin >> 2;
    if (count + 2u - adjoins <= ENTRY_COUNT) {
        if (!adjoins) {
            add(entries, begin, 0u);
        }
        add(entries, end, UP_TO | rights);
    }
}

#ifdef BOARD_DEVICE_WINDOWS
static const uint32_t device_windows[][2] = {BOARD_DEVICE_WINDOWS};
#define DEVICE_WINDOW_COUNT (sizeof device_windows / sizeof device_windows[0])
#endif
#ifdef BOARD_POOLS
static const uint32_t pools[][2] = {BOARD_POOLS};
#define POOL_COUNT (sizeof pools / sizeof pools[0])
#endif

// The most important windows come first.
void mpu_start(const struct utvm_region *regions, uint32_t count) {
    struct entries entries = {0u, {0u}, {0u}};
    const uint32_t workspace = (uint32_t)(uintptr_t)utvm_workspace;
    for (uint32_t i = 0u; i < count; ++i) {
        const uint32_t begin = (uint32_t)(uintptr_t)regions[i].begin;
        const uint32_t end = (uint32_t)(uintptr_t)regions[i].end;
        if (!(regions[i].rights & UTVM_RIGHT_WRITE)) {
            window(&entries, begin, end, READ | EXECUTE);
        } else if (workspace >= begin && workspace < end) {
            const uint32_t execute = regions[i].rights & UTVM_RIGHT_EXECUTE ? EXECUTE : 0u;
            window(&entries, workspace, (uint32_t)(uintptr_t)utvm_workspace_end,
                   READ | WRITE | execute);
        }
    }
    window(&entries, (uint32_t)(uintptr_t)utvm_task_stack, (uint32_t)(uintptr_t)utvm_task_stack_end,
           READ | WRITE);
#ifdef BOARD_DEVICE_WINDOWS
    for (uint32_t i = 0u; i < DEVICE_WINDOW_COUNT; ++i) {
        window(&entries, device_windows[i][0], device_windows[i][1], READ | WRITE);
    }
#endif
#ifdef BOARD_POOLS
    for (uint32_t i = 0u; i < POOL_COUNT; ++i) {
        window(&entries, pools[i][0], pools[i][1], READ | WRITE);
    }
#endif
#define SET_END(n) WRITE_CSR("pmpaddr" #n, entries.ends[n])
    SET_END(0);
    SET_END(1);
    SET_END(2);
    SET_END(3);
    SET_END(4);
    SET_END(5);
    SET_END(6);
    SET_END(7);
    SET_END(8);
    SET_END(9);
    SET_END(10);
    SET_END(11);
    SET_END(12);
    SET_END(13);
    SET_END(14);
    SET_END(15);
    WRITE_CSR("pmpcfg0", entries.rights[0]);
    WRITE_CSR("pmpcfg1", entries.rights[1]);
    WRITE_CSR("pmpcfg2", entries.rights[2]);
    WRITE_CSR("pmpcfg3", entries.rights[3]);
}
