"""The compiled model: C sources, arena plan, entry points, report. It knows no device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from utvm_deploy.base.results import Result, plain_object
from utvm_deploy.compiler.budgets import FlashPlan, Tradeoff
from utvm_deploy.compiler.compiled.memory_use import ArenaUse, MemoryPool, Span, named_facts
from utvm_deploy.compiler.options import EXACT, OPTIMIZATION_FLAGS, Objective
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.stream import StreamFacts
from utvm_deploy.kernels.contract.external_library import ExternalLibrary
from utvm_deploy.records import DEFAULT

#: What ``--json`` and tables say of each layer, in their order.
_FACTS = (
    *("name", "kernel", "engine", "why", "origin", "npu_cycles"),
    *("macs", "weights_bytes", "scratch_bytes"),
)
_COLUMNS = ("name", "macs", "weights_bytes", "scratch_bytes", "engine", "kernel", "origin")


@dataclass(frozen=True)
class Buffer:
    """A tensor's place in the arena."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    # Per-tensor quantization; None for float tensors.
    scale: float | None
    zero_point: int | None
    offset: int  # bytes from the start of the arena
    size_bytes: int
    # Position of the tensor in the model file; None if a pass made it.
    source: int | None
    # The first value of a state, as hexadecimal bytes; empty if it is the zero point.
    first: str = ""
    # Which channels of the file's tensor these are, if a pass dropped others.
    channels: tuple[int, ...] | None = None
    # First row and end of the rows of the file's tensor that these are, in strips.
    rows: tuple[int, int] | None = None
    # The pool from whose start ``offset`` counts; "": the arena.
    pool: str = ""
    # Of an input that says places, such as tokens or a position: the greatest one. The least is 0.
    most: int | None = field(default=None, metadata={"is_added": True})

    def to_dict(self) -> dict[str, Any]:
        """An input or output for ``--json``."""
        names = ("name", "dtype", "shape", "scale", "zero_point", "offset")
        return named_facts(self, *names) | {"bytes": self.size_bytes}

    def of_file(self, array: Array) -> Array:
        """The part of the file's tensor that is here: some of its rows, if it is computed in
        strips, and the channels that no pass dropped.
        """
        if self.rows is not None and math.prod(array.shape[:-1]) != math.prod(self.shape[:-1]):
            array = self.rows_of(array)
        if self.channels is None or array.shape[-1:] == self.shape[-1:]:
            return array
        return np.ascontiguousarray(array[..., list(self.channels)])

    def rows_of(self, whole: Array) -> Array:
        """The rows of a tensor that a strip has."""
        if self.rows is None:
            return whole
        first, end = self.rows
        each = math.prod(self.shape[:-1]) // (end - first) * whole.shape[-1]
        found = whole.reshape(-1, each)[first:end].reshape(*self.shape[:-1], whole.shape[-1])
        return np.ascontiguousarray(found)

    @property
    def row_axis(self) -> int:
        """The dimension of a strip that counts its rows: of images the second one."""
        first, end = self.rows or (0, 1)
        return self.shape.index(end - first, 1) if len(self.shape) > 2 else 0


def first_bytes(state: Buffer) -> bytes:
    """What a state holds before the first run; by default what LiteRT resets variables to."""
    if state.first:
        return bytes.fromhex(state.first)
    value = state.zero_point or 0 if state.dtype == "int8" else 0
    return bytes([value & 0xFF]) * state.size_bytes


@dataclass(frozen=True)
class PushedStrip:
    """Rows of the input that layers wait for."""

    end: int  # rows that were pushed then, from the first one on
    offset: int  # the place in the arena of the first row that no earlier strip has
    layer: int  # the layer INPUT_ROWS that stands for them; later layers can run then


@dataclass(frozen=True)
class InputRows:
    """An input that comes row by row; ``NAME_push_rows(arena, rows, n)`` takes rows of it."""

    buffer: Buffer  # the whole input; its offset has no meaning: the arena never has it
    count: int
    row_bytes: int
    state_offset: int  # in the arena: uint32_t, the rows pushed so far
    strips: tuple[PushedStrip, ...]


@dataclass(frozen=True)
class TrainedPart:
    """How the model trains; ``NAME_train_step(arena, input, label, &loss)`` is one step."""

    label: Buffer  # int32 class of each input, or float32 target
    loss: Buffer
    # Layers of the model itself, and those with the loss; the rest changes weights.
    forward_layers: int
    loss_layers: int
    stored: Span  # header and weights, as ``NAME_store`` gives them
    weights: int  # their number; in ``states`` they follow the header, and the rate follows them
    classes: int | None  # labels are below this; None of targets

    @property
    def updates_rate(self) -> int:
        """Which of the states is the rate of a step's updates: infinite, or NaN, if one is refused.

        A step begins with a copy of the learning rate, which is in front of it.
        """
        return self.weights + 2


