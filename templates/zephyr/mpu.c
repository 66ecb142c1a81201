// The MPU's table where the host loads code into RAM: a SoC's own forbids RAM
// to execute. What is in no region here is as the architecture has it, and
// executes; flash cannot be written, and the kernel adds its stacks' guards.
//
// SPDX-License-Identifier: Apache-2.0

#ifdef CONFIG_UTVM_OWN_MPU_REGIONS
#include <zephyr/kernel.h>

// Its folder is another one in later releases.
#if __has_include(<zephyr/arch/arm/mpu/arm_mpu_mem_cfg.h>)
#include <zephyr/arch/arm/mpu/arm_mpu_mem_cfg.h>
#else
#include <zephyr/arch/arm/cortex_m/arm_mpu_mem_cfg.h>
#endif
#include <zephyr/arch/arm/mpu/arm_mpu.h>

#ifdef CONFIG_ARMV8_M_MAINLINE
#define FLASH_ATTR REGION_FLASH_ATTR(CONFIG_FLASH_BASE_ADDRESS, CONFIG_FLASH_SIZE * 1024)
// Regions must not overlap, so the kernel cuts those of its own out of one for all its RAM.
#define RAM_ATTR                                                                                   \
    {.rbar = P_RW_U_NA_Msk | NON_SHAREABLE_Msk,                                                    \
     .mair_idx = MPU_MAIR_INDEX_SRAM,                                                              \
     .r_limit = REGION_LIMIT_ADDR(CONFIG_SRAM_BASE_ADDRESS, CONFIG_SRAM_SIZE * 1024)}
#else
#define FLASH_ATTR REGION_FLASH_ATTR(REGION_FLASH_SIZE)
#endif

static const struct arm_mpu_region regions[] = {
    MPU_REGION_ENTRY("FLASH_0", CONFIG_FLASH_BASE_ADDRESS, FLASH_ATTR),
#ifdef CONFIG_ARMV8_M_MAINLINE
    MPU_REGION_ENTRY("SRAM_0", CONFIG_SRAM_BASE_ADDRESS, RAM_ATTR),
#endif
};

const struct arm_mpu_config mpu_config = {
    .num_regions = ARRAY_SIZE(regions),
    .mpu_regions = regions,
};
#endif
