"""The attributes of TFLite Micro's signal operators, whose kinds are the names of these classes.

UtvmRgb565 is ours, for the images of cameras. All of them are custom operators of a ``.tflite``
file. Their options are numbers of a flexbuffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class Signal:
    """A base of these operators; only their importer checks the types of operands."""

    #: Whether the last input is a state, which the last output replaces.
    keeps_state: ClassVar[bool] = False


@dataclass(frozen=True)
class SignalWindow(Signal):
    """Samples times weights, shifted to the right."""

    shift: int


@dataclass(frozen=True)
class SignalFftAutoScale(Signal):
    """Samples shifted to the left, as far as the largest allows, and the number of bits."""


@dataclass(frozen=True)
class SignalRfft(Signal):
    """The FFT of real numbers, with zeros behind them up to ``length``."""

    length: int


@dataclass(frozen=True)
class SignalIrfft(Signal):
    """The inverse FFT, to ``length`` real numbers."""

    length: int


@dataclass(frozen=True)
class SignalSpectrogram(Signal):
    """SignalRfft of ``size`` samples times a window, one for each ``step`` samples.

    It is our own operator, and not one of TFLite Micro's. Instead of complex numbers it may make
    their squared amounts.
    """

    length: int
    size: int
    step: int
    is_power: bool

    def frames(self, samples: int) -> int:
        """Frames that a row of samples has."""
        return (samples - self.size) // self.step + 1

    @property
    def bins(self) -> int:
        """Numbers of each frame in the output."""
        return self.length // 2 + 1 if self.is_power else self.length + 2


@dataclass(frozen=True)
class SignalEnergy(Signal):
    """The squared amounts of the complex numbers from ``start`` to before ``end``; else 0."""

    start: int
    end: int


@dataclass(frozen=True)
class SignalFilterBank(Signal):
    """Sums of weighted energies for ``channels`` channels."""

    channels: int


@dataclass(frozen=True)
class SignalFilterBankSquareRoot(Signal):
    """The rounded square root, shifted to the right by the second input."""


@dataclass(frozen=True)
class SignalFilterBankSpectralSubtraction(Signal):
    """Channels less an estimate of their noise, which is the state and the second output."""

    keeps_state = True
    smoothing: int
    one_minus_smoothing: int
    alternate_smoothing: int  # of channels with odd numbers, as the next one
    alternate_one_minus_smoothing: int
    smoothing_bits: int
    min_signal_remaining: int
    clamping: bool
    spectral_subtraction_bits: int


@dataclass(frozen=True)
class SignalPCAN(Signal):
    """An automatic gain for each channel, by its noise and a table."""

    snr_shift: int


@dataclass(frozen=True)
class SignalFilterBankLog(Signal):
    """The natural logarithm of the channels, times a scale."""

    output_scale: int
    input_correction_bits: int


@dataclass(frozen=True)
class SignalDelay(Signal):
    """The last dimension ``length`` samples later, also across runs."""

    keeps_state = True
    length: int


@dataclass(frozen=True)
class SignalFramer(Signal):
    """Frames of ``size`` samples, one for each ``step`` samples, and whether all are complete."""

    keeps_state = True
    size: int
    step: int
    prefill: bool  # whether zeros precede the first sample

    @property
    def history(self) -> int:
        """Samples that are kept between runs."""
        steps = -(-self.size // self.step)
        return self.size - self.step if self.prefill else (steps - 1) * self.step

    @property
    def missing(self) -> int:
        """Steps of the first run that complete no frame."""
        return 0 if self.prefill else self.history // self.step


@dataclass(frozen=True)
class SignalOverlapAdd(Signal):
    """Frames that begin ``step`` samples after one another, added up."""

    keeps_state = True
    step: int


@dataclass(frozen=True)
class SignalStacker(Signal):
    """Several frames behind one another, one output for ``step`` inputs, and whether it is one."""

    keeps_state = True
    left: int
    right: int
    step: int

    @property
    def frames(self) -> int:
        """Frames of an output."""
        return self.left + 1 + self.right


@dataclass(frozen=True)
class UtvmRgb565(Signal):
    """Pixels of two bytes, whose bits are five for red, six for green and five for blue."""

    little_endian: bool  # whether the second byte has the red
