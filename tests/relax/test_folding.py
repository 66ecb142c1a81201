"""Constants that NumPy folds are those that TVM would fold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import ir, relax

from utvm_deploy.frontend.relax import folding
from utvm_deploy.frontend.relax.folding import FOLDS, FoldByNumPy

op = relax.op
#: For each operator, a call of constants of the shapes (2, 3, 4) and (3, 1).
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "relax.add": op.add,
    "relax.divide": op.divide,
    "relax.expand_dims": lambda x, y: op.expand_dims(x, [1, -1]),
    "relax.full": lambda x, y: op.full((2, 3), relax.const(1.25, "float32"), "float32"),
    "relax.multiply": op.multiply,
    "relax.negative": lambda x, y: op.negative(x),
    "relax.permute_dims": lambda x, y: op.permute_dims(x, [2, 0, 1]),
    "relax.reshape": lambda x, y: op.reshape(x, (4, -1)),
    "relax.sqrt": lambda x, y: op.sqrt(x),
    "relax.squeeze": lambda x, y: op.squeeze(y, [1]),
    "relax.strided_slice": lambda x, y: op.strided_slice(x, [2, 1], [3, -2], [0, 99], [-2, 1]),
    "relax.subtract": op.subtract,
}


def folded(module: Any, fold: Any) -> Any:
    """The constant that the function gives; None if it still computes something."""
    made = fold(module)["main"].body
    bindings = {binding.var: binding.value for block in made.blocks for binding in block.bindings}
    value = made.body
    while value in bindings:
        value = bindings[value]
    return value.value.numpy() if isinstance(value, ir.GenericConst) else None


def module_of(call: Callable[[Any, Any], Any], dtype: str) -> Any:
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(2, 3, 4)) * 3).astype(dtype)
    y = (rng.normal(size=(3, 1)) * 3).astype(dtype)
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            made = builder.emit(call(relax.const(x, dtype), relax.const(y, dtype)))
            output = builder.emit_output(made)
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.parametrize("name", sorted({*FOLDS} - {"relax.arange"}))
def test_numpy_folds_as_tvm_does(name: str) -> None:
    module = module_of(CALLS[name], "float32")
    ours = folded(module, FoldByNumPy())
    theirs = folded(module, relax.transform.FoldConstant())
    assert ours is not None and ours.dtype == theirs.dtype and ours.shape == theirs.shape
    assert ours.tobytes() == theirs.tobytes()


def test_positions_are_a_constant() -> None:
    # TVM leaves them, and all masks that are computed from them.
    made = folded(
        module_of(lambda x, y: op.arange(3, 17, 4, dtype="int64"), "int64"), FoldByNumPy()
    )
    assert made.dtype == np.int64 and made.tolist() == [3, 7, 11, 15]


def test_what_is_no_float_or_too_large_is_left_to_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    assert folded(module_of(op.add, "int32"), FoldByNumPy()) is None
    monkeypatch.setattr(folding, "MOST_ELEMENTS", 23)
    assert folded(module_of(op.add, "float32"), FoldByNumPy()) is None


def test_an_input_is_no_constant() -> None:
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(op.add(x, relax.const(np.ones(2, "float32"))))
        builder.emit_func_output(output)
    assert folded(builder.get(), FoldByNumPy()) is None
    assert tvm_ffi.structural_equal(FoldByNumPy()(builder.get()), builder.get())
