"""Pools: what goes into another memory than the arena's, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_writer import ModelWriter

from utvm_deploy.backends import Backend, CText, KernelCall, Match, Pattern, call
from utvm_deploy.base.errors import CompileError, ModelError
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.budgets import Budget
from utvm_deploy.compiler.compiled.library_format import read_library, write_library
from utvm_deploy.compiler.compiled.memory_use import Span
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.planning.pools import (
    PoolLimit,
    Table,
    filled_pools,
    lines_read,
    pool_limits,
)
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.kernels.contract.call import ConstantArgument
from utvm_deploy.project.fit import check_fits

BOARD = "mps2_an500"
DTCM = PoolLimit("dtcm", 64, 22.0, is_faster=True)


def tables(*facts: tuple[int, float]) -> list[Table]:
    """Of these bytes and lines read."""
    ends = np.cumsum([size for size, _ in facts])
    return [
        Table(f"t{i}", Span(int(end) - size, size), (i,), lines)
        for i, ((size, lines), end) in enumerate(zip(facts, ends, strict=True))
    ]


def names(limit: PoolLimit, found: Sequence[Table], scratch: int = 0) -> list[str]:
    pools = filled_pools(found, [limit], {limit.name: scratch})
    return [one.table for pool in pools for one in pool.residents]


def test_a_pool_holds_what_saves_most_in_all() -> None:
    # The densest table leaves no room for two others that save more together.
    some = tables((48, 10.0), (32, 6.0), (32, 6.0))
    assert names(DTCM, some) == ["t1", "t2"]
    assert names(replace(DTCM, size=63), some) == ["t0"]
    assert names(replace(DTCM, size=1000), some) == ["t0", "t1", "t2"]
    assert names(DTCM, some, scratch=10) == ["t0"]
    assert names(replace(DTCM, saved_cycles=0.0), some) == []
    assert names(replace(DTCM, size=15), some) == []


def test_a_large_pool_is_shared_out_in_few_units() -> None:
    some = tables(*((1000 + i, 4000.0 - i) for i in range(3000)))
    (pool,) = filled_pools(some, [replace(DTCM, size=1 << 21)], {})
    assert (1 << 21) * 9 // 10 < pool.size_bytes <= 1 << 21
    ends = [one.offset + one.constant.size_bytes for one in pool.residents]
    assert all(end <= later.offset for end, later in zip(ends, pool.residents[1:], strict=False))
    assert ends[-1] <= pool.size_bytes


def test_what_stays_in_the_cache_is_read_once() -> None:
    assert lines_read(320, 320, 9.0, cache_bytes=4096) == 10
    assert lines_read(8192, 8192, 9.0, cache_bytes=4096) == 9 * 256
    assert lines_read(320, 320, 9.0, cache_bytes=0) == 90


def test_what_a_board_does_not_have_is_named() -> None:
    board = load_board(BOARD)
    with pytest.raises(CompileError, match=r"no pool 'sdram'.*choose from dtcm, ram"):
        pool_limits(board, {"sdram": 100})
    with pytest.raises(CompileError, match="no pool 'flash': it is flash"):
        pool_limits(board, {"flash": 100})
    with pytest.raises(CompileError, match=r"dtcm has 65,537 bytes, and .* has 65,536"):
        pool_limits(board, {"dtcm": 65537})
    for size in (0, -1):
        with pytest.raises(CompileError, match=f"the pool dtcm is {size}; give an integer above 0"):
            pool_limits(board, {"dtcm": size})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("dtcm=0",), "a pool of 0 bytes"),
        (("dtcm=-4K",), "'-4K' is not a size"),
        (("dtcm=48Q",), "'48Q' is not a size"),
        (("dtcm",), "'dtcm' is not a pool"),
        (("=48K",), "'=48K' is not a pool"),
        (("dtcm=4K", "--pool", "dtcm=8K"), "--pool dtcm was given twice"),
    ],
)
def test_usage_errors(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: Any, said: str
) -> None:
    archive = str(tmp_path / "m.tar")
    assert main(["compile", str(model), "--board", BOARD, "-o", archive, "--pool", *given]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two dense layers of 4,096 weights, and a convolution that goes through its weights often."""
    rng = np.random.default_rng(3)
    m = ModelWriter()
    x = m.input((1, 12, 12, 16), scale=0.02)
    weights = rng.integers(-127, 128, (32, 3, 3, 16), dtype=np.int8)
    x = m.conv2d(x, weights, rng.integers(-99, 99, 32), scale=0.5)
    height, width, channels = m.tensors[x].shape[1:]
    x = m.average_pool(x, (height, width), padding="VALID")
    x = m.reshape(x, (1, channels))
    for _ in range(2):
        inputs = m.tensors[x].shape[1]
        x = m.fully_connected(
            x, rng.integers(-127, 128, (128, inputs), dtype=np.int8), np.arange(128), scale=0.5
        )
    m.output(x)
    return m.save(tmp_path_factory.mktemp("pools") / "m.tflite")


