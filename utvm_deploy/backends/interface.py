"""What a backend is: code of somebody else that computes operators of a model.

A backend is data: names, patterns, and where its C is. A pattern names the operators that one call
computes, and has a function that builds the call. CMSIS-NN is a backend, and so is every plug-in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from utvm_deploy.backends.edges import Edges
from utvm_deploy.backends.patterns import (
    Expression,
    Found,
    Op,
    chain,
    matches,
    parts_of,
    wildcard,
)
from utvm_deploy.backends.relax_patterns import translated
from utvm_deploy.base.errors import PluginError
from utvm_deploy.graph.attributes import External
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.external_library import ExternalLibrary
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.targets.table import CORES

#: What the kind of a custom operator begins with; the name from the file follows.
CUSTOM_PREFIX = "CUSTOM "

#: The most kinds that the name of a region lists.
MOST_KINDS = 6

#: No board has more RAM for scratch or state.
MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Match:
    """Operators of a model that one call computes, in the order in which they run.

    They are a region: no other operator has to run between them.
    """

    graph: Graph  # of the whole model; ``subgraph`` has the region alone
    operators: tuple[Operator, ...]
    core: str  # such as "cortex-m7"; "host" is this computer, "generic" any core
    #: What named expressions of the pattern are: an operator, or the number of a tensor.
    named: Mapping[str, Operator | int] = field(default_factory=dict)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operators with their tensors."""
        return tuple(Operation(self.graph, operator) for operator in self.operators)

    @property
    def first(self) -> Operation:
        """The first operator, or the only one."""
        return self.operations[0]

    @property
    def last(self) -> Operation:
        """The last operator."""
        return self.operations[-1]

    @property
    def each(self) -> tuple[Match, ...]:
        """A match for each operator alone, for the arguments of its kernel (``ours``)."""
        return tuple(Match(self.graph, (one,), self.core) for one in self.operators)

    def operation(self, name: str) -> Operation | None:
        """The operator that ``op(...).named(name)`` is; None if it is not in this match."""
        found = self.named.get(name)
        return Operation(self.graph, found) if isinstance(found, Operator) else None

    def tensor(self, name: str) -> int | None:
        """The number of the tensor that an expression with this name is; None if it is none."""
        found = self.named.get(name)
        return found if isinstance(found, int) else None

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Tensors that the region reads and does not make, constants aside, in their order there.

        A state that it finds from the run before is one of them.
        """
        made = {number for one in self.operators for number in one.outputs}
        read = (number for one in self.operators for number in one.inputs)
        return tuple(
            dict.fromkeys(
                number
                for number in read
                if number is not None
                and number not in made
                and self.graph.tensors[number].data is None
            )
        )

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Tensors that the region makes for others: operators, the model's caller, the next run."""
        if len(self.operators) == 1:
            return self.operators[0].outputs
        ours = {number for one in self.operators for number in one.outputs}
        inside = (i for i, one in enumerate(self.graph.operators) if ours & {*one.outputs})
        return Edges(self.graph).outputs(tuple(inside))

    @property
    def states(self) -> tuple[tuple[int, int], ...]:
        """(input, output) of the region at one address: a state, before and after a run."""
        ends = {*self.inputs}, {*self.outputs}
        return tuple(one for one in self.graph.states if one[0] in ends[0] and one[1] in ends[1])

    @property
    def subgraph(self) -> Graph:
        """The region as a separate graph; its tensors have the numbers of the whole model."""
        found = {before for before, _ in self.states}
        return self.graph.replaced(
            operators=self.operators,
            inputs=tuple(one for one in self.inputs if one not in found),
            outputs=self.outputs,
            states=self.states,
        )

    @property
    def kind(self) -> str:
        """The kinds of the operators, joined by "+"; of many, the first and the last ones."""
        kinds = [operator.kind for operator in self.operators]
        if len(kinds) > MOST_KINDS:
            kinds = [*kinds[:2], f"{len(kinds) - 3} more", kinds[-1]]
        return "+".join(kinds)

    @property
    def options(self) -> bytes:
        """The options of a custom operator, as the file has them; empty for others."""
        attributes = self.operators[0].attributes
        return attributes.options if isinstance(attributes, External) else b""

    @property
    def ours(self) -> KernelCall:
        """The call of our portable kernel for the only operator, with its arguments.

        Its multipliers, zero points and clamps are those of LiteRT's reference kernel.
        """
        from utvm_deploy.kernels.choose.lowering import lower

        if len(self.operators) > 1:
            raise PluginError(f"{self.kind} has several operators; use those of match.each")
        return lower(self.graph, self.operators[0])

    @property
    def our_tables(self) -> dict[str, Array]:
        """The tables of ``ours`` by their names, such as "weights", "bias", "multiplier".

        Weights of int4 are uint8 here, of one dimension: two in each byte, as in the file.
        The bias of int8 has the input's zero point in it, so padding reads as the zero point.
        """
        arguments = self.ours.arguments
        return {one.name: one.data for one in arguments if isinstance(one, ConstantArgument)}

    @property
    def our_numbers(self) -> dict[str, int]:
        """The numbers of ``ours`` by their names, such as "output_zero_point", "low", "high"."""
        arguments = self.ours.arguments
        return {one.name: one.value for one in arguments if isinstance(one, ScalarArgument)}


