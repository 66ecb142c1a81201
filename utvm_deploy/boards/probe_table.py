"""The strict reader of a board file's table [probe]: programs that reach it, and its USB ids."""

from __future__ import annotations

import re

from utvm_deploy.base.toml_table import Table, did_you_mean, shown
from utvm_deploy.boards.facts import CHILD_PROBE, EMULATOR_PROBE, Probe, UsbId
from utvm_deploy.boards.probe_programs import IMAGE_FORMATS, PROBE_PROGRAMS, Action, ProbeCommands


def read_probe(table: Table, has_emulator: bool, flash_address: int) -> Probe:
    """The table ``[probe]``; ``flash_address`` is where images are written to."""
    kinds = table.strings("kinds")
    if not kinds:
        raise table.error("kinds", "must name at least one way to start an image")
    own = {}
    if table.has("commands"):
        tables = table.table("commands")
        own = {name: _read_commands(name, tables.table(name)) for name in tables.keys_present}
    known = (CHILD_PROBE, EMULATOR_PROBE, *own, *PROBE_PROGRAMS)
    commands: list[ProbeCommands] = []
    for kind in kinds:
        if kind not in known:
            # The table's name is not written before it.
            bare = kind.removeprefix("commands.")
            hint = f"; did you mean {bare!r}?" if bare in own else did_you_mean(kind, known)
            raise table.error("kinds", f"{shown(kind)} has no table commands.{kind[:60]}{hint}")
        if kind in own:
            commands.append(own[kind])
        elif kind in PROBE_PROGRAMS:
            program = PROBE_PROGRAMS[kind]
            values = {"flash_address": f"0x{flash_address:08x}"}
            if program.facts:
                facts = table.table(kind)
                values.update({fact: facts.text(fact) for fact in program.facts})
                facts.finish()
            commands.append(program.for_board(values))
    if EMULATOR_PROBE in kinds and not has_emulator:
        raise table.error("kinds", f"{EMULATOR_PROBE!r} needs the table [emulator]")
    usb = tuple(_read_usb(one) for one in table.tables("usb")) if table.has("usb") else ()
    table.finish()
    return Probe(kinds=kinds, commands=tuple(commands), usb=usb)


def _read_commands(name: str, table: Table) -> ProbeCommands:
    """A flashing program that the board file describes itself."""

    def strings(key: str) -> tuple[str, ...]:
        return table.strings(key) if table.has(key) else ()

    program, select = table.text("program"), table.strings("select")
    server = None
    if table.has("server"):
        server = Action(
            table.text("server_program") if table.has("server_program") else program,
            table.strings("server"),
            strings("server_select") or select,
        )
    commands = ProbeCommands(
        name=name,
        image_format=table.text("image_format", IMAGE_FORMATS),
        flash=Action(program, table.strings("flash"), select, strings("flash_script")),
        reset=Action(program, table.strings("reset"), select, strings("reset_script")),
        server=server,
    )
    table.finish()
    return commands


def _read_usb(table: Table) -> UsbId:
    text = table.text("id")
    match = re.fullmatch(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{4})", text)
    if match is None:
        raise table.error("id", f"{shown(text)} is not a USB id, such as '0483:374b'")
    usb = UsbId(
        vendor=int(match[1], 16),
        product=int(match[2], 16),
        product_name=table.text("product_name") if table.has("product_name") else "",
        serial_prefix=table.text("serial_prefix") if table.has("serial_prefix") else "",
    )
    table.finish()
    return usb
