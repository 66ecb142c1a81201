"""--shape: the shapes of inputs, for models whose own are symbolic."""

from __future__ import annotations

import argparse

from utvm_deploy.base.errors import UsageError
from utvm_deploy.frontend.given_shapes import parsed_shape


def add_shape(parser: argparse.ArgumentParser) -> None:
    """--shape; ``shapes_of`` reads it."""
    parser.add_argument(
        "--shape",
        metavar="X=1,64",
        action="append",
        type=_shape,
        default=[],
        help="the shape of input X, for .onnx and .relax files whose shapes are symbolic; a "
        "symbolic batch is 1 if it is not given; may be given several times",
    )


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    try:
        return parsed_shape(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def shapes_of(args: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs that the command line gives; UsageError if one is given twice."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in getattr(args, "shape", []):
        if shapes.setdefault(name, shape) != shape:
            raise UsageError(f"--shape gives '{name}' twice, with different shapes; give it once")
    return shapes
