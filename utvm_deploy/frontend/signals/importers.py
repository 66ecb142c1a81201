"""Importing TFLite Micro's signal operators (``signal/micro/kernels``), which are custom ones.

They look at no quantization. TFLite Micro checks few of the numbers that its kernels index by. So
what would read or write outside of a tensor there is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files.limits import MAX_TENSOR_ELEMENTS
from utvm_deploy.frontend.files.source import Several, SourceOperator, custom_name
from utvm_deploy.frontend.files.supported_operator import Importer, SupportedOperator
from utvm_deploy.frontend.signals.options import read_options
from utvm_deploy.graph.model import Array, Operator, Tensor
from utvm_deploy.graph.signals import attributes as kinds
from utvm_deploy.graph.signals.fft_plan import Transform, radices

_TRANSFORMED = ("int16", "int32", "float32")
_ADDED = ("int16", "float32")
#: Entries of PCAN's table: for the largest noise, it reads three from number 122 on.
_GAINS = 125
#: Of what is kept between runs.
_MOST_STEPS = 2**15 - 2
_WORD, _LONG = 31, 63


class _Source:
    """An operator of the file, its options, and checks of both."""

    def __init__(self, op: SourceOperator) -> None:
        self.op = op
        try:
            self._options = read_options(op.custom_options) if op.custom_options else {}
        except ModelError as error:
            raise op.damaged(str(error)) from error

    def option(self, name: str, low: int, high: int = 2**31 - 1) -> int:
        """A number within these bounds, which are inclusive."""
        if name not in self._options:
            raise self.op.damaged(f"the file lacks its option {name}; convert the model again")
        value = self._options[name]
        if not low <= value <= high:
            raise self.op.damaged(f"its option {name} is {value}, not from {low} to {high}")
        return value

    def word(self, name: str) -> int:
        """A number that TFLite Micro takes for one of 32 bits without a sign."""
        return self.option(name, -(2**31), 2**32 - 1) & (2**32 - 1)

    def tensors(self, reads: Sequence[str], makes: Sequence[str]) -> list[Tensor]:
        """All inputs, if they and the outputs have these types, and no others are there."""
        op = self.op
        if (len(op.inputs), len(op.outputs)) != (len(reads), len(makes)):
            raise op.damaged(
                f"its inputs are {len(op.inputs)} and its outputs {len(op.outputs)}, but this "
                f"operator has {len(reads)} and {len(makes)}"
            )
        found = [op.input(position) for position in range(len(reads))]
        made = [op.tensors[number] for number in op.outputs]
        for tensor, dtype in zip((*found, *made), (*reads, *makes), strict=True):
            if tensor.dtype != dtype:
                raise op.unsupported(
                    f"tensor '{tensor.name}' is {tensor.dtype}; TFLite Micro takes only {dtype}"
                )
        if not found[0].shape:
            raise op.damaged(f"'{found[0].name}' has no dimension")
        return found

    def of_one_type(self, types: Sequence[str]) -> Tensor:
        """The only input, if it and the output have one of these types."""
        dtype = self.op.input(0).dtype
        return self.tensors(*[[dtype if dtype in types else " or ".join(types)]] * 2)[0]

    def row(self, tensor: Tensor) -> int:
        """The elements of a tensor that must have one dimension."""
        if len(tensor.shape) != 1:
            raise self.op.unsupported(
                f"tensor '{tensor.name}' has shape {tensor.shape}; only 1 dimension is supported"
            )
        return tensor.shape[0]

    def table(self, position: int, size: int | None = None) -> Array:
        """A constant of one dimension and this size."""
        tensor = self.op.input(position)
        if tensor.data is None:
            raise self.op.unsupported(f"its input '{tensor.name}' is computed, not constant")
        if size not in (None, self.row(tensor)):
            raise self.op.damaged(f"'{tensor.name}' has {tensor.shape[0]} numbers, not {size}")
        return tensor.data

    def made(self, attributes: kinds.Signal) -> Operator:
        """The graph's operator, whose kind is the name in the file."""
        op = self.op
        return Operator(custom_name(op.kind), op.inputs, op.outputs, attributes, (op.index,))

    def keeping(self, attributes: kinds.Signal, shape: tuple[int, ...], dtype: str) -> Several:
        """The same with a state of zeros, which the file does not have."""
        op = self.op
        if prod(shape) > MAX_TENSOR_ELEMENTS:
            raise op.unsupported(
                f"it would keep {prod(shape):,} numbers from run to run; {MAX_TENSOR_ELEMENTS:,} "
                "are the most"
            )
        state = Tensor(f"{op.tensors[op.outputs[0]].name} (state)", shape, dtype)
        inputs = (*op.inputs, len(op.tensors))
        made = Operator(custom_name(op.kind), inputs, op.outputs, attributes, (op.index,))
        return Several((made,), (state,))


def import_window(op: SourceOperator) -> Operator:
    """SignalWindow: constant weights for the last dimension."""
    source = _Source(op)
    x, _ = source.tensors(("int16", "int16"), ("int16",))
    source.table(1, x.shape[-1])
    return source.made(kinds.SignalWindow(source.option("shift", 0, _WORD)))