@dataclass(frozen=True)
class PrefillPart:
    """How a model takes a block of steps: ``NAME_prefill(arena)``; ``NAME_step`` takes one."""

    inputs: int  # the last ones of the model, which are those of the block
    step_layers: int  # the first ones; the rest is the block


@dataclass(frozen=True)
class Layer:
    """One call of one kernel; ``NAME_run_layer(index, arena)`` runs it."""

    index: int
    kind: str  # TFLite's operator name
    name: str  # name of the (first) output tensor
    kernel: str  # C function that does the work; shared between equal layers
    why: str  # which schedule was chosen, and why, in a phrase
    operators: tuple[int, ...]  # positions in the model file
    outputs: tuple[Buffer, ...]
    macs: int
    scratch_bytes: int
    weights_bytes: int
    # The engine of the kernel: one of our families ("dsp", "generic"), or the external library.
    engine: str
    # What said how to compile it: "record", "nearest record" or "default" (see records/known.py).
    origin: str = DEFAULT
    # Whether ``kernel`` calls the external library; then it leaves a status in the arena.
    is_external: bool = False
    # All that ``kernel`` may touch of the arena (inputs, outputs, scratch), and of the constants.
    arena: tuple[Span, ...] = ()
    # The same in the pool of activations and scratch.
    pool: tuple[Span, ...] = ()
    constants: tuple[Span, ...] = ()
    # The multiplications that the kernel does for ``macs``, if it does fewer.
    products: int | None = None
    # Cycles of an NPU's own clock that its compiler estimates. Nobody measured them.
    npu_cycles: int | None = field(default=None, metadata={"is_added": True})


@dataclass(frozen=True)
class Loop:
    """Equal steps of a recurrent layer: the C has the calls of one step."""

    first: int  # the index of its first call
    period: int  # calls of a step
    steps: int
    made: tuple[int, ...]  # calls whose outputs are read after the loop

    @property
    def end(self) -> int:
        """The call after its last."""
        return self.first + self.steps * self.period


