"""What the emitter writes down: a graph with a kernel and memory for every layer."""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.compiler.plan import ArenaPlan, Step
from utvm_deploy.compiler.pools import PoolLimit
from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.contract.c_function import CFunction
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
    # The library that kernels with ``calls`` belong to.
    library: ExternalLibrary | None = None
    # Whether compilers may fuse a product and a sum of float32.
    is_fused: bool = False
    # Memories besides the arena's that it may use, and the data cache in front of flash.
    pool_limits: tuple[PoolLimit, ...] = ()
    cache_bytes: int = 0
    # The pool that scratch is in, if the plan has it neither in the arena nor on the stack.
    scratch_pool: str | None = None

    def kernels(self) -> list[ScheduledKernel]:
        """Every kernel once, in the order of first use."""
        return list({layer.kernel.function.name: layer.kernel for layer in self.layers}.values())
