"""Model files of other formats: each becomes a .tflite file before anything else looks at it.

So all of them share one reader, one graph, and one oracle to be compared with byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from utvm_deploy.frontend.onnx_model import onnx_to_tflite
from utvm_deploy.frontend.torch_export import torch_to_tflite

#: A file name's ending -> what makes the .tflite file of it.
CONVERTERS: Mapping[str, Callable[[Path], bytes]] = {
    ".onnx": onnx_to_tflite,
    ".pt2": torch_to_tflite,
}


def converted(path: Path) -> bytes | None:
    """The .tflite file that a file of another format becomes; None if it is of no such format."""
    converter = CONVERTERS.get(path.suffix.lower())
    return None if converter is None else converter(path)
