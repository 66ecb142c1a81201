"""Imports point downward only, and each heavy dependency has one door."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "utvm_deploy"

#: From the top down; units in one row do not import each other. A unit is a package, without the
#: packages in it that have a place of their own.
LAYERS = (
    ("cli",),
    ("api",),
    ("cli.options",),
    ("results.reporting",),
    ("service.server",),
    ("service.cluster",),
    ("tuning", "silicon_kit", "results.runs"),
    ("results.comparing", "quality.precision"),
    ("torch",),
    (
        "results.profiling",
        "results.verifying",
        "results.inspecting",
        "results.estimating",
        "bundling",
        "quality.evaluating",
    ),
    ("results.pages",),
    ("device", "device.doctor"),
    ("quality.quantizing",),
    ("service.client",),
    ("device.probe",),
    ("project",),
    ("compiler", "device.link", "oracle"),
    ("backends.cmsis_nn",),
    ("backends",),
    ("intrinsics",),
    ("kernels", "frontend", "targets.emulator"),
    ("frontend.training",),
    ("frontend.relax", "frontend.onnx_rewrites"),
    ("quality.datasets",),
    ("graph",),
    ("records",),
    ("boards", "models"),
    ("targets",),
    ("base",),
)
#: The most packages of ``utvm_deploy``, and the most modules of a folder.
MOST_PACKAGES, MOST_MODULES = 24, 20
#: Of a function of the compiler.
MOST_LINES, MOST_PARAMETERS = 60, 8
#: Dependency -> the only units (or modules) that may import it.
DOORS = {
    "tomlkit": {"boards.new_boards.write"},
    "argcomplete": {"cli"},
    "tvm": {
        "compiler",
        "tuning",
        "kernels.contract",
        "kernels.intrinsics",
        "kernels.portable",
        "frontend.relax",
        "frontend.training",
        "intrinsics",
        "oracle.relax_reference",
    },
    "tflite": {
        "frontend.tflite_tables",
        "frontend.tflite_sparse",
        "frontend.tflite_tensors",
        "frontend.files.tflite_choice",
        "frontend.tflite_flat",
        "frontend.qdq.tflite_write",
    },
    "flatbuffers": {
        "frontend.tflite_flat",
        "frontend.files.tflite_schema",
        "frontend.qdq.tflite_write",
    },
    "onnx": {"quality.quantizing.onnx.file", "frontend.onnx.model"},
    "onnxruntime": {"oracle.origin", "quality.quantizing.onnx.runtime"},
    "torch": {
        "frontend.torch.export",
        "oracle.origin",
        "quality.quantizing.torch.calibration",
        "quality.quantizing.torch.decompositions",
        "quality.quantizing.torch.quantizer",
        "frontend.relax.from_torch",
        "frontend.relax.torch_spectra",
        "torch",
    },
    "torchao": {"quality.quantizing.torch.module", "quality.quantizing.torch.quantizer"},
    "ai_edge_litert": {
        "oracle.program",
        "quality.quantizing.tflite.calibrate",
        "frontend.files.tflite_chosen",
        "frontend.files.tflite_schema",
    },
    "ai_edge_quantizer": {"quality.quantizing.tflite.aeq"},
    "serial": {"device.link.stream"},
    "wasmtime": {"targets.wasm.machine"},
    "elftools": {"project", "targets.arm_m.library"},
    "pandas": {"base.results"},
    "rich": {"cli.output"},
    "sqlite3": {"base.database", "results.runs", "service.server"},
    "jinja2": {"results.pages"},
    "distributed": {"service.cluster"},
    "dask": {"service.cluster"},
    "cryptography": {"service.cluster"},
    "fastapi": {"service.server"},
    "starlette": {"service.server"},
    "uvicorn": {"service.server"},
    "httpx": {"service.client"},
    "websockets": {"service.client"},
}

#: Functions of ``utvm_deploy``, today's and those to come. Importing a module of such a name would
#: put the module in the function's place.
PUBLIC_FUNCTIONS = {
    *("compile", "connect", "inspect", "verify", "profile", "tune", "bench", "bundle"),
    *("evaluate", "quantize", "convert", "compare", "memory"),
    *("load_board", "board_names", "from_relax"),
}
#: The same inside ``kernels``: a unit here is a package, without the packages below it.
KERNEL_LAYERS = (
    ("choose",),
    ("native.mve", "native.rvv", "native.simd"),
    ("native.dsp", "native.fpu", "native.thumb", "native.scalar", "native.sparse"),
    ("native.dsp.assembly",),
    ("native.routines",),
    ("native",),
    ("portable",),
    ("portable.floats",),
    ("portable.signals",),
    ("portable.integers",),
    ("portable.schedules",),
    ("intrinsics",),
    ("isa",),
    ("contract",),
)
RANK = {unit: rank for rank, row in enumerate(LAYERS) for unit in row}
KERNEL_RANK = {f"kernels.{unit}": rank for rank, row in enumerate(KERNEL_LAYERS) for unit in row}
MODULES = sorted(PACKAGE.rglob("*.py"))
PACKAGES = {".".join(path.parent.relative_to(PACKAGE).parts) for path in MODULES}


def module_name(path: Path) -> str:
    """Dotted, without the package's own name; empty for the package itself."""
    parts = path.relative_to(PACKAGE).parts
    return ".".join(part.removesuffix(".py") for part in parts if part != "__init__.py")


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes below a tree that are no expressions, which are most of them."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.expr)]


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Every import of a file, those inside functions and TYPE_CHECKING blocks included."""
    found = []
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module is not None
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return tuple(found)


def package_of(target: str) -> str:
    """The package that an import takes from; empty if it is not ours, or the front."""
    name = target.removeprefix("utvm_deploy.") if target.startswith("utvm_deploy.") else ""
    while name not in PACKAGES:
        name = name.rpartition(".")[0]
    return name


def unit_of(name: str) -> str:
    """The unit of ``LAYERS`` that a module is in; empty if it is in none."""
    while name and name not in RANK:
        name = name.rpartition(".")[0]
    return name


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(PACKAGE.parent)}:{line}"


def upward_imports() -> Iterator[str]:
    for path in MODULES:
        name = module_name(path)
        unit = unit_of(name)
        if name in ("", "__main__"):  # the package's own front: may name everything
            continue
        if not unit:
            if path.name != "__init__.py":
                yield f"{place(path, 1)}: {name} has no place in LAYERS"
            continue
        for line, target in imports(path):
            front, _, other = target.partition(".")
            if front != "utvm_deploy" or not other:
                continue
            below = unit_of(other)
            if not below:  # a name of the package's front, such as utvm_deploy.compile
                if unit != "cli" and other != "__version__":
                    yield f"{place(path, line)}: only cli may import {target}"
            elif below != unit and RANK[below] <= RANK[unit]:
                yield f"{place(path, line)}: {unit} imports {below}, which is not below"


def upward_imports_of_kernels() -> Iterator[str]:
    for path in (PACKAGE / "kernels").rglob("*.py"):
        unit = module_name(path.parent)
        if unit not in KERNEL_RANK:
            if path.name != "__init__.py":
                yield f"{place(path, 1)}: {unit} has no place in KERNEL_LAYERS"
            continue
        for line, target in imports(path):
            other = package_of(target)
            if other in KERNEL_RANK and other != unit and KERNEL_RANK[other] <= KERNEL_RANK[unit]:
                yield f"{place(path, line)}: {unit} imports {other}, which is not below"


def imports_past_the_door() -> Iterator[str]:
    for path in MODULES:
        name = module_name(path)
        for line, target in imports(path):
            # Who takes TVM from there imports TVM.
            is_tvm = target.startswith("utvm_deploy.kernels.contract.lazy_tvm.")
            allowed = DOORS.get("tvm" if is_tvm else target.split(".")[0])
            if allowed is not None and not any(f"{name}.".startswith(f"{d}.") for d in allowed):
                yield f"{place(path, line)}: only {sorted(allowed)} may import {target}"


def shadowing_names() -> Iterator[str]:
    for path in MODULES:
        for name in module_name(path).split("."):
            if name in PUBLIC_FUNCTIONS:
                yield f"{place(path, 1)}: {name!r} is the name of a public function"


def test_structure() -> None:
    violations = [
        *upward_imports(),
        *upward_imports_of_kernels(),
        *imports_past_the_door(),
        *shadowing_names(),
    ]
    violations += circles()
    assert not violations, "\n" + "\n".join(violations)


def test_the_architecture_has_the_same_order() -> None:
    text = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `([a-z_.]+)` \|", text, re.M)
    listed = [RANK[row] for row in rows if row in RANK]
    assert listed == sorted(listed)
    assert set(RANK) <= set(rows)


def test_rooms_have_few_doors() -> None:
    packages = [one for one in PACKAGE.iterdir() if one.is_dir() and one.name != "__pycache__"]
    assert len(packages) <= MOST_PACKAGES
    for package in sorted(PACKAGES):
        folder = PACKAGE.joinpath(*package.split("."))
        modules = [one for one in folder.glob("*.py") if one.name != "__init__.py"]
        assert len(modules) <= MOST_MODULES, f"{package} has {len(modules)} modules"


def test_functions_of_the_compiler_are_short() -> None:
    for path in sorted((PACKAGE / "compiler").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                given = node.args
                names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                count = len([one for one in names if one not in ("self", "cls")])
                assert lines <= MOST_LINES, f"{place(path, node.lineno)}: {lines} lines"
                assert count <= MOST_PARAMETERS, f"{place(path, node.lineno)}: {count} parameters"


def circles() -> Iterator[str]:
    """Packages, of any depth, that import each other directly or through others."""
    below: dict[str, dict[str, str]] = {}
    for path in MODULES:
        package = module_name(path.parent)
        for line, target in imports(path) if package else ():
            other = package_of(target)
            if other not in ("", package):
                below.setdefault(package, {}).setdefault(other, place(path, line))
    for package in sorted(below):
        waiting, seen = list(below[package]), set(below[package])
        while waiting:
            one = waiting.pop()
            for other, where in below.get(one, {}).items():
                if other == package:
                    yield f"{where}: {one} imports {package}, which imports {one}"
                elif other not in seen:
                    seen.add(other)
                    waiting.append(other)


@pytest.mark.tools
def test_importing_a_module_shadows_no_function() -> None:
    # In a process of its own, which imports every module first.
    code = """
