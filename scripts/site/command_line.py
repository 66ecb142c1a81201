"""Each verb of utvm as a page of the site, from the parsers that read the command line."""

from __future__ import annotations

import argparse
import html
import os
import re
from collections.abc import Iterator

from utvm_deploy.cli.main import build_parser
from utvm_deploy.cli.verbs import VERBS

#: How wide the lines of usage are.
_COLUMNS = "90"


def pages() -> dict[str, str]:
    """The Markdown of a page for each verb."""
    # Both change what the parsers say.
    before = {
        name: os.environ.pop(name, None) for name in ("UTVM_BOARD", "UTVM_TEMPLATE", "COLUMNS")
    }
    os.environ["COLUMNS"] = _COLUMNS
    try:
        (action,) = (one for one in build_parser()._actions if one.dest == "verb")
        assert isinstance(action, argparse._SubParsersAction)
        return {verb: "\n".join(_page(action.choices[verb], 1)) for verb in VERBS}
    finally:
        del os.environ["COLUMNS"]
        os.environ.update({name: value for name, value in before.items() if value is not None})


def _page(parser: argparse.ArgumentParser, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {parser.prog}\n"
    if parser.description:
        text = _escaped(parser.description)
        yield f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}\n"
    yield f"```text\n{parser.format_usage().removeprefix('usage: ').rstrip()}\n```\n"
    for group in parser._action_groups:
        actions = [one for one in group._group_actions if one.help != argparse.SUPPRESS]
        below = [one for one in actions if isinstance(one, argparse._SubParsersAction)]
        rows = [one for one in actions if one not in below and "--help" not in one.option_strings]
        if rows:
            yield f"{'#' * (depth + 1)} {(group.title or 'options').capitalize()}\n"
            yield "| argument | what it does |\n|---|---|"
            yield from (_row(parser, one) for one in rows)
            yield ""
        for verbs in below:
            for one in verbs.choices.values():
                yield from _page(one, depth + 1)


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = parser._get_formatter()
    said = [_escaped(formatter._expand_help(action))] if action.help else []
    if action.choices and action.metavar:
        said.append(f"One of: {', '.join(map(str, action.choices))}.")
    if action.option_strings and action.required:
        said.append("**Required.**")
    # In a cell, Markdown's own code would show the backslash before a "|".
    invocation = html.escape(formatter._format_action_invocation(action), quote=False)
    cells = (f"<code>{invocation.replace('|', '&#124;')}</code>", " ".join(said))
    return f"| {cells[0]} | {cells[1].replace('|', chr(92) + '|')} |"


def _escaped(text: str) -> str:
    """Text without Markdown but for what is between backticks."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\\*_<\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)
