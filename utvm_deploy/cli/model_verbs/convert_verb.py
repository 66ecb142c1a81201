"""utvm convert: the .tflite file that a quantized model of another form becomes."""

from __future__ import annotations

import argparse
from pathlib import Path

import utvm_deploy
from utvm_deploy.cli.arguments import Verbs, add_verb
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.shape_option import add_shape


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        common,
        "convert",
        "write a quantized .onnx, .pt2 or uint8 model as a .tflite file",
        run,
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=Path,
        help="a quantized model, .onnx or .pt2, or a .tflite file of uint8 or with something to "
        "choose; `utvm quantize` takes float models",
    )
    add_shape(parser)
    parser.add_argument(
        "-o", "--output", metavar="OUT.tflite", type=Path, required=True, help="the file to write"
    )


def run(args: argparse.Namespace, out: Output) -> int:
    """Write the file and say what it holds."""
    found = utvm_deploy.convert(args.model, args.output, write=not args.dry_run)
    out.line(found.headline)
    out.found(found.to_dict())
    return 0
