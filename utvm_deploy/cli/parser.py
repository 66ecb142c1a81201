"""The parser of the command line, made of the table of options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from os import environ
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.cli.options.kinds import reader
from utvm_deploy.cli.options.option import Option, Rows, named, rows_in
from utvm_deploy.cli.verbs import VERBS, Verb

#: What argparse itself reads, and says what is wrong.
_PLAIN = (str, int, float, Path)


def fill(parser: argparse.ArgumentParser, only: str | None = None) -> None:
    """Add the verbs with their options: all, or those of one verb; with "" none has its options.

    The rest is added for help alone, which needs neither options nor what they choose from.
    """
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in [VERBS[only]] if only else VERBS.values():
        one = verbs.add_parser(verb.name, help=verb.help, description=verb.help)
        if only == "":
            continue
        if not verb.actions:
            _fill_verb(one, verb, f"{verb.module}:run")
            continue
        actions = one.add_subparsers(dest="action", metavar="ACTION", required=True)
        for action in verb.actions:
            below = actions.add_parser(action.name, help=action.help, description=action.help)
            _fill_verb(below, action, f"{verb.module}:run_{action.name}")


def _fill_verb(parser: argparse.ArgumentParser, verb: Verb, work: str) -> None:
    parser.epilog = verb.epilog or None
    if "\n" in verb.epilog:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(work=f"cli.{work}", row=verb)
    _add(parser, parser, verb.rows)
    if verb.more:
        _add(parser, parser, named(verb.more)())


def _add(parser: argparse.ArgumentParser, place: Any, rows: Rows) -> None:
    for one in rows:
        if isinstance(one, Option):
            _add_option(place, one)
        elif one.excludes:
            is_needed = one.excludes == "all but one"
            _add(parser, place.add_mutually_exclusive_group(required=is_needed), one.options)
        else:
            _add(parser, parser.add_argument_group(one.title), one.options)


def _add_option(place: Any, row: Option) -> None:
    default = environ.get(row.variable) or row.nothing
    more: dict[str, Any] = {"default": default, "help": _help(row), "dest": row.attribute}
    if row.is_alone:
        action = "count" if row.default == 0 and row.default is not None else "store_true"
        more["action"] = "store_false" if row.default is True else action
    else:
        more |= {"metavar": row.value or None, "type": _read(reader(row))}
    if row.flags:
        more["required"] = row.is_needed and default is None
        more |= {"action": "append"} if row.is_repeated else {}
    elif row.usage.startswith("["):
        more["nargs"] = "*" if row.is_repeated else "?"
    else:
        more["nargs"] = "+" if row.is_repeated else None
    action = place.add_argument(*row.flags, **more)
    if row.choices:
        # Now, because add_argument would read them.
        action.choices = _Choices(row.choices) if isinstance(row.choices, str) else row.choices
    if row.names:
        action.completer = lambda **_: _names(row.names)


class _Choices(Sequence[str]):
    """What ``module:name`` holds, which is loaded where somebody asks for it."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __getitem__(self, place: Any) -> Any:
        return list(named(self._where))[place]

    def __len__(self) -> int:
        return len(named(self._where))


def _help(row: Option) -> str:
    """With the default, if that is a text or a number."""
    if row.is_alone or row.default == "" or not isinstance(row.default, str | int | float):
        return row.help
    return f"{row.help}; default: %(default)s".removeprefix("; ")


def _read(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """What argparse calls: an error is one sentence."""
    if parse in _PLAIN:
        return parse

    def read(text: str) -> Any:
        try:
            return parse(text)
        except (ValueError, UtvmError) as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def _names(where: str) -> Sequence[str]:
    try:
        return list(named(where)())
    except UtvmError:  # a variable that names a folder which is not there
        return []


def collect(args: argparse.Namespace) -> None:
    """Make of the values of repeated options what they are together. Raises UsageError."""
    for row in rows_in(args.row.rows):
        if row.collect is not None:
            setattr(args, row.attribute, row.collect(getattr(args, row.attribute)))


def taken(args: argparse.Namespace, rows: Rows) -> dict[str, Any]:
    """The values of these rows, by the keywords of Python."""
    return {row.attribute: getattr(args, row.attribute) for row in rows_in(rows)}


def given(args: argparse.Namespace, rows: Rows) -> list[str]:
    """The flags of those of these rows whose values are not the defaults."""
    found = [(row, getattr(args, row.attribute)) for row in rows_in(rows)]
    return [row.flags[-1] for row, value in found if (value or None) != (row.nothing or None)]


def as_flags(message: str, rows: Rows) -> str:
    """What a function says, for the command line: ``scheme='mixed'`` becomes --scheme mixed.

    ``scheme=`` becomes --scheme, and so does a keyword with an underscore.
    """
    for row in rows_in(rows):

        def told(found: re.Match[str], flag: str = (row.flags or [""])[-1]) -> str:
            return flag if found[1] in (None, "", "True") else f"{flag} {found[1]}"

        if row.flags:
            value = r"(?:='?([\w-]*)'?)" + "?" * ("_" in row.attribute)
            form = rf"(?<![\w./-]){row.attribute}(?![\w./-]){value}"
            message = re.sub(form, told, message)
    return message
