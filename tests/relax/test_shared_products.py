"""Products of all rows of a tensor with the same weights become one product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from utvm_deploy.frontend.relax.shared_products import with_shared_products

# TVM is a compiler, too: its passes over a function take tenths of a second.
pytestmark = pytest.mark.tools

RNG = np.random.default_rng(16)
WEIGHTS = RNG.standard_normal((6, 4)).astype(np.float32)
BIAS = RNG.standard_normal(4).astype(np.float32)
ROWS = 5


def unrolled(taken: tuple[int, ...], others: int = 0) -> Any:
    """Rows of ``x`` times weights; the last ``others`` rows have other weights than the first."""
    x = relax.Var("x", relax.TensorType((1, ROWS, 6), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = []
            for place, row in enumerate(taken):
                weights = WEIGHTS + 1 if place >= len(taken) - others else WEIGHTS
                one = builder.emit(relax.op.strided_slice(x, [1], [row], [row + 1]))
                one = builder.emit(relax.op.reshape(one, (1, 6)))
                one = builder.emit(relax.op.matmul(one, relax.const(weights)))
                made.append(builder.emit(relax.op.add(one, relax.const(BIAS))))
            result = builder.emit_output(relax.op.concat(made, 0))
        builder.emit_func_output(result)
    return builder.get()


def products(module: Any) -> list[tuple[int, ...]]:
    """The shapes of all products."""
    (block,) = module["main"].body.blocks
    values = [binding.value for binding in block.bindings]
    calls = [one for one in values if getattr(getattr(one, "op", 0), "name", "") == "relax.matmul"]
    return [tuple(int(extent) for extent in call.ty.shape.values) for call in calls]


@pytest.mark.parametrize("taken", [range(ROWS), reversed(range(ROWS)), (0, 1, 2, 3, 4, 2)])
def test_rows_with_the_same_weights_become_one_product(taken: Any) -> None:
    order = tuple(taken)
    module = with_shared_products(unrolled(order), "main")
    assert products(module) == [(ROWS, 4)]
    x = RNG.standard_normal((1, ROWS, 6)).astype(np.float32)
    right = (x[0] @ WEIGHTS + BIAS)[list(order)]
    assert np.allclose(evaluated(module, x), right, rtol=1e-5, atol=1e-6)


def test_rows_that_no_product_needs_are_not_computed() -> None:
    assert products(with_shared_products(unrolled((0, 2, 4)), "main")) == [(1, 4)] * 3


def test_other_weights_are_another_product() -> None:
    assert products(with_shared_products(unrolled((0, 1, 2, 3, 4), others=1), "main")) == (
        [(1, 4)] * ROWS
    )


def evaluated(module: Any, x: Any) -> Any:
    """The output of the module by TVM's own build."""
    import tvm

    built = relax.build(module, "llvm")
    machine = relax.VirtualMachine(built, tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()