def test_nothing_changes_where_one_memory_is_used(model: Path) -> None:
    board = load_board(BOARD)
    plain = compile_model(model, board, CompileOptions(scratch="arena"))
    assert "pool" not in plain.sources["m.h"] and plain.load_function is None
    # Flash costs as much as this RAM does, in the model, so nothing would be gained there.
    (low,) = [one for one in board.memory if one.name == "dtcm"]
    memory = tuple(replace(one, kind="ram") if one == low else one for one in board.memory)
    cached = compile_model(
        model, replace(board, memory=memory), CompileOptions(pools={"dtcm": 1000})
    )
    assert not cached.pools
    assert cached.sources == plain.sources


@pytest.mark.slow
def test_the_pool_of_the_arenas_memory_limits_the_arena(model: Path) -> None:
    board = load_board(BOARD)
    least = compile_model(model, board, CompileOptions(objective=Objective.RAM)).arena_bytes
    found = compile_model(model, board, CompileOptions(pools={"ram": least + 2000}))
    assert found.arena_bytes <= least + 2000 and not found.pools
    assert (
        found.sources
        == compile_model(model, board, CompileOptions(budget=Budget(ram=least + 2000))).sources
    )
    with pytest.raises(CompileError, match="the pool ram and the RAM budget both limit"):
        compile_model(model, board, CompileOptions(pools={"ram": 9000}, budget=Budget(ram=9000)))


def test_an_archive_keeps_the_pools_and_refuses_impossible_ones(
    model: Path, tmp_path: Path
) -> None:
    compiled = compile_model(model, load_board(BOARD), CompileOptions(pools={"dtcm": 20_000}))
    (pool,) = compiled.pools
    assert pool.scratch_bytes and pool.residents and pool.size_bytes <= 20_000
    path = tmp_path / "m.tar"
    write_library(compiled, path)
    assert read_library(path).pools == compiled.pools
    for wrong in (
        replace(pool, name="a b"),
        replace(pool, size_bytes=20_001),
        replace(pool, scratch_bytes=20_001),
        replace(pool, residents=(replace(pool.residents[0], offset=pool.size_bytes),)),
        replace(pool, residents=(replace(pool.residents[0], table="x;"),)),
        replace(pool, residents=(replace(pool.residents[0], layers=(99,)),)),
    ):
        write_library(replace(compiled, pools=(wrong,)), path)
        with pytest.raises(ModelError, match="is not a Model Library Format archive"):
            read_library(path)


def test_a_pool_leaves_room_for_runtime_and_stack(model: Path) -> None:
    board = load_board(BOARD)
    compiled = compile_model(model, board, CompileOptions(pools={"dtcm": 20_000}))
    check_fits(compiled, board)
    (pool,) = compiled.pools
    large = replace(compiled, pools=(replace(pool, size_bytes=60_000),))
    with pytest.raises(CompileError, match=r"60,000 bytes of mps2_an500's region dtcm"):
        check_fits(large, board)


