"""utvm quantize: a float model and typical inputs to a quantized .tflite file."""

from __future__ import annotations

import argparse
from typing import Any

from utvm_deploy.api.quantize_function import quantize
from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.outputs import check_outputs
from utvm_deploy.cli.arguments import board_of
from utvm_deploy.cli.model_verbs.precision_text import report_layers, report_mixed
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.parser import taken
from utvm_deploy.quality.precision.facts import LayerSensitivity, Mixed
from utvm_deploy.quality.precision.steps import DEFAULT_MAX_LOSS, MixedModel, QuantizedWithLayers
from utvm_deploy.quality.precision.summary import layers_json, mixed_json
from utvm_deploy.quality.quantizing.facts import QuantizedModel

#: Operators are counted by their kind; this many kinds are named.
_MOST_NAMED = 8


def run(args: argparse.Namespace, out: Output) -> int:
    """Quantize, write the file, and report what stayed float and how large the errors are."""
    if args.output.suffix.lower() != ".tflite":
        raise UsageError(f"{args.output} does not end in .tflite; give such a name to --output")
    check_outputs(args.model, args.output)
    made, rows, mixed = _quantized(args, out)
    if not args.dry_run:
        made.save(args.output)
    max_loss = DEFAULT_MAX_LOSS if args.max_loss is None else args.max_loss
    more: dict[str, Any] = {}
    if rows:
        report_layers(rows, out)
        more["layers"] = layers_json(rows)
    if mixed is not None:
        report_mixed(mixed, len(rows), max_loss, out)
        more["mixed"] = mixed_json(mixed, max_loss)
    _report(made, out)
    is_ok = not (args.no_float and made.float_operators)
    if not is_ok:
        out.line("--no-float: operators that compute in float32 remain, so the exit status is 1")
    out.line("nothing written (--dry-run)" if args.dry_run else f"wrote {args.output}")
    out.found({**made.to_dict(), **more, "ok": is_ok, "output": args.output})
    return 0 if is_ok else 1


def _quantized(
    args: argparse.Namespace, out: Output
) -> tuple[QuantizedModel, tuple[LayerSensitivity, ...], Mixed | None]:
    """The quantized model, the table of layers if it is wanted, and the choice of a mixed one."""
    board = None if args.board is None else board_of(args)
    options = taken(args, args.row.taken)
    with out.progress() as progress:
        found = quantize(args.model, args.data, board=board, progress=progress, **options)
    if isinstance(found, MixedModel):
        return found, found.rows, found.mixed
    assert isinstance(found, QuantizedModel)  # the model is a file
    return found, found.layers if isinstance(found, QuantizedWithLayers) else (), None


def _report(made: QuantizedModel, out: Output) -> None:
    if made.equalizing is not None:
        before, behind = (_decibels(value) for value in made.equalizing)
        pairs = made.calibration.equalized
        kept = f"equalized behind {pairs} layers" if pairs else "as they are"
        out.line(f"weights: {kept} (SQNR of the worst output: {before}, equalized {behind})")
    if made.clippings:
        told = ", ".join(f"{name} {_decibels(value)}" for name, value in made.clippings.items())
        out.line(f"ranges: {made.clipping} (SQNR of the worst output: {told})")
    if made.converting is not None:
        own, other = (_decibels(value) for value in made.converting)
        form = made.calibration.form
        kept = "by PT2E" if form == "pt2" else "as a .tflite file"
        out.line(f"quantized {kept} (SQNR of the worst output: PT2E {own}, .tflite {other})")
    if made.rewritten:
        out.line(f"quantized by our own rewriting: {_counted(made.rewritten)}")
    if made.float_operators:
        kinds = tuple(one.kind for one in made.float_operators)
        out.line(f"float32: {_counted(kinds)}")
        for one in made.float_operators:
            out.line(f"  operator {one.index} ({one.kind}), which makes '{one.output}'")
    else:
        out.line("no operator computes in float32")
    held_out = " that were held out" if made.calibration.held_out else ""
    for error in made.outputs:
        told = "" if error.sqnr_db is None else f"SQNR {error.sqnr_db:.1f} dB, "
        out.line(
            f"output {error.name}: {told}largest difference {error.largest:.3g}, on "
            f"{made.compared_samples} of {made.calibration.samples} samples{held_out}"
        )
    out.line(f"{made.scheme}: {len(made.data):,} bytes, from {made.float_bytes:,}")


def _decibels(value: float | None) -> str:
    return "none: equal or constant outputs" if value is None else f"{value:.1f} dB"


def _counted(kinds: tuple[str, ...]) -> str:
    names = sorted(set(kinds))
    told = ", ".join(f"{kinds.count(name)} {name}" for name in names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{told} and {more} more kinds" if more > 0 else told