@dataclass(frozen=True)
class TensorType:
    """The shape and the element type (NumPy's name) of a tensor."""

    shape: tuple[int, ...]
    dtype: str


#: Gives the call for a match, or a phrase that says why the backend has none. ``backends.call``
#: makes calls.
Build: TypeAlias = Callable[[Match], KernelCall | str]
#: Gives the outputs of a match for these inputs, in the order of the operator's tensors. Constant
#: inputs are among them; an optional input that is absent is None.
Reference: TypeAlias = Callable[[Match, Sequence[Array | None]], Sequence[Array]]
#: Gives the types of a custom operator's outputs from its inputs and the bytes of its options.
Infer: TypeAlias = Callable[[Sequence[Tensor | None], bytes], Sequence[TensorType]]
#: Says whether a backend computes an operator, as part of a region or alone.
Covers: TypeAlias = Callable[[Operation], bool]
#: Gives the cycles of the board's core that the call of a region takes; None if it is not known.
Estimate: TypeAlias = Callable[[Match], float | None]


@dataclass(frozen=True)
class Pattern:
    """Operators that one call computes."""

    #: TFLite's names, each of an operator that reads what the one before it makes, such as
    #: ("CONV_2D", "RELU"). A custom operator is "CUSTOM " and its name in the file; it is alone.
    #: Or an expression (``op``, ``wildcard`` and others), or several: the outputs of a region. For
    #: Relax modules, TVM's patterns (``tvm.relax.dpl``) are expressions, too.
    operators: Any
    #: None: the operators stay together in regions, which ``Backend.build`` builds.
    build: Build | None = field(default=None, repr=False)
    #: Of a custom operator: what it computes, with NumPy, for ``utvm verify`` and ``utvm bundle``.
    reference: Reference | None = field(default=None, repr=False)
    #: Of a custom operator: its outputs' types, with which the file must agree.
    infer: Infer | None = field(default=None, repr=False)

    @cached_property
    def roots(self) -> tuple[Expression, ...]:
        """The expressions of its outputs."""
        given = self.operators if isinstance(self.operators, tuple) else (self.operators,)
        if all(isinstance(one, str) for one in given):
            return (chain(given),)
        return translated(given)

    @property
    def label(self) -> str:
        """For messages: the kinds of operators in it."""
        given = self.operators
        if isinstance(given, tuple) and all(isinstance(one, str) for one in given):
            return "+".join(map(str, given))
        ops = (one for root in self.roots for one in parts_of(root) if isinstance(one, Op))
        return "+".join(dict.fromkeys("|".join(one.kinds) for one in ops))

    @property
    def custom(self) -> str:
        """The kind of the custom operator that it is; empty for others."""
        first = self.operators[0] if isinstance(self.operators, tuple) else ""
        return first if isinstance(first, str) and first.startswith(CUSTOM_PREFIX) else ""

    def matches(self, graph: Graph, free: Collection[int]) -> tuple[Found, ...]:
        """Where the operators at the ``free`` positions of a graph are as it says."""
        return matches(graph, self.roots, free)


def pattern(
    build: Build | None = None,
) -> Callable[[Callable[..., Expression | tuple[Expression, ...]]], Pattern]:
    """Makes a pattern of a function that returns an expression, or a tuple of them.

    Its parameters are wildcards with these names. ``build`` is the pattern's.
    """

    def made(function: Callable[..., Expression | tuple[Expression, ...]]) -> Pattern:
        names = inspect.signature(function).parameters
        return Pattern(function(*(wildcard().named(name) for name in names)), build)

    return made


@dataclass(frozen=True)
class CText:
    """C99 text that becomes part of the model's sources.

    It is compiled with -Wall -Wextra -Werror. Its functions should be static, but not
    ``Backend.initialize``.
    """

    text: str = field(repr=False)


