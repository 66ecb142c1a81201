"""The strict reader of a driver's table in a board file; the drivers are those of its target."""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.base.toml_table import MAX_INTEGER, Table
from utvm_deploy.boards.facts import Cpu, Driver, Step, Timer
from utvm_deploy.targets.contract.target import Drivers

TICK_UNITS = ("cycles", "instructions", "nanoseconds")

_WORD = 0xFFFF_FFFF


def read_driver(
    table: Table, drivers: Mapping[str, tuple[str, ...]], defaults: Mapping[str, Mapping[str, int]]
) -> Driver:
    """The driver that a table names, one of ``drivers``; ``defaults`` are as in ``Drivers``."""
    name = table.text("driver", drivers)
    settings = [(key, table.integer(key)) for key in drivers[name]]
    for key, default in defaults.get(name, {}).items():
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


def read_timer(table: Table, cpu: Cpu, drivers: Drivers) -> Timer:
    """The table ``[project.timer]``. BoardError for a timer that the core does not have."""
    timer = Timer(
        driver=read_driver(table, drivers.timers, drivers.defaults),
        unit=table.text("unit", TICK_UNITS),
        multiplier=table.integer("multiplier", minimum=1),
        divisor=table.integer("divisor", minimum=1),
    )
    own = cpu.facts.timers
    if timer.driver.name in {one for core in cpu.target.cores for one in core.timers} - {*own}:
        raise table.error(
            "driver",
            f"{cpu.core} has no timer {timer.driver.name!r}; write {' or '.join(map(repr, own))}, "
            "or a timer of the chip",
        )
    if timer.driver.setting("clock_hz") == 0:
        raise table.error("clock_hz", "0 is not a timer's rate")
    if not 0 < timer.ticks_hz <= MAX_INTEGER:
        raise table.error(
            "divisor", f"the timer has {timer.ticks_hz} ticks in a second, not 1 to {MAX_INTEGER}"
        )
    table.finish()
    return timer
