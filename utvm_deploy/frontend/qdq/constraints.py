"""What operators of quantized ONNX files and PyTorch exports must be like, for listings."""

from __future__ import annotations

from collections.abc import Mapping

_WEIGHTS = "constant int8 weights with zero points of 0, one scale or one for each output channel"
_NEAR = "in float32 if its input or result has another type"

#: ONNX's name -> constraints. What has none is written as TFLite's operator of that name.
CONSTRAINTS: Mapping[str, str] = {
    "ArgMax": "the first of equal elements",
    "ArgMin": "the first of equal elements",
    "AveragePool": "no dilation, no ceil_mode; pads that are not counted only as in SAME",
    "BatchNormalization": "constant statistics",
    "Cast": "to float32, int32, int64 or bool",
    "Conv": f"one or two dimensions; {_WEIGHTS}",
    "ConvTranspose": f"one or two dimensions, one group; {_WEIGHTS}",
    "DepthToSpace": "mode DCR",
    "Div": "integers by a constant whose elements differ by less than a factor of 2; else float32",
    "Exp": "integers if the largest input is below 13.8; else float32",
    "Gather": "constant or computed indices",
    "Gemm": f"alpha and beta 1, no transA; {_WEIGHTS}",
    "HardSwish": _NEAR,
    "Log": "integers if no input is below 0; else float32",
    "LogSoftmax": _NEAR,
    "MatMul": f"two activations, or {_WEIGHTS}",
    "MaxPool": "no dilation, no indices",
    "PRelu": _NEAR,
    "Pad": "constant or reflect",
    "Pow": "integers with the constant exponent 2; else float32",
    "Resize": "images; nearest, or linear",
    "Sqrt": "int8 if no input is below 0; else float32",
    "Upsample": "images; nearest, or linear",
}
