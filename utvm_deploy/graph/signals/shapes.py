"""Shape rules of the signal operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from utvm_deploy.base.errors import ModelError

Shape: TypeAlias = tuple[int, ...]
_PIXEL_BYTES = 2  # of RGB565
#: From attributes and the shapes of inputs to those of outputs, without the state.
SignalRule = Callable[[Any, list[Shape]], tuple[Shape, ...]]


def _rfft(attributes: Any, shapes: list[Shape]) -> tuple[Shape, ...]:
    *outer, samples = shapes[0]
    if samples > attributes.length:
        raise ModelError(f"it has {samples} samples for a transform of {attributes.length}")
    return ((*outer, attributes.length + 2),)


def _irfft(attributes: Any, shapes: list[Shape]) -> tuple[Shape, ...]:
    *outer, numbers = shapes[0]
    if numbers != attributes.length + 2:
        raise ModelError(f"a transform to {attributes.length} samples needs {numbers} numbers")
    return ((*outer, attributes.length),)


def _framer(attributes: Any, shapes: list[Shape]) -> tuple[Shape, ...]:
    *outer, samples = shapes[0]
    if samples % attributes.step:
        raise ModelError(f"{samples} samples are not a multiple of its step {attributes.step}")
    return ((*outer, samples // attributes.step, attributes.size), ())


def _overlap_add(attributes: Any, shapes: list[Shape]) -> tuple[Shape, ...]:
    if len(shapes[0]) < 2:
        raise ModelError(f"{shapes[0]} are not frames")
    *outer, frames, size = shapes[0]
    if size < attributes.step:
        raise ModelError(f"frames of {size} samples are shorter than its step {attributes.step}")
    return ((*outer, frames * attributes.step),)


def _spectrogram(attributes: Any, shapes: list[Shape]) -> tuple[Shape, ...]:
    *outer, samples = shapes[0]
    if samples < attributes.size:
        raise ModelError(f"it has {samples} samples for frames of {attributes.size}")
    return ((*outer, attributes.frames(samples), attributes.bins),)


def _rgb565(attributes: Any, shapes: list[Shape]) -> tuple[Shape, ...]:
    *outer, size = shapes[0]
    if size != _PIXEL_BYTES:
        raise ModelError(f"its pixels have {size} bytes instead of {_PIXEL_BYTES}")
    return ((*outer, 3),)


#: Kind -> rule, of those whose only output has not the shape of the first input.
SIGNAL_RULES: Mapping[str, SignalRule] = {
    "SignalEnergy": lambda attributes, shapes: ((shapes[0][0] // 2,),),
    "SignalFftAutoScale": lambda attributes, shapes: (shapes[0], ()),
    "SignalFilterBank": lambda attributes, shapes: ((attributes.channels,),),
    "SignalFilterBankSpectralSubtraction": lambda attributes, shapes: (shapes[0], shapes[0]),
    "SignalFramer": _framer,
    "SignalIrfft": _irfft,
    "SignalOverlapAdd": _overlap_add,
    "SignalRfft": _rfft,
    "SignalSpectrogram": _spectrogram,
    "SignalStacker": lambda attributes, shapes: ((shapes[0][0] * attributes.frames,), ()),
    "UtvmRgb565": _rgb565,
}
