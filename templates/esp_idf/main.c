// The runtime in a project of ESP-IDF: a line, a clock and a thread for tasks,
// handed to utvm.
//
// SPDX-License-Identifier: Apache-2.0

#include "app_config.h"
#include "image_id.h"
#include "port.h"

#include "esp_attr.h"
#include "esp_random.h"
#include "esp_system.h"

// Memory that the host lays out. Start-up does not clear it.
extern uint8_t utvm_workspace[UTVM_WORKSPACE_BYTES];
__NOINIT_ATTR __attribute__((aligned(64))) uint8_t utvm_workspace[UTVM_WORKSPACE_BYTES];

// A second symbol at its end, for whoever reads the ELF.
#define STRING_(x) #x
#define STRING(x) STRING_(x)
__asm__(".globl utvm_workspace_end\n"
        ".set utvm_workspace_end, utvm_workspace + " STRING(UTVM_WORKSPACE_BYTES) "\n");

// Of ESP-IDF's linker scripts: code and constants in flash.
extern const uint8_t _text_start[], _text_end[], _rodata_start[], _rodata_end[];

static int32_t port_read(void *context, uint8_t *data, uint32_t size) {
    (void)context;
    return (int32_t)line_read(data, size);
}

static int32_t port_write(void *context, const uint8_t *data, uint32_t size) {
    (void)context;
    return (int32_t)line_write(data, size);
}

static void port_reset(void *context) {
    (void)context;
    utvm_fault.magic = 0u; // after this restart nothing speaks of an older fault
    line_drain();
    esp_restart();
}

// Code in the workspace is written by one address and executed by another, where
// instructions have a bus of their own.
#define CODE_BEGIN ((const void *)((uintptr_t)utvm_workspace + UTVM_CODE_OFFSET))
#define CODE_END                                                                                   \
    ((const void *)((uintptr_t)utvm_workspace + UTVM_CODE_OFFSET + UTVM_WORKSPACE_BYTES))

void app_main(void) {
    static uint8_t rx_buffer[UTVM_RX_BYTES(PAYLOAD_BYTES)];
    static uint8_t tx_buffer[UTVM_TX_BYTES(PAYLOAD_BYTES)];
    const struct utvm_region regions[] = {
        {utvm_workspace, utvm_workspace + UTVM_WORKSPACE_BYTES,
         UTVM_RIGHT_READ | UTVM_RIGHT_WRITE | UTVM_WORKSPACE_EXECUTE},
        {CODE_BEGIN, CODE_END, UTVM_RIGHT_EXECUTE},
        // Its bus reads whole words only, so nobody may read it.
        {_text_start, _text_end, UTVM_RIGHT_EXECUTE},
        {_rodata_start, _rodata_end, UTVM_RIGHT_READ},
        {&utvm_fault, &utvm_fault + 1, UTVM_RIGHT_READ | UTVM_RIGHT_WRITE},
    };
    const struct utvm_config config = {
        .read = port_read,
        .write = port_write,
        .ticks = ticks_now,
        .reset = port_reset,
        .call = guard_call,
        .deadline = guard_deadline,
        .rx_buffer = rx_buffer,
        .rx_size = sizeof rx_buffer,
        .tx_buffer = tx_buffer,
        .tx_size = sizeof tx_buffer,
        .regions = regions,
        .region_count = sizeof regions / sizeof regions[0],
        .workspace = utvm_workspace,
        .workspace_end = utvm_workspace + UTVM_WORKSPACE_BYTES,
        .ticks_per_second = UTVM_CPU_HZ,
        .tick_unit = UTVM_TICK_UNIT_CYCLES,
        .image = UTVM_IMAGE_ID,
    };
    if (esp_reset_reason() == ESP_RST_POWERON) {
        utvm_fault.magic = 0u; // what RAM woke up with
    }
    line_start();
    ticks_start();
    guard_start();
    static utvm_t utvm;
    int result = utvm_init(&utvm, &config, esp_random());
    while (result >= 0) {
        result = utvm_poll(&utvm);
        if (result == 0) {
            line_wait();
        }
    }
}
