// A set-associative cache with least-recently-used replacement.
//
// SPDX-License-Identifier: Apache-2.0

#include "cache.h"

static bool is_power_of_two(uint32_t n) {
    return n && !(n & (n - 1));
}

bool cache_configure(struct cache *cache, uint32_t bytes, uint32_t ways, uint32_t line_bytes) {
    if (!bytes) {
        cache->ways = 0;
        return true;
    }
    if (!is_power_of_two(bytes) || !is_power_of_two(ways) || !is_power_of_two(line_bytes) ||
        bytes < ways * line_bytes || bytes / line_bytes > CACHE_LINES_MAX) {
        return false;
    }
    cache->ways = ways;
    cache->line_shift = (uint32_t)__builtin_ctz(line_bytes);
    cache->set_mask = bytes / line_bytes / ways - 1;
    cache_clear(cache);
    return true;
}

void cache_clear(struct cache *cache) {
    for (uint32_t n = 0; n < CACHE_LINES_MAX; ++n) {
        cache->lines[n] = CACHE_NO_LINE;
    }
}

bool cache_touch_slowly(struct cache *cache, uint32_t line) {
    const uint32_t stride = cache->set_mask + 1;
    uint32_t *way = &cache->lines[line & cache->set_mask];
    uint32_t moved = line;
    for (uint32_t n = 0; n < cache->ways; ++n, way += stride) {
        const uint32_t here = *way;
        *way = moved;
        if (here == line) {
            return true;
        }
        moved = here;
    }
    return false;
}
