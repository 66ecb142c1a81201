"""A kernel and a call of it: what the compiler asks of this package.

``lower`` (in ``choose/lowering.py``) turns one operator into a ``KernelCall``. Calls of equal
kernels share one C function. So what differs between layers of the same shape is an argument, never
part of the kernel: weights, multipliers, zero points, clamps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.driver import Driver, KernelParameter, Operand
from utvm_deploy.records import DEFAULT
from utvm_deploy.records.candidate import GENERIC, Candidate

if TYPE_CHECKING:
    from typing_extensions import TypeIs


class _NamedKernel(Protocol):
    """A frozen, hashable dataclass with a kernel's shape parameters."""

    @property
    def name(self) -> str:
        """A C identifier that describes the kernel, such as ``conv2d_3x3_s1_16x16x16_16``."""

    def __hash__(self) -> int:
        """As frozen dataclasses have it."""


class Kernel(_NamedKernel, Protocol):
    """A portable kernel, which TVM schedules and writes as C."""

    def prim_func(self) -> Any:
        """The naive TensorIR PrimFunc; parameters in the order of ``KernelCall.arguments``."""

    def schedule(self, sch: Any, core: str) -> str:
        """Apply the default schedule for ``core`` to ``sch`` (tvm's Schedule, block of prim_func).

        Returns one short phrase that says what was chosen and why, for the report.
        """


class NativeKernel(_NamedKernel, Protocol):
    """A kernel of C routines and assembly, which a driver in C calls.

    A class whose output may replace input that was already read has a ``lag``, too (``lag.py``).
    """

    @property
    def why(self) -> str:
        """What does the work, in a short phrase for the report."""

    @property
    def parameters(self) -> tuple[KernelParameter, ...]:
        """The parameters of the C function, in the order of ``KernelCall.arguments``."""

    @property
    def scratch(self) -> tuple[Operand, ...]:
        """Buffers that only the kernel uses. Small ones are on the stack."""

    def texts(self, core: str) -> tuple[str, ...]:
        """The C and assembly of the routines that the driver calls, ordered for a core."""

    def drive(self, c: Driver) -> None:
        """Write the driver."""


def is_native(kernel: object) -> TypeIs[NativeKernel]:
    """Whether a kernel has a driver instead of TensorIR."""
    return hasattr(kernel, "drive")


#: The status of a guarded call that wrote beyond its scratch.
SCRATCH_OVERRUN = 127
#: The status instead of one that is not in -100 to 100, which would be cut to a byte.
OTHER_STATUS = 123
#: Bytes on each side of a guarded call's scratch, which it must leave as they are.
GUARD_BYTES = 16


@dataclass(frozen=True)
class LibraryKernel:
    """A call of somebody else's library, as C text.

    Its C function returns the library's status, which is 0 for success.
    """

    name: str
    function: str  # the library's function that does the work
    include: str  # the library's header that declares it
    # "const int8_t *input" ..., in the order of ``KernelCall.arguments``; scratch comes last.
    parameters: tuple[str, ...]
    body: str  # C statements, ending with the return of the status
    scratch_bytes: int  # of the body's ``scratch``; if 0, it has none
    wanted: str  # C statements that return the size of scratch that the library asks for
    text: str = field(default="", repr=False)  # C text that defines the function, if no library
    # Whether its C function finds other statuses (``OTHER_STATUS``), and writes beyond the scratch
    # (``SCRATCH_OVERRUN``).
    is_guarded: bool = False
    has_state: bool = False  # whether the body knows ``void *state``, the backend's own bytes
    backend: str = ""  # the name of the backend that it is of
    # Of a serialized region: what the names of its engine's functions begin with, and the bytes of
    # its state.
    engine: str = ""
    state_bytes: int = 0

    @property
    def functions(self) -> tuple[str, ...]:
        """What the library must define."""
        if not self.engine:
            return (self.function,)
        return tuple(f"{self.engine}_{one}" for one in ("format", "init", "run", "release"))


