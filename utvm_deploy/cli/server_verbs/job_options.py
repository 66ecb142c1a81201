"""The options of jobs, as `utvm submit` takes them."""

from __future__ import annotations

from utvm_deploy.cli.options import table
from utvm_deploy.cli.options.kinds import number_or_word
from utvm_deploy.cli.options.option import Group, Option, Rows, rows_in
from utvm_deploy.service.server.jobs import options
from utvm_deploy.service.server.jobs.verbs import VERBS

#: Before the names of their attributes.
PREFIX = "option_"
#: Options of this verb: a job's option of such a name is given by --option.
_OURS = {row.name for row in (table.OPTION, *rows_in((*table.COMMON, *table.SUBMIT)))}


def rows() -> Rows:
    """Each name once, with the verbs that have it."""
    first: dict[str, options.Option] = {}
    found: dict[options.Option, list[str]] = {}
    for verb in VERBS.values():
        for option in verb.options:
            if option.name not in _OURS:
                found.setdefault(first.setdefault(option.name, option), []).append(verb.name)
    told = (_row(option, f"{option.help} ({', '.join(of)})") for option, of in found.items())
    return (Group("options of the verb", (table.OPTION, *told)),)


def _row(option: options.Option, help: str) -> Option:
    values = {
        # The key of a job may look like a number.
        "file": " JOB" if option.member else " FILE",
        "text": " TEXT",
        "integer": " N",
    }
    return Option(
        f"--{option.name}{values.get(option.kind, '')}",
        help.replace("%", "%%"),
        parse=number_or_word if option.kind == "integer" else None,
        choices=option.choices,
        keyword=f"{PREFIX}{option.name}",
    )
