"""Some random models on every core, on each run of the tests; many more in a marked one."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from guarded import is_possible

from random_models.command import PACKING_RATE
from random_models.generator import float_kinds, generate, generate_attention, supported_kinds
from random_models.operations import OPERATIONS, PENDING
from random_models.recipe import Recipe, write
from random_models.runner import Outcome, Rig, Verdict
from utvm_deploy.boards.board import load_board
from utvm_deploy.frontend.operators.importers import IMPORTERS
from utvm_deploy.graph.number_formats.shipped import FLOAT16_ARITHMETIC

#: Board -> first seed and number of models: of 100, most on the quickest. Seeds follow on each
#: other, so that every operator comes up.
QUICK = {
    "host": (0, 67),
    "mps2_an500": (67, 8),
    "mps2_an386": (75, 7),
    "mps2_an385": (82, 7),
    "mps3_an547": (89, 6),
    "qemu_rv32imc": (95, 5),
}
#: And in the long run, which takes an hour: pytest -m soak tests/random_models.
LONG = {
    "host": (1_000, 2_000),
    "mps2_an500": (3_000, 300),
    "mps2_an386": (3_300, 100),
    "mps2_an385": (3_400, 100),
    "mps3_an547": (3_500, 100),
    "qemu_rv32imc": (3_600, 300),
    "qemu_rv32imcv": (3_900, 100),
}
#: Core -> the same, of its kernels' C on the host: operators that have kernels in a usual run.
KERNELS_QUICK = {"rv32imc": (4_000, 6), "rv32imc_zve32x": (4_006, 4)}
KERNELS_LONG = {"rv32imc": (20_000, 2_000), "rv32imc_zve32x": (33_000, 300)}
WITH_KERNELS = ("ADD", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "SUB")
#: The same of float32: board -> numbers of models in a usual run and in the long one.
FLOAT_QUICK = {"host": 12, "mps2_an500": 5}
FLOAT_LONG = {"host": 400, "mps2_an500": 100, "mps3_an547": 50}
#: And of float16 with arithmetic.
HALF_QUICK = {"host": 10, "mps3_an547": 4}
HALF_LONG = {"host": 400, "mps2_an500": 60, "mps3_an547": 60}
#: And of weights of int4.
NARROW_QUICK = {"host": 12, "mps2_an500": 5, "mps3_an547": 3}
NARROW_LONG = {"host": 1_000, "mps2_an500": 200, "mps3_an547": 50}
#: And of weights of which most are zeros.
SPARSE_QUICK = {"host": 36, "mps2_an500": 8}
SPARSE_LONG = {"host": 1_000, "mps2_an500": 200}
#: And of blocks of attention, every other one with weights of int4: of the long run, a tenth.
ATTENTION_QUICK = {"host": 50, "mps2_an500": 10}
ATTENTION_LONG = {"host": 500, "mps2_an500": 100}
#: A generator that the oracle or we refuse too often would test nothing.
FEWEST_EQUAL = 0.7


def run(
    board: str,
    first: int,
    count: int,
    *,
    core: str = "",
    rate: float | None = None,
    number_format: str | None = None,
    is_quick: bool = False,
    make: Callable[..., Recipe] = generate,
    **given: Any,
) -> list[Outcome]:
    emulator = load_board(board).emulator
    if emulator and not shutil.which(emulator.program):
        pytest.skip(f"{emulator.program} is not installed")
    fence = emulator is not None or is_possible()
    with Rig(
        board,
        fence=fence,
        core=core,
        flash_rate=rate,
        number_format=number_format,
        is_quick=is_quick,
    ) as rig:
        return [
            rig.check(make(seed, **given), f"seed_{seed}") for seed in range(first, first + count)
        ]


def check(outcomes: list[Outcome]) -> None:
    faults = [f"{o.name}: {o.verdict.value}: {o.detail}" for o in outcomes if o.verdict.is_fault]
    assert not faults, "\n".join(faults)
    counts = Counter(o.verdict for o in outcomes)
    assert counts[Verdict.EQUAL] >= FEWEST_EQUAL * len(outcomes), counts


@pytest.mark.tools
@pytest.mark.parametrize("name", QUICK)
def test_random_models_are_byte_exact(name: str) -> None:
    check(run(name, *QUICK[name], is_quick=name == "host"))


def attention(seed: int) -> Recipe:
    return generate_attention(seed, is_narrow=bool(seed % 2))


@pytest.mark.tools
@pytest.mark.parametrize("name", ATTENTION_QUICK)
def test_random_attention_is_byte_exact(name: str) -> None:
    count, is_quick = ATTENTION_QUICK[name], name == "host"
    check(run(name, 0, count, make=attention, is_quick=is_quick))


@pytest.mark.soak
@pytest.mark.tools
@pytest.mark.parametrize("name", ATTENTION_LONG)
def test_many_random_blocks_of_attention_are_byte_exact(name: str) -> None:
    check(run(name, 1_000, ATTENTION_LONG[name], make=attention))


@pytest.mark.tools
@pytest.mark.parametrize("core", KERNELS_QUICK)
def test_random_models_with_the_kernels_of_a_core_as_c(core: str) -> None:
    check(run("host", *KERNELS_QUICK[core], core=core, kinds=WITH_KERNELS))


@pytest.mark.soak
@pytest.mark.parametrize("core", KERNELS_LONG)
def test_many_random_models_with_the_kernels_of_a_core_as_c(core: str) -> None:
    check(run("host", *KERNELS_LONG[core], core=core))


@pytest.mark.soak
@pytest.mark.parametrize("name", LONG)
def test_many_random_models_are_byte_exact(name: str) -> None:
    check(run(name, *LONG[name]))


@pytest.mark.tools
@pytest.mark.parametrize("name", FLOAT_QUICK)
def test_random_float_models_are_byte_exact(name: str) -> None:
    # Seeds that follow on each other begin with different operators.
    first = sum(count for board, count in FLOAT_QUICK.items() if board < name)
    check(run(name, first, FLOAT_QUICK[name], of_float=True))


@pytest.mark.tools
@pytest.mark.parametrize("name", HALF_QUICK)
def test_random_models_of_float16_have_numpys_bytes(name: str) -> None:
    first = sum(count for board, count in HALF_QUICK.items() if board < name)
    half = FLOAT16_ARITHMETIC.name
    check(run(name, first, HALF_QUICK[name], of_float=True, number_format=half))


@pytest.mark.soak
@pytest.mark.parametrize("name", HALF_LONG)
def test_many_random_models_of_float16_have_numpys_bytes(name: str) -> None:
    half = FLOAT16_ARITHMETIC.name
    check(run(name, 1_000, HALF_LONG[name], of_float=True, number_format=half))


@pytest.mark.tools
@pytest.mark.parametrize("name", NARROW_QUICK)
def test_random_models_of_int4_are_byte_exact(name: str) -> None:
    first = sum(count for board, count in NARROW_QUICK.items() if board < name)
    check(run(name, first, NARROW_QUICK[name], is_narrow=True))


@pytest.mark.soak
@pytest.mark.parametrize("name", NARROW_LONG)
def test_many_random_models_of_int4_are_byte_exact(name: str) -> None:
    check(run(name, 1_000, NARROW_LONG[name], is_narrow=True))


@pytest.mark.tools
@pytest.mark.parametrize("name", SPARSE_QUICK)
def test_random_models_with_zeros_are_byte_exact(name: str) -> None:
    first = sum(count for board, count in SPARSE_QUICK.items() if board < name)
    check(run(name, first, SPARSE_QUICK[name], rate=PACKING_RATE, is_sparse=True))


@pytest.mark.soak
@pytest.mark.parametrize("name", SPARSE_LONG)
def test_many_random_models_with_zeros_are_byte_exact(name: str) -> None:
    check(run(name, 1_000, SPARSE_LONG[name], rate=PACKING_RATE, is_sparse=True))


@pytest.mark.soak
@pytest.mark.parametrize("name", FLOAT_LONG)
def test_many_random_float_models_are_byte_exact(name: str) -> None:
    check(run(name, 1_000, FLOAT_LONG[name], of_float=True))


def test_every_operator_has_a_generator() -> None:
    missing = set(IMPORTERS) - set(OPERATIONS)
    assert missing == set(PENDING), "write generators (tests/random_models/operations)"


def test_float_models_have_the_operators_of_float32() -> None:
    """Weights and activations are float32; shapes and other integers stay."""
    kinds: set[str] = set()
    for seed in range(len(float_kinds())):
        recipe = generate(seed, of_float=True)
        kinds.update(recipe.kinds)
        assert not {"int8", "int16"} & {spec.dtype for spec in write(recipe).tensors}
    assert kinds == set(float_kinds())
    assert kinds >= {"CONV_2D", "FULLY_CONNECTED", "L2_POOL_2D", "TRANSPOSE"}


def test_every_operator_comes_up_early() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(sum(count for _, count in QUICK.values())):
        kinds.update(generate(seed).kinds)
    assert set(kinds) == set(supported_kinds())


def test_a_seed_is_one_model() -> None:
    for seed in range(20):
        assert generate(seed) == generate(seed)
        assert write(generate(seed)).to_bytes() == write(generate(seed)).to_bytes()
    assert len({write(generate(seed)).to_bytes() for seed in range(20)}) == 20


def test_what_is_promised_comes_up() -> None:
    """Odd shapes, ends of ranges, branches, joins, several inputs and outputs."""
    recipes = [generate(seed) for seed in range(400)]
    models = [write(recipe) for recipe in recipes]
    made = [t for m in models for t in m.tensors if t.dtype == "int8" and t.data is None]
    tensors = [t for t in made if t.shape]
    assert {len(t.shape) for t in tensors} >= {1, 2, 3, 4, 5}
    assert {t.zero_points[0] for t in tensors} >= {-128, 0, 127}
    assert {t.shape[-1] for t in tensors if len(t.shape) == 4} >= {1, 3, 7, 32}
    assert max(t.shape[-1] for t in tensors) >= 70
    scales = [t.scales[0] for t in tensors]
    assert min(scales) < 1e-6 and max(scales) > 1e4
    assert max(len(m.inputs) for m in models) > 2 and max(len(m.outputs) for m in models) > 2
    assert any(_branches(recipe) for recipe in recipes)
    assert max(t.shape[-1] for t in tensors) > 128
    assert (1, 1) in {t.shape[1:3] for t in tensors if len(t.shape) == 4 and t.shape[3] > 1}
    windows = [s.attributes for r in recipes for s in r.steps if "stride" in s.attributes]
    assert any(w["stride"] > w["window"] and max(w["window"]) > 1 for w in windows)


def _branches(recipe: Recipe) -> bool:
    """Whether a value is read by two steps whose results meet again."""
    readers = Counter(ref for step in recipe.steps for ref in set(step.inputs))
    joins = [step for step in recipe.steps if len(set(step.inputs)) > 1]
    return bool(joins) and max(readers.values(), default=0) > 1
