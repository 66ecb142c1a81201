"""Runs all samples: on this computer, by the reference kernels or the float model; on a device."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from utvm_deploy.backends.custom import CustomOperators
from utvm_deploy.base.errors import DataError, UtvmError
from utvm_deploy.base.progress import Progress
from utvm_deploy.device import DeviceModel
from utvm_deploy.frontend.conversion import CONVERTERS
from utvm_deploy.frontend.files.given_shapes import ONLY, Chosen, chosen_now, given_only
from utvm_deploy.frontend.files.image_input import ImageInput
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.macs import total_macs
from utvm_deploy.graph.model import Array, Graph, Tensor
from utvm_deploy.graph.stream import StreamFacts
from utvm_deploy.oracle.origin import RUNTIMES, run_origin
from utvm_deploy.oracle.with_custom import run_oracle
from utvm_deploy.quality.datasets import Dataset, ModelInput
from utvm_deploy.quality.evaluating import facts
from utvm_deploy.quality.evaluating.conversion import InputCount, to_real

#: What a child process gets at once: little memory, and news after some seconds.
_BATCH_BYTES = 32 << 20
_MOST_SAMPLES = 4096
_BATCH_S = 5.0
#: Multiply-accumulates that the reference kernels do in a second, on a slow computer.
_MACS_PER_S = 20_000_000
#: The device gets its samples one by one; this many are read from the files at once.
_READ_SAMPLES = 32


#: Operators in quantized files of formats that are not read here: ONNX and PyTorch.
_QUANTIZED_MARKS = (b"QuantizeLinear", b"quantized_decomposed")


@dataclass(frozen=True, eq=False)
class Plan:
    """All that is known before anything runs."""

    path: Path
    graph: Graph
    data: Dataset
    problem: facts.Problem
    output: int
    reference: Path | None = None
    custom: CustomOperators | None = None
    stream: StreamFacts | None = None  # ``graph`` takes whole windows then, and the device hops

    @property
    def inputs(self) -> tuple[ModelInput, ...]:
        """Those of the model."""
        return tuple(ModelInput.of(self.graph.tensors[number]) for number in self.graph.inputs)

    def runs_of(self, sample: Sequence[Array]) -> list[Sequence[Array]]:
        """What the model takes of a sample, run by run: all, or hops up to the whole answer.

        Zeros follow the columns of the sample. If an input says where a recording ends, it says so.
        """
        it = self.stream
        if it is None:
            return [sample]
        (window,), (one,) = sample, self.inputs
        unit = window.shape[it.axis] // it.window
        borders = [(0, 0)] * window.ndim
        borders[it.axis] = 0, max(it.runs * it.hop - it.window, 0) * unit
        zero = 0 if one.quantization is None else one.quantization.zero_point
        padded = np.pad(window, borders, constant_values=zero)
        ends = np.arange(1, it.runs + 1) * it.hop * unit
        parts = np.split(padded, ends, it.axis)[:-1]
        if it.behind < 0:
            return [[part] for part in parts]
        behind = np.clip(ends // unit - it.window, 0, it.hop).astype(np.int32)
        return [[part, behind[run : run + 1]] for run, part in enumerate(parts)]


def reference_run(plan: Plan, progress: Progress, count: InputCount) -> facts.Run:
    """The model by the reference kernels; ``count`` learns how many input values were clipped."""
    return _on_host(plan, plan.path, plan.graph, progress, count, facts.REFERENCE)


def stream_run(plan: Plan, progress: Progress) -> facts.Run:
    """The stream by the reference kernels: its answer when it knows the whole window."""
    return _on_host(plan, plan.path, plan.graph, progress, InputCount(), facts.STREAM)


def float_run(plan: Plan, progress: Progress) -> facts.Run:
    """The model of ``plan.reference``, in the runtime of its format; its engine says what it is."""
    assert plan.reference is not None
    shapes, signature, image = chosen_now().shapes, None, chosen_now().image
    if image is not None and image != replace(ImageInput(pixels="uint8"), words=image.words):
        raise DataError(
            f"{plan.reference} takes no images as --input describes them; leave --input or "
            "--reference out"
        )
    if plan.reference.suffix.lower() not in CONVERTERS:
        # Converters name inputs differently in each .tflite file.
        only = plan.inputs[0].shape if shapes and len(plan.inputs) == 1 else None
        shapes, signature = {} if only is None else {ONLY: only}, chosen_now().signature
    elif chosen_now().states:
        raise DataError(
            f"{plan.reference} keeps no states, as --state asks for; give a .tflite reference"
        )
    with given_only(Chosen(shapes, signature, chosen_now().states)):
        graph = _graph_of(plan.reference)
        _check_same_shapes(plan, graph)
        engine = _what_it_is(plan.reference, graph)
        return _on_host(plan, plan.reference, graph, progress, InputCount(), engine)


def _what_it_is(path: Path, graph: Graph | None) -> str:
    """FLOAT, or what the model to compare with is quantized to."""
    if graph is None:
        return (
            "quantized"
            if any(one in path.read_bytes() for one in _QUANTIZED_MARKS)
            else facts.FLOAT
        )
    dtypes = {one.dtype for one in graph.tensors if one.quantization and one.data is None}
    return "+".join("int16x8" if one == "int16" else one for one in sorted(dtypes)) or facts.FLOAT


def device_run(plan: Plan, model: DeviceModel, progress: Progress) -> facts.Run:
    """The model on a board; the samples are read as it needs them."""
    runner = _Collector(plan, _output(plan.graph, plan.output))
    count = InputCount()
    started = time.monotonic()
    for start in range(0, len(plan.data), _READ_SAMPLES):
        batch = plan.data.batch(start, start + _READ_SAMPLES)
        arrays = count.taken(batch, plan.inputs)
        outputs = []
        for place in range(len(batch[0])):
            done = start + place + 1
            progress(f"evaluating on {model.compiled.board}: sample", done, len(plan.data))
            if model.compiled.states:
                model.reset_state()
            for one in plan.runs_of([array[place] for array in arrays]):
                made, _ = model.run(one)
            outputs.append(made[plan.output])
        runner.take(batch, outputs)
    seconds = time.monotonic() - started
    return facts.Run(
        facts.DEVICE, model.compiled.board, plan.path.name, runner.values(), len(plan.data), seconds
    )


def _on_host(
    plan: Plan,
    path: Path,
    graph: Graph | None,
    progress: Progress,
    count: InputCount,
    engine: str,
) -> facts.Run:
    """``graph`` is None for a file that we cannot import: its numbers are float32."""
    inputs = plan.inputs
    is_ours = engine in (facts.REFERENCE, facts.STREAM)
    if not is_ours:
        inputs = _inputs_of_float(plan, graph)
    runner = _Collector(plan, None if graph is None else _output(graph, plan.output))
    size = sum(element_type(one.dtype).size_bytes(math.prod(one.shape)) for one in inputs)
    most = max(1, min(_MOST_SAMPLES, _BATCH_BYTES // max(size, 1)))
    macs = total_macs(plan.graph if graph is None else graph)
    start, at_once, runtime = 0, min(most, 1 + int(_BATCH_S * _MACS_PER_S / max(macs, 1))), ""
    started = time.monotonic()
    while start < len(plan.data):
        progress(f"running {path.name} on this computer: sample", start, len(plan.data))
        batch = plan.data.batch(start, start + at_once)
        begun = time.monotonic()
        real = batch if is_ours else _as_given(plan, batch, inputs)
        arrays = count.taken(real, inputs)
        samples = [[array[place] for array in arrays] for place in range(len(batch[0]))]
        runs = [plan.runs_of(one) if engine == facts.STREAM else [one] for one in samples]
        runtime, outputs = _computed(plan, path, runs)
        runner.take(batch, outputs)
        start += len(samples)
        rate = len(samples) / max(time.monotonic() - begun, 1e-3)
        at_once = max(1, min(most, 4 * at_once, int(_BATCH_S * rate)))
    seconds = time.monotonic() - started
    return facts.Run(engine, runtime, path.name, runner.values(), len(plan.data), seconds)


def _computed(
    plan: Plan, path: Path, runs: Sequence[Sequence[Sequence[Array]]]
) -> tuple[str, list[Array]]:
    """Who computed, and the chosen output of each sample's last run."""
    samples, each = [run for one in runs for run in one], len(runs[0])
    if path == plan.reference and path.suffix.lower() in RUNTIMES:
        runtime, found = run_origin(path, samples, plan.output + 1)
        return runtime, [outputs[plan.output] for outputs in found]
    custom = plan.custom if path == plan.path else None
    run = run_oracle(path, samples, custom, outputs_only=True, apart=each)
    return run.reference, [outputs[plan.output] for outputs in run.outputs[each - 1 :: each]]


