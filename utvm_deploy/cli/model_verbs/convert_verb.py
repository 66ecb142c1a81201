"""utvm convert: the .tflite file that a quantized model of another form becomes."""

from __future__ import annotations

import argparse

import utvm_deploy
from utvm_deploy.cli.output import Output


def run(args: argparse.Namespace, out: Output) -> int:
    """Write the file and say what it holds."""
    found = utvm_deploy.convert(
        args.model, args.output, prefill=args.prefill, write=not args.dry_run
    )
    out.line(found.headline)
    out.found(found.to_dict())
    return 0
