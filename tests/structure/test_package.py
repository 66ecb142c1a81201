"""The wheel holds everything that an installed utvm needs, and nothing else."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy.cli.doc_pages import FIRST_PAGES, FOLDERS, PROJECT_FILES

ROOT = Path(__file__).parents[2]
DATA = ("boards", "templates", "models")
#: The pages of the documentation that `utvm docs` prints.
PAGES = (
    *(f"docs/{name}.md" for name in FIRST_PAGES),
    *(f"docs/{folder}" for folder in FOLDERS),
    *PROJECT_FILES,
)
#: How long a build or a command may take on a loaded machine.
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # `pip wheel .` does the same in an environment that it downloads first.
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    (path,) = folder.glob("*.whl")
    return path


def files_under(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_is_complete(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"utvm_deploy/{name}" for name in files_under(ROOT / "utvm_deploy")}
    for kind in DATA:
        wanted |= {f"utvm_deploy/data/{kind}/{name}" for name in files_under(ROOT / kind)}
    for page in PAGES:
        paths = files_under(ROOT / page) if (ROOT / page).is_dir() else {""}
        wanted |= {f"utvm_deploy/data/{page}/{path}".rstrip("/") for path in paths}
    assert "utvm_deploy/py.typed" in wanted
    assert {name for name in names if ".dist-info/" not in name} == wanted


def test_the_wheel_works_without_the_checkout_or_any_tool(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    (tmp_path / "model.tflite").write_bytes((ROOT / "models" / "digits.tflite").read_bytes())
    board = ["--board", "mps2_an500"]
    verbs = [
        ["boards"],
        ["models", "get", "digits"],
        ["inspect", "digits.tflite"],
        ["inspect", "model.tflite"],
        ["compile", "model.tflite", *board, "-o", "model.tar"],
        ["bundle", "model.tflite", *board, "-o", "out"],
        ["doctor"],
        ["docs"],
        ["docs", "security"],
        ["docs", "arena"],
    ]
    # One process for all: most of its time is loading TVM.
    code = f"""
import utvm_deploy
from utvm_deploy.cli.main import main
assert utvm_deploy.__file__.startswith({str(site)!r}), utvm_deploy.__file__
try:
    main(["--version"])
except SystemExit as end:
    assert end.code == 0
for argv in {verbs!r}:
    assert main(argv) == 0, argv
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"utvm {utvm_deploy.__version__}\n")


def test_no_class_needs_python_3_11() -> None:
    # NamedTuple and Generic together: Python 3.10 refuses to import it, and neither ruff nor mypy
    # says so when they are told of Python 3.10.
    for path in (ROOT / "utvm_deploy").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "NamedTuple" not in text or "Generic" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
                assert not {"NamedTuple", "Generic"} <= bases, f"{path}: {node.name}"
