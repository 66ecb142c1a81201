"""The arguments of each verb as a file in the cache: completion then loads no module of a verb.

The modules of most verbs load the compiler, which takes a second for each press of the tabulator.
What is kept is what completion asks for: options, choices, numbers of values, help and what
excludes what.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import utvm_deploy
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.files import write_text
from utvm_deploy.base.paths import cache_dir

_PACKAGE = Path(utvm_deploy.__file__).parent
_NONE = -1


def kept_parser(verb: str, build: Callable[[], argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The parser of ``verb`` for completion: from the cache, or else ``build()``, which is kept."""
    key = _key()
    try:
        file = cache_dir() / "completion" / f"{verb}.json"
    except UtvmError:  # there is no folder to keep it in
        return build()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["key"] == key:
            return parser_of(kept["parser"])
    parser = build()
    with contextlib.suppress(OSError, UtvmError):  # then the next press builds it again
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps({"key": key, "parser": described(parser)}))
    return parser


def _key() -> str:
    """Another one after any source of the package changed."""
    found = hashlib.sha256(f"{utvm_deploy.__version__} {sys.version}".encode())
    for path, state in sorted(_sources(str(_PACKAGE))):
        found.update(f"{path} {state.st_mtime_ns} {state.st_size}\n".encode())
    return found.hexdigest()


def _sources(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path, entry.stat()
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                yield from _sources(entry.path)


def described(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """What completion needs of ``parser``, as JSON has it."""
    groups = [list(map(id, one._group_actions)) for one in parser._mutually_exclusive_groups]
    return {
        "actions": [
            {
                "options": list(action.option_strings),
                "dest": action.dest,
                "nargs": action.nargs,
                "help": action.help,
                "group": next(
                    (place for place, ids in enumerate(groups) if id(action) in ids), _NONE
                ),
                **_choices_of(action),
            }
            for action in parser._actions
        ]
    }


def _choices_of(action: argparse.Action) -> dict[str, Any]:
    if isinstance(action, argparse._SubParsersAction):
        helps = {one.dest: one.help for one in action._choices_actions}
        return {
            "parsers": {
                name: {**described(below), "help": helps.get(name)}
                for name, below in action.choices.items()
            }
        }
    return {"choices": None if action.choices is None else list(map(str, action.choices))}


def parser_of(told: dict[str, Any]) -> argparse.ArgumentParser:
    """A parser of which completion sees what ``described`` saw; it converts and checks nothing."""
    parser = argparse.ArgumentParser(prog="utvm", add_help=False)
    _fill(parser, told)
    return parser


def _fill(parser: argparse.ArgumentParser, told: dict[str, Any]) -> None:
    groups: dict[int, Any] = {}
    for one in told["actions"]:
        if "parsers" in one:
            below = parser.add_subparsers(dest=one["dest"], help=one["help"])
            for name, inner in one["parsers"].items():
                _fill(below.add_parser(name, add_help=False, help=inner["help"]), inner)
            continue
        place = parser
        if one["group"] != _NONE:
            if one["group"] not in groups:
                groups[one["group"]] = parser.add_mutually_exclusive_group()
            place = groups[one["group"]]
        options = one["options"]
        more: dict[str, Any] = {"help": one["help"]}
        if one["nargs"] == 0:
            more["action"] = "store_true"
        else:
            more |= {"nargs": one["nargs"], "choices": one["choices"]}
        if options:
            more["dest"] = one["dest"]
        place.add_argument(*(options or [one["dest"]]), **more)
