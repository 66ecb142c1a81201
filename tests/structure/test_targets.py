"""What belongs to one architecture is said below ``targets/``, and what is generic asks there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from utvm_deploy.targets.table import CORES, TARGETS

PACKAGE = Path(__file__).resolve().parents[2] / "utvm_deploy"
#: Where architectures may be named: the targets, the families of kernels and intrinsics that they
#: name, the assembler of these, and figures that were recorded on one core.
THEIR_PLACES = (
    "targets/",
    "kernels/isa/",
    *(f"kernels/native/{family}/" for family in ("dsp", "fpu", "mve", "thumb")),
    "kernels/intrinsics/dsp_dot.py",
    "results/comparing/recorded.py",
)
#: The core "host" has its name from the board and the template of this computer.
CORE_NAMES = "|".join(re.escape(core) for core in CORES if core != "host")
WORDS = re.compile(rf"\bis_arm\b|armv\d|cortex|arm-none-eabi|\bEM_\w+|{CORE_NAMES}", re.IGNORECASE)
#: An import of what belongs to one architecture.
OWN_MODULE = re.compile(rf"utvm_deploy\.targets\.({'|'.join(TARGETS)})\b")


def words_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names, attributes, texts and imported modules of the code; docstrings are none."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.lineno, node.value


def test_no_architecture_is_named_outside_its_place() -> None:
    found = []
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        text = path.read_text()
        # To parse all modules takes seconds.
        if not name.startswith(THEIR_PLACES) and (WORDS.search(text) or OWN_MODULE.search(text)):
            words = words_of(ast.parse(text))
            found += [
                f"{name}:{line}: {word}"
                for line, word in words
                if WORDS.search(word) or OWN_MODULE.match(word)
            ]
    assert not found, "ask the target (targets/contract/target.py):\n" + "\n".join(found)


def test_each_target_is_a_folder_with_a_target() -> None:
    folders = {path.parent.name for path in (PACKAGE / "targets").glob("*/target.py")}
    assert folders - {"contract"} == set(TARGETS)
