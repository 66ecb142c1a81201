"""Answers a shell that asks what can follow on its line (`utvm completion`)."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable

import argcomplete

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.cli.kept_parsers import kept_parser
from utvm_deploy.cli.verbs import VERBS

#: Set by the script that `utvm completion` prints.
ASKED = "_ARGCOMPLETE"


def complete() -> None:
    """Write what can follow the line of ``COMP_LINE`` where the shell reads it, and end.

    The module of the line's verb is imported only where its arguments are not kept yet.
    """
    words = os.environ.get("COMP_LINE", "")[: _point()].split()
    verb = words[1] if len(words) > 1 and words[1] in VERBS else ""
    parser = kept_parser(verb, lambda: _built(verb)) if verb else _verbs_alone()
    for action in _actions(parser):
        choices = _names(action, verb)
        if choices is not None:
            setattr(action, "completer", choices)  # noqa: B010 (argparse knows no such attribute)
    argcomplete.autocomplete(parser)


def _point() -> int:
    text = os.environ.get("COMP_POINT", "")
    return int(text) if text.isdigit() else len(os.environ.get("COMP_LINE", ""))


def _built(verb: str) -> argparse.ArgumentParser:
    from utvm_deploy.cli.main import build_parser

    return build_parser(verb)


def _verbs_alone() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="utvm")
    verbs = parser.add_subparsers()
    for verb in VERBS:
        verbs.add_parser(verb)
    return parser


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    found = []
    for action in parser._actions:
        found.append(action)
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found += _actions(below)
    return found


def _names(action: argparse.Action, verb: str) -> Callable[..., list[str]] | None:
    """What completes the value of ``action``, where that is not a file."""
    is_board = "--board" in action.option_strings or "--from" in action.option_strings
    if is_board or (verb == "boards" and action.dest == "name"):
        return lambda **_: _found(_boards)
    if verb == "models" and action.dest == "name":
        return lambda **_: _found(_models)
    if verb == "docs" and action.dest == "words":
        return lambda **_: _found(_pages)
    return None


def _boards() -> Iterable[str]:
    from utvm_deploy.boards.board import board_names

    return board_names()


def _models() -> Iterable[str]:
    from utvm_deploy import models

    return models.names()


def _pages() -> Iterable[str]:
    from utvm_deploy.cli.doc_pages import pages

    return pages()


def _found(names: Callable[[], Iterable[str]]) -> list[str]:
    try:
        return list(names())
    except UtvmError:  # a variable that names a folder which is not there
        return []
