"""utvm profile: what each layer costs on a board."""

from __future__ import annotations

import argparse
import json

import utvm_deploy
from utvm_deploy.api.profile_function import SCHEMA, check_hot
from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.outputs import check_outputs, keep_input
from utvm_deploy.boards.facts import CYCLES
from utvm_deploy.cli.arguments import board_of
from utvm_deploy.cli.compile_options import keywords
from utvm_deploy.cli.gate import check_before, exit_code, judge
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.steps import device_of, dry_run
from utvm_deploy.results.profiling.hotspots import Hotspot
from utvm_deploy.results.profiling.layer_costs import LayerProfile, Profile
from utvm_deploy.results.profiling.page import profile_html
from utvm_deploy.results.profiling.summary import (
    NPU,
    Bounds,
    latency_line,
    memory_line,
    npu_lines,
    profile_summary,
    words_in,
)

_MIX = "mix_"
#: Layers that are named for their waiting.
_MOST_WAITING = 3
#: What the plain table shows of each layer where a cycle model counts.
_MODELLED = (
    *("layer", "operator", ">cycles", ">%", ">core", ">pessimistic", ">rich", ">instr."),
    *(">/MAC", ">flash", ">RAM", ">x bound", "engine"),
)
#: Beyond what the plain table shows of each layer.
_FURTHER = (
    "dcache_store_misses",
    "linefill_waits",
    "icache_misses",
    "mispredictions",
    "bank_conflicts",
    "unaligned",
    "store_stalls",
)


def run(args: argparse.Namespace, out: Output) -> int:
    """Profile and print the table."""
    check_outputs(args.model, args.html, args.trace)
    keep_input(args.html, "the page", args.trace)
    keep_input(args.records, "the file of records", args.trace, args.html)
    check_before(args)
    board = board_of(args)
    check_hot(args.hot, board)
    if args.hot and args.timing != CYCLES:
        raise UsageError("--hot needs the cycle model; leave out --timing instructions")
    if args.dry_run:
        return dry_run(args, board, out)
    with out.progress() as progress, device_of(args, board) as device:
        found = utvm_deploy.profile(args.model, device, progress=progress, **keywords(args, board))
    _report(found.found, found.bounds, args.wide, out)
    for line in found.beside:
        out.line(line)
    if found.hint:
        out.line(found.hint)
    for block in found.hotspots:
        _report_block(block, out)
    result = found.to_dict()
    out.file(args.html, lambda: profile_html(result))
    out.file(args.trace, lambda: json.dumps(found.trace(), indent=1) + "\n")
    gate = judge(args, out, SCHEMA, result)
    out.found(result | gate)
    return exit_code(gate)


def _report(found: Profile, bounds: Bounds | None, is_wide: bool, out: Output) -> None:
    if found.is_modelled:
        _modelled_table(found, bounds, is_wide, out)
    else:
        _plain_table(found, out)
    has_rate = found.macs and found.npu_cycles is None
    rate = f", {found.ticks / found.macs:.2f} per MAC" if has_rate else ""
    without = f" without {found.stand_in}" if found.stand_in else ""
    out.line(f"whole model{without}: {found.ticks:,} {found.unit_label}{rate}")
    if found.is_modelled:
        figures = found.figures
        out.line(
            f"core {figures['core']:,}; pessimistic {figures['pessimistic']:,}; "
            f"rich {figures['rich']:,}; instructions {figures['instructions']:,}"
        )
        out.line(waiting_line(found))
    summary = profile_summary(found)
    if found.seconds is not None:
        out.line(latency_line(summary))
    for line in npu_lines(summary):
        out.line(line)
    out.line(memory_line(summary))
    out.line(f"placement: {found.placement}")
    if found.twin_note:
        out.line(found.twin_note)
    said = (*strip_lines(found), *engine_lines(found))
    for line in said:
        out.line(line)
    heads = (*(_MODELLED if found.is_modelled else ()), *_npu_head(found))
    for word, meaning in words_in(heads, said):
        out.line(f"{word}: {meaning}")


def waiting_line(found: Profile) -> str:
    """What the memories cost, and which layers wait most."""
    waits = {item.layer.index: item.ticks - item.figures["core"] for item in found.layers}
    total, figures = sum(waits.values()), found.figures
    most = sorted(waits, key=lambda index: (-waits[index], index))[:_MOST_WAITING]
    named = ", ".join(f"{index} ({waits[index]:,})" for index in most if waits[index] > 0)
    return (
        f"waiting for memory: {total:,} cycles, {100 * total / max(found.ticks, 1):.0f} %; the "
        f"data cache misses {figures['dcache_misses_flash']:,} lines of flash and "
        f"{figures['dcache_misses_ram']:,} of RAM (columns flash and RAM)"
        + (f"; most in the layers {named}" if named else "")
    )


