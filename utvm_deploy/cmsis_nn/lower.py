"""Operator -> call of CMSIS-NN, for the operators and shapes that it covers.

Every function in the table gives the reason if the library has no function for the case; then our
kernel computes it. Offsets and multipliers are those of TFLite, for which the library was made.
Only its fully connected layers round differently from LiteRT's reference kernels. Its LSTM is left
out: it takes the gates' functions from tables, and so computes other bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from utvm_deploy.cmsis_nn.convolution import (
    lower_convolution,
    lower_depthwise,
    lower_transpose_convolution,
)
from utvm_deploy.cmsis_nn.elementwise import lower_extremum, lower_sum_or_product
from utvm_deploy.cmsis_nn.library import CmsisNn
from utvm_deploy.cmsis_nn.movers import lower_concatenation, lower_pad, lower_transpose
from utvm_deploy.cmsis_nn.pool_softmax import lower_pool, lower_softmax
from utvm_deploy.cmsis_nn.products import lower_dense, lower_products
from utvm_deploy.cmsis_nn.svdf import lower_svdf
from utvm_deploy.kernels.contract.call import KernelCall, LibraryKernel
from utvm_deploy.kernels.contract.operation import Operation

# The library counts rows, columns and channels in 16 bits.
_LARGEST_EXTENT = 0xFFFF
_TYPES = ("int8", "int16")


def lower_cmsis_nn(op: Operation, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    """The library's call that does what ``ours`` (the generic kernel's call) does.

    If there is none, a phrase that says why.
    """
    lowering = _LOWERINGS.get(op.kind)
    if lowering is None:
        return f"no call of CMSIS-NN does {op.kind}"
    dtype = op.source.dtype
    if dtype not in _TYPES:
        return f"no call of CMSIS-NN does {op.kind} of {dtype}"
    tensors = [
        op.graph.tensors[i] for i in (*op.operator.inputs, *op.operator.outputs) if i is not None
    ]
    if any(extent > _LARGEST_EXTENT for tensor in tensors for extent in tensor.shape):
        return f"CMSIS-NN has no {op.kind} beyond {_LARGEST_EXTENT:,} elements a side"
    call = lowering(op, ours, library)
    if isinstance(call, KernelCall):
        assert isinstance(call.kernel, LibraryKernel)
        if not library.has(call.kernel.function):
            return f"this revision of CMSIS-NN has no {call.kernel.function}"
    return call


_Lowering = Callable[[Operation, KernelCall, CmsisNn], KernelCall | str]

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
