"""What is shipped is what was measured: all verbs and Python compile one program."""

from __future__ import annotations

import inspect
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board, with_template
from utvm_deploy.cli.main import main
from utvm_deploy.cli.options.option import rows_in
from utvm_deploy.cli.options.table import COMPILED
from utvm_deploy.compiler.options import ARENA, AUTO, STACK, CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.service.server.jobs.options import SCRATCH

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from shipped import FIGURES, figures

BOARD = load_board("mps2_an500")
DIGITS = data_dir("models") / "digits.tflite"


def test_there_is_one_default() -> None:
    (row,) = (one for one in rows_in(COMPILED) if one.name == "scratch")
    assert row.default == AUTO == SCRATCH.choices[0]
    assert inspect.signature(utvm_deploy.compile).parameters["scratch"].default == AUTO
    assert CompileOptions().scratch == AUTO


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One convolution, and so hardly any plan to search for."""
    m = ModelWriter()
    weights = np.random.default_rng(3).integers(-127, 128, (16, 3, 3, 8), dtype=np.int8)
    m.output(m.conv2d(m.input((1, 8, 8, 8), scale=0.02), weights, np.arange(16), scale=0.5))
    return m.save(tmp_path_factory.mktemp("shipped") / "net.tflite")


def test_scratch_has_a_pool_where_ram_is_tightly_coupled(model: Path) -> None:
    fast = compile_model(model, BOARD)
    (pool,) = fast.pools
    assert pool.name == "dtcm" and pool.scratch_bytes and not (pool.uses or pool.residents)
    assert not fast.stack_bytes and fast.load_function is None
    assert "void net_run(uint8_t *arena, uint8_t *pool_dtcm);" in fast.sources["net.h"]
    stack = compile_model(model, BOARD, CompileOptions(scratch=STACK))
    assert stack.stack_bytes and not stack.pools and stack.arena_bytes == fast.arena_bytes
    kernels = [layer.kernel for layer in fast.layers]
    assert [layer.kernel for layer in stack.layers] == kernels
    arena = compile_model(model, BOARD, CompileOptions(scratch=ARENA))
    assert not (arena.stack_bytes or arena.pools) and arena.arena_bytes > fast.arena_bytes


def test_scratch_is_in_the_arena_where_there_is_no_room_for_a_pool(model: Path) -> None:
    small = tuple(replace(one, size=16384) if one.name == "dtcm" else one for one in BOARD.memory)
    for board in (replace(BOARD, memory=small), load_board("mps2_an386"), load_board("host")):
        made = compile_model(model, board)
        assert not (made.pools or made.stack_bytes)
    # The user's pool is too small, and limits what the model takes of that memory.
    made = compile_model(model, BOARD, CompileOptions(pools={"dtcm": 2048}))
    assert not made.stack_bytes and not any(pool.scratch_bytes for pool in made.pools)
    literal = compile_model(model, BOARD, CompileOptions(scratch=ARENA, pools={"dtcm": 20_000}))
    assert not any(pool.scratch_bytes for pool in literal.pools)


def test_a_zephyr_application_has_its_scratch_on_the_stack(model: Path) -> None:
    board = with_template(load_board("stm32f746g_disco"), "zephyr")
    made = compile_model(model, board)
    assert made.stack_bytes and not made.pools


needs_board = pytest.mark.skipif(
    shutil.which("qemu-system-arm") is None or shutil.which("arm-none-eabi-gcc") is None,
    reason="needs qemu-system-arm and arm-none-eabi-gcc",
)


@pytest.mark.tools
@needs_board
@pytest.mark.parametrize(("model", "level"), [("digits", "time"), ("ad01_int8", "size")])
def test_a_bundle_has_the_figures_of_a_profile(
    model: str, level: str, request: pytest.FixtureRequest
) -> None:
    path = DIGITS
    if model != "digits":
        path = request.getfixturevalue("shared_models") / f"{model}.tflite"
    profiled, bundled = figures(path, BOARD.name, level)
    assert profiled == bundled and set(profiled) == set(FIGURES)


@pytest.mark.tools
@needs_board
def test_the_verb_and_the_readme_say_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "bundle"
    assert main(["bundle", str(DIGITS), "--board", BOARD.name, "-o", str(bundle)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert main(["profile", str(DIGITS), "--board", BOARD.name]) == 0
    profiled = capsys.readouterr().out.splitlines()
    for begin in ("latency: ", "RAM of the image: "):
        (line,) = (one for one in profiled if one.startswith(begin))
        assert line in told
    found = utvm_deploy.profile(DIGITS, BOARD).found
    readme = " ".join((bundle / "README.md").read_text().split())
    assert f"{found.ticks:,} modelled cycles, never measured on silicon" in readme
    assert f"{found.ram_bytes:,} bytes of RAM, {found.flash_bytes:,} of flash" in readme
    assert f"{found.pool_bytes:,} bytes of `dtcm` for scratch" in readme
    assert ".pool_dtcm (NOLOAD) : { *(.bss.pool_dtcm) } > dtcm" in readme
    assert "the model alone: flash " in "\n".join(told)
