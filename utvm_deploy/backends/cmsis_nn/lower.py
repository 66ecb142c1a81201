"""CMSIS-NN as a backend: operator -> call, for the operators and shapes that it covers.

Every function in the table gives the reason if the library has no function for the case; then our
kernel computes it. Offsets and multipliers are those of TFLite, for which the library was made.
Only its fully connected layers round differently from LiteRT's reference kernels. Its LSTM is left
out: it takes the gates' functions from tables, and so computes other bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from utvm_deploy.backends import (
    Backend,
    KernelCall,
    LibraryKernel,
    Match,
    Operation,
    Pattern,
    StaticLibrary,
)
from utvm_deploy.backends.cmsis_nn.convolution import (
    lower_convolution,
    lower_depthwise,
    lower_transpose_convolution,
)
from utvm_deploy.backends.cmsis_nn.elementwise import lower_extremum, lower_sum_or_product
from utvm_deploy.backends.cmsis_nn.library import CMSIS_NN as CMSIS_NN_LIBRARY
from utvm_deploy.backends.cmsis_nn.library import CmsisNn, zephyr_options
from utvm_deploy.backends.cmsis_nn.movers import lower_concatenation, lower_pad, lower_transpose
from utvm_deploy.backends.cmsis_nn.pool_softmax import lower_pool, lower_softmax
from utvm_deploy.backends.cmsis_nn.products import lower_dense, lower_products
from utvm_deploy.backends.cmsis_nn.svdf import lower_svdf
from utvm_deploy.records.candidate import CMSIS_NN

# The library counts rows, columns and channels in 16 bits.
_LARGEST_EXTENT = 0xFFFF
_TYPES = ("int8", "int16")

_Lowering = Callable[[Operation, KernelCall, CmsisNn], KernelCall | str]


def cmsis_nn_backend(library: CmsisNn) -> Backend:
    """The user's copy of the library as a backend."""

    def pattern(kind: str, lowering: _Lowering) -> Pattern:
        def lowered(match: Match) -> KernelCall | str:
            made = _lower(match, lowering, library)
            if isinstance(made, KernelCall):
                return made
            return made.replace(CMSIS_NN_LIBRARY.name, library.product.name)

        return Pattern((kind,), lowered)

    return Backend(
        library.product.name,
        tuple(pattern(kind, lowering) for kind, lowering in _LOWERINGS.items()),
        StaticLibrary(
            Path(library.library) if library.library else None,
            tuple(Path(folder) for folder in library.include_dirs),
        ),
        url=library.product.url,
        zephyr_options=zephyr_options,
        digest=library.digest,
        built_with=library.built_with,
        functions=library.functions,
        family=CMSIS_NN,
    )


def _lower(match: Match, lowering: _Lowering, library: CmsisNn) -> KernelCall | str:
    """The library's call that does what our portable kernel's does, or why there is none."""
    op = match.first
    dtype = op.source.dtype
    if dtype not in _TYPES:
        return f"no call of CMSIS-NN does {op.kind} of {dtype}"
    tensors = [
        op.graph.tensors[i] for i in (*op.operator.inputs, *op.operator.outputs) if i is not None
    ]
    if any(extent > _LARGEST_EXTENT for tensor in tensors for extent in tensor.shape):
        return f"CMSIS-NN has no {op.kind} beyond {_LARGEST_EXTENT:,} elements a side"
    call = lowering(op, match.ours, library)
    if isinstance(call, KernelCall):
        assert isinstance(call.kernel, LibraryKernel)
        if not library.has(call.kernel.function):
            return f"this revision of CMSIS-NN has no {call.kernel.function}"
    return call


_LOWERINGS: Mapping[str, _Lowering] = {
    "ADD": lower_sum_or_product,
    "AVERAGE_POOL_2D": lower_pool,
    "BATCH_MATMUL": lower_products,
    "CONCATENATION": lower_concatenation,
    "CONV_2D": lower_convolution,
    "DEPTHWISE_CONV_2D": lower_depthwise,
    "FULLY_CONNECTED": lower_dense,
    "MAXIMUM": lower_extremum,
    "MAX_POOL_2D": lower_pool,
    "MINIMUM": lower_extremum,
    "MUL": lower_sum_or_product,
    "PAD": lower_pad,
    "SOFTMAX": lower_softmax,
    "SVDF": lower_svdf,
    "TRANSPOSE": lower_transpose,
    "TRANSPOSE_CONV": lower_transpose_convolution,
}
