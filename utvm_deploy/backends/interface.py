"""What a backend is: code of somebody else that computes operators of a model.

A backend is data: names, patterns, and where its C is. A pattern names the operators that one call
computes, and has a function that builds the call. CMSIS-NN is a backend, and so is every plug-in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

from utvm_deploy.base.errors import PluginError
from utvm_deploy.graph.attributes import External
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.external_library import (
    MOST_WINDOWS,
    WINDOW_BYTES,
    ExternalLibrary,
    is_window,
)
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.targets.table import CORES

#: What the kind of a custom operator begins with; the name from the file follows.
CUSTOM_PREFIX = "CUSTOM "

#: No board has more RAM for scratch or state.
MOST_BYTES = 1 << 30

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9 _.+-]{0,100}", re.ASCII)
_KIND = re.compile(r"(CUSTOM [!-~]{1,100})|[A-Z][A-Za-z0-9_]{0,60}", re.ASCII)
_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}", re.ASCII)

_Member = TypeVar("_Member")


@dataclass(frozen=True)
class Match:
    """The operators of a model that a pattern found, in the order in which they run.

    Each but the last one makes a tensor that only the next one reads.
    """

    graph: Graph
    operators: tuple[Operator, ...]
    core: str  # such as "cortex-m7"; "host" is this computer, "generic" any core

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
        """The last operator, whose outputs are those of the call."""
        return self.operations[-1]

    @property
    def kind(self) -> str:
        """The kinds of the operators, joined by "+"."""
        return "+".join(operator.kind for operator in self.operators)

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

        (operator,) = self.operators
        return lower(self.graph, operator)

    @property
    def our_tables(self) -> dict[str, Array]:
        """The tables of ``ours`` by their names, such as "weights", "bias", "multiplier".

        Weights of int4 are uint8 here, of one dimension: two in each byte, as in the file.
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


@dataclass(frozen=True)
class Pattern:
    """Operators that one call computes."""

    #: TFLite's names, in the order of the data: ("CONV_2D", "RELU"). A custom operator is
    #: "CUSTOM " and its name in the file; it is alone.
    operators: tuple[str, ...]
    build: Build = field(repr=False)
    #: Of a custom operator: what it computes, with NumPy, for ``utvm verify`` and ``utvm bundle``.
    reference: Reference | None = field(default=None, repr=False)
    #: Of a custom operator: its outputs' types, with which the file must agree.
    infer: Infer | None = field(default=None, repr=False)

    @property
    def is_custom(self) -> bool:
        """Whether it is a custom operator."""
        return self.operators[0].startswith(CUSTOM_PREFIX)


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
    #: Which of Zephyr's options build the functions that are called, if Zephyr has the library.
    zephyr_options: Callable[[Sequence[str]], tuple[str, ...]] = field(
        default=no_options, repr=False, compare=False
    )
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

    def called(self, functions: Sequence[str]) -> ExternalLibrary | None:
        """The dependency of sources that call these functions; None if they call none."""
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
        )

    def pattern(self, *kinds: str) -> Pattern | None:
        """The first pattern of exactly these operators."""
        return next((one for one in self.patterns if one.operators == kinds), None)


def why_not_on(backend: Backend, core: str) -> str:
    """Why the backend does not fit a core, in a phrase; empty if it does."""
    if not backend.cores or core in backend.cores or core not in CORES:
        return ""
    return f"{backend.name} is for {', '.join(backend.cores)}, not for {core}"


def check_backend(backend: object, where: str) -> Backend:
    """The same object; PluginError if it, or a part of it, is of a wrong type or has a wrong value.

    ``where`` is the plug-in, for messages.
    """
    if not isinstance(backend, Backend):
        raise PluginError(
            f"{where}: its name 'backend' is {_a(backend)}, not a utvm_deploy.backends.Backend; "
            "set backend = Backend(...)"
        )
    _text(where, "Backend.name", backend.name, _NAME)
    if not isinstance(backend.code, CText | StaticLibrary):
        raise _wrong(where, "Backend.code", backend.code, "CText or StaticLibrary")
    if isinstance(backend.code, CText) and not isinstance(backend.code.text, str):
        raise _wrong(where, "CText.text", backend.code.text, "a text")
    _all(where, "Backend.cores", backend.cores, str)
    if backend.initialize != "":
        _text(where, "Backend.initialize", backend.initialize, _C_NAME)
    if not isinstance(backend.state_bytes, int) or not 0 <= backend.state_bytes <= MOST_BYTES:
        raise PluginError(
            f"{where}: Backend.state_bytes is {backend.state_bytes!r}; give 0 or more"
        )
    if backend.state_bytes and not backend.initialize:
        raise PluginError(
            f"{where}: Backend.state_bytes is {backend.state_bytes}, and nothing initializes them; "
            "name a C function as Backend.initialize"
        )
    for window in _all(where, "Backend.registers", backend.registers, tuple):
        if not is_window(window):
            raise PluginError(
                f"{where}: Backend.registers has {window!r}; give (address, bytes), both integers "
                f"and multiples of {WINDOW_BYTES}, in 32 bits"
            )
    if len(backend.registers) > MOST_WINDOWS:
        raise PluginError(
            f"{where}: Backend.registers has {len(backend.registers)} ranges, and MPUs have room "
            f"for {MOST_WINDOWS}; join some"
        )
    if not isinstance(backend.url, str) or not backend.url.isprintable():
        raise _wrong(where, "Backend.url", backend.url, "a line of text")
    for pattern in _all(where, "Backend.patterns", backend.patterns, Pattern):
        _check_pattern(where, pattern)
    if not backend.patterns:
        raise PluginError(f"{where}: Backend.patterns is empty; give at least one Pattern")
    return backend


def _check_pattern(where: str, pattern: Pattern) -> None:
    kinds = _all(where, "Pattern.operators", pattern.operators, str)
    if not kinds:
        raise PluginError(f"{where}: Pattern.operators is empty; name at least one operator")
    for kind in kinds:
        _text(where, "Pattern.operators", kind, _KIND)
    shown = "+".join(kinds)
    if not callable(pattern.build):
        raise _wrong(where, f"Pattern.build of {shown}", pattern.build, "a function")
    if any(kind.startswith(CUSTOM_PREFIX) for kind in kinds):
        if len(kinds) > 1:
            raise PluginError(
                f"{where}: the pattern {shown} has a custom operator among others; give the custom "
                "operator a separate pattern"
            )
        for name in ("reference", "infer"):
            if not callable(getattr(pattern, name)):
                raise PluginError(
                    f"{where}: the pattern {shown} has no {name}; the reference interpreter does "
                    "not know a custom operator, so give a function"
                )


def _all(where: str, what: str, value: object, kind: type[_Member]) -> tuple[_Member, ...]:
    if not isinstance(value, tuple):
        raise _wrong(where, what, value, "a tuple")
    for one in value:
        if not isinstance(one, kind):
            raise _wrong(where, f"a member of {what}", one, f"a {kind.__name__}")
    return value


def _text(where: str, what: str, value: object, pattern: re.Pattern[str]) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise PluginError(
            f"{where}: {what} is {value!r}, which does not match {pattern.pattern}; correct it"
        )


def _wrong(where: str, what: str, value: object, expected: str) -> PluginError:
    return PluginError(f"{where}: {what} is {_a(value)}, not {expected}; correct it")


def _a(value: object) -> str:
    return f"an object of type {type(value).__name__}"
