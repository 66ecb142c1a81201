"""Imports point downward only, and each heavy dependency has one door."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "utvm_deploy"

#: From the top down; units in one row do not import each other.
LAYERS = (
    ("cli",),
    ("tune", "silicon_kit"),
    ("bench", "bundle"),
    ("device", "doctor"),
    ("probe",),
    ("project",),
    ("compiler", "link"),
    ("kernels", "frontend", "emulator"),
    ("graph",),
    ("records",),
    ("candidate",),
    ("board",),
    ("board_probe", "board_trust"),
    ("board_facts",),
    ("cores", "bench_file", "probe_programs", "safe_arguments"),
    ("cache",),
    ("process", "toml_table", "progress"),
    ("files",),
    ("paths", "temporary"),
    ("errors",),
)
#: Dependency -> the only units (or modules) that may import it.
DOORS = {
    "tvm": {"compiler", "kernels", "tune"},
    "tflite": {"frontend.tflite", "frontend.tflite_write"},
    "flatbuffers": {"frontend.tflite_write"},
    "onnx": {"frontend.onnx_model"},
    "onnxruntime": {"bench.origin"},
    "torch": {"frontend.torch_export", "bench.origin"},
    "ai_edge_litert": {"bench.oracle"},
    "serial": {"link.stream"},
    "elftools": {"project"},
    "rich": {"cli.output"},
}

RANK = {unit: rank for rank, row in enumerate(LAYERS) for unit in row}
MODULES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    """Dotted, without the package's own name; empty for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every import of a file, those inside functions and TYPE_CHECKING blocks included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module is not None
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_down(path: Path) -> None:
    name = module_name(path)
    unit = name.split(".")[0]
    if unit in ("", "__main__"):  # the package's own front: may name everything
        return
    assert unit in RANK, f"{unit} has no place in LAYERS"
    for line, target in imports(path):
        parts = target.split(".")
        if parts[0] != "utvm_deploy" or len(parts) < 2:
            continue
        other = parts[1]
        if other == unit:
            continue
        if other not in RANK:  # a name of the package's front, such as utvm_deploy.compile
            assert unit == "cli" or other == "__version__", f"{path}:{line} imports {target}"
            continue
        assert RANK[other] > RANK[unit], (
            f"{path}:{line}: {unit} imports {other}, which is not below"
        )


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_dependencies_have_one_door(path: Path) -> None:
    name = module_name(path)
    for line, target in imports(path):
        allowed = DOORS.get(target.split(".")[0])
        if allowed is not None:
            fits = any(name == door or name.startswith(f"{door}.") for door in allowed)
            assert fits, f"{path}:{line} imports {target}; only {sorted(allowed)} may"


def test_importing_the_package_is_cheap() -> None:
    heavy = sorted({*DOORS, "numpy"})
    code = (
        "import sys, utvm_deploy; utvm_deploy.load_board('host');"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_board_is_named_in_code() -> None:
    root = PACKAGE.parent
    names = [path.stem for path in (root / "boards").glob("*.toml") if path.stem != "host"]
    assert names
    spellings = {spelling for name in names for spelling in (name, name.replace("_", "-"))}
    sources = [
        path
        for folder in (PACKAGE, root / "templates")
        for path in folder.rglob("*")
        if path.suffix in (".py", ".c", ".h", ".S", ".in", ".ld", ".txt", ".cmake")
    ]
    assert len(sources) > 40
    # Examples in docstrings are prose: what counts is code, so docstrings are cut out.
    code = {path.relative_to(root): without_docstrings(path) for path in sources}
    found = [f"{path}: {name}" for path, text in code.items() for name in spellings if name in text]
    assert not found


def without_docstrings(path: Path) -> str:
    text = path.read_text()
    if path.suffix != ".py":
        return text
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                text = text.replace(docstring, "")
    return text


def test_operator_tables_are_complete() -> None:
    from utvm_deploy.frontend.operators import IMPORTERS
    from utvm_deploy.graph.shapes import SHAPE_RULES
    from utvm_deploy.kernels.lowering import LOWERINGS

    assert set(IMPORTERS) == set(SHAPE_RULES) == set(LOWERINGS)
