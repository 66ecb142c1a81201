"""The models that the ``onnx`` package ships to test backends, with the outputs they must have."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from host_model import HostModel
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.pipeline import compile_model
from utvm_deploy.frontend.onnx_model import onnx_to_model
from utvm_deploy.relax.facts import is_relax, loaded
from utvm_deploy.relax.road import relax_graph

Array = NDArray[np.generic]

#: Folders of the package whose models other tools exported.
CONVERTED = ("pytorch-converted", "pytorch-operator")
_TYPES = {
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.INT32,
    TensorProto.BOOL,
    TensorProto.INT8,
    TensorProto.UINT8,
}
#: Cases whose expected values are written with four digits.
_FOUR_DIGITS = frozenset(
    {
        "test_averagepool_2d_ceil_last_window_starts_on_pad",
        "test_roialign_aligned_false",
        "test_roialign_aligned_true",
    }
)
#: TVM's floor_mod computes x - floor(x / y) * y, which is no number if ``y`` is infinite.
_OTHER_BY_TVM = frozenset({"test_mod_float_edge_cases_fmod_0_float32"})
#: How a case may end. ``OTHER``: the file has a free batch, which is one here and more in onnx.
OK, REFUSED, QUANTIZED, OTHER = ENDS = ("ok", "refused", "quantized", "another shape")


@dataclass(frozen=True)
class SuiteCase:
    """A model, values of its inputs, and the outputs that onnx expects."""

    name: str
    model: onnx.ModelProto
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]


def _parts(folder: Path, kind: str) -> tuple[Array, ...]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    found = (TensorProto.FromString((folder / f"{kind}_{i}.pb").read_bytes()) for i in range(count))
    return tuple(numpy_helper.to_array(tensor) for tensor in found)


@cache
def converted_cases() -> tuple[SuiteCase, ...]:
    """Networks and operators that PyTorch exported."""
    base = Path(onnx.__file__).parent / "backend" / "test" / "data"
    made = []
    for path in sorted(path for kind in CONVERTED for path in (base / kind).glob("*/model.onnx")):
        data = path.with_name("test_data_set_0")
        model = onnx.load(path)
        if _is_supported(model):
            name = f"{path.parent.parent.name}/{path.parent.name}"
            made.append(SuiteCase(name, model, _parts(data, "input"), _parts(data, "output")))
    return tuple(made)


@cache
def node_cases() -> tuple[SuiteCase, ...]:
    """Models of one operator each, or of its expansion into others."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, about the values that onnx draws
        cases = collect_testcases(None)
    made = []
    for case in cases:
        inputs, outputs = case.data_sets[0] if case.data_sets else ((), ())
        values = (*inputs, *outputs)
        is_plain = all(isinstance(one, np.ndarray | np.generic) for one in values)
        if case.name in _OTHER_BY_TVM:
            continue
        if values and is_plain and _is_supported(case.model):
            arrays = [tuple(np.asarray(one) for one in kind) for kind in (inputs, outputs)]
            made.append(SuiteCase(case.name, case.model, *arrays))
    return tuple(made)


def _is_supported(model: onnx.ModelProto) -> bool:
    """Whether all inputs and outputs are tensors of types that kernels have."""
    known = {tensor.name for tensor in model.graph.initializer}
    ends = [one for one in (*model.graph.input, *model.graph.output) if one.name not in known]
    return all(one.type.tensor_type.elem_type in _TYPES for one in ends)


def with_constants(case: SuiteCase) -> SuiteCase:
    """The case with all inputs but the first as constants, as exporters write axes and shapes."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    names = [one.name for one in model.graph.input]
    for name, value in zip(names[1:], case.inputs[1:], strict=False):
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    del model.graph.input[1:]
    return SuiteCase(case.name, model, case.inputs[:1], case.outputs)


def problems(cases: Sequence[SuiteCase], folder: Path) -> tuple[dict[str, int], list[str]]:
    """How many cases ended how, and a line for each that is wrong."""
    ends: dict[str, int] = {}
    wrong: list[str] = []
    for number, case in enumerate(cases):
        work = folder / str(number)
        work.mkdir()
        end = _end(case, work)
        ends[end] = ends.get(end, 0) + 1
        if end not in ENDS:
            wrong.append(f"{case.name}: {end}")
    return ends, wrong


def _end(case: SuiteCase, folder: Path) -> str:
    """How a case ends; if it is refused, how it ends with constants."""
    for index, variant in enumerate(_variants(case)):
        end = _one_end(variant, folder / str(index))
        if end != REFUSED:
            return end
    return REFUSED


def _variants(case: SuiteCase) -> Iterator[SuiteCase]:
    yield case
    if len(case.inputs) > 1:
        yield with_constants(case)


def _one_end(case: SuiteCase, folder: Path) -> str:
    folder.mkdir()
    path = folder / "model.onnx"
    onnx.save(case.model, path)
    try:
        data = onnx_to_model(path)
        if not is_relax(data):
            return QUANTIZED
        graph = relax_graph(loaded(data), "suite")
        compiled = compile_model(graph, load_board("host"))
    except UtvmError as exc:
        return REFUSED if str(exc) and "\n" not in str(exc) else f"refused with {str(exc)!r}"
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"
    shapes = [graph.tensors[i].shape for i in graph.inputs]
    if any(one.size != np.prod(shape) for one, shape in zip(case.inputs, shapes, strict=True)):
        return OTHER
    outputs = HostModel(compiled, folder).run(case.inputs)
    return _difference(case, outputs)


def _difference(case: SuiteCase, made: Sequence[Array]) -> str:
    for number, (ours, theirs) in enumerate(zip(made, case.outputs, strict=True)):
        if ours.size != theirs.size or ours.dtype != theirs.dtype:
            return f"output {number} is {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
        if theirs.dtype.kind == "f":
            close = 1e-3 if case.name in _FOUR_DIGITS else 1e-4
            finite = np.abs(theirs[np.isfinite(theirs)])
            slack = 1e-5 * max(1.0, float(finite.max(initial=0)))
            same = np.allclose(ours.ravel(), theirs.ravel(), close, slack, equal_nan=True)
        else:
            same = bool((ours.ravel() == theirs.ravel()).all())
        if not same:
            return f"output {number} is {ours.ravel()[:4]}, not {theirs.ravel()[:4]}"
    return OK
