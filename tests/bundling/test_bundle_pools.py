"""Bundles of models that use another memory than the arena's: built as their users build them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from bundle_cases import LIBRARIES, Case, make_case, write
from test_bundle_builds import PASS, STRICT, build, compile_as_cxx, run

from utvm_deploy.bundling import check_bundle
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model

pytestmark = pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")

#: With weights alone, and with scratch as well.
SIZES = (700, 10_000)


def make_pools_case(folder: Path, board_name: str, size: int) -> Case:
    case = make_case(folder, "net", board_name)
    compiled = compile_model(case.model, case.board, CompileOptions(pools={"dtcm": size}))
    (pool,) = compiled.pools
    assert pool.residents and pool.size_bytes <= size
    return Case(compiled, case.board, case.model, case.inputs, case.expected)


@pytest.fixture(scope="module", params=SIZES)
def pools_case(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Case:
    return make_pools_case(tmp_path_factory.mktemp("pools"), "mps2_an500", request.param)


@pytest.mark.tools
def test_selftest_and_example_run_clean_under_sanitizers(pools_case: Case, tmp_path: Path) -> None:
    sanitize = f"{STRICT} -g -fsanitize=address,undefined -fno-sanitize-recover=all"
    bundle = write(pools_case, tmp_path / "bundle")
    folder = build(bundle, tmp_path / "build", f"-DCMAKE_C_FLAGS={sanitize}")
    assert run(folder / "net_selftest").stdout == PASS
    assert len(run(folder / "net_example").stdout.splitlines()) == 5
    check_bundle(bundle)
    manifest = json.loads((bundle / "manifest.json").read_text())
    (pool,) = pools_case.compiled.pools
    assert manifest["pools"] == [{"name": "dtcm", "bytes": pool.size_bytes}]
    readme = (bundle / "README.md").read_text()
    assert "`net_run(arena, pool_dtcm)`" in readme
    held = "scratch and copies of weights" if pool.scratch_bytes else "copies of weights"
    assert f"| RAM: the pool in dtcm, {held} | {pool.size_bytes:,} bytes |" in readme
    header = (bundle / "include" / "net.h").read_text()
    assert "void net_run(uint8_t *arena, uint8_t *pool_dtcm);" in header
    assert "void net_load_pools(uint8_t *pool_dtcm);" in header


@pytest.mark.tools
@pytest.mark.parametrize("form", ["cmake", "arduino"])
def test_the_files_are_valid_cxx(tmp_path: Path, form: str) -> None:
    bundle = write(make_pools_case(tmp_path, "host", 700), tmp_path / "bundle", format=form)
    compile_as_cxx(bundle, "g++", "c++11")
    for sketch in bundle.rglob("*.ino"):
        text = sketch.read_text()
        assert "net_load_pools(pool_dtcm);" in text and "net_run(arena, pool_dtcm);" in text
        assert "@" not in text


@pytest.mark.tools
@pytest.mark.parametrize("form", LIBRARIES)
def test_without_a_pool_nothing_is_said_of_one(tmp_path: Path, form: str) -> None:
    board = "host" if form == "esp-idf" else "mps2_an386"
    bundle = write(make_case(tmp_path, "net", board), tmp_path / "bundle", format=form)
    for path in bundle.rglob("*"):
        if path.is_file() and path.name != "manifest.json":
            assert "pool_" not in path.read_text().replace("max_pool_", "")


@pytest.mark.emulator
def test_the_selftest_passes_on_an_emulated_core(pools_case: Case, tmp_path: Path) -> None:
    emulator = pools_case.board.emulator
    assert emulator is not None
    for program in (pools_case.board.cpu.toolchain.compiler, emulator.program):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    bundle = write(pools_case, tmp_path / "bundle")
    toolchain = "-DCMAKE_TOOLCHAIN_FILE=selftest/cortex_m/toolchain.cmake"
    folder = build(bundle, tmp_path / "build", toolchain)
    symbols = run("arm-none-eabi-nm", folder / "net_selftest.elf").stdout.splitlines()
    (address,) = (line.split()[0] for line in symbols if line.endswith(" pool_dtcm"))
    region = pools_case.board.region("dtcm")
    assert region.address <= int(address, 16) < region.end
    arguments = ("-machine", emulator.machine, "-nographic", "-semihosting", "-kernel")
    assert run(emulator.program, *arguments, folder / "net_selftest.elf").stdout == PASS
