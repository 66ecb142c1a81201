"""Neural networks on microcontrollers: a model and a board in, bit-exact firmware out.

    import utvm_deploy

    with utvm_deploy.connect("mps2_an500") as device:
        model = device.load(utvm_deploy.compile("digits.tflite", board="mps2_an500"))
        y = model(x)

Importing this package is cheap: TVM and the other heavy dependencies load on first use.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from utvm_deploy import intrinsics, models, torch
    from utvm_deploy.api.bench_function import bench
    from utvm_deploy.api.bundle_function import bundle
    from utvm_deploy.api.compare_function import compare
    from utvm_deploy.api.compile_function import compile, from_relax
    from utvm_deploy.api.convert_function import convert
    from utvm_deploy.api.estimate_function import estimate
    from utvm_deploy.api.evaluate_function import evaluate
    from utvm_deploy.api.inspect_function import inspect
    from utvm_deploy.api.memory_function import memory
    from utvm_deploy.api.profile_function import profile
    from utvm_deploy.api.quantize_function import quantize
    from utvm_deploy.api.train_function import train
    from utvm_deploy.api.trainable_function import trainable
    from utvm_deploy.api.tune_function import tune
    from utvm_deploy.api.verify_function import verify
    from utvm_deploy.base.errors import UtvmError
    from utvm_deploy.boards.board import Board, board_names, load_board
    from utvm_deploy.compiler.compiled.model import CompiledModel
    from utvm_deploy.device import Device, DeviceModel, connect
    from utvm_deploy.graph import number_formats

__version__ = "0.3.0"

__all__ = [
    "Board",
    "CompiledModel",
    "Device",
    "DeviceModel",
    "UtvmError",
    "bench",
    "board_names",
    "bundle",
    "compare",
    "compile",
    "connect",
    "convert",
    "estimate",
    "evaluate",
    "from_relax",
    "inspect",
    "intrinsics",
    "load_board",
    "memory",
    "models",
    "number_formats",
    "profile",
    "quantize",
    "torch",
    "train",
    "trainable",
    "tune",
    "verify",
]

#: The module of each name. Almost nothing is loaded until the command has its handler for Ctrl-C.
_MODULES = {
    "Board": "boards.board",
    "CompiledModel": "compiler.compiled.model",
    "Device": "device",
    "DeviceModel": "device",
    "UtvmError": "base.errors",
    "board_names": "boards.board",
    "bench": "api.bench_function",
    "bundle": "api.bundle_function",
    "compare": "api.compare_function",
    "compile": "api.compile_function",
    "connect": "device",
    "convert": "api.convert_function",
    "estimate": "api.estimate_function",
    "evaluate": "api.evaluate_function",
    "from_relax": "api.compile_function",
    "inspect": "api.inspect_function",
    "load_board": "boards.board",
    "memory": "api.memory_function",
    "profile": "api.profile_function",
    "quantize": "api.quantize_function",
    "train": "api.train_function",
    "trainable": "api.trainable_function",
    "tune": "api.tune_function",
    "verify": "api.verify_function",
}
_PACKAGES = {
    "intrinsics": "intrinsics",
    "models": "models",
    "number_formats": "graph.number_formats",
    "torch": "torch",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    if name in _PACKAGES:
        return import_module(f"{__name__}.{_PACKAGES[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


# A notebook runs IPython before it imports anything, and gets the function that shows results.
if "IPython" in sys.modules:
    from utvm_deploy.results.pages import notebook

    notebook.register()
