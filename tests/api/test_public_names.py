"""``dir(utvm_deploy)`` and ``help`` of what it lists."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

import utvm_deploy

FUNCTIONS = (
    *("bench", "board_names", "bundle", "compare", "compile", "connect", "convert", "estimate"),
    *(
        "evaluate",
        "from_relax",
        "inspect",
        "load_board",
        "memory",
        "profile",
        "quantize",
        "train",
        "trainable",
        "tune",
        "verify",
    ),
)
CLASSES = ("Board", "CompiledModel", "Device", "DeviceModel", "UtvmError")
PACKAGES = ("intrinsics", "models", "number_formats", "torch")
#: Words of which a docstring must have one, if the function takes or gives arrays or figures.
UNITS = re.compile(r"bytes|cycles|samples|percent|shape|ticks|axis|C symbol|Times|dB")


def test_dir_shows_what_is_public_and_nothing_else() -> None:
    wanted = sorted((*FUNCTIONS, *CLASSES, *PACKAGES))
    assert dir(utvm_deploy) == wanted == sorted(utvm_deploy.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+", utvm_deploy.__version__)
    with pytest.raises(AttributeError, match="nosuch"):
        _ = utvm_deploy.nosuch


@pytest.mark.slow
def test_dir_is_the_same_after_everything_was_used() -> None:
    code = """
import utvm_deploy
before = dir(utvm_deploy)
from utvm_deploy import *
from utvm_deploy.cli import main
assert dir(utvm_deploy) == before
assert {"compile", "models", "torch", "Device"} <= globals().keys() & set(before)
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_of_a_function_mentions_parameters_units_and_errors(name: str) -> None:
    function = getattr(utvm_deploy, name)
    told = inspect.getdoc(function) or ""
    parameters = inspect.signature(function).parameters
    missing = [one for one in parameters if not re.search(rf"``{one}(``|\()", told)]
    assert not missing, f"help({name}) does not mention {missing}"
    if name != "board_names":
        assert re.search(r"Raises? .*Error", told, re.S), f"help({name}) names no error"
        assert UNITS.search(told), f"help({name}) names no unit and no shape"


@pytest.mark.parametrize("name", [*CLASSES, *PACKAGES])
def test_help_of_the_others_says_what_they_are(name: str) -> None:
    told = inspect.getdoc(getattr(utvm_deploy, name)) or ""
    assert len(told) > 20, f"help({name}) says nothing"


@pytest.mark.parametrize("name", ["CompiledModel", "Device", "DeviceModel"])
def test_public_methods_say_what_they_do(name: str) -> None:
    for member, one in inspect.getmembers(getattr(utvm_deploy, name)):
        is_public = not member.startswith("_")
        if is_public and (inspect.isfunction(one) or isinstance(one, property)):
            assert inspect.getdoc(one), f"{name}.{member} has no docstring"
