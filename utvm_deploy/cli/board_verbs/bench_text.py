"""What `utvm bench` prints: tables, totals and what the engines differ in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from utvm_deploy.cli.output import Output
from utvm_deploy.results.comparing.facts import MEASURED, ModelComparison, NotCompared
from utvm_deploy.results.comparing.page import agreement


def report(found: ModelComparison, out: Output) -> None:
    out.line(f"{found.name} on {found.board} against {found.engine}, {found.source}")
    if found.builds:
        _builds(found, out)
    _table(found, out)
    for figure in found.figures:
        _totals(found, figure, out)
    if found.in_file is not None:
        headline, run = found.figures[0], found.in_file
        out.line(
            f"end to end: ours drops channels that are constant. With all channels of the file, "
            f"{found.library}{f' ({run.label})' if run.label else ''} takes "
            f"{run.figures[headline]:,} {found.unit_label}; "
            f"{_ratios(found, found.end_to_end_ratio)}{_parts(found, headline)}"
        )
    ours, theirs = found.our_placement, found.their_placement
    if theirs is None or theirs == ours:
        out.line(f"placement{'' if theirs is None else ' (both)'}: {ours}")
    else:
        out.line(f"placement (ours): {ours}")
        out.line(f"placement ({found.library}): {theirs}")
    if found.elsewhere is not None:
        other, headline = found.elsewhere, found.figures[0]
        out.line(
            f"everything but weights in {other.region} (both): ours {other.ours[headline]:,}, "
            f"{found.library}{f' ({other.build})' if other.build else ''} "
            f"{other.theirs[headline]:,} {found.unit_label}; {_ratios(found, other.ratio)}"
        )
    for who, size in (("ours", found.our_size), (found.library, found.their_size)):
        if size is not None:
            out.line(
                f"{who}: RAM {size.ram_bytes:,} bytes (arena {size.arena_bytes:,}), "
                f"flash {size.flash_bytes:,}"
            )
    if found.source == MEASURED:
        _agreement_line(found, out)
    out.line()


def _ratios(found: ModelComparison, ratio: Callable[[str], float | None]) -> str:
    known = ((name, ratio(name)) for name in found.figures)
    return f"ratios: {', '.join(f'{name} {one:.3f}' for name, one in known if one is not None)}"


def _parts(found: ModelComparison, figure: str) -> str:
    """What kernels and what dropped channels have of the ratio from end to end."""
    kernels, whole = found.ratio(figure), found.end_to_end_ratio(figure)
    if not kernels or not whole:
        return ""
    return f"; of {figure}, {kernels:.2f} by kernels and {whole / kernels:.2f} by channels"


def _builds(found: ModelComparison, out: Output) -> None:
    """Every build of the library; the rest is about the fastest."""
    out.table(
        ["build", *(f">{_short(name)}" for name in found.figures), "layers that differ", ""],
        [
            (
                build.label,
                *(build.figures.get(name) for name in found.figures),
                ", ".join(map(str, build.differing_layers)),
                "the fastest: compared below" if build.label == found.build else "",
            )
            for build in found.builds
        ],
        title=f"builds of {found.library}, {found.unit_label} of the whole model",
    )


def _table(found: ModelComparison, out: Output) -> None:
    headline, *further = found.figures
    out.table(
        [
            *("layer", "operator", ">MACs", ">ours", f">{found.library}", ">ratio"),
            *(f">{_short(name)}" for name in further),
            *("output", f"{found.library}'s"),
        ],
        [
            (
                str(layer.index),
                layer.kind,
                layer.macs or None,
                layer.ours[headline],
                (layer.theirs or {}).get(headline),
                layer.ratio(headline),
                *(layer.ratio(name) for name in further),
                agreement(layer.differing_bytes, layer.output_bytes),
                layer.their_kernel or ("(ours)" if found.source == MEASURED else ""),
            )
            for layer in found.layers
        ],
        title=f"{found.unit_label}; ratio: {found.library}'s over ours, above 1 we are faster",
    )


def _short(figure: str) -> str:
    return {"instructions": "instr."}.get(figure, figure)


def _totals(found: ModelComparison, figure: str, out: Output) -> None:
    ratio = found.ratio(figure)
    told = "" if ratio is None else f", ratio {ratio:.3f}"
    if found.theirs is not None:
        out.line(
            f"whole model: ours {found.ours[figure]:,}, {found.library} {found.theirs[figure]:,} "
            f"{figure}{told}"
        )
        return
    ours, theirs = found.matched(figure)
    count = sum(1 for layer in found.layers if layer.theirs is not None)
    out.line(
        f"the {count} of {len(found.layers)} layers that are recorded: ours {ours:,}, "
        f"{found.library} {theirs:,} {figure}{told}; ours for the whole model "
        f"{found.ours[figure]:,}"
    )


def _agreement_line(found: ModelComparison, out: Output) -> None:
    differing = found.differing_layers
    if not differing:
        out.line("outputs: every byte of every layer is equal")
        return
    listed = ", ".join(f"{layer.index} ({layer.kind})" for layer in differing)
    out.line(
        f"outputs: layers {listed} differ for equal inputs; ours are the reference's "
        f"(utvm verify), {found.library} rounds otherwise there"
    )


def overview(found: Sequence[ModelComparison], figure: str, out: Output) -> None:
    out.table(
        ["model", ">ours", f">{found[0].library}", ">ratio", "source"],
        [
            (
                comparison.name,
                comparison.ours[figure],
                (comparison.theirs or {}).get(figure),
                comparison.ratio(figure),
                comparison.source,
            )
            for comparison in found
        ],
        title=f"{found[0].unit_label}, whole models",
    )


def refused(failed: Sequence[NotCompared], out: Output) -> None:
    """The models without a result, each with its reason."""
    for one in failed:
        out.line(f"NOT COMPARED: {one.file}: {one.reason}")
