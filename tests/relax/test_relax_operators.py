"""Every operator of the Relax road, compiled, against TVM's own build of the module by LLVM."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_model import HostModel
from relax_operators import (
    EXACT,
    OPERATORS,
    SUM,
    Case,
    Given,
    constant,
    expected,
    inputs_of,
    module_of,
    op,
    problem,
)
from tvm import relax

import utvm_deploy
from utvm_deploy.base.errors import UnsupportedOperator

SEED = 15
#: Cores with an FPU; and Helium, too.
BOARDS = ("mps2_an500", "mps3_an547")
#: Operators that need work of ours besides TVM's: they are always tested.
MENDED = (
    *("abs", "where", "cumsum", "sort", "argsort", "topk_both", "take", "one_hot"),
    *("int8_matmul", "quantize", "bool_output", "argmax", "conv1d"),
)


def tenth() -> list[Case]:
    """The operators that a normal run tests: a seeded tenth, and the mended ones."""
    drawn = random.Random(SEED).sample(list(OPERATORS), len(OPERATORS) // 10)
    return [case for case in OPERATORS if case in drawn or case.name in MENDED]


def check(cases: Sequence[Case], outputs: Sequence[Any], wanted: Sequence[Any]) -> None:
    wrong = {
        case.name: found
        for case, made, right in zip(cases, outputs, wanted, strict=True)
        if (found := problem(case.bound, made, right))
    }
    assert not wrong


def check_on_host(cases: Sequence[Case], folder: Path) -> None:
    """All of them as one model, built by gcc with every warning as an error."""
    module, inputs = module_of(cases), inputs_of(cases, SEED)
    compiled = utvm_deploy.compile(module, "host", name="operators")
    check(cases, HostModel(compiled, folder).run(inputs), expected(module, inputs))


def check_on_boards(cases: Sequence[Case], folder: Path) -> None:
    """One image for each board, whose outputs have the bytes that this computer gets."""
    module, inputs = module_of(cases), inputs_of(cases, SEED)
    host = HostModel(utvm_deploy.compile(module, "host", name="operators"), folder).run(inputs)
    check(cases, host, expected(module, inputs))
    for board in BOARDS:
        with utvm_deploy.connect(board) as device:
            model = device.load(utvm_deploy.compile(module, board, name="operators"), into="ram")
            made = model(*inputs)
        outputs = made if isinstance(made, tuple | list) else [made]
        differ = [
            case.name
            for case, one, other in zip(cases, outputs, host, strict=True)
            if one.tobytes() != other.tobytes()
        ]
        assert not differ, board


@pytest.mark.tools
def test_operators_on_the_host_and_on_boards(tmp_path: Path) -> None:
    check_on_boards(tenth(), tmp_path)


@pytest.mark.soak
@pytest.mark.tools
@pytest.mark.parametrize("start", range(0, len(OPERATORS), 10))
def test_all_operators_on_the_host_and_on_boards(start: int, tmp_path: Path) -> None:
    check_on_boards(OPERATORS[start : start + 10], tmp_path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (op.nonzero, "relax.nonzero, which makes .*, has an output whose shape depends on values"),
        (op.median, "median .it calls tvm.contrib.sort.argsort, which only TVM's runtime has."),
        (op.unique, "relax.unique, which makes .*, has an output whose shape depends on values"),
        (
            lambda x: op.astype(op.astype(x, "float16"), "float32"),
            "relax.astype, which makes .*, computes in float16: convert the model to float32",
        ),
        (
            lambda x: op.vision.all_class_non_max_suppression(
                x,
                op.sum(x, axis=[2], keepdims=True),
                relax.const(3, "int64"),
                relax.const(0.5, "float32"),
                relax.const(0.1, "float32"),
            ),
            "relax.vision.all_class_non_max_suppression, which makes .*, has an output whose shape",
        ),
    ],
)
def test_refused_operators_are_named(make: Any, said: str) -> None:
    case = Case("refused", (Given((1, 4, 4)),), make)
    with pytest.raises(UnsupportedOperator, match=said):
        utvm_deploy.from_relax(module_of([case]))


@pytest.mark.tools
def test_equal_elements_keep_their_order(tmp_path: Path) -> None:
    x = np.array([[1.0, 3.0, 1.0, 2.0, 3.0, np.inf, -np.inf, 1.0]], np.float32)
    case = Case("order", (Given(x.shape),), lambda x: op.argsort(x, axis=-1, dtype="int32"))
    compiled = utvm_deploy.compile(module_of([case]), "host", name="order")
    (made,) = HostModel(compiled, tmp_path).run([x])
    np.testing.assert_array_equal(made, np.argsort(x, axis=-1, kind="stable"))


@pytest.mark.tools
def test_nan_leads_a_sort_nowhere_else(tmp_path: Path) -> None:
    x = np.full((1, 64), np.nan, np.float32)
    case = Case("order", (Given(x.shape),), lambda x: op.argsort(x, axis=-1, dtype="int32"))
    compiled = utvm_deploy.compile(module_of([case]), "host", name="order")
    (made,) = HostModel(compiled, tmp_path).run([x])
    assert made.min() >= 0 and made.max() < x.size


def test_a_split_behind_a_product() -> None:
    """It makes several tensors, so no product absorbs it."""
    case = Case(
        "parts",
        (Given((3, 7)),),
        lambda x: relax.TupleGetItem(op.split(op.matmul(x, constant(7, 4)), [2], axis=1), 1),
    )
    graph = utvm_deploy.from_relax(module_of([case]))
    assert [operator.kind for operator in graph.operators] == ["FULLY_CONNECTED", "CALL_TIR"]


#: What needs more than TVM's C generator and fusion do by themselves. Inputs have these names.
ODD = (
    Case("scan of one dimension", (Given((7,)),), lambda x: op.cumsum(x, axis=0)),
    Case("scan of all elements", (Given((3, 4)),), lambda x: op.cumsum(x), SUM),
    Case("remainder", (Given((3, 40)),), lambda x: op.mod(x, relax.const(-0.7)), EXACT),
    Case(
        "scatter",
        (Given((3, 4)), Given((1, 4))),
        lambda x, new: op.scatter_elements(x, relax.const(np.array([[0, 1, 2, 0]])), new, axis=0),
        EXACT,
    ),
    # Its windows differ in size.
    Case("adaptive pool", (Given((1, 3, 7, 8)),), lambda x: op.nn.adaptive_avg_pool2d(x, (2, 3))),
    Case(
        "2 limits: größer, kleiner",
        (Given((2, 5)),),
        lambda x: op.clip(op.matmul(x, constant(5, 3)), 1.0, -1.0),
        EXACT,
    ),
)


@pytest.mark.tools
def test_odd_operators_on_the_host(tmp_path: Path) -> None:
    check_on_host(ODD, tmp_path)
