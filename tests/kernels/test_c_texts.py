"""The C texts of kernels: their placeholders, and what they need of a compiler."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from utvm_deploy import kernels
from utvm_deploy.kernels.contract.c_texts import replaced
from utvm_deploy.kernels.contract.requantization import header

MODULES = [
    path
    for room in ("isa", "native")
    for path in sorted((Path(kernels.__file__).parent / room).rglob("*.py"))
]


def test_placeholders_are_replaced_one_after_the_other() -> None:
    text = replaced("int8_t f(TYPE);", ("TYPE", "int8_t", 1), ("int8_t", "int16_t", 2))
    assert text == "int16_t f(int16_t);"


@pytest.mark.parametrize(("times", "text"), [(1, ""), (1, "ROWS ROWS"), (0, "ROWS")])
def test_a_placeholder_that_is_missing_or_too_often_there_is_an_error(
    times: int, text: str
) -> None:
    with pytest.raises(ValueError, match=f"'ROWS' stands {text.count('ROWS')} times"):
        replaced(text, ("ROWS", "5", times))


def test_native_kernels_replace_nothing_unchecked() -> None:
    """``str.replace`` does nothing where a C text has lost the placeholder."""
    assert MODULES
    calls = [
        f"{path.name}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "replace"
    ]
    assert not calls, "call c_texts.replaced instead"


@pytest.mark.tools
@pytest.mark.parametrize(
    ("theirs", "other"),
    [("(int32_t)-3 >> 1", "(uint32_t)-3 >> 1"), ("(int32_t)0xFFFFFFFEu", "INT32_MAX")],
)
@pytest.mark.parametrize("compiler", ["gcc", "g++", "clang", "clang++"])
def test_a_compiler_that_shifts_or_converts_otherwise_refuses_the_c(
    compiler: str, theirs: str, other: str
) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    language = "c++" if compiler.endswith("++") else "c"
    command = (compiler, "-x", language, "-fsyntax-only", "-Wno-unused-function", "-Werror", "-")
    text = "#include <stdint.h>\n" + header()
    for code, is_taken in ((text, True), (replaced(text, (theirs, other, 1)), False)):
        done = subprocess.run(command, input=code, text=True, capture_output=True, timeout=60)
        assert (done.returncode == 0) == is_taken, done.stderr
    assert "utvm_shifts_are_arithmetic_and_conversions_wrap" in done.stderr
