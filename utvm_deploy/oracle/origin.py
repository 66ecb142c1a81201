"""How far the integers of a converted model are from the runtime that the model came from.

    difference ──inputs.npz──▶ python -m utvm_deploy.oracle.origin ──results.npz──▶ Difference

onnxruntime and PyTorch compute a QDQ model in float32 between the quantizers; TFLite's kernels, and
ours, stay in integers. Each operator may differ by one step of its output's scale.
Outputs of float32 have no scale. They are compared with the bound of whole models.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.base import process
from utvm_deploy.base.errors import VerifyError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.files.given_shapes import chosen_now
from utvm_deploy.frontend.onnx.halves import in_float32
from utvm_deploy.frontend.onnx.model import load_onnx
from utvm_deploy.frontend.torch.export import loaded_program
from utvm_deploy.graph.float_bounds import OF_MODELS, Bound
from utvm_deploy.graph.model import Array, Graph

#: A file name's ending -> the package that runs such files.
RUNTIMES: Mapping[str, str] = {".onnx": "onnxruntime", ".pt2": "torch"}
_START_TIMEOUT_S = 60.0
_SAMPLE_TIMEOUT_S = 10.0
_INPUTS, _RESULTS = "inputs.npz", "results.npz"


@dataclass(frozen=True)
class Difference:
    """Model outputs against the original runtime's.

    Quantized and integer outputs, also dequantized ones, are compared in steps of their scale: 1
    without a scale. Outputs of float32 are compared in shares of the runtime's largest magnitude.
    """

    runtime: str  # name and version
    elements: int
    different: int  # by more than half a step, or by more than ``bound``
    largest_steps: float | None  # None without such outputs
    largest_relative: float | None  # None without outputs of float32
    bound: Bound | None  # of outputs of float32, if there are any

    @property
    def lines(self) -> list[str]:
        """For people."""
        with_what = (
            f"the reference compared with {self.runtime}: {self.different:,} of "
            f"{self.elements:,} output"
        )
        if self.bound is None:
            return [
                f"{with_what} elements differ; largest difference in steps of the scale: "
                f"{self.largest_steps:g}"
            ]
        found = [
            f"{with_what} elements differ by more than {self.bound.text}; largest relative "
            f"difference of float32: {self.largest_relative:.1e}"
        ]
        if self.largest_steps is not None:
            found.append(f"largest difference of other outputs: {self.largest_steps:g} steps")
        return found


def difference(
    model_path: Path,
    graph: Graph,
    inputs: Sequence[Sequence[Array]],
    outputs: Sequence[Sequence[Array]],
) -> Difference | None:
    """The difference of ``outputs`` from the model's runtime; None if the file is not of such a
    format.

    None, too, if that runtime is not installed: it is not part of the byte-for-byte comparison. And
    if the user chose states, a stream or an image: the file itself has other inputs.
    Raises VerifyError if the runtime fails.
    """
    package = RUNTIMES.get(model_path.suffix.lower())
    if package is None or importlib.util.find_spec(package) is None:
        return None
    if chosen_now().states or chosen_now().stream is not None or chosen_now().image is not None:
        return None
    runtime, theirs = run_origin(model_path, inputs, len(graph.outputs))
    elements = different = 0
    largest_steps: float | None = None
    largest_relative: float | None = None
    for ours, others in zip(outputs, theirs, strict=True):
        for number, one, other in zip(graph.outputs, ours, others, strict=True):
            step = _step(graph, number)
            found = gaps(one, other) / (magnitude_of(other) if step is None else step)
            elements += found.size
            largest = float(found[np.isfinite(found)].max(initial=0.0))
            if step is None:
                different += int(np.count_nonzero(found > OF_MODELS.relative))
                largest_relative = max(largest_relative or 0.0, largest)
            else:
                # The rest of float32's rounding is not a difference.
                different += int(np.count_nonzero(found > 0.5))
                largest_steps = max(largest_steps or 0.0, round(largest, 2))
    bound = None if largest_relative is None else OF_MODELS
    return Difference(runtime, elements, different, largest_steps, largest_relative, bound)


def run_origin(
    model_path: Path, inputs: Sequence[Sequence[Array]], outputs: int
) -> tuple[str, list[list[Array]]]:
    """The name and version of a model's own runtime, and its first ``outputs`` of each sample.

    Raises VerifyError if the runtime is missing or fails.
    """
    package = RUNTIMES[model_path.suffix.lower()]
    if importlib.util.find_spec(package) is None:
        raise VerifyError(
            f"{model_path.name} is run by {package}, which is not installed; install it: "
            f"pip install {package}"
        )
    with TemporaryFolder("utvm-origin") as directory:
        arrays = {f"{s}_{i}": a for s, sample in enumerate(inputs) for i, a in enumerate(sample)}
        np.savez(directory / _INPUTS, **arrays)  # type: ignore[arg-type]
        completed = process.run(
            [sys.executable, "-m", __name__, str(model_path.resolve()), str(directory)],
            timeout_s=_START_TIMEOUT_S + _SAMPLE_TIMEOUT_S * len(inputs),
            env=process.child_environment(),
        )
        if not completed.is_ok:
            lines = completed.output.strip().splitlines() or ["no reason given"]
            raise VerifyError(
                f"{package} cannot run {model_path.name}: {lines[-1].strip()}; if the values of "
                "the samples do not suit it, give others: --golden G.npz"
            )
        with np.load(directory / _RESULTS, allow_pickle=False) as file:
            found = [[file[f"{s}_{i}"] for i in range(outputs)] for s in range(len(inputs))]
    return f"{package} {importlib.metadata.version(package)}", found


def gaps(one: Array, other: Array) -> NDArray[np.float64]:
    """How far the elements are from each other: 0 for equal infinities, and for two NaN.

    A number is infinitely far from a NaN.
    """
    left, right = (array.astype(np.float64).reshape(-1) for array in (one, other))
    is_equal = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        found = np.where(is_equal, 0.0, np.abs(left - right))
    return np.nan_to_num(found, nan=np.inf, posinf=np.inf)


def magnitude_of(array: Array) -> float:
    """The largest finite magnitude; 1 if all are 0."""
    magnitudes = np.abs(array[np.isfinite(array)].astype(np.float64))
    return float(magnitudes.max(initial=0.0)) or 1.0


def _step(graph: Graph, output: int) -> float | None:
    """The scale of an output, or of what a float output was dequantized from.

    1 for integers without a scale, None for float32 that was not dequantized.
    """
    quantization = graph.tensors[output].quantization
    if graph.tensors[output].dtype != "float32":
        return 1.0
    for operator in graph.operators:
        if output in operator.outputs and operator.inputs and operator.inputs[0] is not None:
            quantization = graph.tensors[operator.inputs[0]].quantization
    return None if quantization is None else quantization.scale


def main(model: str, folder: str) -> int:
    """In the child: run all samples and leave the results in the folder; the exit status."""
    directory = Path(folder)
    with np.load(directory / _INPUTS, allow_pickle=False) as file:
        given: dict[int, list[Array]] = {}
        for key in sorted(file.files, key=lambda key: [int(n) for n in key.split("_")]):
            given.setdefault(int(key.split("_")[0]), []).append(file[key])
    run = _torch(model) if model.lower().endswith(".pt2") else _onnxruntime(model)
    results = {
        f"{s}_{i}": array for s, sample in given.items() for i, array in enumerate(run(sample))
    }
    np.savez(directory / _RESULTS, **results)  # type: ignore[arg-type]
    return 0


def _onnxruntime(model: str) -> Callable[[Sequence[Array]], Sequence[Array]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # As the file says it, operator by operator: fusions round differently.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = _in_float32(Path(model))
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]

    def run(sample: Sequence[Array]) -> Sequence[Array]:
        outputs: list[Array] = session.run(None, dict(zip(names, sample, strict=True)))
        return outputs

    return run


def _in_float32(path: Path) -> bytes:
    """The model, in float32 if it is in float16: that is what this package computes."""
    onnx, data = load_onnx(path), path.read_bytes()
    proto = onnx.load_model_from_string(data)
    return proto.SerializeToString() if in_float32(onnx, proto) else data


def _torch(model: str) -> Callable[[Sequence[Array]], Sequence[Array]]:
    import torch

    program = loaded_program(Path(model))
    # A program with a dynamic batch may have a guard against a batch of 1.
    module = program.module(check_guards=False)

    def run(sample: Sequence[Array]) -> Sequence[Array]:
        arrays = iter(sample)
        given = [
            torch.from_numpy(next(arrays)) if isinstance(name, str) else name
            for name in program.graph_signature.user_inputs
        ]
        arguments, named = torch.utils._pytree.tree_unflatten(given, program.call_spec.in_spec)
        with torch.no_grad():
            outputs = module(*arguments, **named)
        several = outputs if isinstance(outputs, list | tuple) else [outputs]
        return [output.numpy() for output in several]

    return run


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
