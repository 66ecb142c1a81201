// The driver of MX8. It knows registers and memory only. utvm's engine mx8 (engine.c) calls it.
//
// SPDX-License-Identifier: Apache-2.0

#ifndef MX8_DRIVER_H
#define MX8_DRIVER_H

#include "mx8.h"

// A status that a run ends with, if not with 0.
enum mx8_status {
    MX8_NO_DEVICE = -10,
    MX8_TIMEOUT = -11,
    MX8_FAULT_COMMAND = -12,
    MX8_FAULT_ADDRESS = -13,
    MX8_INCOMPLETE = -14 // it wrote fewer bytes than the commands say
};

struct mx8_work {
    const uint32_t *commands;
    uint32_t count;
    uint32_t written; // bytes that STORE commands write
    uint32_t has_interrupt;
    uint32_t test;
    uint32_t *queue; // MX8_SLOTS commands
    const void *address[MX8_REGIONS];
    uint32_t bytes[MX8_REGIONS];
};

// Execute commands; returns 0, or a status.
int32_t mx8_execute(volatile struct mx8_registers *device, const struct mx8_work *work);

// What a board brings: wait until something may have happened, such as by WFI. With a device in
// silicon it may do nothing. Returns whether the interrupt's line is raised.
int32_t mx8_wait(volatile struct mx8_registers *device);

#endif