def test_activations_go_where_they_save_more(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    m = ModelWriter()
    x = m.input((1, 24, 24, 8), scale=0.02)
    for channels in (16, 16, 8):
        weights = rng.integers(-127, 128, (channels, 1, 1, m.tensors[x].shape[3]), dtype=np.int8)
        x = m.conv2d(x, weights, np.arange(channels), scale=0.5)
    m.output(x)
    path, board = m.save(tmp_path / "m.tflite"), load_board(BOARD)
    plain = compile_model(
        path, board, CompileOptions(objective=Objective.BALANCED, pools={"dtcm": 9000})
    )
    found = compile_model(
        path, board, CompileOptions(objective=Objective.BALANCED, pools={"dtcm": 40_000})
    )
    (pool,) = found.pools
    assert not plain.pools[0].uses and len(pool.uses) >= 1
    assert found.arena_bytes < plain.arena_bytes
    assert [buffer.pool for buffer in (*found.inputs, *found.outputs)] == ["", ""]
    inside = [buffer for layer in found.layers for buffer in layer.outputs if buffer.pool]
    assert inside and all(buffer.pool == "dtcm" for buffer in inside)
    assert all(use.offset >= pool.scratch_bytes for use in pool.uses)
    # Within a RAM budget, scratch stays in the arena.
    tight = compile_model(
        path, board, CompileOptions(budget=Budget(ram=plain.arena_bytes), pools={"dtcm": 40_000})
    )
    assert tight.pools[0].residents and not tight.pools[0].scratch_bytes
    archive = tmp_path / "m.tar"
    write_library(found, archive)
    assert read_library(archive).pools == found.pools
    wrong = replace(pool.uses[0], offset=pool.size_bytes)
    write_library(replace(found, pools=(replace(pool, uses=(wrong,)),)), archive)
    with pytest.raises(ModelError, match="is not a Model Library Format archive"):
        read_library(archive)


@pytest.mark.tools  # the verb asks the oracle whether it takes the model
def test_the_reports_say_what_a_pool_holds(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = str(tmp_path / "m.tar")
    argv = ("compile", str(model), "--board", BOARD, "-o", archive, "--pool", "dtcm=16K")
    assert main([*argv, "--json"]) == 0
    said = capsys.readouterr()
    (pool,) = json.loads(said.out)["pools"]
    assert pool["name"] == "dtcm" and pool["limit_bytes"] == 16384
    assert pool["bytes"] >= pool["scratch_bytes"] + sum(one["bytes"] for one in pool["weights"])
    assert f"pool dtcm: {pool['bytes']:,} of 16,384 bytes" in said.err
    used = {layer for one in pool["weights"] for layer in one["layers"]}
    assert used and all(one["table"].startswith("layer_") for one in pool["weights"])


@pytest.mark.tools
def test_the_memory_page_has_the_pools(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "m.html"
    argv = ("memory", str(model), "--board", "host", "--pool", "dtcm=16K", "--html", str(page))
    assert main([*argv, "--json", "--no-image"]) == 0
    (pool,) = json.loads(capsys.readouterr().out)["pools"]
    assert "<h2>Pools</h2>" in page.read_text() and f"{pool['bytes']:,}" in page.read_text()


def test_tables_of_a_backend_keep_theirs_and_move_no_others(tmp_path: Path) -> None:
    """A table that is aligned for a device stays in flash; an equal one of ours may have a copy."""

    def build(match: Match) -> KernelCall:
        table = np.ascontiguousarray(weights.reshape(-1)).view(np.int8)
        made = call(match, "zero", "memset(output_0, wide[0] & 0, 32); return 0;",
                    tables={"wide": table}, header="string.h")  # fmt: skip
        aligned = (
            replace(one, alignment=16) if isinstance(one, ConstantArgument) else one
            for one in made.arguments
        )
        return replace(made, arguments=tuple(aligned))

    weights = np.random.default_rng(4).integers(-127, 128, (8, 1, 1, 8), dtype=np.int8)
    m = ModelWriter()
    x = m.conv2d(m.input((1, 2, 2, 8), 0.02), weights[:, :, :, ::-1], np.arange(8), scale=0.5)
    x = m.node("TANH", [x], (1, 2, 2, 8), scale=1 / 128)
    m.output(m.conv2d(x, weights, np.arange(8), scale=0.5))
    backend = Backend("Device", (Pattern(("TANH",), build),), CText(""), origin="device.py")
    options = CompileOptions(kernels="generic", backends=(backend,), pools={"dtcm": 20_000})
    found = compile_model(m.save(tmp_path / "m.tflite"), load_board(BOARD), options)
    (pool,) = found.pools
    kept = {one.constant for one in pool.residents}
    _, device, last = (set(layer.constants) for layer in found.layers)
    # Each copy is of a table of a layer, as the C has it, and none is of the device's.
    assert kept and all(
        one.constant in found.layers[one.layers[0]].constants for one in pool.residents
    )
    assert not kept & device and kept & last
    (wide,) = device
    assert wide.offset % 16 == 0