@dataclass(frozen=True)
class StaticLibrary:
    """A static library that was built for the board's core, and the folders of its headers."""

    path: Path | None  # None: Zephyr builds it, see ``Backend.zephyr_options``
    include_dirs: tuple[Path, ...] = ()


def no_options(functions: Sequence[str]) -> tuple[str, ...]:
    """For ``Backend.zephyr_options``: Zephyr builds nothing of it."""
    return ()


@dataclass(frozen=True)
class Backend:
    """Somebody else's code for some operators."""

    name: str  # for reports, such as "CMSIS-NN"
    patterns: tuple[Pattern, ...]
    code: CText | StaticLibrary
    #: The cores that it fits, such as "cortex-m7"; empty: all of them, and this computer.
    cores: tuple[str, ...] = ()
    #: A C function ``int32_t f(void *state)`` that prepares the device. It runs once before the
    #: first run of the model, and again after a reset. It returns 0 for success.
    initialize: str = ""
    #: Bytes that it may keep from then on, aligned to 8: tasks can write no global variables. The
    #: bodies of calls know them as ``state``. 0: none, and ``state`` is a null pointer.
    state_bytes: int = 0
    #: Registers of the device that the code uses: (address, bytes) of each range, both multiples
    #: of 256. An MPU keeps tasks from all others.
    registers: tuple[tuple[int, int], ...] = ()
    url: str = ""  # where it comes from, for reports
    #: Which operators it computes besides those of patterns. Neighbours become regions, as large as
    #: possible, and ``build`` gives the call for each.
    covers: Covers | None = field(default=None, repr=False)
    build: Build | None = field(default=None, repr=False)
    #: The backend for a model's file, if it must see the file. Then layers keep all channels of it.
    of_file: Callable[[Path], Backend] | None = field(default=None, repr=False, compare=False)
    #: Whether it is what ``of_file`` gave; utvm_deploy sets it.
    has_seen_file: bool = field(default=False, repr=False, compare=False)
    #: Whether a device reads scratch and tables by itself: those stay in the arena and in flash,
    #: as it may reach no tightly coupled RAM.
    is_bus_master: bool = False
    #: What a call takes where nothing was measured: ours computes the operators if it is faster.
    estimate: Estimate | None = field(default=None, repr=False)
    #: Which of Zephyr's options build the functions that are called, if Zephyr has the library.
    zephyr_options: Callable[[Sequence[str]], tuple[str, ...]] = field(
        default=no_options, repr=False, compare=False
    )
    #: The same calls by code that does nothing, if the code is not here. ``profile`` and ``report``
    #: take it: the other layers are measured, with bytes of no meaning.
    stand_in: Backend | None = field(default=None, repr=False, compare=False)
    #: Whether its regions stay apart, and it computes single operators only.
    is_apart: bool = False
    # What follows is found out by us.
    digest: str = ""  # SHA-256 of the code
    python_digest: str = ""  # SHA-256 of the plug-in's Python file
    built_with: str = ""  # compiler, version and instruction set, for reports
    functions: frozenset[str] | None = field(default=None, repr=False)  # of the library
    family: str = ""  # as records name it
    #: The plug-in that it comes from; empty: it is part of utvm.
    origin: str = ""

    def has(self, function: str) -> bool:
        """Whether a call of it can be linked, as far as known."""
        return self.functions is None or function in self.functions

    def called(
        self, functions: Sequence[str], engines: Collection[str] = ()
    ) -> ExternalLibrary | None:
        """The dependency of sources that call these functions; None if they call none.

        ``engines`` are those that run serialized regions.
        """
        names = tuple(sorted(set(functions)))
        if not names:
            return None
        folders: tuple[Path, ...] = ()
        library = ""
        if isinstance(self.code, StaticLibrary):
            folders = self.code.include_dirs
            library = "" if self.code.path is None else str(self.code.path)
        return ExternalLibrary(
            self.name,
            self.url,
            tuple(map(str, folders)),
            library,
            self.digest,
            self.built_with,
            names,
            self.zephyr_options(names),
            self.initialize,
            self.state_bytes,
            self.registers,
            self.is_bus_master,
            tuple(sorted(engines)),
        )


def why_not_on(backend: Backend, core: str) -> str:
    """Why the backend does not fit a core, in a phrase; empty if it does."""
    if not backend.cores or core in backend.cores or core not in CORES:
        return ""
    return f"{backend.name} is for {', '.join(backend.cores)}, not for {core}"
