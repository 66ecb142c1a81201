"""What images for Cortex-M are made from."""

from __future__ import annotations

from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import Drivers, Selftest, Templates

#: The drivers of ``templates/arm_m/baremetal``.
DRIVERS = Drivers(
    uarts={
        "cmsdk": ("base", "rx_irq", "clock_hz"),
        "nrf": ("base", "rx_irq", "clock_hz", "tx_pin", "rx_pin"),
        "nrf_uarte": ("base", "rx_irq", "tx_pin", "rx_pin"),
        "pl011": ("base", "rx_irq", "clock_hz"),
        "imx_lpuart": ("base", "rx_irq", "clock_hz"),
        "stm32_usart": (
            "base",
            "rx_irq",
            "clock_hz",
            "enable_register",
            "enable_bit",
            "gpio_enable_register",
            "tx_gpio_base",
            "tx_gpio_enable_bit",
            "tx_pin",
            "rx_gpio_base",
            "rx_gpio_enable_bit",
            "rx_pin",
            "alternate_function",
        ),
    },
    timers={
        "dwt": ("clock_hz",),
        "systick": ("clock_hz",),
        "cmsdk": ("base", "irq", "clock_hz"),
        "sse_counter": ("base", "control_base", "irq", "clock_hz"),
        "nrf": ("base", "irq", "clock_hz"),
        "stm32_tim": ("base", "slow_base", "enable_register", "enable_mask", "clock_hz"),
    },
    clocks={
        "none": (),
        "steps": (),
        "stm32f7_pll": (
            "hse_hz",
            "hse_bypass",
            "pll_m",
            "pll_n",
            "pll_p",
            "pll_q",
            "apb1_divider",
            "apb2_divider",
            "flash_wait_states",
            "overdrive",
        ),
    },
    boot_blocks=("none", "rp2040", "rp2350", "imxrt_flexspi"),
    defaults={"stm32_usart": {"baud_factor": 1}},
)


def guard_of(core: Core) -> tuple[str, ...]:
    """How tasks are entered and left: Armv6-M lacks most instructions of the other cores."""
    lacks_thumb2 = core.architecture == "armv6-m"
    return "guard.c", "guard_armv6m.c" if lacks_thumb2 else "guard_armv7m.c"


TEMPLATES = Templates(
    folders={"baremetal": ("baremetal", "arm_m/baremetal"), "zephyr": ("zephyr", "arm_m/zephyr")},
    guard_of=guard_of,
    drivers=DRIVERS,
    selftest=Selftest(
        core="Cortex-M",
        folder="cortex_m",
        startup="arm_m/bundle/startup.c.in",
        build="arm",
        printing="semihosting, so a debugger or an emulator must",
        emulator_options=("-semihosting",),
        link_options=("--specs=nosys.specs",),
    ),
    zephyr_symbol="CPU_CORTEX_M",
    zephyr_fpu=("CONFIG_FPU_SHARING=y",),
)
