"""utvm inspect: what a model file holds, and its picture."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import utvm_deploy
from utvm_deploy.api.estimate_function import EstimateResult
from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.files import write_text
from utvm_deploy.base.outputs import check_outputs
from utvm_deploy.base.readable import counted
from utvm_deploy.cli.output import Output
from utvm_deploy.graph.names import short_name
from utvm_deploy.results.inspecting import facts
from utvm_deploy.results.inspecting.pass_effects import GraphSizes, PassEffects
from utvm_deploy.results.inspecting.quantizable import Quantizable
from utvm_deploy.results.inspecting.supported import supported_operators

#: Outputs of one operator that the table names where the model cannot be compiled.
_MOST_OUTPUTS = 2
#: The table has a column of zeros if a layer has at least this share of them.
_SHOWN_ZEROS = 0.2
#: Operators that compute in float32 and are named.
_MOST_NAMED = 8


def run(args: argparse.Namespace, out: Output) -> int:
    """Print the operators and totals."""
    if args.supported:
        if args.svg is not None:
            raise UsageError("--svg draws a MODEL, and --supported is of none; leave one out")
        if args.passes:
            raise UsageError("--passes is of a MODEL, and --supported is of none; leave one out")
        if args.board is not None:
            raise UsageError("--board is for a MODEL, and --supported is of none; leave one out")
        return _supported(args.format or "tflite", out)
    if args.board is not None and args.plugin is not None:
        raise UsageError("--board estimates our kernels, and --plugin has others; leave one out")
    if args.format is not None:
        raise UsageError("--format goes with --supported; a MODEL's name says its format")
    check_outputs(args.model, args.svg)
    result = utvm_deploy.inspect(args.model, plugin=args.plugin, passes=args.passes)
    found = result.found
    svg = args.svg if result.graph is not None else None
    if result.graph is not None and svg is not None and not args.dry_run:
        write_text(svg, facts.graph_svg(result.graph))
    _report(found, result.least_activation_bytes, out)
    for line in result.beside:
        out.line(line)
    if args.svg is not None and result.graph is None:
        out.line("no picture: only a model that can be imported is drawn")
    elif svg is not None and not args.dry_run:
        out.line(f"picture: {svg}")
    if result.passes is not None:
        _report_passes(result.passes, out)
    elif args.passes:
        out.line("no passes: only a model that can be compiled goes through them")
    told = {**result.to_dict(), "svg": svg}
    if args.board is not None and found.ok:
        told["estimate"] = _report_estimate(utvm_deploy.estimate(args.model, args.board), out)
    out.found(told)
    return 0 if found.ok else 1


def _supported(form: str, out: Output) -> int:
    rows = supported_operators(form)
    out.table(
        ["operator", "types", "constraints"],
        [(row.operator, ", ".join(row.types), row.constraints) for row in rows],
    )
    out.line(f"{len(rows)} operators")
    out.result("utvm.operators/1", {"format": form, "operators": [asdict(row) for row in rows]})
    return 0


def _report(found: facts.Inspection, least: int | None, out: Output) -> None:
    for what, tensors in (("input", found.inputs), ("output", found.outputs)):
        for tensor in tensors:
            out.line(f"{what:<7} {short_name(tensor.name)}: {_tensor(tensor)}")
    if not found.ok:
        _report_problems(found, out)
        return
    has_islands = _has_islands(found)
    plans = found.quantizable
    has_zeros = any((operator.zeros or 0.0) >= _SHOWN_ZEROS for operator in found.operators)
    is_of_other_format = plans is not None and plans.is_of_other_format
    can_tell = plans is not None and not is_of_other_format
    out.table(
        [
            *("#", "operator", "detail", "output"),
            "quantizable to" if can_tell else "quantization",
            *((">island", ">float operations") if has_islands else ()),
            *(">MACs", ">weights"),
            *((">zeros", ">packed") if has_zeros else ()),
            ">live RAM",
        ],
        [
            (
                str(operator.index),
                operator.kind,
                operator.detail,
                "x".join(str(extent) for extent in operator.outputs[0].shape),
                _plan(operator, plans) if can_tell else _quantization(operator.outputs[0]),
                *((operator.float_island, operator.float_operations) if has_islands else ()),
                operator.macs or None,
                operator.weights_bytes or None,
                *((_share(operator.zeros), operator.packed_bytes) if has_zeros else ()),
                operator.live_bytes,
            )
            for operator in found.operators
        ],
    )
    _report_floats(found, out)
    if found.quantizable is not None:
        _report_quantizable(found.quantizable, out)
    if found.pruning is not None:
        _report_pruning(found.pruning, out)
    assert found.peak_operator is not None
    overlapped = "" if least is None else f", {least:,} at least with outputs on inputs"
    out.line(
        f"{found.name}: {counted(len(found.operators), 'operator')}, {found.macs:,} MACs, "
        f"constants {found.weights_bytes:,} bytes, activations {found.peak_activation_bytes:,} "
        f"bytes live at most (operator {found.operators[found.peak_operator].index}){overlapped}"
    )


def _report_pruning(found: facts.Pruning, out: Output) -> None:
    """What zeros in the weights bring, and what more of them would."""
    layers = counted(found.layers, "dense and pointwise layer")
    what = f"weights of {layers}: {found.weights_bytes:,} bytes"
    if found.packed_bytes < found.weights_bytes:
        what += f", packed without zeros {found.packed_bytes:,}"
    if found.pruned_bytes < found.packed_bytes:
        what += f"; pruned to {found.zeros:.0%} zeros in blocks of 1x4, {found.pruned_bytes:,}"
    out.line(what)


def _share(zeros: float | None) -> str | None:
    return None if zeros is None else f"{zeros:.0%}"


def _report_estimate(result: EstimateResult, out: Output) -> dict[str, Any]:
    """A row for each layer, the figures, and how far they may be off."""
    found = result.found
    out.table(
        ["#", "operator", "output", ">MACs", f">{found.unit}", ">weights", ">scratch"],
        [
            (
                str(one.index),
                one.kind,
                "x".join(map(str, one.shape)),
                one.macs or None,
                one.ticks,
                one.weights_bytes or None,
                one.scratch_bytes or None,
            )
            for one in found.layers
        ],
    )
    out.line(found.headline)
    if found.errors:
        told = (f"{name} {one.median:.1%} ({one.worst:.1%})" for name, one in found.errors.items())
        out.line(f"median (worst) error on nets that the formulas never saw: {', '.join(told)}")
    for note in found.notes:
        out.line(f"! no error is stated: {note}")
    return result.to_dict()


def _report_passes(effects: PassEffects, out: Output) -> None:
    """A row for each pass that changed something, and the sum of all."""
    changed = {name: sizes for name, sizes in effects.removed.items() if any(_figures(sizes))}
    rows = {**changed, "all passes": effects.before - effects.after}
    out.table(
        ["pass removes", ">layers", ">MACs", ">weights", ">peak RAM"],
        [(name, *_figures(sizes)) for name, sizes in rows.items()],
    )
    one, other = effects.before, effects.after
    out.line(
        f"after all passes: {other.layers} of {one.layers} layers, {other.macs:,} of {one.macs:,} "
        f"MACs, constants {other.weights_bytes:,} of {one.weights_bytes:,} bytes, activations "
        f"{other.peak_activation_bytes:,} of {one.peak_activation_bytes:,} bytes live at most"
    )


def _figures(sizes: GraphSizes) -> tuple[int, int, int, int]:
    return sizes.layers, sizes.macs, sizes.weights_bytes, sizes.peak_activation_bytes


def _has_islands(found: facts.Inspection) -> bool:
    """Whether some operators compute in float32, and others do not."""
    return any(o.float_island is None for o in found.operators) and bool(found.float_islands)


def _plan(operator: facts.OperatorFacts, plans: Quantizable | None) -> str:
    """What `utvm quantize` can make of an operator; empty if it computes on integers."""
    if plans is None or operator.kind not in plans.types:
        return ""
    return plans.plan(operator.kind)


def _report_quantizable(found: Quantizable, out: Output) -> None:
    """How many operators of a float model can be quantized, and which cannot."""
    if found.is_of_other_format:
        out.table(
            ["operator of the file", ">number", "quantizable to"],
            [(kind, count, found.plan(kind)) for kind, count in found.counts.items()],
        )
    if found.refused is not None:
        out.line(f"! utvm quantize refuses the model: {found.refused}")
        return
    for scheme, count, floats in (
        ("int8", found.int8, found.float_int8),
        ("int16x8", found.int16, found.float_int16),
    ):
        stay = ", ".join(floats[:_MOST_NAMED]) + (" ..." if len(floats) > _MOST_NAMED else "")
        rest = f"; these stay float32: {stay}" if floats else ""
        what = f"utvm quantize --scheme {scheme}"
        out.line(f"{what}: {count} of {found.operators} operators become integers{rest}")


def _report_floats(found: facts.Inspection, out: Output) -> None:
    """Which operators compute in float32, and what they cost."""
    floats = [operator for operator in found.operators if operator.float_island is not None]
    if not floats:
        return
    operations = sum(island.operations for island in found.float_islands)
    out.line(
        f"float32: {len(floats)} of {len(found.operators)} operators: {_named(floats)}; "
        f"{operations:,} operations; cores without a floating-point unit compute them in software "
        "(utvm docs guides/float)"
    )
    if not _has_islands(found):
        return
    for number, island in enumerate(found.float_islands, 1):
        inside = [operator for operator in floats if operator.float_island == number]
        out.line(
            f"float island {number}: {_named(inside)}; {island.macs:,} MACs, "
            f"{island.operations:,} operations, {len(island.conversions)} conversions at its ends"
        )


def _named(operators: Sequence[facts.OperatorFacts]) -> str:
    named = ", ".join(f"{one.index} ({one.kind})" for one in operators[:_MOST_NAMED])
    more = len(operators) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named


def _report_problems(found: facts.Inspection, out: Output) -> None:
    """Every operator in one line; with those that cannot be compiled, why not."""
    out.table(
        ["", "#", "operator", "output", "problem"],
        [
            (
                "!" if operator.problem else "",
                str(operator.index),
                operator.kind,
                ", ".join(_plain(tensor) for tensor in operator.outputs[:_MOST_OUTPUTS])
                + (" ..." if len(operator.outputs) > _MOST_OUTPUTS else ""),
                operator.problem,
            )
            for operator in found.operators
        ],
        is_wide=True,
    )
    for problem in found.problems:
        out.line(f"! the model: {problem}")
    bad = sum(1 for operator in found.operators if operator.problem)
    which = f"{bad} of {len(found.operators)} operators" if bad else "the model as a whole"
    out.line(f"{found.name} cannot be compiled, because of {which}; see the lines with !")


def _plain(tensor: facts.TensorFacts) -> str:
    return f"{short_name(tensor.name)} {tensor.dtype} {'x'.join(map(str, tensor.shape))}".rstrip()


def _tensor(tensor: facts.TensorFacts) -> str:
    shape = "x".join(str(extent) for extent in tensor.shape)
    quantization = _quantization(tensor)
    return f"{tensor.dtype} {shape}" + (f", {quantization}" if quantization else "")


def _quantization(tensor: facts.TensorFacts) -> str:
    if tensor.scale is None:
        return ""
    if tensor.scales > 1:
        return f"{tensor.scales} scales {tensor.scale:.3g} to {tensor.scale_max:.3g}"
    return f"scale {tensor.scale:.6g}, zero point {tensor.zero_point}"
