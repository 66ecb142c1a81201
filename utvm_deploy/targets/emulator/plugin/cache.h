// A set-associative cache with least-recently-used replacement; it knows lines, not their bytes.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef UTVM_CACHE_H
#define UTVM_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#define CACHE_LINES_MAX 2048 // 64 KB of 32 bytes, the largest a Cortex-M7 can have
#define CACHE_NO_LINE UINT32_MAX

struct cache {
    uint32_t line_shift;
    uint32_t set_mask;
    uint32_t ways; // 0: there is no such cache
    // Line numbers, way by way: way 0 of each set is the one used last, and lies first in memory
    // so that the common case is one look.
    uint32_t lines[CACHE_LINES_MAX];
};

// False if the cache cannot exist: sizes that are no powers of two, or too large.
bool cache_configure(struct cache *cache, uint32_t bytes, uint32_t ways, uint32_t line_bytes);

// Empties it.
void cache_clear(struct cache *cache);

// The line is touched though it is not the one of its set used last; false if it is a miss.
bool cache_touch_slowly(struct cache *cache, uint32_t line);

static inline bool cache_is_latest(const struct cache *cache, uint32_t line) {
    return cache->lines[line & cache->set_mask] == line;
}

#endif
