// The runtime in a Zephyr application: a UART, a clock and a thread for tasks,
// handed to utvm.
//
// SPDX-License-Identifier: Apache-2.0

#include <zephyr/cache.h>
#include <zephyr/device.h>
#include <zephyr/kernel.h>
#include <zephyr/linker/devicetree_regions.h>
#include <zephyr/linker/linker-defs.h>
#include <zephyr/sys/barrier.h>
#include <zephyr/sys/device_mmio.h>
#include <zephyr/sys/reboot.h>

#include "app_config.h"
#include "image_id.h"
#include "port.h"

// Memory that the host lays out: in the region that the device tree chooses,
// or in the kernel's own RAM.
#if DT_HAS_CHOSEN(utvm_workspace)
#define WORKSPACE_SECTION Z_GENERIC_SECTION(LINKER_DT_NODE_REGION_NAME(DT_CHOSEN(utvm_workspace)))
BUILD_ASSERT(CONFIG_UTVM_WORKSPACE_BYTES <= DT_REG_SIZE(DT_CHOSEN(utvm_workspace)),
             "the workspace does not fit the memory that utvm,workspace chooses");
#else
#define WORKSPACE_SECTION __noinit
#endif
extern uint8_t utvm_workspace[CONFIG_UTVM_WORKSPACE_BYTES];
WORKSPACE_SECTION __aligned(64) uint8_t utvm_workspace[CONFIG_UTVM_WORKSPACE_BYTES];

// A second symbol at its end, for whoever reads the ELF.
__asm__(".globl utvm_workspace_end\n"
        ".set utvm_workspace_end, utvm_workspace + " STRINGIFY(CONFIG_UTVM_WORKSPACE_BYTES) "\n");

// Start-up leaves both alone. The count tells resets without power loss apart;
// after power-up it is whatever the RAM woke up with. An emulator's RAM wakes
// up the same each time, so its host fills in a seed.
struct boot_memory {
    uint32_t seed;
    uint32_t count;
};
extern struct boot_memory utvm_boot_seed;

#if CONFIG_UTVM_BOOT_SEED_ADDRESS
__asm__(".globl utvm_boot_seed\n"
        ".set utvm_boot_seed, " STRINGIFY(CONFIG_UTVM_BOOT_SEED_ADDRESS) "\n");

static struct boot_memory *boot_memory(void) {
    mm_reg_t address = CONFIG_UTVM_BOOT_SEED_ADDRESS;
#ifdef CONFIG_MMU
    device_map(&address, CONFIG_UTVM_BOOT_SEED_ADDRESS, sizeof utvm_boot_seed, K_MEM_CACHE_NONE);
#endif
    return (struct boot_memory *)address;
}
#else
__noinit struct boot_memory utvm_boot_seed;

static struct boot_memory *boot_memory(void) {
    return &utvm_boot_seed;
}
#endif

static uint32_t boot_nonce(void) {
    volatile struct boot_memory *boot = boot_memory();
    boot->count = boot->count + 1u;
    // An odd multiplier maps different counts to different nonces.
    return boot->seed + boot->count * 0x9E3779B1u;
}

static int32_t port_read(void *context, uint8_t *data, uint32_t size) {
    ARG_UNUSED(context);
    return (int32_t)uart_take(data, size);
}

static int32_t port_write(void *context, const uint8_t *data, uint32_t size) {
    ARG_UNUSED(context);
    return (int32_t)uart_give(data, size);
}

static void port_reset(void *context) {
    ARG_UNUSED(context);
    uart_drain();
    sys_reboot(SYS_REBOOT_COLD);
}

static void port_code_written(void *context, const void *address, uint32_t size) {
    ARG_UNUSED(context);
#ifdef CONFIG_CACHE_MANAGEMENT
    (void)sys_cache_data_flush_range((void *)(uintptr_t)address, size);
    (void)sys_cache_instr_invd_all();
#else
    ARG_UNUSED(address);
    ARG_UNUSED(size);
#endif
    barrier_dsync_fence_full();
    barrier_isync_fence_full();
}

int main(void) {
    static uint8_t rx_buffer[UTVM_RX_BYTES(CONFIG_UTVM_PAYLOAD_BYTES)];
    static uint8_t tx_buffer[UTVM_TX_BYTES(CONFIG_UTVM_PAYLOAD_BYTES)];
    const struct utvm_region regions[] = {
        {utvm_workspace, utvm_workspace + sizeof utvm_workspace,
         UTVM_RIGHT_READ | UTVM_RIGHT_WRITE | UTVM_RIGHT_EXECUTE},
        // Code and constants, weights among them.
        {__text_region_start, __text_region_end, UTVM_RIGHT_READ | UTVM_RIGHT_EXECUTE},
        {__rodata_region_start, __rodata_region_end, UTVM_RIGHT_READ},
    };
    if (uart_start()) {
        return 0; // nobody can be told
    }
    ticks_start();
    const struct utvm_config config = {
        .read = port_read,
        .write = port_write,
        .ticks = ticks_now,
        .reset = port_reset,
        .call = guard_call,
        .deadline = guard_deadline,
        .code_written = port_code_written,
        .rx_buffer = rx_buffer,
        .rx_size = sizeof rx_buffer,
        .tx_buffer = tx_buffer,
        .tx_size = sizeof tx_buffer,
        .regions = regions,
        .region_count = ARRAY_SIZE(regions),
        .workspace = utvm_workspace,
        .workspace_end = utvm_workspace + sizeof utvm_workspace,
        .ticks_per_second = ticks_per_second(),
        .tick_unit = UTVM_TICKS_UNIT,
        .image = UTVM_IMAGE_ID,
    };
    guard_start();
    static utvm_t utvm;
    int result = utvm_init(&utvm, &config, boot_nonce());
    while (result >= 0) {
        result = utvm_poll(&utvm);
        if (result == 0) {
            uart_wait();
        }
    }
    return 0;
}
