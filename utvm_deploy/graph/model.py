"""The graph: what a model file becomes and what the passes rewrite.

Everything here is frozen; a pass returns a new graph. Tensors are referred to by their position in
``Graph.tensors``. Layout is NHWC, as in the file. Operator kinds carry TFLite's names
(``CONV_2D``), because that is what users read in other tools.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.readable import counted
from utvm_deploy.base.results import one_line
from utvm_deploy.graph.attributes import Attributes
from utvm_deploy.graph.element_type import ElementType, element_type
from utvm_deploy.graph.names import shape_text
from utvm_deploy.graph.number_formats import NumberFormat
from utvm_deploy.graph.stream import StreamFacts

Array: TypeAlias = NDArray[np.generic]


@dataclass(frozen=True)
class Quantization:
    """real = scale * (q - zero_point); one pair for the tensor, or one per slice along ``axis``."""

    # Exactly the float32 values of the file, widened: rounding in the kernels depends on them.
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    # The dimension that scales run along; None for per-tensor quantization.
    axis: int | None = None

    @property
    def scale(self) -> float:
        """The scale of a per-tensor quantization."""
        (scale,) = self.scales
        return scale

    @property
    def zero_point(self) -> int:
        """The zero point of a per-tensor quantization."""
        (zero_point,) = self.zero_points
        return zero_point


@dataclass(frozen=True, eq=False)
class Tensor:
    """An activation (``data`` is None) or a constant."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # a name of ELEMENT_TYPES: int8, int4, float32
    quantization: Quantization | None = None
    data: Array | None = None  # unpacked
    # Position in the file's subgraph, which the oracle is asked for; None if a pass made it.
    source: int | None = None
    # What a state holds before the first run; None: its zero point.
    first: Array | None = None
    # Which channels of the file's tensor these are, if a pass dropped others.
    channels: tuple[int, ...] | None = None
    # First row and end of the rows of the file's tensor that these are, if a pass makes strips.
    rows: tuple[int, int] | None = None
    # Whether the arena never has it: a model input whose rows the caller pushes.
    is_outside: bool = False
    # The greatest place, such as a token, that an input of a Relax module may say; the least is 0.
    most: int | None = None

    @property
    def has_place(self) -> bool:
        """Whether the arena has it: no constant, and no input that comes row by row."""
        return self.data is None and not self.is_outside

    @property
    def element(self) -> ElementType:
        """What an element is in memory; ModelError for a type without a size."""
        return element_type(self.dtype)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the tensor's elements."""
        return self.element.size_bytes(math.prod(self.shape))


@dataclass(frozen=True)
class Operator:
    """One operator; ``inputs`` holds None where an optional input is absent."""

    kind: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    attributes: Attributes
    # Positions in the file of the operators that this one stands for (several after a fusion).
    sources: tuple[int, ...]


@dataclass(frozen=True)
class Training:
    """What a graph has that trains its weights.

    The last input is the label and the last output is the loss. What the other outputs need comes
    first, then the loss, then the gradients. The first states are the header of the weights, the
    weights, the learning rate, and the rate of a step's updates, infinite if one is refused.
    """

    weights: int  # how many of the states they are
    # Labels are at least 0 and below this; None if the label is a target of float32.
    classes: int | None

    @property
    def blob(self) -> int:
        """How many of the states are stored and restored: the header and the weights."""
        return 1 + self.weights


@dataclass(frozen=True)
class Prefill:
    """What a graph has that takes a step, and then a block of steps, of the same states.

    The operators of the step come first, and its inputs. The block writes states only.
    """

    METADATA: ClassVar[str] = "utvm_prefill"  # the name of these facts in a file

    inputs: int  # the last ones of the graph, which are those of the block
    operators: int  # of the file; those from this position on are the block

    @classmethod
    def of_json(cls, text: str, inputs: int) -> Prefill:
        """What a file has under that name; ModelError if it has not more inputs than the block."""
        try:
            made = cls(**json.loads(text))
            is_whole = type(made.inputs) is type(made.operators) is int
            if is_whole and 0 < made.inputs < inputs and made.operators > 0:
                return made
        except (ValueError, TypeError, RecursionError):
            pass
        raise ModelError(f"its metadata {cls.METADATA} is damaged: {text:.60}")


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A model: tensors, operators in execution order, and which tensors go in and out."""

    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    # SHA-256 of the model file, hexadecimal.
    digest: str
    # States, kept between runs: the tensor that a run reads, and the one that it writes there. One
    # that a step writes, and then a block of steps, has a pair for each.
    states: tuple[tuple[int, int], ...] = ()
    # Set if a run takes some columns over time.
    stream: StreamFacts | None = None
    # Set if a run trains the model.
    training: Training | None = None
    # Set if a run is a step, and then a block of steps.
    prefill: Prefill | None = None
    # The format that kernels keep float32 weights in; their values are those of its numbers.
    number_format: NumberFormat | None = None

    __repr__ = one_line

    @property
    def headline(self) -> str:
        """Name, size and ends."""
        ends = [
            ", ".join(shape_text(self.tensors[one].dtype, self.tensors[one].shape) for one in some)
            for some in (self.inputs, self.outputs)
        ]
        return f"{self.name}: {counted(len(self.operators), 'operator')}, {ends[0]} -> {ends[1]}"

    @property
    def constants_bytes(self) -> int:
        """Bytes of the constants; those with equal bytes share them, as in the compiled model."""
        sizes = {
            (tensor.dtype, tensor.data.tobytes()): tensor.size_bytes
            for tensor in self.tensors
            if tensor.data is not None
        }
        return sum(sizes.values())

    @property
    def found_states(self) -> tuple[int, ...]:
        """The states as a run finds them, without those that a step leaves for a block."""
        between = {left for found, left in self.states if found != left}
        return tuple(found for found, _ in self.states if found not in between)

    @property
    def left_states(self) -> tuple[int, ...]:
        """The states as a run leaves them."""
        between = {found for found, left in self.states if found != left}
        return tuple(left for _, left in self.states if left not in between)

    def replaced(self, **changes: object) -> Graph:
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]
