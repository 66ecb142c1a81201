"""utvm convert: the .tflite file that a quantized ONNX or PyTorch model becomes."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.files import write_atomically
from utvm_deploy.cli.arguments import Verbs, add_verb, check_outputs
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.shape_option import add_shape
from utvm_deploy.frontend.formats import quantized_tflite
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.macs import total_macs

_ENDING = ".tflite"


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs, common, "convert", "write a quantized .onnx or .pt2 model as a .tflite file", run
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=Path,
        help="a quantized model, .onnx or .pt2; `utvm quantize` takes float models",
    )
    add_shape(parser)
    parser.add_argument(
        "-o", "--output", metavar="OUT.tflite", type=Path, required=True, help="the file to write"
    )


def run(args: argparse.Namespace, out: Output) -> int:
    """Write the file and say what it holds."""
    output: Path = args.output
    if output.suffix.lower() != _ENDING:
        raise UsageError(f"{output}: convert writes a .tflite file; give a name that ends so")
    check_outputs(args.model, output)
    data = quantized_tflite(args.model)
    # Nothing is written that the other verbs do not read.
    graph = load_model(args.model)
    if not args.dry_run:
        write_atomically(output, lambda file: file.write(data))
    out.line(
        f"{output}: {len(data):,} bytes, {len(graph.operators)} operators, "
        f"{total_macs(graph):,} MACs, converted from {args.model}"
    )
    out.result(
        "utvm.convert/1",
        {
            "model": str(args.model),
            "output": str(output),
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "operators": len(graph.operators),
        },
    )
    return 0
