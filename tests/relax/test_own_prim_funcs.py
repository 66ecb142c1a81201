"""Relax modules that somebody wrote by hand: functions in TVMScript, calls, side effects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from host_model import HostModel
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import utvm_deploy
from utvm_deploy.base.errors import UnsupportedOperator


# In functions: to read TVMScript takes a second, also where no test of this module runs.
def own_functions() -> object:
    @I.ir_module
    class OwnFunctions:
        @T.prim_func
        def reversed_(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):  # type: ignore
            for i in T.serial(4):
                b[i] = a[3 - i]

        @T.prim_func(s_tir=True)
        def squares(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4,), "float32")):  # type: ignore
            for i, j in T.grid(4, 4):
                with T.sblock("sum"):
                    row, column = T.axis.remap("SR", [i, j])
                    with T.init():
                        b[row] = T.float32(0)
                    b[row] = b[row] + a[row, column] * a[row, column]

        @R.function
        def main(x: R.Tensor((4, 4), "float32")):  # type: ignore
            cls = OwnFunctions
            with R.dataflow():
                positive = R.nn.relu(x)
                sums = R.call_tir(cls.squares, (positive,), out_ty=R.Tensor((4,), "float32"))
                turned = R.call_tir(cls.reversed_, (sums,), out_ty=R.Tensor((4,), "float32"))
                R.output(turned)
            return turned

    return OwnFunctions


def calls() -> object:
    @I.ir_module
    class Calls:
        @R.function
        def other(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):  # type: ignore
            return R.exp(x)

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):  # type: ignore
            cls = Calls
            y = cls.other(x)
            return y

    return Calls


def prints() -> object:
    @I.ir_module
    class Prints:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):  # type: ignore
            y = R.exp(x)
            _ = R.print(y, format="{}")
            z = R.abs(y)
            return z

    return Prints


@pytest.mark.tools
def test_own_functions_beside_tvms_operators(tmp_path: Path) -> None:
    """Plain loops without a block, and extents of int32, which TVM cannot fuse with its own."""
    compiled = utvm_deploy.compile(own_functions(), "host", name="own")
    x = np.arange(-8, 8, dtype=np.float32).reshape(4, 4)
    (made,) = HostModel(compiled, tmp_path).run([x])
    np.testing.assert_array_equal(made, (np.maximum(x, 0) ** 2).sum(1)[::-1])


@pytest.mark.slow
def test_calls_and_side_effects_are_named() -> None:
    with pytest.raises(UnsupportedOperator, match="'y' is the result of a call of 'other'; only"):
        utvm_deploy.from_relax(calls())
    with pytest.raises(UnsupportedOperator, match="'main' is not pure; remove what has side"):
        utvm_deploy.from_relax(prints())
