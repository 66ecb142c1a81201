"""A strategy: one way to compute some operators, which a family has for its cores.

A layer is an operator that wants a kernel. A strategy says whether it fits the layer, lists the
candidates that are worth measuring, and builds the kernel call that a wish asks for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeAlias, TypeVar, cast, get_args, get_type_hints

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.records.candidate import Candidate

_C = TypeVar("_C", bound="Choices")
_METHOD = "method"


@dataclass(frozen=True)
class Layer(Operation):
    """An operator that needs a kernel for a core, and its portable call, which always exists."""

    core: str
    portable: KernelCall


@dataclass(frozen=True)
class Wish:
    """What the compiler asks of a layer's kernel in addition to speed."""

    # Exactly this candidate. One without choices asks for its family, None for the best kernel.
    candidate: Candidate | None = None
    most_scratch: int | None = None  # in bytes, if a kernel can do with so few
    # Fewer bytes of flash: 0, COMPACT_LITTLE, COMPACT_MOST of ``records.candidate``.
    compact: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the strategy chooses among its candidates, within the limits."""
        return self.candidate is None or not self.candidate.choices

    @property
    def is_default(self) -> bool:
        """Whether the strategy chooses among all of its candidates."""
        return self.is_open and self.most_scratch is None and not self.compact


#: Builds the call instead of the portable one; a text says why there is none for the layer.
Build: TypeAlias = Callable[[Layer, Wish], KernelCall | str]
#: Lists a layer's candidates, the default of the strategy first.
ListCandidates: TypeAlias = Callable[[Layer], Iterable[Candidate]]


@dataclass(frozen=True)
class Strategy:
    """One way to compute some operators."""

    operators: tuple[str, ...]  # empty: every operator, of any type
    build: Build
    # None: the strategy has nothing to choose.
    candidates: ListCandidates | None = None
    dtype: str = "int8"  # of the activations
    result: str = "int8"  # the type of the output, if that of the input is int8
    unpacks: bool = False  # whether its kernels compute with packed weights, too

    def serves(self, kind: str, dtype: str) -> bool:
        """Whether the strategy is for an operator ``kind`` on activations of ``dtype``."""
        return not self.operators or (kind in self.operators and dtype == self.dtype)


def of_portable(make: Callable[[KernelCall], KernelCall | str]) -> Build:
    """A build that needs only the portable call."""
    return lambda layer, wish: make(layer.portable)


def candidates_of(
    family: str, build: Build, *listers: Callable[[Any], Iterable[Choices]]
) -> ListCandidates:
    """The candidates of a strategy whose choices are listed from its default kernel.

    Each of ``listers`` takes the kernel that the strategy builds by default. It yields the choices
    of that kernel first, then all others of the layer. For a kernel of another class, it yields
    nothing.
    """

    def candidates(layer: Layer) -> tuple[Candidate, ...]:
        call = build(layer, Wish(Candidate(family)))
        if isinstance(call, str):
            return ()
        found = (one for lister in listers for one in lister(call.kernel))
        return tuple(dict.fromkeys(one.candidate(family) for one in found)) or (Candidate(family),)

    return candidates


class Choices:
    """What a strategy lets a candidate choose: a base of frozen dataclasses.

    Fields are integers, booleans and texts. An integer is at least 1 if its default is None, else
    at least 0. A candidate leaves out the fields that have their default, and must have the fields
    without a default. ``method`` distinguishes the strategies of one family.
    """

    method: ClassVar[str] = ""

    def candidate(self, family: str) -> Candidate:
        """The choices as records keep them."""
        given = {_METHOD: self.method} if self.method else {}
        values: dict[str, int | str] = dict(given)
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value != field.default:
                values[field.name] = int(value) if isinstance(value, bool) else value
        return Candidate.of(family, **values)

    @classmethod
    def read(cls: type[_C], candidate: Candidate | None) -> _C | str:
        """The choices of a candidate, or why they do not fit this strategy."""
        given = dict(candidate.choices) if candidate is not None else {}
        method = given.pop(_METHOD, "")
        if method != cls.method:
            named = f"its method is {method!r}" if method else "it names no method"
            own = f"has the method {cls.method!r}" if cls.method else "has no method"
            return f"{named}, but the strategy {own}"
        types = _types(cast(Any, cls))
        for name, value in given.items():
            if name not in types:
                known = ", ".join(types) or "none"
                return f"there is no choice {name!r}; the choices are: {known}"
            wanted = types[name]
            if wanted is bool and value in (0, 1):
                given[name] = bool(value)
            elif type(value) is not wanted:
                return f"{name}={value} is not {_WORDS[wanted]}"
            elif isinstance(value, int):
                least = 1 if getattr(cls, name, 0) is None else 0
                if value < least:
                    return f"{name}={value} is less than {least}"
        fields = dataclasses.fields(cast(Any, cls))
        required = (one.name for one in fields if one.default is dataclasses.MISSING)
        absent = ", ".join(name for name in required if name not in given)
        return f"it has no {absent}" if absent else cls(**given)


@dataclass(frozen=True)
class NoChoices(Choices):
    """The choices of a kernel that has none: ``read`` refuses every choice of a candidate."""


_WORDS: dict[type, str] = {int: "an integer", bool: "0 or 1", str: "a text"}


@cache
def _types(cls: Any) -> dict[str, Any]:
    """Field -> its type, without None."""
    hints = get_type_hints(cls)
    found = {}
    for field in dataclasses.fields(cls):
        kinds = [one for one in get_args(hints[field.name]) if one is not type(None)]
        found[field.name] = kinds[0] if kinds else hints[field.name]
    return found
