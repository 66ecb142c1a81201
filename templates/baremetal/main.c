// The runtime on a bare board: what the drivers offer, handed to utvm.
//
// SPDX-License-Identifier: Apache-2.0

#include "board_config.h"
#include "core.h"
#include "guard.h"
#include "idle.h"
#include "port.h"
#include "utvm.h"

// Moved in one exchange; more makes fewer round trips of a slow line.
#define PAYLOAD_BYTES 2048u

// Of the linker script: the RAM that nothing else uses.
extern uint8_t utvm_workspace[], utvm_workspace_end[];

// Start-up leaves both alone. The count tells resets without power loss apart;
// after power-up it is whatever the RAM woke up with. An emulator's RAM wakes
// up as zeros, so its host fills in a seed.
__attribute__((section(".noinit"))) uint32_t utvm_boot_seed;
__attribute__((section(".noinit"))) static uint32_t boot_count;

static uint32_t boot_nonce(void) {
    boot_count = boot_count + 1u;
    // An odd multiplier maps different counts to different nonces.
    return utvm_boot_seed + boot_count * 0x9E3779B1u;
}

static int32_t port_read(void *context, uint8_t *data, uint32_t size) {
    (void)context;
    return (int32_t)uart_read(data, size);
}

static int32_t port_write(void *context, const uint8_t *data, uint32_t size) {
    (void)context;
    return (int32_t)uart_write(data, size);
}

static uint64_t port_ticks(void *context) {
    (void)context;
    return timer_ticks();
}

static void port_reset(void *context) {
    (void)context;
    utvm_fault.magic = 0u; // after this reset nothing speaks of an older fault
    uart_drain();
    system_reset();
}

static void port_code_written(void *context, const void *address, uint32_t size) {
    (void)context;
    utvm_sync_code(address, size);
}

static uint8_t rx_buffer[UTVM_RX_BYTES(PAYLOAD_BYTES)];
static uint8_t tx_buffer[UTVM_TX_BYTES(PAYLOAD_BYTES)];

#define REGION(begin, end, rights) {(const void *)(begin), (const void *)(end), (rights)}
static const struct utvm_region regions[] = {BOARD_REGIONS};

static const struct utvm_config config = {
    .read = port_read,
    .write = port_write,
    .ticks = port_ticks,
    .reset = port_reset,
    .call = guard_call,
    .deadline = guard_deadline,
    .code_written = port_code_written,
    .rx_buffer = rx_buffer,
    .rx_size = sizeof rx_buffer,
    .tx_buffer = tx_buffer,
    .tx_size = sizeof tx_buffer,
    .regions = regions,
    .region_count = sizeof regions / sizeof regions[0],
    .workspace = utvm_workspace,
    .workspace_end = utvm_workspace_end,
    .ticks_per_second = BOARD_TICKS_HZ,
    .tick_unit = BOARD_TICK_UNIT,
    .image = UTVM_IMAGE_ID,
};

int main(void) {
    static utvm_t utvm;
    uart_start();
    timer_start();
    mpu_start(regions, sizeof regions / sizeof regions[0]);
    interrupts_on();
    int result = utvm_init(&utvm, ticks_choose(&config), boot_nonce());
    debugger_open(&utvm);
    while (result >= 0) {
        result = utvm_poll(&utvm);
        if (result == 0) {
            idle();
        }
    }
    return result;
}
