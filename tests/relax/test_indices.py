"""Indices outside of the tensor that they index lead to its nearest element, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from host_model import HostModel
from relax_operators import Case, Given, module_of, op
from tvm import relax

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.device.layer_runs import checked_inputs

X, ROWS = Given((5, 4)), Given((3,), "int32")
PLACES = Given((2, 4), "int64")
CASES = (
    Case("take", (X, ROWS), lambda x, i: op.take(x, i, axis=0)),
    Case("gather", (X, PLACES), lambda x, i: op.gather_elements(x, i, axis=0)),
    Case("gather_nd", (X, Given((3, 2), "int64")), op.gather_nd),
    Case("scatter", (X, PLACES, Given((2, 4))), op.scatter_elements),
    Case("scatter_nd", (X, Given((2, 1), "int64"), Given((2, 4))), op.scatter_nd),
)


@pytest.mark.tools
def test_indices_outside_become_the_nearest_inside(tmp_path: Path) -> None:
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    new = np.full((2, 4), -1, np.float32)
    rows = np.array([5, -1, 2], np.int32)
    places = np.array([[5, 4, 0, 9], [-6, 1, 2, -7]])
    pairs = np.array([[5, 4], [-1, -1], [2, 3]])
    inputs = [x, rows, x, places, x, pairs, x, places, new, x, np.array([[7], [-3]]), new]
    compiled = utvm_deploy.compile(module_of(CASES), "host", name="indices")
    take, gather, gather_nd, scatter, scatter_nd = HostModel(compiled, tmp_path).run(inputs)

    np.testing.assert_array_equal(take, x[[4, 0, 2]])
    inside = places.clip(0, 4)
    np.testing.assert_array_equal(gather, np.take_along_axis(x, inside, 0))
    np.testing.assert_array_equal(gather_nd, x[[4, 0, 2], [3, 0, 3]])
    wanted = x.copy()
    np.put_along_axis(wanted, inside, new, 0)
    np.testing.assert_array_equal(scatter, wanted)
    wanted = x.copy()
    wanted[[4, 0]] = new
    np.testing.assert_array_equal(scatter_nd, wanted)


def test_places_of_an_input_are_refused_before_a_run() -> None:
    types = {"token": (2,), "place": (2,), "row": (1,), "away": (2,), "clipped": (2,)}
    token, place, row, away, clipped, fields, real = (
        relax.Var(name, relax.TensorType(shape, "float32" if name == "real" else "int64"))
        for name, shape in {**types, "fields": (2,), "real": (2,)}.items()
    )
    builder = relax.BlockBuilder()
    data = relax.const(np.arange(12, dtype=np.float32).reshape(6, 2))
    behind, one = (relax.const(np.array(added), "int64") for added in ([0, 2], [1, 2]))
    with builder.function("main", [token, place, row, away, clipped, fields, real]):
        with builder.dataflow():
            narrow = builder.emit(op.reshape(op.astype(token, "int32"), (2, 1)))
            taken = [
                *(op.squeeze(op.take(data, narrow, axis=0), [1]), op.take(data, place, axis=0)),
                *(op.take(data, row, axis=0), op.take(data, op.add(row, behind), axis=0)),
                op.take(data, op.add(away, one), axis=0),
                op.take(data, clipped, axis=0, mode="clip"),
                # Each field has rows of its own: no limit of one is that of all.
                op.take(data, op.add(fields, behind), axis=0),
                op.take(data, op.astype(real, "int64"), axis=0),
            ]
            output = builder.emit_output(relax.Tuple([builder.emit(one) for one in taken]))
        builder.emit_func_output(output)
    compiled = utvm_deploy.compile(builder.get(), "host", name="places")
    assert [one.most for one in compiled.inputs] == [5, 5, 3, None, None, 5, None]
    given = [np.zeros(one.shape, one.dtype) for one in compiled.inputs]
    given[0][1] = 5
    checked_inputs(compiled, given)
    for place in (6, -1):
        given[0][1] = place
        with pytest.raises(ModelError, match=rf"\(token\) says {place}, and there are 0 to 5"):
            checked_inputs(compiled, given)
