// The driver of MX8. It knows registers and memory only.
//
// SPDX-License-Identifier: Apache-2.0

#include "driver.h"

// Waits without a command that gets done, before the driver gives up.
#define MOST_WAITS 1000u

static void start(volatile struct mx8_registers *device, const struct mx8_work *work) {
    device->test = work->test;
    device->slots = MX8_SLOTS;
    device->queue = (uintptr_t)work->queue;
    for (uint32_t region = 0; region < MX8_REGIONS; region++) {
        device->address[region] = (uintptr_t)work->address[region];
        device->bytes[region] = work->bytes[region];
    }
    device->tail = 0;
    device->control = MX8_RUN | (work->has_interrupt ? MX8_INTERRUPT : 0u);
}

// Copy commands to free places of the queue; returns the new tail.
static uint32_t filled(const struct mx8_work *work, uint32_t tail, uint32_t head) {
    while (tail < work->count && tail - head < MX8_SLOTS) {
        uint32_t *to = work->queue + (tail % MX8_SLOTS) * MX8_COMMAND_WORDS;
        for (uint32_t word = 0; word < MX8_COMMAND_WORDS; word++) {
            to[word] = work->commands[tail * MX8_COMMAND_WORDS + word];
        }
        tail++;
    }
    return tail;
}

int32_t mx8_execute(volatile struct mx8_registers *device, const struct mx8_work *work) {
    device->control = MX8_RESET;
    for (uint32_t waits = 0; device->control & MX8_RESET; waits++) {
        if (waits == MOST_WAITS) {
            return MX8_NO_DEVICE;
        }
        mx8_wait(device);
    }
    if (device->id != MX8_ID) {
        return MX8_NO_DEVICE;
    }
    start(device, work);
    uint32_t tail = 0, head = 0, waits = 0;
    while (head < work->count) {
        tail = filled(work, tail, head);
        device->tail = tail;
        // With the interrupt, the registers are read only when it says that there is news.
        const int32_t has_news = mx8_wait(device) || !work->has_interrupt;
        if (has_news && device->fault != 0) {
            return device->fault == MX8_BAD_ADDRESS ? MX8_FAULT_ADDRESS : MX8_FAULT_COMMAND;
        }
        const uint32_t now = has_news ? device->head : head;
        waits = now == head ? waits + 1u : 0u;
        head = now;
        if (waits > MOST_WAITS) {
            device->control = MX8_RESET;
            return MX8_TIMEOUT;
        }
    }
    return device->written == work->written ? 0 : MX8_INCOMPLETE;
}
