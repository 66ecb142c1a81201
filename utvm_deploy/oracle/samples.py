"""Input samples for a model: from a file, or seeded random ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.files import check_regular
from utvm_deploy.graph.model import Array, Graph, Tensor
from utvm_deploy.graph.names import short_name
from utvm_deploy.graph.user_arrays import (
    DAMAGED,
    greatest_places,
    in_shape,
    other_order,
    shapes_text,
)

#: Random samples are the same on every machine and run.
RANDOM_SEED = 20200604


#: More samples, or bytes of them, were not meant: they are made and kept before the first run.
MOST_SAMPLES = 1_000_000
MOST_SAMPLE_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class Samples:
    """``inputs[s][i]`` is input ``i`` of sample ``s``; ``outputs`` has the same form, None if not
    recorded."""

    inputs: tuple[tuple[Array, ...], ...]
    outputs: tuple[tuple[Array, ...], ...] | None
    origin: str


def random_samples(graph: Graph, count: int) -> Samples:
    """Seeded samples: every byte value for int8 inputs, the useful range for float ones.

    Inputs that say places are within what they choose from.

    ModelError if they are too many to be meant.
    """
    rng = np.random.default_rng(RANDOM_SEED)
    tensors, places = [graph.tensors[i] for i in graph.inputs], greatest_places(graph)
    most_of = [places.get(i) for i in graph.inputs]
    sample_bytes = sum(tensor.size_bytes for tensor in tensors)
    most = min(MOST_SAMPLES, MOST_SAMPLE_BYTES // max(sample_bytes, 1))
    if count > most:
        raise ModelError(
            f"{count:,} samples of {sample_bytes:,} bytes are too many; ask for {most:,} at most"
        )
    inputs = tuple(
        tuple(_random_array(rng, *one) for one in zip(tensors, most_of, strict=True))
        for _ in range(count)
    )
    if graph.stream is not None and graph.stream.behind >= 0:  # a recording ends on the way
        hops = (np.full(1, graph.stream.hop * (4 * i >= 3 * count), np.int32) for i in range(count))
        inputs = tuple((*one[:-1], hop) for one, hop in zip(inputs, hops, strict=True))
    return Samples(inputs, None, f"random, seed {RANDOM_SEED}")


def load_golden(path: Path, graph: Graph) -> Samples:
    """Samples of an ``.npz``: arrays ``inputs`` and ``outputs``, or ``inputs_0``, ``outputs_0``...

    The first axis of each array counts the samples. Raises ModelError if the file does not fit the
    model.
    """
    arrays = _load_npz(path)
    inputs = _columns(arrays, "inputs", [graph.tensors[i] for i in graph.inputs], path)
    if inputs is None:
        raise ModelError(f"{path} holds no array named 'inputs' (or 'inputs_0', 'inputs_1'...)")
    outputs = _columns(arrays, "outputs", [graph.tensors[i] for i in graph.outputs], path)
    if outputs is not None and len(outputs) != len(inputs):
        raise ModelError(f"{path} holds {len(inputs)} inputs and {len(outputs)} outputs")
    if not inputs:
        raise ModelError(f"{path} holds no sample")
    return Samples(inputs, outputs, f"of {path.name}")


def load_input(path: Path, tensor: Tensor) -> Array:
    """One input of one sample from an ``.npy`` file."""
    wanted = f"input {short_name(tensor.name)!r} takes {tensor.dtype} of shape {tensor.shape}"
    try:
        check_regular(path)
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise ModelError(
            f"cannot read the input {path}: {error.strerror or error}; give an .npy file, or leave "
            "--input out for a random sample"
        ) from error
    except DAMAGED as error:
        raise ModelError(f"{path} is no .npy array; write one with numpy.save") from error
    if not isinstance(array, np.ndarray):
        raise ModelError(f"{path} holds several arrays; give an .npy file with one")
    if array.dtype != np.dtype(tensor.dtype):
        raise ModelError(f"{path} holds {array.dtype}; {wanted}: {_conversion(array, tensor)}")
    shaped = in_shape(array, tensor.shape)
    if shaped is None:
        hint = other_order(array.shape, tensor.shape)
        raise ModelError(
            f"{path} has shape {array.shape}; {wanted}: give one sample of shape "
            f"{shapes_text(tensor.shape)}{hint and '; '}{hint}"
        )
    return shaped


def _conversion(array: Array, tensor: Tensor) -> str:
    """How to make what the tensor takes of an array of another type."""
    quantization = tensor.quantization
    if quantization is None or not np.issubdtype(array.dtype, np.floating):
        return f"convert it, astype({tensor.dtype!r}), if its values are meant so"
    scale, zero_point = quantization.scale, quantization.zero_point
    return f"quantize it, round(x / {scale:g}) + {zero_point}, and save it as {tensor.dtype}"


def _random_array(rng: np.random.Generator, tensor: Tensor, most: int | None) -> Array:
    if most is not None:
        return rng.integers(0, most, tensor.shape, tensor.dtype, endpoint=True)
    if tensor.dtype == "float32":
        # Two standard deviations around zero: real-valued inputs are normalised, by and large.
        return rng.normal(0.0, 1.0, tensor.shape).astype(np.float32)
    if tensor.dtype == "bool":
        return rng.integers(0, 2, tensor.shape).astype(bool)
    return rng.integers(*tensor.element.limits, tensor.shape, tensor.dtype, endpoint=True)


def _load_npz(path: Path) -> dict[str, Array]:
    try:
        check_regular(path)
        # NumPy leaves a damaged file open if it opens it itself.
        with path.open("rb") as opened:
            loaded = np.load(opened, allow_pickle=False)
            if isinstance(loaded, np.ndarray):  # an .npy with any name
                raise ValueError("one array without a name")
            with loaded as file:
                return {name: file[name] for name in file.files}
    except OSError as error:
        raise ModelError(
            f"cannot read the samples {path}: {error.strerror or error}; write them with "
            "numpy.savez(path, inputs=...)"
        ) from error
    except DAMAGED as error:
        raise ModelError(
            f"{path} is no .npz file of arrays; write one with numpy.savez(path, inputs=...)"
        ) from error


def _columns(
    arrays: dict[str, Array], role: str, tensors: Sequence[Tensor], path: Path
) -> tuple[tuple[Array, ...], ...] | None:
    names = [f"{role}_{i}" for i in range(len(tensors))]
    if len(tensors) == 1 and role in arrays:
        names = [role]
    if not any(name in arrays for name in names):
        return None
    columns = []
    for name, tensor in zip(names, tensors, strict=True):
        if name not in arrays:
            raise ModelError(f"{path} has no array {name!r}")
        array = arrays[name]
        samples = [in_shape(sample, tensor.shape) for sample in array] if array.ndim else [None]
        column = [sample for sample in samples if sample is not None]
        if array.dtype != np.dtype(tensor.dtype) or len(column) != len(samples):
            raise ModelError(
                f"array {name!r} of {path} is {array.dtype} {array.shape}; each of its samples, "
                f"counted by the first axis, must be {tensor.dtype} of shape "
                f"{shapes_text(tensor.shape)}, as {short_name(tensor.name)!r}"
            )
        columns.append(column)
    if len({len(column) for column in columns}) > 1:
        raise ModelError(f"the {role} arrays of {path} count different numbers of samples")
    return tuple(zip(*columns, strict=True))
