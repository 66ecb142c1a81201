// The MPU's table where the host loads code into RAM: a SoC's own forbids RAM
// to execute. What is in no region here is as the architecture has it, and
// executes; flash cannot be written, and the kernel adds its stacks' guards.
//
// SPDX-License-Identifier: Apache-2.0

#ifdef CONFIG_UTVM_OWN_MPU_REGIONS
#include <zephyr/kernel.h>

#include <zephyr/arch/arm/cortex_m/arm_mpu_mem_cfg.h>
#include <zephyr/arch/arm/mpu/arm_mpu.h>

static const struct arm_mpu_region regions[] = {
    MPU_REGION_ENTRY("FLASH_0", CONFIG_FLASH_BASE_ADDRESS, REGION_FLASH_ATTR(REGION_FLASH_SIZE)),
};

const struct arm_mpu_config mpu_config = {
    .num_regions = ARRAY_SIZE(regions),
    .mpu_regions = regions,
};
#endif
