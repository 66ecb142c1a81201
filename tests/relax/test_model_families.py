"""Ten families of float models on the host and on boards, against TVM's build by LLVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from host_model import HostModel
from model_families import FAMILIES
from relax_operators import Case, expected, inputs_of, module_of, problem

import utvm_deploy

BOARDS = ("mps2_an500", "mps3_an547")
#: Those of a normal run: branches, a recurrent one and one with attention.
FEW = ("unet", "gru", "transformer")


def check_on_host(case: Case, folder: Path) -> None:
    module, inputs = module_of([case]), inputs_of([case], 4)
    (made,) = HostModel(utvm_deploy.compile(module, "host", name="family"), folder).run(inputs)
    (wanted,) = expected(module, inputs)
    assert not problem(case.bound, made, wanted)


@pytest.mark.tools
@pytest.mark.parametrize("case", [one for one in FAMILIES if one.name in FEW], ids=lambda c: c.name)
def test_a_family_on_the_host(case: Case, tmp_path: Path) -> None:
    check_on_host(case, tmp_path)


@pytest.mark.soak
@pytest.mark.tools
@pytest.mark.parametrize("case", FAMILIES, ids=lambda case: case.name)
def test_each_family_on_the_host_and_on_boards(case: Case, tmp_path: Path) -> None:
    check_on_host(case, tmp_path)
    module, inputs = module_of([case]), inputs_of([case], 4)
    (wanted,) = expected(module, inputs)
    for board in BOARDS:
        with utvm_deploy.connect(board) as device:
            made = device.load(utvm_deploy.compile(module, board, name="family"), into="ram")(
                *inputs
            )
        assert not problem(case.bound, made, wanted), board


def test_a_family_has_few_layers_without_a_fast_kernel() -> None:
    """Products with constant weights have kernels of ours; the rest is TVM's."""
    (case,) = (one for one in FAMILIES if one.name == "resnet")
    graph = utvm_deploy.from_relax(module_of([case]))
    kinds = [operator.kind for operator in graph.operators]
    assert kinds.count("CONV_2D") == 5 and kinds.count("FULLY_CONNECTED") == 1
