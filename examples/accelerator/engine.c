// utvm's engine mx8: gives the driver what a blob says. The device's registers and what the model
// of the device needs are in scratch; on silicon, mx8_device() would be an address of the board.
//
// SPDX-License-Identifier: Apache-2.0

#include "blob.h"
#include "model.h"

struct mx8_state {
    const uint32_t *blob;
    uint32_t cycles;    // of the device, in the latest run
    uint32_t fallbacks; // runs that the CPU did
};

static volatile struct mx8_registers *mx8_device(void *scratch) {
    return &((struct mx8_model *)scratch)->registers;
}

int32_t mx8_wait(volatile struct mx8_registers *device) {
    struct mx8_model *model = (struct mx8_model *)(uintptr_t)device;
    mx8_model_step(model);
    return (int32_t)model->is_raised;
}

uint32_t mx8_format(void) {
    return 1u;
}

int32_t mx8_init(const uint8_t *blob, uint32_t bytes, void *state) {
    struct mx8_state *ours = state;
    ours->blob = (const uint32_t *)(const void *)blob;
    ours->cycles = ours->fallbacks = 0;
    return bytes < MX8_BLOB_WORDS * sizeof(uint32_t);
}

// Scratch is the model of the device, the queue, and what layers make for each other.
int32_t mx8_run(void *state, const void *const *inputs, void *const *outputs, void *scratch) {
    struct mx8_state *ours = state;
    const uint32_t *blob = ours->blob, *sizes = blob + MX8_BLOB_WORDS;
    const uint32_t regions = 2u + blob[MX8_INPUTS] + blob[MX8_OUTPUTS];
    const uint32_t *layers = sizes + regions;
    struct mx8_work work = {0};
    work.commands = layers + blob[MX8_LAYERS] * MX8_LAYER_WORDS;
    work.count = blob[MX8_COUNT];
    work.written = blob[MX8_WRITTEN];
    work.has_interrupt = blob[MX8_FLAGS] & MX8_WITH_INTERRUPT;
    work.test = blob[MX8_TEST];
    work.queue = (uint32_t *)(void *)((uint8_t *)scratch + sizeof(struct mx8_model));
    work.address[0] = work.commands + work.count * MX8_COMMAND_WORDS;
    work.address[1] = work.queue + MX8_SLOTS * MX8_COMMAND_WORDS;
    for (uint32_t i = 0; i < regions; i++) {
        work.bytes[i] = sizes[i];
    }
    for (uint32_t i = 0; i < blob[MX8_INPUTS]; i++) {
        work.address[2u + i] = inputs[i];
    }
    for (uint32_t i = 0; i < blob[MX8_OUTPUTS]; i++) {
        work.address[2u + blob[MX8_INPUTS] + i] = outputs[i];
    }
    volatile struct mx8_registers *device = mx8_device(scratch);
    int32_t status = mx8_execute(device, &work);
    ours->cycles = device->cycles;
    if (status != 0 && (blob[MX8_FLAGS] & MX8_WITH_FALLBACK)) {
        for (uint32_t i = 0; i < blob[MX8_LAYERS]; i++) {
            mx8_on_cpu(layers + i * MX8_LAYER_WORDS, &work);
        }
        ours->fallbacks++;
        status = 0;
    }
    return status;
}

void mx8_release(void *state) {
    ((struct mx8_state *)state)->blob = (const uint32_t *)0;
}
