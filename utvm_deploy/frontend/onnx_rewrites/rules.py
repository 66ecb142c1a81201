"""Our own rewrites: the operator, and the function that replaces a node or leaves it.

A function returns the name of the tensor that becomes the first output. It returns True if it made
the outputs itself, and False if TVM imports this use of the operator right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.onnx_rewrites import (
    attention,
    contributed,
    control,
    elementwise,
    moving,
    resizing,
    signals,
    training,
)
from utvm_deploy.frontend.onnx_rewrites.state import Rewriting

Rule: TypeAlias = Callable[[Rewriting], str | bool]
_ML, _TRAINING = "ai.onnx.ml", "ai.onnx.preview.training"


def _roi_align(r: Rewriting) -> bool:
    if r.text("mode", "avg") == "max":
        raise UnsupportedOperator(f"{r.place} has the mode 'max'; only 'avg' is supported")
    return False


#: Domain and operator -> rewrite.
RULES: Mapping[tuple[str, str], Rule] = {
    ("", "Attention"): attention.attention,
    ("", "BatchNormalization"): elementwise.batch_normalization,
    ("", "BitShift"): elementwise.bit_shift,
    ("", "CastLike"): elementwise.cast_like,
    ("", "Col2Im"): moving.column_to_image,
    ("", "Compress"): moving.compress,
    ("", "Concat"): moving.concat,
    ("", "ConvTranspose"): resizing.transposed_convolution,
    ("", "CumProd"): elementwise.cumulative_product,
    ("", "DFT"): signals.fourier,
    ("", "DequantizeLinear"): elementwise.dequantize,
    ("", "Det"): elementwise.determinant,
    ("", "Dropout"): elementwise.dropout,
    ("", "Equal"): elementwise.is_all_minus_infinity,
    ("", "If"): control.branch,
    ("", "IsInf"): elementwise.is_infinite,
    ("", "LayerNormalization"): elementwise.layer_normalization,
    ("", "Loop"): control.loop,
    ("", "LpNormalization"): elementwise.lp_normalization,
    ("", "OneHot"): moving.one_hot,
    ("", "PRelu"): elementwise.prelu,
    ("", "Pow"): elementwise.power,
    ("", "RMSNormalization"): elementwise.rms_normalization,
    ("", "ReduceMax"): elementwise.of_booleans,
    ("", "ReduceMin"): elementwise.of_booleans,
    ("", "Resize"): resizing.resize,
    ("", "ReverseSequence"): moving.reverse_sequence,
    ("", "RoiAlign"): _roi_align,
    ("", "RotaryEmbedding"): attention.rotary_embedding,
    ("", "STFT"): signals.short_time_fourier,
    ("", "Scan"): control.scan,
    ("", "SpaceToDepth"): moving.space_to_depth,
    ("", "Split"): moving.split,
    ("", "Squeeze"): moving.axis_in_list,
    ("", "TensorScatter"): moving.tensor_scatter,
    ("", "Unsqueeze"): moving.axis_in_list,
    (_ML, "ArrayFeatureExtractor"): moving.feature_extractor,
    (_ML, "Binarizer"): elementwise.binarizer,
    (_TRAINING, "Adagrad"): training.adagrad,
    (_TRAINING, "Adam"): training.adam,
    (_TRAINING, "Momentum"): training.momentum,
    **{(contributed.DOMAIN, kind): rule for kind, rule in contributed.CONTRIBUTED.items()},
}
#: Operators of onnxruntime; and all that integers compute only after these rules.
CONTRIBUTED = frozenset((contributed.DOMAIN, kind) for kind in contributed.CONTRIBUTED)
COMPOSED = CONTRIBUTED | {("", "Attention"), ("", "RotaryEmbedding")}
