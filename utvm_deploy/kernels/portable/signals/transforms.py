"""Fast Fourier transforms, whose tables are in flash.

The arithmetic is KISS FFT's, with which TFLite Micro transforms (``graph/signals/fft_plan.py``).
With integers, each stage of a radix first multiplies by the largest number of the type divided by
the radix. So a transform is divided by its length.
"""

from __future__ import annotations

import numpy as np

from utvm_deploy.graph.signals.attributes import SignalIrfft, SignalRfft, SignalSpectrogram
from utvm_deploy.graph.signals.fft_plan import FftPlan
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.operation import Operation, Parameters
from utvm_deploy.kernels.portable.signals.calls import rows_of, signal_call, signal_text


def lower_fft(op: Operation) -> KernelCall:
    """Both directions; the output has the place of the work."""
    attributes, dtype = op.operator.attributes, op.source.dtype
    assert isinstance(attributes, SignalIrfft | SignalRfft)
    is_inverse = isinstance(attributes, SignalIrfft)
    plan = FftPlan(attributes.length, dtype, is_inverse)
    routine = "utvm_irfft" if is_inverse else "utvm_rfft"
    rows, size = rows_of(op.source.shape), op.source.shape[-1]
    sizes = (plan.count, len(plan.stages))
    numbers = (rows, *sizes) if is_inverse else (rows, size, *sizes)
    texts = _texts(dtype, *(() if is_inverse else ("utvm_real_fft",)), routine)
    name = f"{routine}_{_name(dtype)}"
    return signal_call(op, name, _tables(plan), numbers, texts, macs=rows * plan.macs)


def lower_spectrogram(op: Operation) -> KernelCall:
    """Frame for frame, each in scratch."""
    a = op.attributes(SignalSpectrogram)
    plan, samples = FftPlan(a.length, "float32"), op.source.shape[-1]
    rows, frames = rows_of(op.source.shape), a.frames(samples)
    sizes = (rows, samples, frames, a.step, a.size, int(a.is_power))
    return signal_call(
        op,
        "utvm_spectrogram",
        {"window": op.constant(1), **_tables(plan)},
        (*sizes, plan.count, len(plan.stages)),
        _texts("float32", "utvm_real_fft", "utvm_spectrogram"),
        macs=rows * frames * (plan.macs + a.size),
        scratch=(Operand("work", (plan.length + 2,), "float32"),),
    )


def _tables(plan: FftPlan) -> Parameters:
    return {
        "places": plan.places(),
        "twiddles": plan.twiddles(),
        "apart": plan.real_twiddles(),
        "radices": np.array(plan.stages, np.uint8),
    }


def _texts(dtype: str, *names: str) -> tuple[str, ...]:
    return tuple(
        signal_text(one, dtype) for one in (f"utvm_fft_{_name(dtype)}", "utvm_fft", *names)
    )


def _name(dtype: str) -> str:
    return "float" if dtype == "float32" else dtype


LOWERINGS = {
    "SignalIrfft": lower_fft,
    "SignalRfft": lower_fft,
    "SignalSpectrogram": lower_spectrogram,
}
