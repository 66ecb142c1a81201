// A ring of received bytes: the interrupt puts, the main loop takes. One
// writer and one reader per index, so no lock is needed.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef RING_H
#define RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_BYTES 2048u // a power of two

struct ring {
    volatile uint32_t put;
    volatile uint32_t taken;
    uint8_t bytes[RING_BYTES];
};

static inline bool ring_is_empty(const struct ring *r) {
    return r->put == r->taken;
}

static inline bool ring_is_full(const struct ring *r) {
    return r->put - r->taken == RING_BYTES;
}

static inline void ring_put(struct ring *r, uint8_t byte) {
    r->bytes[r->put % RING_BYTES] = byte;
    r->put = r->put + 1u;
}

static inline size_t ring_take(struct ring *r, uint8_t *data, size_t size) {
    size_t n = 0u;
    while (n < size && !ring_is_empty(r)) {
        data[n++] = r->bytes[r->taken % RING_BYTES];
        r->taken = r->taken + 1u;
    }
    return n;
}

#endif
