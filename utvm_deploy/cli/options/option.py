"""What a row of the table of options says.

Nothing heavy is imported, so that completion and help are quick. What a row needs of a heavy module
is named as ``module:name``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal


def named(where: str) -> Any:
    """What ``module:name`` names; the module is one of this package."""
    module, _, name = where.partition(":")
    return getattr(import_module(f"utvm_deploy.{module}"), name)


@dataclass(frozen=True)
class Option:
    """A row of the table.

    Its usage is a flag alone (``--equalize``), a flag with a value (``-o, --output FILE``), or an
    argument without a flag (``MODEL`` or ``[MODEL]``). With ``...`` there may be several values.
    """

    usage: str
    help: str = ""
    #: Help shows it; a text is read as a value is. A flag alone says the opposite, or counts.
    default: Any = None
    #: Its text -> the value, if what the usage calls it does not say that (``kinds.READERS``).
    parse: Callable[[str], Any] | None = None
    choices: Sequence[str] | str = ()
    #: Of Python: the keyword of functions, or else the attribute of the parsed command line.
    keyword: str = ""
    #: The variable of the environment that says the default.
    variable: str = ""
    is_needed: bool = False
    #: What several values become. Raises UsageError for those that do not go together.
    collect: Callable[[Sequence[Any]], Any] | None = None
    #: The function that lists what there is to choose from, for completion.
    names: str = ""

    @property
    def flags(self) -> list[str]:
        """As the command line has them; empty for an argument."""
        return [word.rstrip(",") for word in self.usage.split() if word.startswith("-")]

    @property
    def value(self) -> str:
        """How help names the value; empty for a flag alone, and for a choice."""
        word = self.usage.split()[-1]
        if not self.flags and word.startswith("["):
            word = word[1:-1]
        return "" if word.startswith("-") else word.removesuffix("...")

    @property
    def is_alone(self) -> bool:
        """Whether it is a flag without a value."""
        return not self.value and not self.choices

    @property
    def is_repeated(self) -> bool:
        """Whether several values may be given."""
        return "..." in self.usage

    @property
    def name(self) -> str:
        """``ram-budget`` of --ram-budget; an argument's attribute."""
        return self.flags[-1].lstrip("-") if self.flags else self.attribute

    @property
    def attribute(self) -> str:
        """Of the parsed command line."""
        return self.keyword or (self.name if self.flags else self.value.lower()).replace("-", "_")

    @property
    def nothing(self) -> Any:
        """The value where nobody gives one."""
        if self.is_alone:
            return False if self.default is None else self.default
        return [] if self.is_repeated and self.default == () else self.default

    def but(self, help: str, usage: str = "", **other: Any) -> Option:
        """This row where another verb means it a little differently."""
        return replace(self, help=help, usage=usage or self.usage, **other)


@dataclass(frozen=True)
class Group:
    """Rows that help shows below one title, or of which a command line has one at most."""

    title: str
    options: tuple[Option | Group, ...]
    #: Whether they exclude each other, and whether one of them has to be given.
    excludes: Literal["", "each other", "all but one"] = ""


Rows = tuple[Option | Group, ...]


def rows_in(rows: Rows) -> list[Option]:
    """The rows without their groups."""
    found: list[Option] = []
    for one in rows:
        found += [one] if isinstance(one, Option) else rows_in(one.options)
    return found
