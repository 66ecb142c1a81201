"""SignalRfft and SignalIrfft: fast Fourier transforms whose tables are in flash.

The arithmetic is KISS FFT's, with which TFLite Micro transforms (``graph/signals/fft_plan.py``).
With integers, each stage of a radix first multiplies by the largest number of the type divided by
the radix. So a transform is divided by its length.
"""

from __future__ import annotations

import numpy as np

from utvm_deploy.graph.signals.attributes import SignalIrfft, SignalRfft
from utvm_deploy.graph.signals.fft_plan import FftPlan
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.portable.signals.calls import rows_of, signal_call, signal_text


def lower_fft(op: Operation) -> KernelCall:
    """Both; the output has the place of the work."""
    attributes, dtype = op.operator.attributes, op.source.dtype
    assert isinstance(attributes, SignalRfft | SignalIrfft)
    is_inverse = isinstance(attributes, SignalIrfft)
    plan = FftPlan(attributes.length, dtype, is_inverse)
    name = "float" if dtype == "float32" else dtype
    routine = "utvm_irfft" if is_inverse else "utvm_rfft"
    rows, size = rows_of(op.source.shape), op.source.shape[-1]
    tables = {
        "places": plan.places(),
        "twiddles": plan.twiddles(),
        "apart": plan.real_twiddles(),
        "radices": np.array(plan.stages, np.uint8),
    }
    sizes = (plan.count, len(plan.stages))
    numbers = (rows, *sizes) if is_inverse else (rows, size, *sizes)
    texts = tuple(signal_text(one, dtype) for one in (f"utvm_fft_{name}", "utvm_fft", routine))
    return signal_call(op, f"{routine}_{name}", tables, numbers, texts, macs=rows * plan.macs)


LOWERINGS = {"SignalIrfft": lower_fft, "SignalRfft": lower_fft}
