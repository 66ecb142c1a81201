"""--shape and --signature: what the user chooses of a model whose file leaves it open."""

from __future__ import annotations

import argparse

from utvm_deploy.base.errors import UsageError
from utvm_deploy.frontend.files.given_shapes import parsed_shape


def add_shape(parser: argparse.ArgumentParser) -> None:
    """--shape and --signature; ``shapes_of`` and ``signature_of`` read them."""
    parser.add_argument(
        "--shape",
        metavar="[X=]1,64",
        action="append",
        type=_shape,
        default=[],
        help="the shape of input X, for files whose shapes are symbolic. A model with one input "
        "needs no X=. A symbolic batch is 1 if it is not given. May be given several times",
    )
    parser.add_argument(
        "--signature",
        metavar="NAME",
        help="which signature of a .tflite file that has several",
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
            called = f"'{name}'" if name else "the shape"
            raise UsageError(f"--shape gives {called} twice, with different shapes; give it once")
    return shapes


def signature_of(args: argparse.Namespace) -> str | None:
    """The signature that the command line gives."""
    name: str | None = getattr(args, "signature", None)
    return name