class _Collector:
    """Makes values of outputs, batch by batch."""

    def __init__(self, plan: Plan, output: Tensor | None) -> None:
        self._plan = plan
        self._quantization = None if output is None else output.quantization
        self._rows: list[facts.Values] = []

    def take(self, batch: Sequence[Array], outputs: Sequence[Array]) -> None:
        """The outputs of one batch of samples."""
        real = np.stack([to_real(one, self._quantization).reshape(-1) for one in outputs])
        wanted = math.prod(_output(self._plan.graph, self._plan.output).shape)
        if real.shape[1] != wanted:
            raise DataError(
                f"output {self._plan.output} of {self._plan.reference} has {real.shape[1]} "
                f"elements, and that of {self._plan.path} has {wanted}; give the float model that "
                "it was made from"
            )
        if self._plan.problem.task == facts.ANOMALY:
            (given,) = batch
            seen = to_real(given, self._plan.inputs[0].quantization).reshape(len(given), -1)
            real = np.square(seen - real).mean(axis=1)[:, None]
        self._rows.append(real)

    def values(self) -> facts.Values:
        """A row for each item: the mean of its samples."""
        rows = np.concatenate(self._rows)
        problem = self._plan.problem
        if problem.items == len(rows):
            return rows
        sums = np.zeros((problem.items, rows.shape[1]))
        np.add.at(sums, problem.item, rows)
        found: facts.Values = sums / np.bincount(problem.item)[:, None]
        return found


