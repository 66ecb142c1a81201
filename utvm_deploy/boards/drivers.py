"""The drivers of ``templates/baremetal``, and the strict reader of their tables in board files."""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.base.toml_table import MAX_INTEGER, Table
from utvm_deploy.boards.facts import Cpu, Driver, Step, Timer

TICK_UNITS = ("cycles", "instructions", "nanoseconds")

#: The keys of each driver; their values are integers.
UART_DRIVERS: Mapping[str, tuple[str, ...]] = {
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
}
TIMER_DRIVERS: Mapping[str, tuple[str, ...]] = {
    "dwt": ("clock_hz",),
    "systick": ("clock_hz",),
    "cmsdk": ("base", "irq", "clock_hz"),
    "sse_counter": ("base", "control_base", "irq", "clock_hz"),
    "nrf": ("base", "irq", "clock_hz"),
    "stm32_tim": ("base", "slow_base", "enable_register", "enable_mask", "clock_hz"),
}
#: Keys that may be missing, with what they are then.
DRIVER_DEFAULTS: Mapping[str, Mapping[str, int]] = {"stm32_usart": {"baud_factor": 1}}
CLOCK_DRIVERS: Mapping[str, tuple[str, ...]] = {
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
}
_WORD = 0xFFFF_FFFF


def read_driver(table: Table, drivers: Mapping[str, tuple[str, ...]]) -> Driver:
    """The driver that a table names, one of ``drivers``, with its numbers."""
    name = table.text("driver", drivers)
    settings = [(key, table.integer(key)) for key in drivers[name]]
    for key, default in DRIVER_DEFAULTS.get(name, {}).items():
        settings.append((key, table.integer(key, minimum=1) if table.has(key) else default))
    steps = tuple(_read_step(one) for one in table.tables("steps")) if name == "steps" else ()
    return Driver(name, tuple(settings), steps)


def _read_step(table: Table) -> Step:
    waits = table.has("wait")
    step = Step(
        register=table.integer("register"),
        mask=table.integer("mask", minimum=1) if table.has("mask") else _WORD,
        value=table.integer("wait" if waits else "value"),
        waits=waits,
    )
    if step.register % 4:
        raise table.error("register", f"0x{step.register:x} is not a multiple of 4")
    if step.value & ~step.mask:
        raise table.error(
            "wait" if waits else "value", f"0x{step.value:x} has bits beyond its mask"
        )
    table.finish()
    return step


def read_timer(table: Table, cpu: Cpu) -> Timer:
    """The table ``[project.timer]``. BoardError for a timer that the core does not have."""
    timer = Timer(
        driver=read_driver(table, TIMER_DRIVERS),
        unit=table.text("unit", TICK_UNITS),
        multiplier=table.integer("multiplier", minimum=1),
        divisor=table.integer("divisor", minimum=1),
    )
    if timer.driver.name == "dwt" and not cpu.facts.has_dwt:
        raise table.error(
            "driver",
            f"{cpu.core} has no DWT cycle counter; write 'systick', or a timer of the chip",
        )
    if timer.driver.setting("clock_hz") == 0:
        raise table.error("clock_hz", "0 is not a timer's rate")
    if not 0 < timer.ticks_hz <= MAX_INTEGER:
        raise table.error(
            "divisor", f"the timer has {timer.ticks_hz} ticks in a second, not 1 to {MAX_INTEGER}"
        )
    table.finish()
    return timer
