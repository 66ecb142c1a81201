"""Ten nets of PyTorch (``nets.py``), quantized to int8 by us and by onnxruntime.

    python benchmarks/quantize/ten_nets.py [NET...] [--way WAY...]

Prints a row for each net: SQNR of the outputs in dB on held-out samples, and how many of 256 have
the right class, for each way to quantize. ``onnxruntime`` is ``quantize_static`` with its defaults:
QDQ, minima and maxima, and a scale for each channel of weights. Its file is computed without
optimizations, so operators that it leaves float, and those within a QDQ group, are exact. Recurrent
layers are written out as steps first: it would leave them float as a whole. Our files are computed
by LiteRT's reference kernels. In parentheses is the SQNR that the result reports. Seconds are those
of the processor.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nets import HARD, ORDINARY, Net, made_net

import utvm_deploy
from utvm_deploy.quality.quantizing.onnx.file import unrolled_model
from utvm_deploy.quality.quantizing.tflite.calibrate import outputs_of

Array = Any


@dataclass(frozen=True)
class Outcome:
    """What a way made of a net."""

    sqnr_db: float  # on the held-out samples
    right: int | None
    told_db: float | None  # what the result reports
    seconds: float


def processor_s() -> float:
    """Seconds that this process and its children have used."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def sqnr_db(real: Array, found: Array) -> float:
    """Power of the signal by that of the error, in dB."""
    noise = float(np.square(real - found, dtype=np.float64).sum())
    return float(10 * np.log10(np.square(real, dtype=np.float64).sum() / noise))


def by_us(net: Net, **options: Any) -> tuple[Array, float | None, float]:
    """The outputs for the held-out samples, what the result reports, and the seconds."""
    start = processor_s()
    made = utvm_deploy.quantize(net.module, net.calibration, **options)
    took = processor_s() - start
    inputs = [net.held_out.numpy()[:, np.newaxis]]
    return outputs_of(made.data, inputs)[0][:, 0], made.outputs[0].sqnr_db, took


def by_onnxruntime(net: Net) -> tuple[Array, float | None, float]:
    """The same by onnxruntime's quantizer with its defaults."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """One calibration sample after the other."""

        def __init__(self) -> None:
            self.rows = iter(net.calibration.numpy())

        def get_next(self) -> Any:
            """The next sample; None after the last."""
            row = next(self.rows, None)
            return None if row is None else {"x": row[np.newaxis]}

    with tempfile.TemporaryDirectory() as name:
        start = processor_s()
        path = Path(name)
        torch.onnx.export(
            net.module,
            (net.calibration[:1],),
            str(path / "float.onnx"),
            dynamo=False,
            input_names=["x"],
        )
        steps = unrolled_model((path / "float.onnx").read_bytes())
        (path / "steps.onnx").write_bytes(steps.SerializeToString())
        quant_pre_process(path / "steps.onnx", path / "ready.onnx", skip_symbolic_shape=True)
        quantize_static(path / "ready.onnx", path / "int8.onnx", Reader(), per_channel=True)
        took = processor_s() - start
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(path / "int8.onnx"), options)
        rows = [session.run(None, {"x": row[np.newaxis]})[0][0] for row in net.held_out.numpy()]
    return np.stack(rows), None, took


WAYS: Mapping[str, Callable[[Net], tuple[Array, float | None, float]]] = {
    "default": by_us,
    "min-max": lambda net: by_us(net, clipping="min-max", equalize="no"),
    "auto": lambda net: by_us(net, clipping="auto"),
    "percentile": lambda net: by_us(net, clipping="percentile"),
    "mse": lambda net: by_us(net, clipping="mse"),
    "converted": lambda net: by_us(net, equalize="yes"),
    "int16x8": lambda net: by_us(net, scheme="int16x8"),
    "onnxruntime": by_onnxruntime,
}


def outcome(net: Net, way: str, real: Array) -> Outcome:
    """Quantize a net, and compare it with the float one."""
    found, told, took = WAYS[way](net)
    right = None
    if net.labels is not None:
        right = int((found.argmax(-1) == net.labels.numpy()).sum())
    return Outcome(sqnr_db(real, found), right, told, took)


def row(net: Net, ways: list[str]) -> str:
    """The cells of a net."""
    with torch.no_grad():
        real = net.module(net.held_out).numpy()
    cells = [net.name]
    if net.labels is not None:
        cells.append(str(int((real.argmax(-1) == net.labels.numpy()).sum())))
    else:
        cells.append("")
    for way in ways:
        one = outcome(net, way, real)
        told = "" if one.told_db is None else f" ({one.told_db:.1f})"
        right = "" if one.right is None else f", {one.right}"
        cells.append(f"{one.sqnr_db:.1f}{told}{right}, {one.seconds:.1f} s")
    return " | ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nets", metavar="NET", nargs="*")
    parser.add_argument("--way", metavar="WAY", action="append")
    args = parser.parse_args()
    torch.set_num_threads(1)
    ways = args.way or list(WAYS)
    print("| net | float32 | " + " | ".join(ways) + " |")
    print("|---|" + "--:|" * (len(ways) + 1))
    for name in args.nets or [*HARD, *ORDINARY]:
        print(f"| {row(made_net(name), ways)} |", flush=True)


if __name__ == "__main__":
    main()