import importlib, inspect, pathlib, pkgutil, sys, tempfile, utvm_deploy
for module in pkgutil.walk_packages(utvm_deploy.__path__, "utvm_deploy."):
    if module.name.split(".")[-1] != "__main__":
        importlib.import_module(module.name)
model, board = sys.argv[1:]
import numpy
import tvm
from tvm import relax
x = relax.Var("x", relax.TensorType((1, 4), "float32"))
builder = relax.BlockBuilder()
with builder.function("main", [x]):
    with builder.dataflow():
        y = builder.emit_output(relax.op.nn.relu(x))
    builder.emit_func_output(y)
module = builder.get()
floats = pathlib.Path(model).with_name("digits_float.tflite")
calibration = floats.with_name("digits_calib.npz")
zeros = numpy.zeros((1, 8, 8, 1), "int8")
folder = pathlib.Path(tempfile.mkdtemp())
profiled = {"schema": "utvm.profile/1", "model": "m", "board": "b", "tick_unit": "cycles"}
profiled |= {"ticks": 1, "layers": [], "ram_bytes": 1, "flash_bytes": 1}
def refused(call):
    try:
        call()
    except utvm_deploy.UtvmError:
        return
    raise AssertionError("not refused")
calls = {
    "from_relax": lambda: utvm_deploy.from_relax(module),
    "train": lambda: refused(lambda: utvm_deploy.train(module, "d.npz", "host")),
    "trainable": lambda: refused(lambda: utvm_deploy.trainable(module)),
    "board_names": lambda: utvm_deploy.board_names(),
    "load_board": lambda: utvm_deploy.load_board(board),
    "estimate": lambda: utvm_deploy.estimate(model, board),
    "inspect": lambda: utvm_deploy.inspect(model),
    "verify": lambda: utvm_deploy.verify(model, board, samples=1),
    "profile": lambda: utvm_deploy.profile(model, board),
    "memory": lambda: utvm_deploy.memory(model, board, image=False),
    "bundle": lambda: utvm_deploy.bundle(model, board, folder / "bundle", latency=False),
    "bench": lambda: refused(lambda: utvm_deploy.bench(model, board)),
    "tune": lambda: utvm_deploy.tune(model, board, folder / "r.jsonl", trials=1),
    "compare": lambda: utvm_deploy.compare(profiled, profiled),
    "convert": lambda: refused(lambda: utvm_deploy.convert(model)),
    "compile": lambda: utvm_deploy.compile(model, board),
    "connect": lambda: utvm_deploy.connect(board),
    "quantize": lambda: utvm_deploy.quantize(floats, calibration),
    "evaluate": lambda: utvm_deploy.evaluate(model, {"inputs": zeros, "labels": [0]}),
}
public = {name: getattr(utvm_deploy, name) for name in utvm_deploy.__all__}
functions = {name for name, one in public.items() if inspect.isfunction(one)}
assert functions == set(calls), f"give each public function a call here: {functions ^ set(calls)}"
for name, call in calls.items():
    found = call()
    if name == "connect":
        found.close()
    shadowed = [one for one in calls if getattr(utvm_deploy, one) is not public[one]]
    assert not shadowed, f"after {name} these are not functions: {shadowed}"
