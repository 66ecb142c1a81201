"""The verbs that jobs run: one row each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from utvm_deploy.base.errors import UsageError
from utvm_deploy.service.server.jobs import options as o
from utvm_deploy.service.server.store.facts import Model


@dataclass(frozen=True)
class Verb:
    """How a verb becomes a command line."""

    name: str
    help: str
    options: tuple[o.Option, ...] = ()
    #: Arguments after the model's file and the board.
    fixed: tuple[str, ...] = ()
    #: What is kept of the folder in which it ran.
    outputs: tuple[str, ...] = ()
    #: The file whose lines are kept while it runs.
    followed: str = ""
    #: Whether it has the option --board.
    has_board: bool = True
    #: Whether it runs on the board, so that nobody else may use the board meanwhile.
    runs_on_board: bool = True
    most_models: int = 1
    #: Of each group, at least one option must be there.
    needed: tuple[tuple[o.Option, ...], ...] = ()
    #: Of each pair, the first excludes the second.
    exclusive: tuple[tuple[o.Option, o.Option], ...] = ()
    #: Of each pair, the first means nothing without the second.
    bound: tuple[tuple[o.Option, o.Option], ...] = ()


_CHOSEN = (o.SHAPE, o.SIGNATURE, o.INPUT, o.STREAM, o.HOP, o.TIME_AXIS, o.END_INPUT, o.TRAINED)
_BUDGETS = (o.RAM_BUDGET, o.FLASH_BUDGET, o.CYCLE_BUDGET)
_COMPILATION = (
    *(o.OPTIMIZE, o.KERNELS, o.SCRATCH, o.NAME, o.EARLIER, *_BUDGETS, o.FLASH_RATE),
    o.FLOAT_MATH,
)
_COMPILED = (*_COMPILATION, *_CHOSEN)
_CONNECTED = (o.TEMPLATE, o.LINK)
_GATE = (o.BASELINE, o.FAIL_OVER, o.MAX_RAM, o.MAX_FLASH)
_MOST_MODELS = 16

VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            *("inspect", "what the file holds"),
            (*_CHOSEN, o.TIME_LIMIT),
            ("--svg", "graph.svg"),
            ("graph.svg",),
            has_board=False,
            runs_on_board=False,
        ),
        Verb(
            *("compile", "C sources"),
            (*_COMPILED, o.TIME_LIMIT),
            ("-o", "model.tar"),
            ("model.tar",),
            runs_on_board=False,
        ),
        Verb(
            *("verify", "every byte, against the reference interpreter"),
            (*_COMPILED, o.SAMPLES, o.GOLDEN, *_CONNECTED, o.TIME_LIMIT),
            exclusive=((o.SAMPLES, o.GOLDEN),),
        ),
        Verb(
            *("profile", "cycles of each layer"),
            (*_COMPILED, o.HOT, *_CONNECTED, o.TIMING, *_GATE, o.TIME_LIMIT),
            ("--html", "profile.html"),
            ("profile.html",),
            bound=((o.FAIL_OVER, o.BASELINE),),
        ),
        Verb(
            *("tune", "the fastest kernels, by running them"),
            (
                *(o.OPTIMIZE, o.TRIALS, o.MINUTES, o.SEED, o.START_RECORDS, o.TUNED_KERNELS),
                *(*_CHOSEN, *_CONNECTED, o.TIMING, o.TIME_LIMIT),
            ),
            ("--records", o.RECORDS),
            (o.RECORDS,),
            o.RECORDS,
            most_models=_MOST_MODELS,
            needed=((o.TRIALS, o.MINUTES),),
        ),
        Verb(
            *("train", "layers learn from labelled data"),
            (
                *(o.DATA, o.HELD_OUT, o.LAYERS, o.LOSS, o.OPTIMIZER, o.RATE, o.EPOCHS, o.SEED),
                *(*_COMPILATION, o.SHAPE, o.SIGNATURE, o.TRAINED, *_CONNECTED, o.TIMING),
                o.TIME_LIMIT,
            ),
            ("-o", o.WEIGHTS, "--html", o.CURVES),
            (o.WEIGHTS, o.CURVES),
            needed=((o.DATA,),),
        ),
        Verb(
            *("bench", "beside another engine"),
            (o.EARLIER, *_CHOSEN, *_CONNECTED, o.TIMING, *_GATE, o.TIME_LIMIT),
            ("--html", "bench.html"),
            ("bench.html",),
            most_models=_MOST_MODELS,
            bound=((o.FAIL_OVER, o.BASELINE),),
        ),
        Verb(
            *("bundle", "a library for your firmware"),
            (
                *(*_COMPILED, o.FORMAT, o.BENCHMARK, o.SAMPLES, o.GOLDEN, o.NO_LATENCY, o.TIMING),
                o.TIME_LIMIT,
            ),
            ("-o", "bundle.zip"),
            ("bundle.zip",),
            # It flashes nothing; its latency report comes from an emulator.
            runs_on_board=False,
            exclusive=((o.SAMPLES, o.GOLDEN),),
            bound=((o.BENCHMARK, o.FORMAT),),
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
    if not 1 <= len(models) <= verb.most_models:
        most = f"1 to {verb.most_models} models" if verb.most_models > 1 else "one model"
        raise UsageError(f"a {verb.name} job takes {most}, not {len(models)}")
    _check_together(verb, options)
    arguments = [verb.name]
    if verb.has_board:
        arguments.append(f"--board={board}")
    for option, value in given_options(verb, options):
        arguments += option.arguments(value)
    # With ``./``, a name with a hyphen at the start is not taken for an option.
    return [*arguments, *verb.fixed, "--json", *(f"./{name}" for name in models)]


def given_options(verb: Verb, options: Mapping[str, Any]) -> Iterator[tuple[o.Option, Any]]:
    """The rows of a job's options, with their values. Raises UsageError if there is no such."""
    known = {option.name: option for option in verb.options}
    for name, value in options.items():
        if name == o.PLUGIN:
            raise UsageError(o.NO_PLUGIN)
        if name not in known:
            raise UsageError(
                f"{verb.name} has no option {name!r} in a job; it has {', '.join(known)}"
            )
        yield known[name], value


def _check_together(verb: Verb, options: Mapping[str, Any]) -> None:
    for group in verb.needed:
        if not any(option.name in options for option in group):
            names = " or ".join(option.name for option in group)
            raise UsageError(f"a {verb.name} job needs {names}")
    for one, other in verb.exclusive:
        if one.name in options and other.name in options:
            raise UsageError(f"{one.name} and {other.name} exclude each other; give one of them")
    for one, other in verb.bound:
        if one.name in options and other.name not in options:
            raise UsageError(f"{one.name} means nothing without {other.name}; give that, too")


def file_names(models: Sequence[Model]) -> list[str]:
    """The name of each model's file in the job's folder: its own, if no other model has it."""
    names: list[str] = []
    for model in models:
        name = model.name
        if name in names:
            stem, dot, ending = name.rpartition(".")
            name = f"{stem}-{model.sha256[:8]}{dot}{ending}"
        names.append(name)
    return names
