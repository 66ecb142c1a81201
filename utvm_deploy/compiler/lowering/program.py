"""What the emitter writes down: a graph with a kernel and memory for every layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from utvm_deploy.compiler.arena.plan import ArenaPlan, Step
from utvm_deploy.compiler.compiled.memory_use import MemoryPool
from utvm_deploy.graph.model import Array, Graph
from utvm_deploy.kernels.contract.c_function import CFunction
from utvm_deploy.kernels.contract.call import Argument, ConstantArgument, TensorArgument
from utvm_deploy.kernels.contract.external_library import ExternalLibrary


@dataclass(frozen=True)
class ScheduledKernel:
    """A kernel after scheduling, as C and as TensorIR."""

    function: CFunction
    why: str
    ir: str  # TensorIR; the C text for a kernel that calls a library
    # The library's function, and our C function that returns the scratch that the library wants;
    # None for one of our kernels.
    calls: str | None = None
    wanted: str | None = None
    has_state: bool = False  # whether the last argument is the backend's state
    backend: str = ""  # the name of the backend that it is of
    engine: str = ""  # of a serialized region, and the bytes of its state
    state_bytes: int = 0


@dataclass(frozen=True)
class ScheduledStep:
    """One layer and the kernel that does it; layers may share kernels."""

    step: Step
    kernel: ScheduledKernel


@dataclass(frozen=True, eq=False)
class Program:
    """A model, ready to be written as C."""

    name: str
    board: str
    core: str
    graph: Graph
    layers: tuple[ScheduledStep, ...]
    plan: ArenaPlan
    # The libraries that kernels with ``calls`` belong to.
    libraries: tuple[ExternalLibrary, ...] = ()
    # Whether compilers may fuse a product and a sum of float32.
    is_fused: bool = False
    # Memories besides the arena's that it uses.
    pools: tuple[MemoryPool, ...] = ()
    # The pool of the plan's tensors, and whether scratch that is not in the arena is there, too.
    near_pool: str = ""
    has_scratch_in_pool: bool = False
    has_loops: bool = True  # whether equal steps may be a loop in C

    def kernels(self) -> list[ScheduledKernel]:
        """Every kernel once, in the order of first use."""
        return list({layer.kernel.function.name: layer.kernel for layer in self.layers}.values())


def layer_constants(program: Program, index: int) -> Iterator[tuple[str, Array, int]]:
    """The constants that a layer reads, as ``ConstantTables.add`` takes them."""
    for argument in program.layers[index].step.call.arguments:
        found = constant_of(program, index, argument)
        if found is not None:
            yield found


def constant_of(program: Program, index: int, argument: Argument) -> tuple[str, Array, int] | None:
    """The name, the values and the alignment of an argument; None if it is not a constant."""
    if isinstance(argument, ConstantArgument):
        return f"layer_{index}_{argument.name}", argument.data, argument.alignment
    if isinstance(argument, TensorArgument):
        data = program.graph.tensors[argument.tensor].data
        return None if data is None else (f"layer_{index}_constant", data, 1)
    return None