print("done")
"""
    digits = PACKAGE.parent / "models" / "digits.tflite"
    done = subprocess.run(
        [sys.executable, "-c", code, str(digits), "host"], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stderr


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
    # These boards have the names of their targets.
    theirs = ("host", "wasm")
    names = [path.stem for path in (root / "boards").glob("*.toml") if path.stem not in theirs]
    assert names
    spellings = {spelling for name in names for spelling in (name, name.replace("_", "-"))}
    sources = [
        path
        for folder in (PACKAGE, root / "templates")
        for path in folder.rglob("*")
        if path.suffix in (".py", ".c", ".h", ".S", ".in", ".ld", ".txt", ".cmake")
    ]
    assert len(sources) > 40
    a_name = re.compile("|".join(map(re.escape, spellings)))
    found = [
        f"{path.relative_to(root)}: {names}"
        for path in sources
        if a_name.search(path.read_text())
        # Examples in docstrings are prose: what counts is code, so docstrings are cut out.
        and (names := a_name.findall(without_docstrings(path)))
    ]
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
    from utvm_deploy.frontend.operators.importers import FLOAT_IMPORTERS, IMPORTERS
    from utvm_deploy.frontend.signals.importers import SIGNAL_OPERATORS
    from utvm_deploy.graph.shapes import SHAPE_RULES
    from utvm_deploy.graph.signals.shapes import SIGNAL_RULES
    from utvm_deploy.kernels.choose.lowering import FLOAT_LOWERINGS, INT16_LOWERINGS, LOWERINGS
    from utvm_deploy.oracle.signals.formulas import FORMULAS

    # By relax and by passes, not by a reader.
    made_elsewhere = {"CALL_TIR", "INPUT_ROWS", "LOOKUP", "MOVE", "POOL_AVERAGES", "POOL_SUMS"}
    made_elsewhere |= {"SHIFT"}
    assert {*IMPORTERS, *SIGNAL_OPERATORS} == set(LOWERINGS) - made_elsewhere
    assert set(SIGNAL_OPERATORS) == set(FORMULAS) > set(SIGNAL_RULES)
    assert set(FLOAT_IMPORTERS) == set(FLOAT_LOWERINGS)
    assert set(INT16_LOWERINGS) < set(LOWERINGS)
    assert set(SHAPE_RULES) < set(LOWERINGS) | set(FLOAT_LOWERINGS)
