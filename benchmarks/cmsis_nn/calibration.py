"""Quantization of a network of random weights, by what its tensors hold for some samples.

Converters do the same. With guessed scales, values grow or shrink from layer to layer until most
channels are constant; an engine that drops these looks faster than it is. Here each channel has a
mean near zero and a given spread in front of its activation. Sums are of integers, so the file is
the same on every computer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from layer import ModelWriter

from utvm_deploy.oracle.program import built

#: So many inputs are tried; squares of this size have one mean.
SAMPLES, PATCH = 4, 4
#: The standard deviation of a channel in front of its activation: RELU6 cuts at three of them.
SPREAD = 2.0
NONE, RELU, RELU6 = 0, 1, 3
#: A range is known when values cover so many of 256 steps; a trial takes steps of another size.
RESOLVED, TRIALS = 100, 12
#: Of weights that are uniform over int8; in front of it, so many deviations fit a range.
DEVIATION, MARGIN = 73.3, 8


def samples(shape: Sequence[int], rng: np.random.Generator, count: int = SAMPLES) -> np.ndarray:
    """Inputs of int8, ``count`` by ``shape``: patches with noise along all axes but the last."""
    places = range(1, len(shape) - 1)
    coarse = [-(-size // PATCH) if axis in places else size for axis, size in enumerate(shape)]
    values = rng.integers(-90, 91, (count, *coarse))
    for axis in places:
        values = values.repeat(PATCH, 1 + axis)
    inside = tuple(slice(size) for size in (count, *shape))
    values = values[inside] + rng.integers(-30, 31, (count, *shape))
    return values.astype(np.int8)


class Calibration:
    """What each tensor of a growing model holds, for each sample.

    ``ends_at_six``: where RELU6 cuts, its range ends at 6 exactly, as converters have it. Without
    it, the range ends at a step of the trial, and outputs have a limit of 126.
    """

    def __init__(self, writer: ModelWriter, *, ends_at_six: bool = False) -> None:
        self._writer, self._ends_at_six = writer, ends_at_six
        rng = np.random.default_rng(1)
        tensors = writer.tensors
        self._values = {number: samples(tensors[number].shape, rng) for number in writer.inputs}

    def run(self) -> None:
        """Run the last operator."""
        self._values[self._writer.operators[-1].outputs[0]] = self._output()

    def fit(self, scale: float, *, is_positive: bool = False, most: float = math.inf) -> None:
        """Give the output of the last operator the range of its values, and run it.

        ``scale`` is a guess; ``is_positive`` says that no value is below zero, ``most`` where they
        are cut.
        """
        tensor = self._writer.tensors[self._writer.operators[-1].outputs[0]]
        zero = -128 if is_positive else 0
        for _ in range(TRIALS):
            tensor.scales, tensor.zero_points = (scale,), (zero,)
            found = self._output()
            low, high = min(int(found.min()) - zero, 0), max(int(found.max()) - zero, 1)
            if high + zero == 127 or low == -128:
                scale *= 4
            elif high - low >= RESOLVED:
                break
            else:
                scale *= 1.25 * max(high / (127 - zero), -low / 128)
        is_cut = high * scale > most - scale
        step = most / 255 if is_cut else rounded(scale * (high - low) / 255)
        tensor.scales, tensor.zero_points = (step,), (round(-128 - low * scale / step),)
        self.run()

    def balance(self) -> None:
        """Choose biases and scales of the last operator, which has weights, and run it."""
        operator = self._writer.operators[-1]
        numbers = [number for number in operator.inputs if number in self._values]
        x, weights, bias, made = (
            self._writer.tensors[number]
            for number in (numbers[0], operator.inputs[1], operator.inputs[-1], *operator.outputs)
        )
        fields = operator.options[1] if operator.options else {}
        activation = fields.pop("FusedActivationFunction", NONE)
        offset = self._values[numbers[0]].astype(np.int64) - x.zero_points[0]
        rms = math.sqrt(int((offset**2).sum()) / offset.size)
        unit = x.scales[0] * 0.01
        channels = np.zeros(made.shape[-1])
        weights.scales = (0.01,) * len(weights.scales)
        taps = math.prod(weights.shape) / len(channels)
        scale = unit * DEVIATION * math.sqrt(taps) * max(rms, 1.0) * MARGIN / 127
        for _ in range(TRIALS):
            made.scales, made.zero_points = (scale,), (0,)
            bias.data = np.rint(channels).astype(np.int32).tobytes()
            mean, deviation, is_cut = per_channel(self._output())
            channels -= np.rint(mean * scale / unit)
            if not is_cut and deviation.max() > 127 / MARGIN / 2 and abs(mean).max() < 1:
                break
            scale *= 4 if is_cut else max(deviation.max(), 0.25) * MARGIN / 127
        deviation = np.maximum(deviation, max(float(np.median(deviation)) / 4, 0.25)) * scale
        if len(weights.scales) == 1:
            deviation = np.median(deviation, keepdims=True)
        weights.scales = tuple(rounded(0.01 * SPREAD / float(one)) for one in deviation)
        bias.scales = tuple(x.scales[0] * one for one in weights.scales)
        bias.data = np.rint(channels).astype(np.int32).tobytes()
        if activation != NONE:
            fields["FusedActivationFunction"] = activation
        most = 6.0 if activation == RELU6 and self._ends_at_six else math.inf
        self.fit(4 * SPREAD / 127, is_positive=activation in (RELU, RELU6), most=most)

    def _output(self) -> np.ndarray:
        """Of the last operator, by LiteRT's reference kernels."""
        return outputs(self._writer, self._values)


def outputs(writer: ModelWriter, values: Mapping[int, np.ndarray]) -> np.ndarray:
    """What the last operator makes of the samples."""
    operator = writer.operators[-1]
    used = [*operator.inputs, *operator.outputs]
    given = [number for number in dict.fromkeys(operator.inputs) if number in values]
    part = ModelWriter(
        tensors=[writer.tensors[number] for number in used],
        operators=[
            replace(
                operator,
                inputs=[used.index(number) for number in operator.inputs],
                outputs=[used.index(number) for number in operator.outputs],
            )
        ],
        inputs=[used.index(number) for number in given],
        outputs=[used.index(number) for number in operator.outputs],
    )
    interpreter = built(part.to_bytes(), "BUILTIN_REF")
    interpreter.allocate_tensors()
    found = []
    for sample in range(SAMPLES):
        for number in given:
            interpreter.set_tensor(used.index(number), values[number][sample])
        interpreter.invoke()
        found.append(interpreter.get_tensor(part.outputs[0]).copy())
    return np.stack(found)


def per_channel(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """Mean and standard deviation of each channel; whether a value is at an end of int8."""
    rows = values.reshape(-1, values.shape[-1]).astype(np.int64)
    mean = rows.sum(0) / len(rows)
    squares = (rows**2).sum(0) / len(rows)
    is_cut = bool(((rows == 127) | (rows == -128)).mean() > 0.001)
    return mean, np.sqrt(np.maximum(squares - mean**2, 0.0)), is_cut


def rounded(scale: float) -> float:
    """A scale of three digits."""
    return float(f"{scale:.3g}")
