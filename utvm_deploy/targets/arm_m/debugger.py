"""Cortex-M cores behind a debugger."""

from __future__ import annotations

from collections.abc import Iterator

from utvm_deploy.targets.contract.debugger import Debugger, Register


def _old_layout() -> Iterator[tuple[str, Register]]:
    names = [*(f"r{i}" for i in range(13)), "sp", "lr", "pc"]
    for number, name in enumerate(names):
        yield name, Register(number, 4, 4 * number)
    # Eight floating-point registers of 12 bytes and their status stand between, since the 1990s.
    yield "xpsr", Register(25, 4, 16 * 4 + 8 * 12 + 4)


DEBUGGER = Debugger(
    architecture="arm",
    registers=frozenset({"sp", "pc", "xpsr"}),
    # What GDB assumes of an Arm.
    assumed=dict(_old_layout()),
    # Thread mode, Thumb, no condition pending.
    start={"xpsr": 0x01000000},
    # AIRCR: the key, and the request to reset the system.
    reset=(0xE000ED0C, 0x05FA0004),
    # An instruction of Thumb with 16 bits.
    breakpoint_kind=2,
)
