"""utvm.toml: the model, the board and the options that verbs take where the command line has none.

It may come with a folder that somebody else wrote. So it can say what to compile and how, and can
name no program, no code, no server and no file to write.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base.errors import BoardError, UtvmError
from utvm_deploy.base.toml_table import Table, did_you_mean, read_toml
from utvm_deploy.cli.options.table import IN_FILE
from utvm_deploy.service.client.session_server import SCHEME

FILE = "utvm.toml"
#: Options that go without a MODEL.
_WITHOUT_MODEL = ("--supported", "--check")


@dataclass(frozen=True)
class Settings:
    """What the file says: a key is an option without dashes, or "model"."""

    values: Mapping[str, str | bool | tuple[str, ...]]


def read_settings(folder: Path = Path()) -> Settings | None:
    """The file of ``folder``, or None if it has none. Raises UtvmError for a wrong file."""
    file = folder / FILE
    if not file.exists():
        return None
    try:
        return Settings(_values(read_toml(file)))
    except BoardError as error:  # how the reader of tables names each mistake
        raise UtvmError(str(error)) from error


def _values(top: Table) -> dict[str, str | bool | tuple[str, ...]]:
    values: dict[str, str | bool | tuple[str, ...]] = {
        key: top.text(key) for key in ("model", "board", "records") if top.has(key)
    }
    if str(values.get("board", "")).startswith(SCHEME):
        raise top.error("board", "a server is named on the command line only; give --board there")
    table = top.table("options") if top.has("options") else None
    for key in table.keys_present if table is not None else ():
        assert table is not None
        if key not in IN_FILE:
            hint = did_you_mean(key, IN_FILE) or f"; it may have {', '.join(sorted(IN_FILE))}"
            raise table.error(key, f"{FILE} cannot set it{hint}")
        values[key] = table.option(key)
    top.finish()
    return values


def set_defaults(
    parser: argparse.ArgumentParser, settings: Settings, argv: Sequence[str]
) -> list[argparse.Action]:
    """Make what the file says the default of ``parser``, which is that of one verb.

    Returns what has another default now. A variable of the environment counts more than the file.
    Raises UtvmError for a value that the option refuses.
    """
    done = []
    for action in parser._actions:
        key = _key(action)
        if key not in settings.values or (key == "board" and os.environ.get("UTVM_BOARD")):
            continue
        if key == "model" and any(option in argv for option in _WITHOUT_MODEL):
            continue
        if key == "board" and "--supported" in argv:
            continue
        given = settings.values[key]
        default: object = action.const
        if isinstance(given, str) != (action.nargs != 0):
            raise UtvmError(f"{FILE}: {key}: must be {'true' if action.nargs == 0 else 'a value'}")
        if isinstance(given, str):
            default = _converted(parser, action, given)
        if action.nargs == "+":
            default, action.nargs = [default], "*"
        elif key == "model":
            action.nargs = "?"
        elif isinstance(action, argparse._AppendAction):
            default = [default]
        action.default, action.required = default, False
        for group in parser._mutually_exclusive_groups:
            if action in group._group_actions:
                group.required = False
        done.append(action)
    return done


def _key(action: argparse.Action) -> str:
    if action.option_strings:
        return action.option_strings[-1].lstrip("-")
    return "model" if action.dest in ("model", "models") else ""


def _converted(parser: argparse.ArgumentParser, action: argparse.Action, text: str) -> object:
    try:
        value = parser._get_value(action, text)
        if action.choices is not None and value not in action.choices:
            known = ", ".join(map(str, action.choices))
            raise argparse.ArgumentError(action, f"{text!r} is not one of {known}")
    except argparse.ArgumentError as error:
        raise UtvmError(f"{FILE}: {_key(action)}: {error.message}") from error
    return value


def used(args: argparse.Namespace, actions: Sequence[argparse.Action]) -> str:
    """The sentence that says which settings of the file count, or nothing."""
    told = []
    for action in actions:
        if getattr(args, action.dest) is not action.default:
            continue
        value = action.default[0] if isinstance(action.default, list) else action.default
        what = action.option_strings[-1] if action.option_strings else "MODEL"
        told.append(what if action.nargs == 0 else f"{what} {value}")
    return f"{FILE}: {', '.join(told)}" if told else ""
