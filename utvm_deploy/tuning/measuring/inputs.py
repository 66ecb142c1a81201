"""What candidates are run on: a kernel's tables, and seeded values for its inputs."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import ConstantArgument, ScalarArgument, TensorArgument
from utvm_deploy.tuning.measuring.build import Built
from utvm_deploy.tuning.measuring.workload import Work

#: Small outputs are compared for several inputs. These limit the bytes of output, the bytes of
#: input, and the number of inputs.
COMPARED_BYTES = 1024
MOST_INPUT_BYTES = 8192
MOST_SAMPLES = 16
_ALIGNMENT = 32


@dataclass(frozen=True, eq=False)
class Job:
    """A candidate to run for a kernel."""

    work: Work
    built: Built


def contents_of(job: Job) -> list[tuple[bytes, int]]:
    """Key and bytes of everything that a job needs in addition to the code."""
    stride, samples = samples_of(job)
    found = [(job.work.kernel.key.encode(), stride * samples)]
    for argument in job.built.call.arguments:
        if isinstance(argument, ScalarArgument) or is_output(job, argument):
            continue
        assert isinstance(argument, TensorArgument | ConstantArgument)
        for sample in range(1 if isinstance(argument, ConstantArgument) else samples):
            data = data_of(job, argument, sample)
            found.append((key_of(data), data.nbytes))
    if not job.built.has_stack_scratch:
        for number, scratch in enumerate(job.built.function.scratch):
            name = f"{job.built.function.name} {number}"
            found.append((name.encode(), scratch.size_bytes))
    return found


def is_output(job: Job, argument: object) -> bool:
    produced = job.work.operator.outputs
    return isinstance(argument, TensorArgument) and argument.tensor in produced


def samples_of(job: Job) -> tuple[int, int]:
    """Bytes from one output to the next, and how many there are."""
    tensors, operator = job.work.graph.tensors, job.work.operator
    size = sum(tensors[output].size_bytes for output in operator.outputs)
    given = [tensors[i] for i in operator.inputs if i is not None]
    given_bytes = sum(tensor.size_bytes for tensor in given if tensor.data is None)
    wanted = min(COMPARED_BYTES // max(size, 1), MOST_INPUT_BYTES // max(given_bytes, 1))
    last = operator.outputs[-1]
    stride = places_of(job)[last] + _aligned(tensors[last].size_bytes)
    return stride, min(max(wanted, 1), MOST_SAMPLES)


def places_of(job: Job) -> dict[int, int]:
    """Where in an output's bytes each tensor that the kernel writes begins."""
    places, at = {}, 0
    for output in job.work.operator.outputs:
        places[output] = at
        at += _aligned(job.work.graph.tensors[output].size_bytes)
    return places


def _aligned(size: int) -> int:
    return -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT


def data_of(job: Job, argument: TensorArgument | ConstantArgument, sample: int) -> Array:
    """A table, or seeded values for an input."""
    if isinstance(argument, ConstantArgument):
        return np.ascontiguousarray(argument.data)
    tensor = job.work.graph.tensors[argument.tensor]
    if tensor.data is not None:
        return np.ascontiguousarray(tensor.data)
    position = job.work.operator.inputs.index(argument.tensor)
    rng = np.random.default_rng([zlib.crc32(job.work.kernel.key.encode()), position, sample])
    kind = np.dtype(tensor.dtype)
    if kind.kind == "f":
        return rng.normal(scale=5.0, size=tensor.shape).astype(kind)
    limits = np.iinfo(kind)
    low, high = max(int(limits.min), -(1 << 15)), min(int(limits.max), 1 << 15)
    return rng.integers(low, high, tensor.shape, dtype=kind, endpoint=True)


def tables_of(job: Job) -> dict[bytes, Array]:
    """A job's constants, by their keys."""
    arguments = job.built.call.arguments
    tables = [data_of(job, one, 0) for one in arguments if isinstance(one, ConstantArgument)]
    return {key_of(table): table for table in tables}


def key_of(data: Array) -> bytes:
    return f"{data.dtype}{data.shape}".encode() + zlib.crc32(data.tobytes()).to_bytes(4, "little")
