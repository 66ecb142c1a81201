"""Delay, frames, their overlap and their stack: samples that are kept from run to run; and RGB565.

TFLite Micro keeps them in circular buffers. Here a state has them in the order of time.
"""

from __future__ import annotations

from utvm_deploy.graph.signals import attributes as kinds
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.portable.signals.calls import rows_of, signal_call, signal_text


def lower_delay(op: Operation) -> KernelCall:
    """The samples of ``length`` samples ago, as ``delay.cc``."""
    numbers = rows_of(op.source.shape), op.source.shape[-1], op.attributes(kinds.SignalDelay).length
    return signal_call(op, "utvm_delay", {}, numbers, (signal_text("utvm_delay"),))


def lower_framer(op: Operation) -> KernelCall:
    """The oldest ``size`` samples that are there, and away with ``step`` of them: ``framer.cc``."""
    a = op.attributes(kinds.SignalFramer)
    shape = op.source.shape
    numbers = (rows_of(shape), shape[-1], a.size, a.step, a.history, a.missing)
    return signal_call(op, "utvm_framer", {}, numbers, (signal_text("utvm_framer"),))


def lower_overlap_add(op: Operation) -> KernelCall:
    """Sums of overlapping frames, limited if they are of int16: ``overlap_add.cc``."""
    *_, frames, size = op.source.shape
    step, dtype = op.attributes(kinds.SignalOverlapAdd).step, op.source.dtype
    name = "float" if dtype == "float32" else dtype
    texts = (f"utvm_overlapped_{name}", "utvm_overlap_add")
    numbers = (rows_of(op.source.shape[:-1]), frames, size, step)
    made = tuple(signal_text(one, dtype) for one in texts)
    return signal_call(op, f"utvm_overlap_add_{name}", {}, numbers, made)


def lower_stacker(op: Operation) -> KernelCall:
    """Several frames behind one another, once for ``step`` inputs: ``stacker.cc``."""
    a = op.attributes(kinds.SignalStacker)
    numbers = (op.source.shape[0], a.left, a.frames, a.step)
    return signal_call(op, "utvm_stacker", {}, numbers, (signal_text("utvm_stacker"),))


def lower_rgb565(op: Operation) -> KernelCall:
    """Pixels of RGB565 as three bytes each."""
    numbers = (rows_of(op.source.shape), int(op.attributes(kinds.UtvmRgb565).little_endian))
    return signal_call(op, "utvm_rgb565", {}, numbers, (signal_text("utvm_rgb565"),))


LOWERINGS = {
    "SignalDelay": lower_delay,
    "SignalFramer": lower_framer,
    "SignalOverlapAdd": lower_overlap_add,
    "SignalStacker": lower_stacker,
    "UtvmRgb565": lower_rgb565,
}