def import_auto_scale(op: SourceOperator) -> Operator:
    """SignalFftAutoScale."""
    source = _Source(op)
    source.row(source.tensors(("int16",), ("int16", "int32"))[0])
    return source.made(kinds.SignalFftAutoScale())


def import_fft(op: SourceOperator) -> Operator:
    """SignalRfft and SignalIrfft: lengths whose half is a product of 2, 3 and 5."""
    source = _Source(op)
    source.of_one_type(_TRANSFORMED)
    length = source.option("fft_length", 2, 2**16)
    if length % 2 or not radices(length // 2):
        raise op.unsupported(
            f"its length is {length}; TFLite Micro transforms only even lengths from 4 on, whose "
            "half has no other factors than 2, 3 and 5"
        )
    is_back = custom_name(op.kind) == "SignalIrfft"
    return source.made(kinds.SignalIrfft(length) if is_back else kinds.SignalRfft(length))


def import_spectrogram(op: SourceOperator) -> Operator:
    """SignalSpectrogram, which our own conversions write."""
    source = _Source(op)
    x, window = source.tensors(("float32", "float32"), ("float32",))
    source.table(1)
    size = source.row(window)
    length = source.option("fft_length", size, 2**16)
    if not Transform(length, size).is_fast or size > x.shape[-1]:
        raise op.unsupported(f"frames of {size} samples and a length of {length} are not supported")
    step, is_power = source.option("frame_step", 1, 2**24), source.option("is_power", 0, 1)
    return source.made(kinds.SignalSpectrogram(length, size, step, bool(is_power)))


def import_energy(op: SourceOperator) -> Operator:
    """SignalEnergy of complex numbers, as pairs."""
    source = _Source(op)
    numbers = source.row(source.tensors(("int16",), ("uint32",))[0]) // 2
    end = source.option("end_index", 0, numbers)
    return source.made(kinds.SignalEnergy(source.option("start_index", 0, end), end))


def import_filter_bank(op: SourceOperator) -> Operator:
    """SignalFilterBank, whose tables must lie inside of each other."""
    source = _Source(op)
    energies = source.row(source.tensors(("uint32", *["int16"] * 5), ("uint64",))[0])
    channels = source.option("num_channels", 1, 2**15)
    weights = source.table(1)
    source.table(2, weights.size)
    starts, firsts, widths = (source.table(i, channels + 1).astype(np.int64) for i in (3, 4, 5))
    used = widths > 0
    for first, size, what in ((starts, energies, "energies"), (firsts, weights.size, "weights")):
        if ((first < 0) | (first + widths > size))[used].any():
            raise op.damaged(f"its channels use {what} beyond the {size} that are there")
    return source.made(kinds.SignalFilterBank(channels))


def import_square_root(op: SourceOperator) -> Operator:
    """SignalFilterBankSquareRoot."""
    source = _Source(op)
    x, bits = source.tensors(("uint64", "int32"), ("uint32",))
    source.row(x)
    if bits.shape not in ((), (1,)):
        raise op.damaged(f"'{bits.name}' has shape {bits.shape} instead of being one number")
    return source.made(kinds.SignalFilterBankSquareRoot())


def import_subtraction(op: SourceOperator) -> Several:
    """SignalFilterBankSpectralSubtraction; its noise is a state."""
    source = _Source(op)
    channels = source.row(source.tensors(("uint32",), ("uint32", "uint32"))[0])
    source.option("num_channels", channels, channels)
    attributes = kinds.SignalFilterBankSpectralSubtraction(
        smoothing=source.word("smoothing"),
        one_minus_smoothing=source.word("one_minus_smoothing"),
        alternate_smoothing=source.word("alternate_smoothing"),
        alternate_one_minus_smoothing=source.word("alternate_one_minus_smoothing"),
        smoothing_bits=source.option("smoothing_bits", 0, _WORD),
        min_signal_remaining=source.word("min_signal_remaining"),
        clamping=bool(source.option("clamping", 0, 1)),
        spectral_subtraction_bits=source.option("spectral_subtraction_bits", 0, _LONG),
    )
    return source.keeping(attributes, (channels,), "uint32")


def import_pcan(op: SourceOperator) -> Operator:
    """SignalPCAN, with a table for the largest noise."""
    source = _Source(op)
    x, noise, _ = source.tensors(("uint32", "uint32", "int16"), ("uint32",))
    if source.row(x) != source.row(noise):
        raise op.damaged(f"'{x.name}' has {x.shape} channels, and '{noise.name}' {noise.shape}")
    if source.table(2).size < _GAINS:
        raise op.damaged(f"its table has {source.table(2).size} gains; {_GAINS} may be read")
    return source.made(kinds.SignalPCAN(source.option("snr_shift", 0, _LONG)))


def import_log(op: SourceOperator) -> Operator:
    """SignalFilterBankLog."""
    source = _Source(op)
    source.row(source.tensors(("uint32",), ("int16",))[0])
    scale = source.option("output_scale", 0)
    bits = source.option("input_correction_bits", 0, _WORD)
    return source.made(kinds.SignalFilterBankLog(scale, bits))


def import_delay(op: SourceOperator) -> Several | Operator:
    """SignalDelay; the state has the samples that are to come."""
    source = _Source(op)
    (x,) = source.tensors(("int16",), ("int16",))
    length = source.option("delay_length", 0, 2**24)
    # At least one sample, because a tensor has elements.
    shape = (*x.shape[:-1], max(length, 1))
    return source.keeping(kinds.SignalDelay(length), shape, "int16")


def import_framer(op: SourceOperator) -> Several:
    """SignalFramer; the state has the samples of later frames, and a count of steps."""
    source = _Source(op)
    (x,) = source.tensors(("int16",), ("int16", "bool"))
    size, step = (source.option(f"frame_{what}", 1, 2**24) for what in ("size", "step"))
    attributes = kinds.SignalFramer(size, step, bool(source.option("prefill", 0, 1)))
    if attributes.history < 0 or attributes.missing > _MOST_STEPS:
        raise op.unsupported(f"frames of {size} samples and steps of {step} are not supported")
    size = prod(x.shape[:-1]) * attributes.history + 1
    return source.keeping(attributes, (size,), "int16")


def import_overlap_add(op: SourceOperator) -> Several:
    """SignalOverlapAdd; the state has what later frames are added to."""
    source = _Source(op)
    x = source.of_one_type(_ADDED)
    attributes = kinds.SignalOverlapAdd(source.option("frame_step", 1))
    return source.keeping(attributes, (*x.shape[:-2], x.shape[-1]), x.dtype)


def import_stacker(op: SourceOperator) -> Several:
    """SignalStacker; the state has the latest frames, and how many the next output has already."""
    source = _Source(op)
    channels = source.row(source.tensors(("int16",), ("int16", "bool"))[0])
    source.option("num_channels", channels, channels)
    sides = (source.option(f"stacker_{side}_context", 0, _MOST_STEPS // 2 - 1) for side in _SIDES)
    left, right = sides
    step = source.option("stacker_step", 1, left + right + 1)
    attributes = kinds.SignalStacker(left, right, step)
    return source.keeping(attributes, (attributes.frames * channels + 1,), "int16")


def import_rgb565(op: SourceOperator) -> Operator:
    """UtvmRgb565, which ``tflite_images.py`` writes."""
    source = _Source(op)
    source.tensors(("uint8",), ("uint8",))
    return source.made(kinds.UtvmRgb565(bool(source.option("little_endian", 0, 1))))


_SIDES = ("left", "right")


def _row(importer: Importer, types: Sequence[str], constraints: str) -> SupportedOperator:
    return SupportedOperator(importer, tuple(types), f"custom; {constraints}")


_INT16, _UINT32 = ("int16",), ("uint32",)
_LENGTHS = "even lengths from 4 on, whose half has the factors 2, 3 and 5 only"
_INCOMPLETE = "an output that is not valid yet is 0"
#: Custom operators that are imported, by their names.
SIGNAL_OPERATORS: Mapping[str, SupportedOperator] = {
    "SignalDelay": _row(import_delay, _INT16, "keeps a state"),
    "SignalEnergy": _row(import_energy, _INT16, "to uint32; 1 dimension; 0 outside of its indices"),
    "SignalFftAutoScale": _row(import_auto_scale, _INT16, "1 dimension"),
    "SignalFilterBank": _row(import_filter_bank, _UINT32, "to uint64; constant tables"),
    "SignalFilterBankLog": _row(import_log, _UINT32, "to int16; 1 dimension"),
    "SignalFilterBankSpectralSubtraction": _row(
        import_subtraction, _UINT32, "1 dimension; keeps a state"
    ),
    "SignalFilterBankSquareRoot": _row(import_square_root, ("uint64",), "to uint32; 1 dimension"),
    "SignalFramer": _row(import_framer, _INT16, f"keeps a state; {_INCOMPLETE}"),
    "SignalIrfft": _row(import_fft, _TRANSFORMED, _LENGTHS),
    "SignalOverlapAdd": _row(import_overlap_add, _ADDED, "keeps a state; steps of a frame at most"),
    "SignalPCAN": _row(import_pcan, _UINT32, f"a constant table of {_GAINS} gains at least"),
    "SignalRfft": _row(import_fft, _TRANSFORMED, f"{_LENGTHS}; shorter inputs"),
    "SignalSpectrogram": _row(
        import_spectrogram, ("float32",), "not of TFLite Micro, but of our conversions"
    ),
    "SignalStacker": _row(
        import_stacker, _INT16, f"keeps a state; {_INCOMPLETE}; steps of an output at most"
    ),
    "SignalWindow": _row(import_window, _INT16, "constant weights"),
    "UtvmRgb565": _row(import_rgb565, ("uint8",), "ours, of --input rgb565"),
}
