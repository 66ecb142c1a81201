"""The command that quantizes a float model, for messages of all packages."""

from __future__ import annotations

from pathlib import Path


def quantize_command(path: Path | str = "MODEL") -> str:
    """The command line for a model file."""
    return f"utvm quantize {path} --data CALIB.npz -o OUT.tflite"