def _output(graph: Graph, number: int) -> Tensor:
    return graph.tensors[graph.outputs[number]]


def _graph_of(path: Path) -> Graph | None:
    """The reference's graph, for its types; None if it takes float32 or we cannot import it."""
    if path.suffix.lower() in RUNTIMES:
        return None
    try:
        return load_model(path)
    except UtvmError:
        return None  # LiteRT says what is wrong with a file that it cannot run


def _check_same_shapes(plan: Plan, graph: Graph | None) -> None:
    if graph is None:
        return
    theirs = [graph.tensors[number].shape for number in graph.inputs]
    ours = [one.shape for one in plan.inputs]
    if theirs != ours or plan.output >= len(graph.outputs):
        raise DataError(
            f"{plan.reference} takes {_shapes(theirs)}, and {plan.path} takes {_shapes(ours)}; "
            "give the float model that it was made from"
        )


def _shapes(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes))


def _inputs_of_float(plan: Plan, graph: Graph | None) -> tuple[ModelInput, ...]:
    if graph is not None:
        return tuple(ModelInput.of(graph.tensors[number]) for number in graph.inputs)
    return tuple(
        ModelInput(one.name, one.shape, "float32" if one.quantization else one.dtype)
        for one in plan.inputs
    )


def _as_given(
    plan: Plan, batch: Sequence[Array], theirs: Sequence[ModelInput]
) -> tuple[Array, ...]:
    """Real numbers for the float model, where the data have the integers of the other model."""
    found: list[Array] = []
    for samples, one, other in zip(batch, plan.inputs, theirs, strict=True):
        if samples.dtype.kind != "f" and one.quantization is not None:
            samples = to_real(samples, one.quantization).astype(np.float32)
        found.append(samples.reshape(len(samples), *other.shape))
    return tuple(found)
