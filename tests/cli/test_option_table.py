"""One table has all options: of the command line, of the functions and of utvm.toml."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import utvm_deploy
from utvm_deploy import models
from utvm_deploy.api.report_function import report
from utvm_deploy.api.steps import Chosen, Connected
from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.cli.options.option import Option, named, rows_in
from utvm_deploy.cli.options.table import CMSIS_NN_LIBRARY, ETHOS_U, ETHOS_U_DRIVER, IN_FILE
from utvm_deploy.cli.verbs import VERBS, Verb

#: Keywords of what is chosen of a model.
CHOSEN = Chosen.__annotations__
PACKAGE = Path(utvm_deploy.__file__).parent
#: The verbs that a function of `utvm_deploy` does.
FUNCTIONS = {
    **{name: getattr(utvm_deploy, name) for name in ("bench", "bundle", "compile", "inspect")},
    **{name: getattr(utvm_deploy, name) for name in ("memory", "profile", "quantize", "tune")},
    "eval": utvm_deploy.evaluate,
    "report": report,
    "train": utvm_deploy.train,
    "verify": utvm_deploy.verify,
}
#: Keywords without a row, and why; of one function, or of all.
#: Rows that say where a library is, or become a plug-in.
FACTS = (CMSIS_NN_LIBRARY, ETHOS_U, ETHOS_U_DRIVER)
NO_ROW = {
    "progress": "a function that is called",
    "dump": "a function that is called; --dump names stages",
    "watch": "a function that is called",
    "check_needs": "a function that is called",
    "check_plan": "a function that is called",
    "on_epoch": "a function that is called",
    "server": "--board utvm://HOST/BOARD says it",
    "example_inputs": "of a PyTorch module, which no file is",
    "given_board": "what --board says, as it is",
    "library": "what --cmsis-nn names, with --kernels cmsis-nn",
}


def rows(verb: Verb) -> Mapping[str, Option]:
    return {row.attribute: row for row in rows_in(verb.rows)}


def parameters(name: str) -> Mapping[str, inspect.Parameter]:
    """The keywords of a verb's function, with those of the functions that it passes them on to."""
    own = inspect.signature(FUNCTIONS[name]).parameters
    passed = [str(one.annotation) for one in own.values() if one.kind is one.VAR_KEYWORD]
    compiled = inspect.signature(utvm_deploy.compile).parameters
    connected = inspect.signature(utvm_deploy.connect).parameters
    more: dict[str, inspect.Parameter] = {}
    if passed:
        more |= {key: compiled[key] for key in (compiled if passed == ["Any"] else CHOSEN)}
    if name == "report" or passed == ["Unpack[ChosenConnected]"]:
        more |= {key: connected[key] for key in Connected.__annotations__}
    return {key: one for key, one in {**more, **own}.items() if one.kind is one.KEYWORD_ONLY}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_keyword_has_its_row_and_each_row_its_keyword(name: str) -> None:
    keywords, verb = parameters(name), VERBS[name]
    missing = set(keywords) - set(rows(verb)) - set(NO_ROW)
    if name == "bench":
        missing -= {"number_format"}  # CMSIS-NN has no layers of float32 to compare with
    if name == "train":
        missing -= {"number_format", "states", "stream", "image_input"}  # nothing of these trains
    assert not missing, f"{missing} of {name}: the table has no row, and NO_ROW says no reason"
    taken = {row.attribute for row in rows_in(verb.taken) if row not in FACTS}
    positional = set(inspect.signature(FUNCTIONS[name]).parameters)
    assert taken <= set(keywords) | positional, f"{name}() has no such keyword"
    assert taken


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_defaults_are_those_of_the_functions(name: str) -> None:
    keywords = parameters(name)
    for row in rows_in(VERBS[name].taken):
        if row.attribute in keywords:
            default: Any = keywords[row.attribute].default
            assert (row.nothing or None) == (default or None), row.usage


def test_every_row_is_good() -> None:
    every = [
        row for verb in VERBS.values() for one in (verb, *verb.actions) for row in rows_in(one.rows)
    ]
    assert {row.name for row in every} >= IN_FILE
    page = (data_dir("docs") / "guides" / "command-line.md").read_text("utf-8")
    told = page.partition("- `[options]` may have ")[2].partition("Each has")[0]
    assert set(re.findall(r"`(.+?)`", told)) == IN_FILE
    for row in every:
        assert re.fullmatch(r"(-\w, )?(--?[a-z][\w-]*)?( ?[^-\s]\S*)?", row.usage), row.usage
        choices = named(row.choices) if isinstance(row.choices, str) else row.choices
        assert not choices or row.default is None or row.default in choices, row.usage


def test_no_option_is_declared_elsewhere() -> None:
    declaring = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\.add_argument\(", path.read_text())
    }
    # main.py has --version, which is of no verb; the others are no part of the command `utvm`.
    assert declaring <= {"cli/parser.py", "cli/main.py"}, declaring
    options = {
        path.relative_to(PACKAGE).as_posix()
        for folder in ("api", "cli")
        for path in (PACKAGE / folder).rglob("*.py")
        if re.search(r"\bOption\(", path.read_text())
    }
    # Those of a server's jobs come from the server's own rows.
    assert options == {"cli/options/table.py", "cli/server_verbs/job_options.py"}


@pytest.mark.parametrize(
    ("function", "more"),
    [
        (utvm_deploy.inspect, ()),
        (utvm_deploy.convert, ()),
        (utvm_deploy.estimate, ("host",)),
        (utvm_deploy.memory, ("host",)),
        (utvm_deploy.profile, ("host",)),
        (utvm_deploy.verify, ("host",)),
        (utvm_deploy.bench, ("mps2_an500",)),
    ],
)
def test_a_keyword_that_does_not_exist_is_named_with_a_near_one(function: Any, more: Any) -> None:
    with pytest.raises(UsageError, match="no keyword 'signatur'; did you mean 'signature'"):
        function(models.path("digits"), *more, signatur="serving_default")


def test_keywords_of_compile_have_near_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no keyword 'optimise'; did you mean 'optimize'"):
        utvm_deploy.bundle(models.path("digits"), "host", tmp_path / "b", optimise="size")
    unknown: Any = {"trials": 1, "zzz": 2}
    with pytest.raises(UsageError, match="no keyword 'zzz'; leave it out"):
        utvm_deploy.tune(models.path("digits"), "host", tmp_path / "r.jsonl", **unknown)