def engine_lines(found: Profile) -> list[str]:
    """Whose kernels did which layers, and why those: equal answers in one line."""
    layers: dict[tuple[str, str], list[LayerProfile]] = {}
    for item in found.layers:
        layers.setdefault((item.layer.engine, item.layer.why), []).append(item)
    total = sum(item.ticks for item in found.layers) or 1
    return [
        f"{engine} {100 * sum(item.ticks for item in items) / total:.1f} %, "
        f"layer{'s' if len(items) > 1 else ''} "
        f"{', '.join(str(item.layer.index) for item in items)}: {why}"
        for (engine, why), items in layers.items()
    ]


def strip_lines(found: Profile) -> list[str]:
    """Which layers are computed in strips or loops, and in how many."""
    said = []
    streamed = [item for item in found.layers if item.strips]
    if streamed:
        each = ", ".join(f"{item.layer.index} ({item.strips} strips)" for item in streamed)
        layers = "layers" if len(streamed) > 1 else "layer"
        said += [f"{layers} in strips of rows, which are added up: {each}; --json has each call"]
    looped = [item for item in found.layers if item.steps]
    if looped:
        each = ", ".join(
            f"{item.layer.index} ({item.steps} steps of {len(item.calls) // item.steps} calls)"
            for item in looped
        )
        loops = "loops" if len(looped) > 1 else "loop"
        said += [f"{loops} of equal steps, which are added up: {each}; --json has each call"]
    return said


def _npu_head(found: Profile) -> list[str]:
    return [] if found.npu_cycles is None else [f">{NPU}"]


def _npu_cell(found: Profile, item: LayerProfile) -> list[int | None]:
    return [] if found.npu_cycles is None else [item.layer.npu_cycles]


def _plain_table(found: Profile, out: Output) -> None:
    total = sum(layer.ticks for layer in found.layers) or 1
    unit = found.tick_unit
    out.table(
        [
            *("layer", "operator", f">{unit}", ">share %", ">MACs", f">{unit}/MAC"),
            *(*_npu_head(found), "engine", "kernel"),
        ],
        [
            (
                str(item.layer.index),
                item.layer.kind,
                item.ticks,
                100 * item.ticks / total,
                item.layer.macs or None,
                item.ticks_per_mac,
                *_npu_cell(found, item),
                item.layer.engine,
                item.layer.kernel.removeprefix(f"{found.model}_"),
            )
            for item in found.layers
        ],
        title=f"{found.model} on {found.board}, in {unit}",
    )


def _modelled_table(found: Profile, bounds: Bounds | None, is_wide: bool, out: Output) -> None:
    total = sum(layer.ticks for layer in found.layers) or 1
    columns = [*_MODELLED[:-1], *_npu_head(found), _MODELLED[-1]]
    if is_wide:
        columns += [">MACs", ">bound", ">bound, memory", "bound by"]
        columns += [f">{name.replace('_', ' ')}" for name in _FURTHER]
        columns += [f">{name.removeprefix(_MIX)} %" for name in _mix_names(found)]
        columns += ["kernel", "why"]
    rows = []
    for item, bound in zip(found.layers, bounds or [None] * len(found.layers), strict=True):
        figures = item.figures
        row: list[object] = [
            str(item.layer.index),
            item.layer.kind,
            item.ticks,
            100 * item.ticks / total,
            *(figures[name] for name in ("core", "pessimistic", "rich", "instructions")),
            item.ticks_per_mac,
            figures["dcache_misses_flash"],
            figures["dcache_misses_ram"],
            item.ticks / bound.memory if bound is not None and bound.memory else None,
            *_npu_cell(found, item),
            item.layer.engine,
        ]
        if is_wide:
            row += [item.layer.macs or None]
            row += [bound.core, bound.memory, bound.limit] if bound else [None, None, None]
            row += [figures[name] for name in _FURTHER]
            row += [100 * figures[name] / figures["instructions"] for name in _mix_names(found)]
            row += [item.layer.kernel.removeprefix(f"{found.model}_"), item.layer.why]
        rows.append(row)
    out.table(
        columns,
        rows,
        title=f"{found.model} on {found.board}, in modelled cycles with memory",
        is_wide=is_wide,
    )


def _mix_names(found: Profile) -> list[str]:
    return [name for name in found.figures if name.startswith(_MIX)]


def _report_block(block: Hotspot, out: Output) -> None:
    out.line()
    out.line(
        f"{block.function} at {block.address:#010x}: {block.core:,} modelled core cycles "
        f"({100 * block.share:.1f} %), run {block.executions:,} times"
    )
    out.table(
        [">address", ">cycle", ">takes", "instruction", "note"],
        [
            (f"{one.address:x}", one.cycle, one.cycles, one.text, one.note)
            for one in block.instructions
        ],
    )