@dataclass(frozen=True, repr=False)
class CompiledModel(Result):
    """What ``compile_model`` returns and what project, bundle and device work from."""

    name: str  # C prefix of every symbol, such as "digits"
    board: str
    core: str
    # File name -> text: NAME.h, NAME.c, NAME_weights.c, NAME_kernels.c, and NAME_private.h, which
    # only the three C files include.
    sources: Mapping[str, str]
    layers: tuple[Layer, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    arena_bytes: int  # activations, scratch, inputs and outputs, in one buffer
    arena_alignment: int
    weights_bytes: int  # constant tables, in flash
    macs: int
    model_digest: str  # SHA-256 of the model file
    # Kernel's C name -> its TensorIR after scheduling, to show the origin of the C.
    kernel_ir: Mapping[str, str]
    # Seconds per pipeline stage, in order; empty if read from an archive.
    seconds: Mapping[str, float] = field(compare=False)
    # The library that layers with ``is_external`` call, if there are any.
    external: ExternalLibrary | None = None
    # Where in the arena layer i leaves the library's status: byte ``status_offset + i``, 0 is
    # success. The arena has one byte for every layer there.
    status_offset: int | None = None
    # The most scratch that a layer has on the stack; 0 if all scratch is in the arena.
    stack_bytes: int = 0
    # Kept in the arena between runs; ``NAME_reset`` fills each with its zero point.
    states: tuple[Buffer, ...] = ()
    # Set if a run takes some columns over time; None if read from an archive.
    stream: StreamFacts | None = field(default=None, compare=False)
    # What the arena holds in which layers; empty if read from an archive.
    memory: tuple[ArenaUse, ...] = field(default=(), compare=False)
    # One of ``options.LEVELS``; an archive stores it under this name.
    optimize: str = Objective.TIME
    # One of ``options.FLOAT_MATHS``.
    float_math: str = EXACT
    # What a budget, or level "ram", cost; None without, and if read from an archive.
    tradeoff: Tradeoff | None = field(default=None, compare=False)
    # Plans of its kernels from the fastest on; empty if read from an archive.
    flash_plans: tuple[FlashPlan, ...] = field(
        default=(), compare=False, metadata={"is_added": True}
    )
    # What would be much faster, in one sentence; "" if nothing is known, or read from an archive.
    hint: str = field(default="", compare=False)
    # Memories besides the arena's that it uses; ``NAME_load_pools`` fills them once.
    pools: tuple[MemoryPool, ...] = ()
    # Set if rows are pushed; then ``inputs`` is empty, and there is no ``NAME_run``.
    input_rows: InputRows | None = None
    # Further ones that such layers call.
    more_external: tuple[ExternalLibrary, ...] = field(default=(), metadata={"is_added": True})
    # Layers that the C computes in loops.
    loops: tuple[Loop, ...] = field(default=(), metadata={"is_added": True})
    # Set if it trains on the device; then ``NAME_run`` has the first layers only.
    training: TrainedPart | None = field(default=None, metadata={"is_added": True})
    # Set if it takes a step or a block of steps; ``NAME_run`` takes both, one after the other.
    prefill: PrefillPart | None = field(default=None, metadata={"is_added": True})

    @property
    def externals(self) -> tuple[ExternalLibrary, ...]:
        """All libraries that layers call."""
        return () if self.external is None else (self.external, *self.more_external)

    @property
    def initialized(self) -> tuple[ExternalLibrary, ...]:
        """Those that ``NAME_initialize`` prepares."""
        return tuple(one for one in self.externals if one.is_prepared)

    @property
    def linked(self) -> tuple[ExternalLibrary, ...]:
        """Those whose code is outside of the sources."""
        return tuple(one for one in self.externals if one.is_linked)

    @property
    def headline(self) -> str:
        """What it takes, in one line."""
        stack = f", stack {self.stack_bytes:,} bytes" if self.stack_bytes else ""
        return (
            f"{self.name} for {self.board} ({self.core}): {len(self.layers)} layers, "
            f"{self.macs:,} MACs, arena {self.arena_bytes:,} bytes{stack}, weights "
            f"{self.weights_bytes:,} bytes of flash"
        )

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each layer."""
        return self._rows(_COLUMNS)

    def _rows(self, names: tuple[str, ...]) -> list[dict[str, Any]]:
        return [
            {"index": layer.index, "operator": layer.kind, **named_facts(layer, *names)}
            for layer in self.layers
        ]

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm compile --json``, without an output."""
        rows = self.input_rows
        facts = {
            **named_facts(self, "name", "board", "core"),
            "model_sha256": self.model_digest,
            **named_facts(self, "macs", "weights_bytes", "arena_bytes", "stack_bytes"),
            **named_facts(self, "optimize", "float_math"),
            "input_rows": None if rows is None else {"count": rows.count, "bytes": rows.row_bytes},
            "pools": [pool.to_dict() for pool in self.pools],
            "inputs": [buffer.to_dict() for buffer in self.taken],
            "outputs": [buffer.to_dict() for buffer in self.outputs],
            "layers": self._rows(_FACTS),
            "memory": [use.to_dict() for use in self.memory],
            "hint": self.hint,
            "tradeoff": None if self.tradeoff is None else asdict(self.tradeoff),
            "flash_plans": [asdict(one) for one in self.flash_plans],
            "seconds": dict(self.seconds),
            "output": None,
        }
        return plain_object("utvm.compile/1", facts)

    @property
    def taken(self) -> tuple[Buffer, ...]:
        """What a run takes: the inputs in the arena, or the one that is pushed row by row."""
        return self.inputs if self.input_rows is None else (self.input_rows.buffer,)

    @property
    def step_inputs(self) -> tuple[Buffer, ...]:
        """The inputs without those of a block of steps."""
        return self.inputs[: len(self.inputs) - len(self.block_inputs)]

    @property
    def block_inputs(self) -> tuple[Buffer, ...]:
        """The inputs of a block of steps; none if the model takes no blocks."""
        return () if self.prefill is None else self.inputs[-self.prefill.inputs :]

    @property
    def pool_bytes(self) -> int:
        """Bytes of all pools."""
        return sum(pool.size_bytes for pool in self.pools)

    @property
    def load_function(self) -> str | None:
        """The C function that copies weights into the pools; None if there are none to copy."""
        return f"{self.name}_load_pools" if any(pool.residents for pool in self.pools) else None

    @property
    def run_function(self) -> str:
        """The C function that runs the model."""
        return f"{self.name}_run" if self.input_rows is None else f"{self.name}_push_rows"

    @property
    def entry_points(self) -> tuple[str, ...]:
        """The C functions that a host calls, and nothing in an image."""
        functions = {
            "check_library": self.external is not None,
            "initialize": bool(self.initialized),
            **dict.fromkeys(("reset", "train_step", "store", "restore"), self.training is not None),
            **dict.fromkeys(("step", "prefill"), self.prefill is not None),
        }
        load = () if self.load_function is None else (self.load_function,)
        wanted = (f"{self.name}_{one}" for one, is_there in functions.items() if is_there)
        return (self.run_function, f"{self.name}_run_layer", *load, *wanted)

    @property
    def optimization_flag(self) -> str:
        """The C compiler's option for that, such as "-O3"."""
        return OPTIMIZATION_FLAGS[self.optimize]
