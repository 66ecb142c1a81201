"""The signal operators in NumPy: a function of attributes, inputs and a state for each.

SignalSpectrogram and UtvmRgb565 are ours. The others are written from TFLite Micro's sources in
``signal/src`` and ``signal/micro/kernels``, apart from the C routines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isqrt, log2
from typing import Any

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.graph.signals.attributes import Signal
from utvm_deploy.oracle.signals.transforms import irfft, rfft

_WORD = 2**32 - 1

#: Attributes, inputs and, of operators that keep one, the state -> outputs and the next state.
Formula = Callable[[Any, Sequence[Any]], tuple[Array, ...]]


def computed(kind: str, attributes: Signal, inputs: Sequence[Any]) -> tuple[Array, ...]:
    """All outputs of an operator; the state is the last input and the last output."""
    return FORMULAS[kind](attributes, inputs)


def _window(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    wide = (inputs[0].astype(np.int64) * inputs[1]) >> a.shift
    return (np.clip(wide, -(2**15), 2**15 - 1).astype(np.int16),)


def _auto_scale(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    """The amount of -32768 wraps around, as the kernel keeps it in 16 bits."""
    most = 0
    for value in inputs[0].tolist():
        if value > most:
            most = value
        elif -value > most:
            most = -value if value > -(2**15) else value
    bits = 15 - most.bit_length() if most > 0 else 0
    wide = inputs[0].astype(np.int64) << bits
    return wide.astype(np.int16), np.array(bits, np.int32)


def _energy(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    wide = inputs[0][: inputs[0].size // 2 * 2].astype(np.int64)
    made = wide[::2] ** 2 + wide[1::2] ** 2
    made[: a.start] = made[a.end :] = 0
    return (made.astype(np.uint32),)


def _filter_bank(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    energies, weights, unweights, starts, firsts, widths = ([*map(int, one)] for one in inputs)
    sums = [0] * (a.channels + 2)
    for channel, (start, first, width) in enumerate(zip(starts, firsts, widths, strict=True)):
        for j in range(width):
            sums[channel] += weights[first + j] * energies[start + j]
            sums[channel + 1] += unweights[first + j] * energies[start + j]
    return (np.array([one % 2**64 for one in sums[1:-1]], np.uint64),)


def _square_root(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    bits = int(inputs[1].reshape(-1)[0]) & 31

    def root(value: int) -> int:
        found, most = isqrt(value), _WORD if value > _WORD else 2**16 - 1
        return found + int(value - found * found > found and found != most)

    return (np.array([root(int(one)) >> bits for one in inputs[0]], np.uint32),)


def _subtraction(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    made, noises = [], []
    pairs = (
        (a.smoothing, a.one_minus_smoothing),
        (a.alternate_smoothing, a.alternate_one_minus_smoothing),
    )
    for channel, (x, noise) in enumerate(zip(*(one.tolist() for one in inputs), strict=True)):
        new, old = pairs[channel % 2]
        raised = (x << a.smoothing_bits) & _WORD
        mixed = (raised * new + noise * old) % 2**64
        estimate = (mixed >> a.spectral_subtraction_bits) & _WORD
        taken = min(estimate, raised)
        least = ((x * a.min_signal_remaining) >> a.spectral_subtraction_bits) & _WORD
        made.append(max((raised - taken) >> a.smoothing_bits, least))
        noises.append(taken if a.clamping else estimate)
    after = np.array(noises, np.uint32)
    return np.array(made, np.uint32), after, after


def _pcan(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    gains: list[int] = inputs[2].tolist()

    def gain(noise: int) -> int:
        if noise <= 2:
            return gains[noise]
        octave = noise.bit_length()
        at = 4 * octave - 6
        scaled = noise << (11 - octave) if octave < 11 else noise >> (octave - 11)
        part = scaled & 1023
        value = (((gains[at + 2] * part) >> 5) + (gains[at + 1] << 5)) * part + (1 << 14)
        return _signed((_signed(value, 32) >> 15) + gains[at], 16)

    def shrunk(x: int, noise: int) -> int:
        ratio = (((x * (gain(noise) & _WORD)) % 2**64) >> int(a.snr_shift)) & _WORD
        return ratio * ratio >> 20 if ratio < 2 << 12 else (ratio >> 6) - 64

    rows = zip(inputs[0].tolist(), inputs[1].tolist(), strict=True)
    return (np.array([shrunk(x, noise) for x, noise in rows], np.uint32),)


def _log(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    above = [round(2**16 * (log2(1 + k / 128) - k / 128)) for k in range(129)]

    def logarithm(x: int) -> int:
        whole = x.bit_length() - 1
        part = ((x - (1 << whole)) << 16) >> whole
        segment, inside = divmod(part, 512)
        line = above[segment] + (((above[segment + 1] - above[segment]) * inside) >> 16)
        natural = (45426 * ((whole << 16) + part + line) + 32768) >> 16
        return min(((int(a.output_scale) * natural + 32768) & _WORD) >> 16, 2**15 - 1)

    raised = [(x << a.input_correction_bits) & _WORD for x in inputs[0].tolist()]
    return (np.array([logarithm(x) if x > 1 else 0 for x in raised], np.int16),)


def _delay(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    x, before = inputs
    row = np.concatenate([before[..., : a.length], x], axis=-1)
    after = np.zeros_like(before)
    after[..., : a.length] = row[..., x.shape[-1] :]
    return row[..., : x.shape[-1]], after


def _framer(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    x, before = inputs
    seen, frames = int(before[-1]), x.shape[-1] // a.step
    kept = before[:-1].reshape(*x.shape[:-1], a.history)
    row = np.concatenate([kept, x], axis=-1)
    made = [
        row[..., k * a.step : k * a.step + a.size] * (seen + k >= a.missing) for k in range(frames)
    ]
    count = np.array([min(seen + frames, a.missing)], np.int16)
    after = np.concatenate([row[..., x.shape[-1] :].reshape(-1), count])
    return np.stack(made, axis=-2).astype(np.int16), np.array(seen >= a.missing), after


def _overlap_add(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    x, sums = inputs
    made = []
    for frame in range(x.shape[-2]):
        if x.dtype == np.int16:
            wide = sums.astype(np.int32) + x[..., frame, :]
            sums = np.clip(wide, -(2**15), 2**15 - 1).astype(np.int16)
        else:
            sums = sums + x[..., frame, :]
        made.append(sums[..., : a.step])
        sums = np.concatenate([sums[..., a.step :], np.zeros_like(sums[..., : a.step])], axis=-1)
    return np.concatenate(made, axis=-1), sums


def _stacker(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    x, before = inputs
    known = int(before[-1])
    fresh = 1 if known else a.left + 1
    row = np.concatenate([before[:-1], *[x] * fresh])[-a.frames * x.size :]
    there = max(known - 1, 0) + fresh
    is_valid = there >= a.frames
    count = np.array([1 + there - a.step * is_valid], np.int16)
    return row * np.int16(is_valid), np.array(is_valid), np.concatenate([row, count])


def _spectrogram(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    starts = np.arange(a.frames(inputs[0].shape[-1])) * a.step
    frames = inputs[0][..., starts[:, None] + np.arange(a.size)]
    made = rfft(frames * inputs[1], a.length)
    if not a.is_power:
        return (made,)
    squares = np.square(made)
    return (squares[..., ::2] + squares[..., 1::2],)


def _rgb565(a: Any, inputs: Sequence[Any]) -> tuple[Array, ...]:
    """The high bits of each channel are repeated below it, so that the largest becomes 255."""
    high, low = inputs[0].astype(np.uint16).T[:: -1 if a.little_endian else 1]
    pixels = (high << 8 | low).T
    red, green, blue = pixels >> 11, pixels >> 5 & 63, pixels & 31
    channels = (red << 3 | red >> 2, green << 2 | green >> 4, blue << 3 | blue >> 2)
    return (np.stack(channels, axis=-1).astype(np.uint8),)


def _signed(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


#: Kind -> formula, of all these operators.
FORMULAS: Mapping[str, Formula] = {
    "SignalDelay": _delay,
    "SignalEnergy": _energy,
    "SignalFftAutoScale": _auto_scale,
    "SignalFilterBank": _filter_bank,
    "SignalFilterBankLog": _log,
    "SignalFilterBankSpectralSubtraction": _subtraction,
    "SignalFilterBankSquareRoot": _square_root,
    "SignalFramer": _framer,
    "SignalIrfft": lambda a, inputs: (irfft(inputs[0], a.length),),
    "SignalOverlapAdd": _overlap_add,
    "SignalPCAN": _pcan,
    "SignalRfft": lambda a, inputs: (rfft(inputs[0], a.length),),
    "SignalSpectrogram": _spectrogram,
    "SignalStacker": _stacker,
    "SignalWindow": _window,
    "UtvmRgb565": _rgb565,
}
