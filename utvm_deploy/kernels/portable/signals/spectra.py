"""Window, scale, energy and filter bank of a front end, in TFLite Micro's integers.

Each formula is in the C text of its routine; ``signal/src`` of TFLite Micro defines it.
"""

from __future__ import annotations

from math import log2

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.graph.signals import attributes as kinds
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.kernels.contract.operation import Operation, Parameters
from utvm_deploy.kernels.portable.signals.calls import rows_of, signal_call, signal_text

_LOG_SEGMENTS, _LOG_ONE = 128, 1 << 16


def log_table() -> Array:
    """What log2(1 + x) is more than x at the ends of 128 segments, of 16 fractional bits."""
    ends = (k / _LOG_SEGMENTS for k in range(_LOG_SEGMENTS + 1))
    return np.array([round(_LOG_ONE * (log2(1 + x) - x)) for x in ends], np.uint16)


def lower_window(op: Operation) -> KernelCall:
    """min(max((x * weight) >> shift, -32768), 32767), as ``window.cc``."""
    numbers = rows_of(op.source.shape), op.source.shape[-1], op.attributes(kinds.SignalWindow).shift
    return _call(op, "utvm_window", {"weights": op.constant(1)}, numbers)


def lower_auto_scale(op: Operation) -> KernelCall:
    """x << bits with the most bits that the largest amount allows, as ``fft_auto_scale.cc``."""
    return _call(op, "utvm_fft_auto_scale", {}, (op.source.shape[0],))


def lower_energy(op: Operation) -> KernelCall:
    """re * re + im * im from a start to an end, as ``energy.cc``."""
    attributes = op.attributes(kinds.SignalEnergy)
    numbers = (op.source.shape[0] // 2, attributes.start, attributes.end)
    return _call(op, "utvm_spectrum_energy", {}, numbers)


def lower_filter_bank(op: Operation) -> KernelCall:
    """Sums of energies, weighted for a channel and unweighted for the next: ``filter_bank.cc``."""
    names = ("weights", "unweights", "starts", "firsts", "widths")
    tables = {name: op.constant(position) for position, name in enumerate(names, 1)}
    channels = op.attributes(kinds.SignalFilterBank).channels
    macs = 2 * int(np.maximum(op.constant(5), 0).astype(np.int64).sum())
    return _call(op, "utvm_filter_bank", tables, (channels,), macs)


def lower_root(op: Operation) -> KernelCall:
    """round(sqrt(x)) >> bits, as ``filter_bank_square_root.cc`` and ``square_root_64.cc``."""
    bits = op.input(1).data
    given: Parameters = {
        "bits": TensorArgument(op.position(1)) if bits is None else bits.reshape(1)
    }
    return _call(op, "utvm_filter_bank_root", given, (op.source.shape[0],))


def lower_subtraction(op: Operation) -> KernelCall:
    """x less its noise, at least a part of x: ``filter_bank_spectral_subtraction.cc``.

    noise = (x * smoothing + noise * one_minus_smoothing) >> bits, of x with smoothing_bits more.
    """
    a = op.attributes(kinds.SignalFilterBankSpectralSubtraction)
    even, odd = (
        (a.smoothing, a.one_minus_smoothing),
        (a.alternate_smoothing, a.alternate_one_minus_smoothing),
    )
    given: Parameters = {
        "factors": np.array([*even, *odd, a.min_signal_remaining], np.uint32),
        "up": a.smoothing_bits,
        "clamps": int(a.clamping),
        "bits": a.spectral_subtraction_bits,
    }
    numbers = (op.source.shape[0],)
    return _call(op, "utvm_filter_bank_subtraction", given, numbers)


def lower_pcan(op: Operation) -> KernelCall:
    """shrink((x * gain(noise)) >> shift), as ``pcan_argc_fixed.cc``."""
    given: Parameters = {"noise": TensorArgument(op.position(1)), "gains": op.constant(2)}
    numbers = op.source.shape[0], op.attributes(kinds.SignalPCAN).snr_shift
    return _call(op, "utvm_pcan", given, numbers)


def lower_log(op: Operation) -> KernelCall:
    """min(log(x << bits) * scale, 32767), and 0 for 0 and 1: ``filter_bank_log.cc``, ``log.cc``."""
    a = op.attributes(kinds.SignalFilterBankLog)
    numbers = op.source.shape[0], a.output_scale, a.input_correction_bits
    return _call(op, "utvm_filter_bank_log", {"above": log_table()}, numbers)


def _call(
    op: Operation, routine: str, given: Parameters, numbers: tuple[int, ...], macs: int = 0
) -> KernelCall:
    return signal_call(op, routine, given, numbers, (signal_text(routine),), macs)


LOWERINGS = {
    "SignalEnergy": lower_energy,
    "SignalFftAutoScale": lower_auto_scale,
    "SignalFilterBank": lower_filter_bank,
    "SignalFilterBankLog": lower_log,
    "SignalFilterBankSpectralSubtraction": lower_subtraction,
    "SignalFilterBankSquareRoot": lower_root,
    "SignalPCAN": lower_pcan,
    "SignalWindow": lower_window,
}
