"""Functions import heavy dependencies, and what loads them; everything else is imported above."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Dependencies that take long to load, or that not everybody has installed.
HEAVY = {
    *("ai_edge_litert", "ai_edge_quantizer", "argcomplete", "cryptography", "dask", "distributed"),
    *("elftools", "fastapi", "httpx", "jinja2", "markupsafe", "onnx", "onnxruntime", "pandas"),
    *("rich", "serial", "ssl", "starlette", "torch", "torchao", "tvm", "tvm_ffi", "uvicorn"),
    *("wasmtime", "websockets"),
}
#: Imports in functions that save no heavy dependency.
LATE = {
    # Almost nothing is loaded until Ctrl-C has its handler.
    ("utvm_deploy.cli.entry", "mmap"),
    # All kernels, which only the references of Relax models need in the child process.
    ("utvm_deploy.oracle.reference", "utvm_deploy.oracle.relax_reference"),
    # The same, which only the code of some backends needs; `utvm boards` loads this module, too.
    ("utvm_deploy.backends.interface", "utvm_deploy.kernels.choose.lowering"),
}
#: The front of the package is cheap to import, whatever it offers.
FRONT = "utvm_deploy"

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "utvm_deploy").rglob("*.py")
}


@cache
def imports(module: str) -> frozenset[tuple[int, str, bool]]:
    """Line and name of each import that runs, and whether a function runs it."""
    return frozenset(_below(ast.parse(MODULES[module].read_text()), is_late=False))


def _below(node: ast.AST, is_late: bool) -> Iterator[tuple[int, str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):  # holds no import, and is most of the tree
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from ((child.lineno, alias.name, is_late) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            for alias in child.names:
                name = f"{child.module}.{alias.name}"
                yield child.lineno, name if name in MODULES else str(child.module), is_late
        yield from _below(child, is_late or isinstance(child, ast.FunctionDef))


@cache
def loads(module: str) -> frozenset[str]:
    """The modules and dependencies that importing a module loads."""
    waiting, seen = [module], set[str]()
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            parts = one.split(".")
            waiting += [".".join(parts[:end]) for end in range(1, len(parts))]
            if one in MODULES:
                waiting += [name for _, name, is_late in imports(one) if not is_late]
    return frozenset(seen)


def late_imports() -> Iterator[tuple[str, int, str]]:
    for module in sorted(MODULES):
        for line, name, is_late in sorted(imports(module)):
            if is_late and module != FRONT:
                yield module, line, name


def test_functions_import_only_what_is_heavy() -> None:
    wrong = [
        f"{MODULES[module].relative_to(ROOT)}:{line}: import {name} above"
        for module, line, name in late_imports()
        if name.split(".")[0] not in HEAVY
        and (module, name) not in LATE
        and not (loads(name) - loads(module)) & HEAVY
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_list_of_late_imports_is_short_and_used() -> None:
    assert {(module, name) for module, _, name in late_imports()} >= LATE
    # Those that save a heavy dependency need no row.
    assert not [pair for pair in LATE if (loads(pair[1]) - loads(pair[0])) & HEAVY]


def test_no_module_needs_itself_to_be_imported() -> None:
    # Types are apart: nothing runs for them.
    below = {one: {name for _, name, _ in imports(one) if name in MODULES} for one in MODULES}
    below.pop(FRONT)
    while ends := [one for one, names in below.items() if not names & below.keys()]:
        for one in ends:
            del below[one]
    assert not below, f"imports in a circle among {sorted(below)}"