#: A kernel of this package, and any kernel.
OwnKernel: TypeAlias = Kernel | NativeKernel
AnyKernel: TypeAlias = OwnKernel | LibraryKernel


@dataclass(frozen=True)
class TensorArgument:
    """An activation."""

    tensor: int  # position in ``Graph.tensors``


@dataclass(frozen=True, eq=False)
class ConstantArgument:
    """A table in flash, already in the layout that the kernel wants."""

    name: str  # role, such as "weights", "bias", "multiplier", "shift"
    data: Array
    alignment: int = 1  # of its address, if that is more than words and elements need


@dataclass(frozen=True)
class ScalarArgument:
    """An int32 passed by value."""

    name: str
    value: int


Argument: TypeAlias = TensorArgument | ConstantArgument | ScalarArgument


@dataclass(frozen=True)
class KernelCall:
    """One layer: the kernel and its arguments, outputs last."""

    kernel: AnyKernel
    arguments: tuple[Argument, ...]
    # (output, input), positions in Graph.tensors: the output may have the address of the input,
    # because the kernel reads each element before it writes it.
    in_place: tuple[tuple[int, int], ...] = ()
    # Multiply-accumulate operations, for reports.
    macs: int = 0
    # The multiplications that the kernel does for them, if it does fewer.
    products: int | None = None
    # Why no faster kernel was taken, in a phrase, if one was tried.
    why_not: str = ""
    # Of a call for an NPU: the cycles of the clock there that its compiler estimates.
    npu_cycles: int | None = None
    # The kernel's family; "generic" is plain C.
    family: str = GENERIC
    # Where its candidate came from: one of records.ORIGINS.
    origin: str = DEFAULT
    # The kernel's candidate, as records name it; None if it has none.
    candidate: Candidate | None = None
    # The least value of ``Wish.compact`` for which it has a smaller form; 0: it has none.
    heeds_compact: int = 0
    # Makes the same call with one rounding of each output instead of two, or None where that would
    # not be exact; None if the kernel has no such form.
    rounded_once: Callable[[], KernelCall | None] | None = field(
        default=None, compare=False, repr=False
    )
    # Makes the same call by vectors of float32, whose sums are not those of the reference, or None.
    fused: Callable[[], KernelCall | None] | None = field(default=None, compare=False, repr=False)
    # The kernel that records have measured, with exact sums and two roundings; None if ``kernel``
    # is that one.
    exact: NativeKernel | None = None
    # Whether its tables have the weights as int8 that the graph has packed.
    is_unpacked: bool = False

    @property
    def table_bytes(self) -> int:
        """Bytes of its tables in flash."""
        return sum(a.data.nbytes for a in self.arguments if isinstance(a, ConstantArgument))


def with_one_rounding(call: KernelCall) -> KernelCall:
    """The call whose kernel rounds each output once instead of twice, if there is one."""
    made = call.rounded_once() if call.rounded_once is not None else None
    return call if made is None else _in_place_of(call, made)


def _in_place_of(call: KernelCall, made: KernelCall) -> KernelCall:
    """The call ``made`` of the same layer, with the activations of ``call``."""
    assert is_native(call.kernel)
    # Strips of a layer share what makes the call.
    mine = (one for one in call.arguments if isinstance(one, TensorArgument))
    arguments = (next(mine) if isinstance(one, TensorArgument) else one for one in made.arguments)
    return replace(
        call,
        kernel=made.kernel,
        arguments=tuple(arguments),
        rounded_once=None,
        exact=call.kernel,
    )


def with_fused_sums(call: KernelCall) -> KernelCall:
    """The call of the kernel that rounds a product and its sum together, if there is one.

    Native kernels of float32 have it as the property ``fused``. In C, the compiler does it.
    """
    exact = call.kernel
    if isinstance(exact, LibraryKernel) or not is_native(exact):
        return call
    made = call.fused() if call.fused is not None else None
    if made is not None:
        return _in_place_of(call, made)
    kernel = getattr(exact, "fused", None)
    return call if kernel is None else replace(call, kernel=kernel, exact=exact)
