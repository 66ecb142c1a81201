"""Make the records that ship for a core: tune models and a zoo of common shapes on its board.

    python benchmarks/tune/default_records.py --board BOARD [MODEL.tflite...] [--keep R]

Writes utvm_deploy/kernels/data/CORE.jsonl: of every kernel the fastest few and the default.
``--keep`` names the file with all trials, so that an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from utvm_deploy.board import load_board
from utvm_deploy.device import connect
from utvm_deploy.files import write_text
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.attributes import Attributes, Convolution, FullyConnected
from utvm_deploy.graph.model import Graph, Operator, Quantization, Tensor
from utvm_deploy.graph.passes import simplify
from utvm_deploy.paths import records_file
from utvm_deploy.records import Record, Records, RecordsFile, compacted
from utvm_deploy.tune.tuner import Tuning, fastest_link, tune
from utvm_deploy.tune.workload import Work, workload

CLAMP = (-128, 127)
#: Edge of the image, channels in, channels out: what networks for microcontrollers are made of.
CONVOLUTIONS = ((96, 3, 8), (64, 3, 16), (32, 8, 16), (32, 32, 32), (24, 16, 32), (16, 16, 16),
                (16, 32, 64), (8, 32, 32), (8, 64, 64), (4, 64, 128))  # fmt: skip
POINTWISE = ((48, 8, 16), (24, 16, 32), (24, 32, 32), (12, 32, 64), (12, 64, 64), (12, 24, 144),
             (6, 64, 128), (6, 128, 128), (3, 128, 256), (3, 256, 256), (12, 144, 24))  # fmt: skip
DEPTHWISE = ((48, 8), (48, 16), (24, 32), (12, 64), (12, 144), (6, 128), (3, 256))
DENSE = ((64, 10), (128, 128), (256, 64), (512, 10), (640, 128), (1024, 2), (3136, 64))


def zoo() -> Iterator[Graph]:
    """Each shape as a model of its own, with random weights."""
    for edge, inputs, outputs in CONVOLUTIONS:
        for stride in (1, 2):
            yield _convolution(edge, inputs, outputs, 3, stride)
    for edge, inputs, outputs in POINTWISE:
        yield _convolution(edge, inputs, outputs, 1, 1)
    for edge, channels in DEPTHWISE:
        for kernel, stride in ((3, 1), (3, 2), (5, 1), (5, 2)):
            yield _convolution(edge, channels, channels, kernel, stride, is_depthwise=True)
    for inputs, outputs in DENSE:
        yield _dense(inputs, outputs)


def _convolution(
    edge: int, inputs: int, outputs: int, kernel: int, stride: int, *, is_depthwise: bool = False
) -> Graph:
    to = -(-edge // stride)
    before = max((to - 1) * stride + kernel - edge, 0) // 2
    after = max((to - 1) * stride + kernel - edge, 0) - before
    shape = (1, kernel, kernel, outputs) if is_depthwise else (outputs, kernel, kernel, inputs)
    padding = (before, after, before, after)
    return _graph(
        "DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D",
        (1, edge, edge, inputs),
        shape,
        (1, to, to, outputs),
        Convolution((stride, stride), (1, 1), padding, CLAMP),
        axis=3 if is_depthwise else 0,
    )


def _dense(inputs: int, outputs: int) -> Graph:
    attributes = FullyConnected(CLAMP)
    return _graph("FULLY_CONNECTED", (1, inputs), (outputs, inputs), (1, outputs), attributes)


def _graph(
    kind: str,
    source: tuple[int, ...],
    weights: tuple[int, ...],
    result: tuple[int, ...],
    attributes: Attributes,
    *,
    axis: int | None = None,
) -> Graph:
    rng = np.random.default_rng(1)
    outputs = result[-1]
    depth = int(np.prod(weights)) // outputs
    scales = 1 if axis is None else outputs
    spread = rng.uniform(0.5, 1.5, scales).astype(np.float32) * np.float32(0.02)
    of_weights = Quantization(tuple(map(float, spread)), (0,) * scales, axis)
    of_result = Quantization((float(np.float32(0.05 * 70 * 0.02 * depth**0.5)),), (-5,))
    values = rng.integers(-127, 128, weights, dtype=np.int8)
    bias = rng.integers(-500, 500, outputs, dtype=np.int32)
    of_bias = Quantization(tuple(0.05 * s for s in of_weights.scales), (0,) * scales, None)
    tensors = (
        Tensor("input", source, "int8", Quantization((float(np.float32(0.05)),), (3,))),
        Tensor("weights", weights, "int8", of_weights, values),
        Tensor("bias", (outputs,), "int32", of_bias, bias),
        Tensor("output", result, "int8", of_result),
    )
    operator = Operator(kind, (0, 1, 2), (3,), attributes, (0,))
    return Graph("zoo", tensors, (operator,), (0,), (3,), "")


def _current(records: Records, works: Sequence[Work]) -> Iterator[Record]:
    """Those of candidates that there still are; which is the default may have changed."""
    known = {work.kernel.key: work for work in works}
    for record in records:
        work = known.get(record.kernel.key)
        if work is not None and record.candidate in work.candidates:
            yield replace(record, is_default=record.candidate == work.default)


def _watch(tuning: Tuning) -> None:
    left = "" if tuning.seconds_left is None else f", {tuning.seconds_left:.0f} s left"
    print(f"{tuning.trials} of {tuning.trials_wanted} trials{left}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--board", required=True)
    parser.add_argument("--trials", type=int, default=3000)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--keep", type=Path, help="file with every trial; default: a temporary one")
    options = parser.parse_args()
    board = load_board(options.board)
    graphs = [simplify(load_model(path)) for path in options.models]
    works = workload([*graphs, *zoo()], board.cpu.core)
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "records.jsonl"
        with connect(board, link=fastest_link(board)) as device, RecordsFile(path) as file:
            tune(works, device, file, trials=options.trials, minutes=options.minutes, watch=_watch)
            kept = list(compacted(_current(file.records, works)))
    target = records_file(board.cpu.core)
    target.parent.mkdir(exist_ok=True)
    write_text(target, "".join(record.to_line() + "\n" for record in kept))
    print(f"{target}: {len(kept)} records of {len(works)} kernels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
