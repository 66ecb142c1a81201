"""C tables for the plugin, from ``targets/*/timing*.py`` and ``counters.py``: one truth.

The headers are written into the cache when the plugin is built; nothing of them is checked in.
"""

from __future__ import annotations

from collections.abc import Iterable

from utvm_deploy.targets.contract.timing import (
    ALL_KINDS,
    AnyKind,
    Need,
    Result,
    Row,
    Slot,
    Timing,
    Unit,
)
from utvm_deploy.targets.emulator import counters
from utvm_deploy.targets.table import TIMINGS

#: Name of the generated header -> its text is made by ``header_texts``.
TIMING_HEADER = "timing_table.h"
COUNTERS_HEADER = "counters_table.h"

#: The bit of each pipe that an instruction can hold.
_PIPES = {Unit.LOAD: 1, Unit.SIMD: 2, Unit.MAC: 4}
_NOTICE = "// Generated from utvm_deploy's Python tables; do not edit.\n"


def header_texts() -> dict[str, str]:
    """File name -> text of every generated header."""
    return {TIMING_HEADER: timing_header(), COUNTERS_HEADER: counters_header()}


def timing_header() -> str:
    """Enumerations of the timing table, and one ``struct timing`` for each core."""
    lines = [
        _NOTICE,
        "#ifndef UTVM_TIMING_TABLE_H",
        "#define UTVM_TIMING_TABLE_H",
        '#include "timing.h"',
        *_enumeration("kind", ALL_KINDS),
        *_enumeration("result", Result),
        *_enumeration("need", Need),
        f"#define KIND_COUNT {len(ALL_KINDS)}",
        f"#define RESULT_COUNT {len(Result)}",
        f"#define NEED_COUNT {len(Need)}",
        "#endif",
        "#ifdef UTVM_TIMING_TABLES",
        "static const char *const kind_names[] = {",
        *(f'"{kind.name.lower()}",' for kind in ALL_KINDS),
        "};",
        "static const struct timing timings[] = {",
    ]
    for timing in TIMINGS.values():
        lines += _timing(timing)
    lines += ["};", "#endif", ""]
    return "\n".join(lines)


def timing_text(timing: Timing) -> str:
    """One core's ``struct timing``: its numbers, without their sources."""
    return "\n".join(_timing(timing))


def counters_header() -> str:
    """Offsets of the counters in the block that the guest reads."""
    lines = [_NOTICE, "#ifndef UTVM_COUNTERS_TABLE_H", "#define UTVM_COUNTERS_TABLE_H"]
    lines += [
        f"#define COUNTER_{name.upper()} {index}" for index, name in enumerate(counters.NAMES)
    ]
    lines += [
        f"#define COUNTER_COUNT {len(counters.NAMES)}",
        f"#define COUNTER_MIX {counters.FIRST_MIX}",
        f"#define MIX_COUNT {len(counters.MIX_GROUPS)}",
        f"#define SNAPSHOT_MAGIC 0x{counters.MAGIC:08x}u",
        f"#define SNAPSHOT_CAPACITY {counters.SNAPSHOT_CAPACITY}",
        "static const char *const counter_names[] = {",
        *(f'"{name}",' for name in counters.NAMES),
        "};",
        "// enum kind -> its place among the counters of the instruction mix",
        "static const unsigned char mix_group[] = {",
        *(f"{counters.mix_group(kind)}," for kind in ALL_KINDS),
        "};",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _enumeration(name: str, members: Iterable[AnyKind | Result | Need]) -> list[str]:
    prefix = name.upper()
    return [
        f"enum {name} {{",
        *(f"{prefix}_{member.name} = {member.value}," for member in members),
        "};",
    ]


def _timing(timing: Timing) -> Iterable[str]:
    yield f'{{ .core = "{timing.core}", .width = {timing.width},'
    yield f".mispredict_cycles = {timing.mispredict_cycles},"
    yield f".mispredict_early_cycles = {timing.mispredict_early_cycles},"
    yield f".flags_early_cycles = {timing.flags_early_cycles},"
    yield f".predicts_branches = {int(timing.predicts_branches)},"
    yield f".taken_branch_cycles = {timing.taken_branch_cycles},"
    jump = timing.taken_branch_cycles if timing.jump_cycles is None else timing.jump_cycles
    yield f".jump_cycles = {jump},"
    yield f".straddling_target_cycles = {timing.straddling_target_cycles},"
    yield f".split_access_cycles = {timing.split_access_cycles},"
    yield f".load_banks = {timing.load_banks},"
    yield f".unaligned_load_cycles = {timing.unaligned_load_cycles},"
    yield f".store_buffer_entries = {timing.store_buffer_entries},"
    yield f".partial_store_cycles = {timing.partial_store_cycles},"
    yield f".narrow_pairs = {int(timing.narrow_pairs)},"
    yield f".results_in_order = {int(timing.results_in_order)},"
    yield ".rows = {"
    for kind in ALL_KINDS:
        yield _row(kind, timing.row(kind))
    yield "}, .latency = {"
    for result in Result:
        cells = ", ".join(str(timing.latency(result, need)) for need in Need)
        yield f"{{ {cells} }},"
    for name, pessimistic in (("pairs", False), ("pairs_pessimistic", True)):
        yield f"}}, .{name} = {{"
        for older in ALL_KINDS:
            yield _set(
                younger
                for younger in ALL_KINDS
                if timing.can_pair(older, younger, pessimistic=pessimistic)
            )
    yield "} },"


def _row(kind: AnyKind, row: Row) -> str:
    early = "EARLY_NEVER"
    if row.early is not None:
        early = "EARLY_OLDER" if row.early is Slot.OLDER else "EARLY_EITHER"
    alone = int(row.slot is Slot.ALONE)
    pipes = sum(_PIPES[unit] for unit in row.units) if row.busy_cycles else 0
    return (
        f"[KIND_{kind.name}] = {{ {row.cycles}, {row.registers_per_cycle}, "
        f"{row.pipelined_cycles}, {early}, {alone}, {int(Unit.SHIFTER in row.units)}, "
        f"RESULT_{row.result.name}, "
        f"NEED_{row.first.name}, NEED_{row.second.name}, NEED_{row.accumulator.name}, "
        f"NEED_{row.stored.name}, {pipes}, {row.busy_cycles}, {_set(row.pipelined_after)} }},"
    )


def _set(kinds: Iterable[AnyKind]) -> str:
    members = ", ".join(f"[KIND_{kind.name}] = 1" for kind in kinds)
    return f"{{ {members or 0} }},"
