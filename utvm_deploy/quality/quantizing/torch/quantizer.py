"""Our quantizer for PT2E: which tensors of an ATen graph become int8 or int16, and how.

Activations are int8 with a zero point, or int16 without one. Weights are int8 with a scale for each
output channel. Biases stay float here: the conversion to .tflite makes integers of them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from utvm_deploy.base.errors import ModelError, UsageError
from utvm_deploy.frontend.torch.calls import aten_name
from utvm_deploy.quality.quantizing.facts import COUNTING, INT8, SCHEMES
from utvm_deploy.quality.quantizing.torch.decompositions import HIDDEN, decomposed, least_of

#: The dimension of the weights that holds the output channels.
WEIGHTED: Mapping[str, int] = {
    **dict.fromkeys(("linear", "conv1d", "conv2d"), 0),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d"), 1),
}
#: Products of two matrices, the second of which may be constant.
_PRODUCTS = frozenset(("matmul", "mm", "bmm"))
#: Operators whose kernels clamp their results, so that a clamp behind them costs nothing.
_CLAMPING = frozenset((*WEIGHTED, "add", "sub", "mul"))
_CLAMPS = frozenset(("relu", "relu6", "hardtanh", "clamp"))
#: Part of the convolution before it; only graphs of modules in training have it.
_NORM = "batch_norm"
#: Operators that only move elements, or choose among them: the result has the scale of the input.
MOVING = frozenset(
    (
        *("view", "reshape", "flatten", "squeeze", "unsqueeze", "unflatten", "_unsafe_view"),
        *("dropout", "clone", "contiguous", "alias", "detach", "feature_dropout", "expand"),
        *("transpose", "t", "permute", "slice", "flip", "select", "pad", "constant_pad_nd"),
        *("embedding", "index", "index_select", "max_pool1d", "max_pool2d", "amax"),
        *("upsample_nearest2d", "upsample_bilinear2d"),
    )
)
#: Operators that need one scale for all that they read and write.
_UNIFORM = frozenset(("cat", "index_copy", "index_put", "maximum", "minimum"))
#: Operators with several results.
SPLITTING = frozenset(("split", "split_with_sizes", "chunk", "unbind"))
_COMPUTING = frozenset(
    (
        *WEIGHTED,
        *(*_CLAMPS, _NORM),
        *("add", "sub", "mul", "neg", "abs", "matmul", "mm", "bmm"),
        *("sigmoid", "tanh", "softmax", "_softmax", "log_softmax", "_log_softmax"),
        *("hardswish", "leaky_relu", "prelu", "gelu", "exp", "log", "sqrt", "rsqrt"),
        *("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d"),
        *("mean", "sum"),
    )
)

#: Every operator that is annotated, by ATen's name.
ANNOTATED = MOVING | _UNIFORM | SPLITTING | _COMPUTING

#: Functions whose kernels have a fixed scale, and what it is in int8; in int16 it is 2**-15.
_FIXED_INT8: Mapping[str, tuple[float, int]] = {
    **dict.fromkeys(("sigmoid", "softmax", "_softmax"), (1 / 256, -128)),
    "tanh": (1 / 128, 0),
}

#: A scale is at least this share of the largest one of its tensor. Smaller weights count for
#: nothing, and the biases of their channels would be cut off.
_LEAST_SHARE = 2.0**-16


@dataclass(frozen=True)
class Specs:
    """How activations, and weights along a dimension, are quantized."""

    activation: Any
    by_channel: Mapping[int, Any]
    factor: Any  # of a constant matrix that is not a layer's weights
    # Results of functions whose kernels have a fixed scale, by the function's name.
    fixed: Mapping[str, Any]
    scores: Any  # of what softmax takes
    masks: Any  # of inputs that are only added to scores


def pt2e_quantizer(scheme: str, example: tuple[Any, ...], *, is_qat: bool = False) -> Any:
    """A ``Quantizer`` for ``prepare_pt2e``; ``scheme`` is "int8" or "int16x8".

    ``example`` holds inputs of the module. With ``is_qat`` it is for ``prepare_qat_pt2e``: batch
    norms become part of convolutions there, and composite operators stay as they are, in float.
    Raises UsageError for another scheme, and ModelError if torchao is missing.
    """
    if scheme not in SCHEMES:
        raise UsageError(f"{scheme!r} is not a scheme; the schemes: {', '.join(SCHEMES)}")
    try:
        from torchao.quantization.pt2e.quantizer import Quantizer
    except ImportError as exc:
        raise ModelError(
            "quantizing PyTorch modules needs torchao: pip install 'utvm-deploy[torch]'"
        ) from exc
    specs = _specs(scheme, is_qat)

    class IntegerQuantizer(Quantizer):  # type: ignore[misc]
        """Annotates what the kernels compute in integers."""

        def transform_for_annotation(self, model: Any) -> Any:
            """Take composite operators apart; by now batch norms are part of convolutions.

            A model in training is left as it is: only then PT2E finds its batch norms.
            """
            return model if is_qat else decomposed(model, example, scheme)

        def annotate(self, model: Any) -> Any:
            """Annotate every operator that is known here."""
            annotate_nodes(model.graph.nodes, specs)
            return model

        def validate(self, model: Any) -> None:
            """Nothing: the conversion refuses what cannot be computed in integers."""

    return IntegerQuantizer()


def _specs(scheme: str, is_qat: bool) -> Specs:
    import torch
    from torchao.quantization.pt2e import (
        FakeQuantize,
        MinMaxObserver,
        MovingAverageMinMaxObserver,
        MovingAveragePerChannelMinMaxObserver,
        PerChannelMinMaxObserver,
    )
    from torchao.quantization.pt2e.quantizer import QuantizationSpec

    # Weights and activations move in training, and their ranges with them.
    by_tensor = MovingAverageMinMaxObserver if is_qat else MinMaxObserver
    of_channels = MovingAveragePerChannelMinMaxObserver if is_qat else PerChannelMinMaxObserver

    # PT2E looks for "PerChannel" in the class's name.
    class PerChannelObserver(of_channels):  # type: ignore[misc, valid-type]
        """Gives channels of zeros a scale like that of the others."""

        def calculate_qparams(self) -> Any:
            """The scales, none much smaller than the largest, and the zero points."""
            scales, zero_points = super().calculate_qparams()
            return scales.clamp(min=float(scales.max()) * _LEAST_SHARE), zero_points

    class ScoreObserver(by_tensor):  # type: ignore[misc, valid-type]
        """Leaves scores out that do not count, as others of their row are much larger."""

        def forward(self, x: Any) -> Any:
            """The scores as they are."""
            super().forward(x.clamp(min=float(x.amax(-1).min()) - COUNTING[scheme]))
            return x

    class MaskObserver(by_tensor):  # type: ignore[misc, valid-type]
        """Leaves out how far from zero a mask is, as long as it hides."""

        def forward(self, x: Any) -> Any:
            """The mask as it is."""
            super().forward(x.clamp(min=HIDDEN))
            return x

    def of_values(observer: Any) -> QuantizationSpec:
        if scheme == INT8:
            return spec(observer, torch.int8, -128, 127, torch.per_tensor_affine)
        return spec(observer, torch.int16, -32767, 32767, symmetric)

    def spec(
        observer: Any, dtype: Any, least: int, most: int, qscheme: Any, **more: int
    ) -> QuantizationSpec:
        return QuantizationSpec(
            dtype=dtype,
            observer_or_fake_quant_ctr=FakeQuantize.with_args(observer=observer)
            if is_qat
            else observer,
            quant_min=least,
            quant_max=most,
            qscheme=qscheme,
            **more,
        )

    symmetric, by_channel = torch.per_tensor_symmetric, torch.per_channel_symmetric
    return Specs(
        of_values(by_tensor),
        {
            axis: spec(PerChannelObserver, torch.int8, -127, 127, by_channel, ch_axis=axis)
            for axis in (0, 1)
        },
        spec(by_tensor, torch.int8, -127, 127, symmetric),
        _fixed(scheme),
        of_values(ScoreObserver),
        of_values(MaskObserver),
    )


def _fixed(scheme: str) -> dict[str, Any]:
    import torch
    from torchao.quantization.pt2e.quantizer import FixedQParamsQuantizationSpec

    if scheme == INT8:
        dtype, scales, limits = torch.int8, _FIXED_INT8, (-128, 127)
    else:
        dtype, scales, limits = (
            torch.int16,
            dict.fromkeys(_FIXED_INT8, (2**-15, 0)),
            (-32768, 32767),
        )
    return {
        name: FixedQParamsQuantizationSpec(dtype, scale, zero_point, *limits)
        for name, (scale, zero_point) in scales.items()
    }


def annotate_nodes(nodes: Iterable[Any], specs: Specs) -> None:
    """Annotate the nodes of a graph, in order of execution."""
    for node in nodes:
        if node.op == "call_function" and _is_float(node):
            kind = aten_name(node.target)
            if kind in MOVING or kind in _UNIFORM:
                _annotate_equal(node, specs)
            elif kind in SPLITTING:
                _note(node, {source: _spec_of(source, specs) for source in _sources(node)}, None)
            elif kind in _COMPUTING:
                _annotate_computing(node, kind, specs)


def _annotate_computing(node: Any, kind: str, specs: Specs) -> None:
    inputs = {source: _spec_of(source, specs) for source in _sources(node)}
    if kind in WEIGHTED:
        weights, *bias = node.args[1:3]
        # Numbers of a scale take half as many bytes as 32 inputs have weights.
        is_one = kind == "linear" and _is_recurrent(node, weights)
        inputs[weights] = specs.factor if is_one else specs.by_channel[WEIGHTED[kind]]
        for constant in bias:
            inputs.pop(constant, None)
    elif kind in _PRODUCTS and node.args[1].op == "get_attr":
        inputs[node.args[1]] = specs.factor
    before = _clamped(node, kind)
    if before is not None:
        # The clamp becomes part of that operator, so only its result is quantized.
        before.meta["quantization_annotation"].output_qspec = None
        inputs = {}
    usual = specs.fixed.get(kind, specs.activation)
    _note(node, inputs, specs.scores if _are_scores(node) else usual)


def _are_scores(node: Any) -> bool:
    """Whether only softmax along the last dimension reads a result."""
    last = (-1, node.meta["val"].dim() - 1)
    return bool(node.users) and all(
        user.op == "call_function"
        and aten_name(user.target) in ("softmax", "_softmax")
        and user.args[1] in last
        for user in node.users
    )


def _is_recurrent(node: Any, weights: Any) -> bool:
    """Whether a linear layer is a part of a recurrent one.

    Its weights are read in each step, or its result is cut into steps. A cut along the last
    dimension makes parts of the channels, such as the queries of attention.
    """
    last = node.meta["val"].dim() - 1
    parts = [
        user
        for user in node.users
        if aten_name(user.target) == "slice" and [*user.args, 0][1] not in (last, -1)
    ]
    return len(weights.users) > 1 or len(parts) == len(node.users) > 1


def _clamped(node: Any, kind: str) -> Any:
    """The operator that this clamp or norm becomes a part of; None where it stays by itself."""
    before: Any = node.args[0]
    if before.op != "call_function" or len(before.users) != 1:
        return None
    name = aten_name(before.target)
    if kind == _NORM:
        return before if name in WEIGHTED else None
    is_normed = name == _NORM and _clamped(before, name) is not None
    return before if kind in _CLAMPS and (name in _CLAMPING or is_normed) else None


def _annotate_equal(node: Any, specs: Specs) -> None:
    """One scale for all inputs and the output."""
    from torchao.quantization.pt2e.quantizer import SharedQuantizationSpec

    first, *others = _sources(node)
    shared = SharedQuantizationSpec((first, node))
    _note(node, {first: _spec_of(first, specs), **dict.fromkeys(others, shared)}, shared)


def _spec_of(source: Any, specs: Specs) -> Any:
    """How a value is quantized that an operator reads.

    A function's result stays as it was made, and a part of a split tensor has the tensor's scale.
    """
    from torchao.quantization.pt2e.quantizer import SharedQuantizationSpec

    if source.op != "call_function":
        is_mask = source.op == "placeholder" and least_of(source, ()) is not None
        return specs.masks if is_mask else specs.activation
    if source.target is operator.getitem and aten_name(source.args[0].target) in SPLITTING:
        whole = source.args[0]
        return SharedQuantizationSpec((whole.all_input_nodes[0], whole))
    if _are_scores(source):
        return specs.scores
    return specs.fixed.get(aten_name(source.target), specs.activation)


def _note(node: Any, inputs: Mapping[Any, Any], output: Any) -> None:
    from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

    node.meta["quantization_annotation"] = QuantizationAnnotation(
        input_qspec_map=dict(inputs), output_qspec=output, _annotated=True
    )


def _sources(node: Any) -> list[Any]:
    """The float tensors that a node reads, each once."""
    return [source for source in node.all_input_nodes if _is_float(source)]


def _is_float(node: Any) -> bool:
    value = node.meta.get("val")
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    return value is None or bool(getattr(value, "is_floating_point", lambda: False)())
