"""The verbs that jobs run: one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from utvm_deploy.base.errors import UsageError

#: The file of a tune job's records.
RECORDS = "records.jsonl"


@dataclass(frozen=True)
class Option:
    """An option that a job may have; ``choices`` or the range of an integer limit it."""

    name: str  # "trials" becomes --trials
    help: str
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = 0
    is_flag: bool = False

    def arguments(self, value: object) -> list[str]:
        """Of the command line. Raises UsageError, with what would be right."""
        if self.is_flag:
            if not isinstance(value, bool):
                raise UsageError(f"{self.name}: {value!r} is not true or false")
            return [f"--{self.name}"] if value else []
        if self.choices:
            if value not in self.choices:
                raise UsageError(f"{self.name}: {value!r} is not one of {', '.join(self.choices)}")
            return [f"--{self.name}", str(value)]
        if isinstance(value, bool) or not isinstance(value, int):
            raise UsageError(f"{self.name}: {value!r} is not an integer")
        if not self.least <= value <= self.most:
            raise UsageError(f"{self.name}: {value} is not from {self.least} to {self.most}")
        return [f"--{self.name}", str(value)]


@dataclass(frozen=True)
class Verb:
    """How a verb becomes a command line."""

    name: str
    help: str
    options: tuple[Option, ...] = ()
    #: Arguments after the model's file and the board.
    fixed: tuple[str, ...] = ()
    #: What is kept of the folder in which it ran.
    outputs: tuple[str, ...] = ()
    #: The file whose lines are kept while it runs.
    followed: str = ""
    has_board: bool = True


_OPTIMIZE = Option("optimize", "what to compile for", ("time", "balanced", "size"))
_SAMPLES = Option("samples", "random samples", least=1, most=1000)

VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            *("inspect", "what the file holds"),
            fixed=("--svg", "graph.svg"),
            outputs=("graph.svg",),
            has_board=False,
        ),
        Verb(
            *("compile", "C sources"),
            (_OPTIMIZE,),
            ("-o", "model.tar"),
            ("model.tar",),
        ),
        Verb(*("verify", "every byte, against the reference interpreter"), (_OPTIMIZE, _SAMPLES)),
        Verb(
            *("profile", "cycles of each layer"),
            (_OPTIMIZE,),
            ("--html", "profile.html"),
            ("profile.html",),
        ),
        Verb(
            *("tune", "the fastest kernels, by running them"),
            (
                _OPTIMIZE,
                Option("trials", "candidates in all", least=1, most=1_000_000),
                Option("minutes", "stop after this time", least=1, most=10_000),
                Option("seed", "of the search", least=0, most=2**31 - 1),
            ),
            ("--records", RECORDS),
            (RECORDS,),
            RECORDS,
        ),
        Verb(
            *("bench", "beside another engine"),
            (_OPTIMIZE,),
            ("--html", "bench.html"),
            ("bench.html",),
        ),
        Verb(
            *("bundle", "a library for your firmware"),
            (_OPTIMIZE, _SAMPLES),
            ("-o", "bundle.zip"),
            ("bundle.zip",),
        ),
    )
}


def verb_of(name: str) -> Verb:
    """The row of a verb. Raises UsageError if no job runs it."""
    try:
        return VERBS[name]
    except KeyError:
        raise UsageError(f"no job runs {name!r}; jobs run {', '.join(VERBS)}") from None


def command_line(
    verb: Verb, models: Sequence[str], board: str, options: Mapping[str, Any]
) -> list[str]:
    """The arguments of ``utvm``. ``models`` are names of files. Raises UsageError."""
    known = {option.name: option for option in verb.options}
    unknown = options.keys() - known.keys()
    if unknown:
        raise UsageError(
            f"{verb.name} has no option {min(unknown)!r} in a job; "
            f"it has {', '.join(known) or 'none'}"
        )
    arguments = [verb.name, *models]
    if verb.has_board:
        arguments += ["--board", board]
    for name, value in options.items():
        arguments += known[name].arguments(value)
    return [*arguments, *verb.fixed, "--json"]
