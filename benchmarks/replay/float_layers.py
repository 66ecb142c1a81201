"""A small float32 network with each kind of float kernel, as a Relax module of random weights."""

from __future__ import annotations

from typing import Any

import numpy as np

NAME = "float_layers"
_SIDE, _CHANNELS, _CLASSES = 8, 8, 5


def float_layers() -> Any:
    """A graph: convolution, depthwise, pool, dense layer, and softmax as a kernel of TVM's."""
    from tvm import relax

    import utvm_deploy

    rng = np.random.default_rng(16)

    def weights(*shape: int) -> Any:
        return relax.const((rng.standard_normal(shape) * 0.3).astype(np.float32))

    x = relax.Var("x", relax.TensorType((1, 3, _SIDE, _SIDE), "float32"))
    builder = relax.BlockBuilder()
    op = relax.op
    with builder.function("main", [x]):
        with builder.dataflow():
            last: Any = op.nn.conv2d(x, weights(_CHANNELS, 3, 3, 3), padding=(1, 1))
            last = op.nn.relu(op.add(last, weights(1, _CHANNELS, 1, 1)))
            filters = weights(_CHANNELS, 1, 3, 3)
            last = op.nn.conv2d(last, filters, padding=(1, 1), groups=_CHANNELS)
            last = op.nn.relu(op.add(last, weights(1, _CHANNELS, 1, 1)))
            last = op.nn.max_pool2d(last, (2, 2), strides=(2, 2))
            last = op.nn.avg_pool2d(last, (2, 2), strides=(2, 2))
            last = op.reshape(last, (1, _CHANNELS * (_SIDE // 4) ** 2))
            last = op.matmul(last, weights(_CHANNELS * (_SIDE // 4) ** 2, _CLASSES))
            last = builder.emit_output(op.nn.softmax(op.add(last, weights(_CLASSES))))
        builder.emit_func_output(last)
    return utvm_deploy.from_relax(builder.finalize(), name=NAME)
