"""Backends: somebody else's code for operators of a model (docs/guides/backends.md).

    from utvm_deploy.backends import Backend, CText, Pattern, call

    backend = Backend("mine", (Pattern(("RELU",), build),), CText("..."))

What this package names here is public. CMSIS-NN is a backend that uses nothing else of the kernels.
"""

from utvm_deploy.backends.calls import call
from utvm_deploy.backends.interface import (
    Backend,
    Build,
    Covers,
    CText,
    Estimate,
    Infer,
    Match,
    Pattern,
    Reference,
    StaticLibrary,
    TensorType,
    pattern,
)
from utvm_deploy.backends.patterns import Expression, Op, constant, op, optional, wildcard
from utvm_deploy.backends.serialized import serialized
from utvm_deploy.base.errors import PluginError
from utvm_deploy.graph.model import Array, Graph, Operator, Quantization, Tensor
from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.contract.call import (
    Argument,
    ConstantArgument,
    KernelCall,
    LibraryKernel,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.external_library import ExternalLibrary
from utvm_deploy.kernels.contract.operands import quantization_of
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.requantization import (
    fold_input_offset,
    quantize_multiplier,
    quantize_multipliers,
)
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.portable.integers.convolution import window_of
from utvm_deploy.kernels.portable.integers.elementwise import BroadcastAdd, BroadcastMultiply
from utvm_deploy.kernels.portable.movement import Joined

__all__ = [
    "Argument",
    "Array",
    "Backend",
    "BroadcastAdd",
    "BroadcastMultiply",
    "Build",
    "CText",
    "ConstantArgument",
    "Covers",
    "Estimate",
    "Expression",
    "ExternalLibrary",
    "Graph",
    "Infer",
    "Joined",
    "KernelCall",
    "LibraryKernel",
    "Match",
    "Op",
    "Operation",
    "Operator",
    "Pattern",
    "PluginError",
    "Quantization",
    "Reference",
    "ScalarArgument",
    "StaticLibrary",
    "Tensor",
    "TensorArgument",
    "TensorType",
    "Window",
    "call",
    "constant",
    "fold_input_offset",
    "op",
    "optional",
    "pattern",
    "quantization_of",
    "quantize_multiplier",
    "quantize_multipliers",
    "replaced",
    "serialized",
    "wildcard",
    "window_of",
]
