// Cache maintenance for code that was just written to RAM.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "guard.h"
#include "port.h"

void sync_code(const void *address, uint32_t size) {
#if BOARD_DCACHE_BYTES
    const uint32_t end = (uint32_t)(uintptr_t)address + size;
    uint32_t line = (uint32_t)(uintptr_t)address & ~(BOARD_CACHE_LINE_BYTES - 1u);
    barrier();
    for (; line < end; line += BOARD_CACHE_LINE_BYTES) {
        CACHE_DCCMVAU = line;
    }
    barrier();
#else
    (void)address;
    (void)size;
#endif
#if BOARD_ICACHE_BYTES
    CACHE_ICIALLU = 0u;
#endif
    barrier();
}

void utvm_sync_code(const void *address, uint32_t size) {
    // Tasks have no access to the caches.
    if (is_unprivileged()) {
        guard_sync_code(address, size);
    } else {
        sync_code(address, size);
    }
}
