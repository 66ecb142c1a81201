"""utvm memory: what a model takes of RAM, stack and flash on a board, and what sets the peak."""

from __future__ import annotations

import argparse

import utvm_deploy
from utvm_deploy.api.memory_function import SCHEMA
from utvm_deploy.base.outputs import check_outputs
from utvm_deploy.cli.arguments import board_of
from utvm_deploy.cli.compile_options import keywords
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.steps import compile_step
from utvm_deploy.graph.names import short_name
from utvm_deploy.project import check_fits_alone
from utvm_deploy.project.model_code import ModelCode
from utvm_deploy.project.stack_use import plain_name
from utvm_deploy.results.profiling.memory_page import memory_html, memory_svg
from utvm_deploy.results.profiling.memory_report import (
    MemoryReport,
    flash_parts,
    memory_json,
    memory_report,
)


def run(args: argparse.Namespace, out: Output) -> int:
    """Compile, measure the objects, and print the tables."""
    check_outputs(args.model, args.svg, args.html)
    board = board_of(args)
    options = keywords(args, board)
    with out.progress() as progress:
        if args.dry_run:
            found = memory_report(compile_step(args, board, progress, fits=check_fits_alone), board)
        else:
            found = utvm_deploy.memory(args.model, board, progress=progress, **options).found
    result = memory_json(found)
    _report(found, out)
    out.file(args.svg, lambda: memory_svg(result))
    out.file(args.html, lambda: memory_html(result))
    out.result(SCHEMA, {**result, "svg": args.svg, "html": args.html})
    return 0


def _report(found: MemoryReport, out: Output) -> None:
    compiled, board = found.compiled, found.board
    out.table(
        [">layer", "operator", "kind", "name", ">offset", ">bytes", ">last", "peak"],
        [
            (
                use.first,
                compiled.layers[use.first].kind,
                use.kind,
                short_name(use.name),
                use.offset,
                use.size_bytes,
                use.last,
                "peak" if use in found.peak.uses else "",
            )
            for use in compiled.memory
        ],
        title=f"the arena of {compiled.name}, {compiled.arena_bytes:,} bytes",
    )
    at = ", ".join(map(str, found.peak.layers))
    out.line(f"peak: {found.peak.live_bytes:,} bytes in use at layer {at}")
    for sentence in found.peak.lower:
        out.line(f"  {sentence}")
    if compiled.tradeoff is not None:
        out.line(compiled.tradeoff.text)
    if len(compiled.flash_plans) > 1:
        out.table(
            [">flash rate", ">cycles", ">bytes", "chosen"],
            [
                (one.rates, one.cycles, one.flash_bytes, "chosen" if one.is_chosen else "")
                for one in compiled.flash_plans
            ],
            title="cycles against the flash of kernels and tables, by records and estimates",
        )
    if compiled.hint:
        out.line(compiled.hint)
    _report_totals(found, out)
    if found.code is not None:
        _report_code(found, found.code, out)
    for note in found.notes:
        out.line(note)
    out.line(
        f"{board.name} has {board.ram_bytes:,} bytes of RAM (the region {board.main_ram.name} of "
        f"arenas {board.main_ram.size:,}) and {_flash_told(found)}"
    )


def _flash_told(found: MemoryReport) -> str:
    """The flash of code, and of weights if that is another one."""
    code, weights = found.board.main_flash, found.board.weights_flash(found.compiled.weights_bytes)
    if weights == code:
        return f"{code.size:,} of flash"
    return (
        f"{code.size:,} of flash for code ({code.name}), {weights.size:,} for weights "
        f"({weights.name})"
    )


def _report_totals(found: MemoryReport, out: Output) -> None:
    compiled, image = found.compiled, found.image
    stack = compiled.stack_bytes
    scratch = f", and {stack:,} of stack for scratch" if stack else ""
    out.line(f"a bundle needs: arena {compiled.arena_bytes:,} bytes of RAM{scratch}")
    for pool in compiled.pools:
        there = found.board.region(pool.name).size
        out.line(f"{pool.text} ({found.board.name} has {there:,} there)")
        if pool.uses:
            out.table(
                [">layer", "name", ">offset", ">bytes", ">last"],
                [
                    (use.first, short_name(use.name), use.offset, use.size_bytes, use.last)
                    for use in pool.uses
                ],
                title=f"activations in the pool {pool.name}",
            )
    if image is not None:
        out.line(
            f"an image with the runtime (utvm profile): RAM {image.ram_bytes:,} bytes, of which "
            f"arena {image.arena_bytes:,} (scratch: {image.scratch}), runtime and stacks "
            f"{image.runtime_ram_bytes:,}"
        )


def _report_code(found: MemoryReport, code: ModelCode, out: Output) -> None:
    path = " > ".join(f"{plain_name(one.name)} {one.frame_bytes or 0}" for one in code.stack.path)
    if code.stack.is_known:
        out.line(f"stack: {code.stack.total_bytes:,} bytes at most: {path}")
    for note in code.stack.notes:
        out.line(f"  {note}")
    parts = flash_parts(found)
    told = ", ".join(
        f"{name.removesuffix('_bytes')} {size:,}"
        for name, size in parts.items()
        if size is not None and name != "model_bytes"
    )
    image = "" if found.image is None else f" of the image's {found.image.flash_bytes:,}"
    out.line(f"flash, in bytes{image}: {told}")
