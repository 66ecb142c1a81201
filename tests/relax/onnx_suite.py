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
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.onnx.model import onnx_to_model
from utvm_deploy.frontend.relax.facts import is_relax, loaded
from utvm_deploy.frontend.relax.road import relax_graph
from utvm_deploy.frontend.tflite import load_bytes

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
OK, REFUSED, OTHER = ENDS = ("ok", "refused", "another shape")
#: Operators whose first input is a number of elements.
_BY_COUNT = (
    "BlackmanWindow",
    "ConstantOfShape",
    "HammingWindow",
    "HannWindow",
    "MelWeightMatrix",
    "Range",
)


@dataclass(frozen=True)
class SuiteCase:
    """A model, values of its inputs, and the outputs that onnx expects."""

    name: str
    model: onnx.ModelProto
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]

    @property
    def operator(self) -> str:
        """The operator of a model of one; the first operator of others."""
        node = self.model.graph.node[0]
        return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)

    @property
    def is_static(self) -> bool:
        """Whether the model states all extents of its inputs and outputs, none of them 0."""
        ends = (*self.model.graph.input, *self.model.graph.output)
        extents = (extent for one in ends for extent in one.type.tensor_type.shape.dim)
        return all(extent.dim_value > 0 for extent in extents)

    @property
    def has_float(self) -> bool:
        """Whether an input or output is of float32."""
        return any(array.dtype == np.float32 for array in (*self.inputs, *self.outputs))


@dataclass(frozen=True)
class End:
    """How a case ended, and the message of a refusal or what is wrong."""

    kind: str
    said: str = ""


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
    """The case with all inputs but the first as constants, as exporters write axes and shapes.

    If the first is a number of elements, it is a constant, too. The model has an unread input then.
    """
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = max(model.ir_version, 4)  # before, constants had to be inputs, too
    inputs = model.graph.input
    is_open = [number not in _constants_of(case) for number in range(len(inputs))]
    arrays = tuple(data for data, is_kept in zip(case.inputs, is_open, strict=True) if is_kept)
    for value, data, is_kept in zip(inputs, case.inputs, is_open, strict=True):
        if not is_kept:
            model.graph.initializer.append(numpy_helper.from_array(data, value.name))
    kept = [value for value, is_kept in zip(inputs, is_open, strict=True) if is_kept]
    del inputs[:]
    inputs.extend(kept)
    if not kept:
        inputs.append(onnx.helper.make_tensor_value_info("unread", TensorProto.FLOAT, [1]))
        arrays = (np.zeros(1, np.float32),)
    return SuiteCase(case.name, model, arrays, case.outputs)


def _constants_of(case: SuiteCase) -> range:
    """The positions of the inputs that become constants."""
    if case.operator in _BY_COUNT:
        return range(len(case.inputs))
    # The number of a loop's steps, and its first condition.
    return range(2) if case.operator == "Loop" else range(1, len(case.inputs))


def problems(cases: Sequence[SuiteCase], folder: Path) -> tuple[dict[str, int], list[str]]:
    """How many cases ended how, and a line for each that is wrong."""
    ends: dict[str, int] = {}
    wrong: list[str] = []
    for number, case in enumerate(cases):
        work = folder / str(number)
        work.mkdir()
        end = last_end(case, work)
        ends[end.kind] = ends.get(end.kind, 0) + 1
        if end.kind not in ENDS:
            wrong.append(f"{case.name}: {end.said}")
    return ends, wrong


def last_end(case: SuiteCase, folder: Path) -> End:
    """How a case ends; if it is refused, how it ends with constants."""
    for index, variant in enumerate(variants(case)):
        end = end_of(variant, folder / str(index))
        if end.kind != REFUSED:
            return end
    return end


def variants(case: SuiteCase) -> Iterator[SuiteCase]:
    """The case as it is; with constants, where it has inputs that may become constants."""
    yield case
    if len(case.inputs) > 1 or case.operator in _BY_COUNT:
        yield with_constants(case)


def end_of(case: SuiteCase, folder: Path) -> End:
    """How one case ends; the files of its build are left in a new folder."""
    folder.mkdir()
    path = folder / "model.onnx"
    onnx.save(case.model, path)
    try:
        data = onnx_to_model(path)
        is_float = is_relax(data)
        graph = relax_graph(loaded(data), "suite") if is_float else load_bytes(data, "suite")
        compiled = compile_model(graph, load_board("host"))
    except UtvmError as exc:
        said = str(exc).removeprefix(f"{path}: ")
        return End(REFUSED if said and "\n" not in said else "bad message", said)
    except Exception as exc:
        return End("bug", f"{type(exc).__name__}: {exc}")
    shapes = [graph.tensors[i].shape for i in graph.inputs]
    if any(one.size != np.prod(shape) for one, shape in zip(case.inputs, shapes, strict=True)):
        return End(OTHER)
    outputs = HostModel(compiled, folder).run(case.inputs)
    said = _difference(case, outputs, steps=0 if is_float else 1)
    return End("wrong", said) if said else End(OK)


def _difference(case: SuiteCase, made: Sequence[Array], steps: int) -> str:
    """What is wrong; empty if nothing is. Integers may differ by so many steps."""
    for number, (ours, theirs) in enumerate(zip(made, case.outputs, strict=True)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"output {number} is {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
        if theirs.dtype.kind == "f":
            close = 1e-3 if case.name in _FOUR_DIGITS else 1e-4
            finite = np.abs(theirs[np.isfinite(theirs)])
            slack = 1e-5 * max(1.0, float(finite.max(initial=0)))
            same = np.allclose(ours.ravel(), theirs.ravel(), close, slack, equal_nan=True)
        else:
            same = np.allclose(ours.astype(np.float64), theirs.astype(np.float64), 0, steps)
        if not same:
            return f"output {number} is {ours.ravel()[:4]}, not {theirs.ravel()[:4]}"
    return ""
