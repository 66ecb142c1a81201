"""utvm inspect: what a model file holds, and its picture."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from utvm_deploy.bench.inspect import Inspection, TensorFacts, graph_svg, inspect_model
from utvm_deploy.bench.supported import supported_operators
from utvm_deploy.cli.arguments import Verbs, add_verb, check_outputs
from utvm_deploy.cli.output import Output
from utvm_deploy.errors import UsageError, UtvmError
from utvm_deploy.files import write_text
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs, common, "inspect", "operators, shapes, quantization, MACs and memory", run
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "model", metavar="MODEL", nargs="?", type=Path, help="an int8 model: .tflite, .onnx or .pt2"
    )
    what.add_argument(
        "--supported",
        action="store_true",
        help="instead of a model: every operator that can be imported, and its constraints",
    )
    parser.add_argument("--svg", metavar="FILE.svg", type=Path, help="also draw the graph")


def run(args: argparse.Namespace, out: Output) -> int:
    """Print the operators and totals."""
    if args.supported:
        if args.svg is not None:
            raise UsageError("--svg draws a MODEL, and --supported is of none; leave one out")
        return _supported(out)
    check_outputs(args.model, args.svg)
    graph = load_model(args.model)
    found = inspect_model(graph)
    is_drawn = args.svg and not args.dry_run
    if is_drawn:
        write_text(args.svg, graph_svg(graph))
    least = _least_activation_bytes(graph)
    _report(found, least, out)
    if is_drawn:
        out.line(f"picture: {args.svg}")
    facts = asdict(found)
    facts["sha256"] = facts.pop("digest")
    out.result("utvm.inspect/1", {**facts, "least_activation_bytes": least, "svg": args.svg})
    return 0


def _least_activation_bytes(graph: Graph) -> int | None:
    """With outputs on inputs that are done with; None where the model is not compiled."""
    # TVM takes a second to load, which other verbs need not wait for.
    from utvm_deploy.compiler.pipeline import least_activation_bytes

    try:
        return least_activation_bytes(graph)
    except UtvmError:
        return None


def _supported(out: Output) -> int:
    rows = supported_operators()
    out.table(
        ["operator", "types", "constraints"],
        [(row.operator, ", ".join(row.types), row.constraints) for row in rows],
    )
    out.line(f"{len(rows)} operators")
    out.result("utvm.operators/1", {"operators": [asdict(row) for row in rows]})
    return 0


def _report(found: Inspection, least: int | None, out: Output) -> None:
    for what, tensors in (("input", found.inputs), ("output", found.outputs)):
        for tensor in tensors:
            out.line(f"{what:<7} {tensor.name}: {_tensor(tensor)}")
    out.table(
        ["#", "operator", "detail", "output", "quantization", ">MACs", ">weights", ">live RAM"],
        [
            (
                str(operator.index),
                operator.kind,
                operator.detail,
                "x".join(str(extent) for extent in operator.outputs[0].shape),
                _quantization(operator.outputs[0]),
                operator.macs or None,
                operator.weights_bytes or None,
                operator.live_bytes,
            )
            for operator in found.operators
        ],
    )
    overlapped = "" if least is None else f", {least:,} at least with outputs on inputs"
    out.line(
        f"{found.name}: {len(found.operators)} operators, {found.macs:,} MACs, "
        f"constants {found.weights_bytes:,} bytes, activations {found.peak_activation_bytes:,} "
        f"bytes live at most (operator {found.operators[found.peak_operator].index}){overlapped}"
    )


def _tensor(tensor: TensorFacts) -> str:
    shape = "x".join(str(extent) for extent in tensor.shape)
    quantization = _quantization(tensor)
    return f"{tensor.dtype} {shape}" + (f", {quantization}" if quantization else "")


def _quantization(tensor: TensorFacts) -> str:
    if tensor.scale is None:
        return ""
    if tensor.scales > 1:
        return f"{tensor.scales} scales {tensor.scale:.3g} to {tensor.scale_max:.3g}"
    return f"scale {tensor.scale:.6g}, zero point {tensor.zero_point}"
