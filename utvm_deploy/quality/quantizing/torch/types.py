"""Which operators of a float PyTorch program become integers, by ATen's names.

Most are annotated as they are, and some are made of others first (``torch_decompositions``). The
last step of ``utvm quantize`` rewrites a few more (``finishing``).
"""

from __future__ import annotations

from utvm_deploy.quality.quantizing.torch.quantizer import ANNOTATED

#: Composite operators all of whose parts become integers.
_COMPOSED = (
    *("_native_batch_norm_legit_no_training", "batch_norm", "group_norm", "instance_norm"),
    *("layer_norm", "rms_norm", "scaled_dot_product_attention", "div", "square", "elu"),
    *("hardsigmoid", "silu", "softplus", "stack", "gru", "lstm", "rnn_tanh", "rnn_relu"),
    *("movedim", "narrow", "repeat", "roll", "glu", "mish", "max", "einsum"),
)
#: Operators that the last step makes integer ones, and those without a result in float.
_REWRITTEN = (
    *("amin", "argmax", "argmin", "eq", "ge", "gt", "le", "lt", "ne"),
    *("bitwise_and", "bitwise_not", "bitwise_or", "logical_and", "logical_not", "logical_or"),
    *("_to_copy", "to"),
)
_BOTH = frozenset((*ANNOTATED, *_COMPOSED, *_REWRITTEN))
#: Operators whose kernels have no form of int16.
_INT8_ONLY = frozenset(
    ("_log_softmax", "argmax", "argmin", "log_softmax", "prelu", "sqrt"),
)


def torch_types(kind: str) -> tuple[str, ...]:
    """What the activations of a float operator become; empty if it stays float32.

    ``kind`` is a name of ``frontend.torch_calls.operator_kinds``.
    """
    if kind in _INT8_ONLY:
        return ("int8",)
    return ("int8", "int16") if kind in _BOTH else ()
