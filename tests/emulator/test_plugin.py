"""The plugin in QEMU: what the guest reads, what is left behind, that it never varies."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulator.conftest import HERE, QEMU
from utvm_deploy.base.errors import BoardError, ProbeError
from utvm_deploy.boards.board import load_board
from utvm_deploy.targets.emulator import CycleModel, arguments, counters
from utvm_deploy.targets.emulator.model import CounterBlock, counter_block
from utvm_deploy.targets.emulator.plugin import build_plugin, installed_qemu_version, plugin_abi

REPOSITORY = HERE.parents[1]
BENCHMARKS = REPOSITORY / "benchmarks" / "cycle_model"
GCC = "arm-none-eabi-gcc"
BOARD = load_board("mps2_an500")
RUN_TIMEOUT_S = 60.0
RUNS = 20

pytestmark = pytest.mark.emulator


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which(GCC) is None:
        pytest.skip(f"{GCC} is not installed")
    folder = tmp_path_factory.mktemp("image")
    names = [f"#define COUNTER_{name.upper()} {n}" for n, name in enumerate(counters.NAMES)]
    words = f"#define COUNTER_WORDS {len(counters.NAMES)}"
    (folder / "image.h").write_text("\n".join([*names, words, ""]))
    script = (BENCHMARKS / "link.ld.in").read_text()
    script = script.replace("@flash@", "ORIGIN = 0, LENGTH = 1M")
    script = script.replace("@ram@", "ORIGIN = 0x20000000, LENGTH = 64K")
    (folder / "link.ld").write_text(script)
    elf = folder / "image.elf"
    subprocess.run(
        [GCC, *replace(BOARD.cpu, fpu="single", mve=False).compiler_flags,
         "-O1", "-ffreestanding", "-nostdlib",
         "-Wall", "-Wextra", "-Werror", f"-I{folder}", "-T", str(folder / "link.ld"),
         "-o", str(elf), str(HERE / "image.c")],
        check=True,
    )  # fmt: skip
    return elf


def block() -> CounterBlock:
    """The linker script puts the counters at the end of the flash."""
    return counter_block(BOARD, 0x100000 - 256)


def run(image: Path, *plugin_arguments: str, icount: bool = True) -> list[int]:
    assert BOARD.emulator is not None
    argv = [
        *(QEMU, "-machine", BOARD.emulator.machine, "-nographic", "-monitor", "none"),
        *("-serial", "none", "-semihosting-config", "enable=on,target=native"),
        *("-kernel", str(image), *plugin_arguments),
        *(BOARD.emulator.arguments if icount else ()),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=True)
    return [int(line) for line in (done.stdout + done.stderr).split()]


def test_what_the_guest_reads(plugin: Path, image: Path) -> None:
    model = CycleModel.for_board(BOARD)
    numbers = run(image, *arguments(plugin, model, counters=block()))
    added, multiplied, device, memory, cold, warm, tightly_coupled = numbers
    # The same address, other code: one cycle for each addition, two for each multiplication.
    assert multiplied - added == 100
    # A device is reached at QEMU's second try; what came before is not counted twice.
    assert device == memory
    assert (cold, warm, tightly_coupled) == (8, 0, 0)


def test_without_caches_nothing_misses(plugin: Path, image: Path) -> None:
    model = CycleModel.for_board(BOARD).without_caches()
    assert run(image, *arguments(plugin, model, counters=block()))[4:] == [0, 0, 0]


def test_without_a_block_the_guest_reads_nothing(plugin: Path, image: Path) -> None:
    assert run(image, *arguments(plugin, CycleModel.for_board(BOARD))) == [0] * 7


def test_every_run_is_the_same(plugin: Path, image: Path, tmp_path: Path) -> None:
    model = CycleModel.for_board(BOARD)

    def once(number: int) -> tuple[list[int], bytes, str]:
        report, snapshots = tmp_path / f"{number}.json", tmp_path / f"{number}.bin"
        loaded = arguments(
            plugin, model, counters=block(), report=report, snapshots=snapshots, hot=5
        )
        return run(image, *loaded), snapshots.read_bytes(), report.read_text()

    # Two at a time, so that they disturb each other.
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(once, range(RUNS)))
    assert all(result == results[0] for result in results)


def test_snapshots_and_report(plugin: Path, image: Path, tmp_path: Path) -> None:
    report, snapshots = tmp_path / "with, comma.json", tmp_path / "snapshots.bin"
    loaded = arguments(
        plugin, CycleModel.for_board(BOARD), counters=block(), report=report,
        snapshots=snapshots, hot=3,
    )  # fmt: skip
    numbers = run(image, *loaded)
    taken = counters.read_snapshots(snapshots)
    calls = [after - before for before, after in zip(taken[::2], taken[1::2], strict=True)]
    assert [calls[2]["core"], calls[5]["core"]] == numbers[:2]
    assert [call["instructions"] for call in calls[6:8]] == numbers[2:4]
    for call in calls:
        mix = sum(call[group] for group in counters.MIX_GROUPS)
        assert mix == call["instructions"]
        misses = call["dcache_misses_flash"] + call["dcache_misses_ram"]
        assert call["memory"] == call["core"] + 22 * misses + call["linefill_waits"]
        assert call["pessimistic"] >= call["memory"]
        assert call["rich"] >= call["memory"]
    ticks = [call["memory"] for call in calls[1:4]]
    assert counters.between(taken[:8], ticks) == calls[1:4]
    with pytest.raises(ProbeError, match="hold no run"):
        counters.between(taken, [1, 2, 3])

    told = counters.read_report(report)
    assert told["unknown"] == []
    assert told["counters"]["instructions"] >= taken[-1]["instructions"]
    assert len(told["hot"]) == 3
    hottest = told["hot"][0]
    assert hottest["core"] >= told["hot"][1]["core"]
    assert {"address", "code", "kind", "cycle", "stall"} == set(hottest["instructions"][0])
    stalls = {one["stall"] for hot in told["hot"] for one in hot["instructions"]}
    assert stalls <= {"", "paired", "operand", "bank", "unit", "busy"}
    assert "paired" in stalls
    assert sum(told["kinds"].values()) == told["counters"]["instructions"]


def test_a_branch_is_one_however_it_is_come_to(plugin: Path, tmp_path: Path) -> None:
    """The predictor knows branches, not blocks: QEMU parts those wherever a page ends."""
    if shutil.which(GCC) is None:
        pytest.skip(f"{GCC} is not installed")
    elf, snapshots = tmp_path / "one_branch.elf", tmp_path / "snapshots"
    subprocess.run(
        [GCC, "-mcpu=cortex-m7", "-mthumb", "-nostdlib", "-Wl,-Ttext=0", "-Wl,-e,start",
         "-o", str(elf), str(HERE / "one_branch.s")],
        check=True,
    )  # fmt: skip
    run(elf, *arguments(plugin, CycleModel.for_board(BOARD), snapshots=snapshots))
    begin, end, *others = counters.read_snapshots(snapshots)
    whole, parted = end - begin, others[1] - others[0]
    # Taken and not taken by turns: two bits are wrong every other time, in both.
    assert 100 <= whole["mispredictions"] <= 102
    assert parted["mispredictions"] == whole["mispredictions"]
    assert abs(parted["core"] - whole["core"]) <= 16


def test_counts_do_not_depend_on_icount(plugin: Path, image: Path) -> None:
    loaded = arguments(plugin, CycleModel.for_board(BOARD), counters=block())
    assert run(image, *loaded, icount=False) == run(image, *loaded)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ("core=cortex-m99", "'core=cortex-m99' is not known"),
        ("core=cortex-m7,dcache=100:4:32", "'dcache=100:4:32' is not known or out of range"),
        ("core=cortex-m7,colour=1", "'colour=1' is not known"),
        ("hot=1", "core=NAME is missing"),
    ],
)
def test_wrong_arguments(plugin: Path, image: Path, changed: str, sentence: str) -> None:
    argv = [QEMU, "-machine", "mps2-an500", "-nographic", "-plugin", f"{plugin},{changed}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    assert done.returncode != 0
    assert sentence in done.stderr


@pytest.mark.parametrize(
    ("version", "abi"),
    [
        ("7.2.22", 1),
        ("8.2.2", 1),
        ("9.0.0", 2),
        ("9.1.0", 3),
        ("9.2.4", 3),
        ("10.0.8", 3),
        ("10.2.0", 3),
    ],
)
def test_plugin_interfaces(version: str, abi: int) -> None:
    assert plugin_abi(version) == abi
    assert (
        REPOSITORY / "utvm_deploy" / "targets" / "emulator" / "plugin" / f"abi_{abi}.h"
    ).is_file()


@pytest.mark.parametrize("version", ["6.2.0", "11.0.0", "soon"])
def test_unknown_interfaces_are_an_error(version: str) -> None:
    with pytest.raises(ProbeError, match="QEMU"):
        plugin_abi(version)


@pytest.mark.parametrize("version", ["9.0.0", "10.0.8"])
def test_it_is_built_once(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTVM_CACHE", str(tmp_path))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(build_plugin, [version] * 2)
    assert first == second
    made = first.stat().st_mtime_ns
    assert build_plugin(version).stat().st_mtime_ns == made
    assert [entry.name for entry in first.parent.parent.iterdir() if entry.is_dir()] == [
        first.parent.name
    ]


def test_installed_version() -> None:
    if shutil.which(QEMU) is None:
        pytest.skip(f"{QEMU} is not installed")
    assert int(installed_qemu_version(QEMU).split(".")[0]) >= 7


def test_a_core_without_model() -> None:
    with pytest.raises(BoardError, match="no cycle model for the core cortex-m33"):
        CycleModel.for_board(load_board("mps2_an521"))


def test_another_chip_is_another_board_file() -> None:
    board = replace(BOARD, cpu=replace(BOARD.cpu, dcache_bytes=16384, icache_bytes=0))
    model = CycleModel.for_board(board)
    assert model.dcache is not None and model.dcache.size_bytes == 16384
    assert model.icache is None
    (_, settings) = arguments(Path("x.so"), model)
    assert "dcache=0x4000:0x4:0x20" in settings and "icache" not in settings


def test_counters_outside_memory() -> None:
    with pytest.raises(BoardError, match="are in no memory"):
        counter_block(BOARD, 0x90000000)


@pytest.mark.parametrize("name", ["mps2_an500", "mps2_an386"])
def test_published_measurements(name: str) -> None:
    """The micro-benchmarks: the model says what was measured, or the exception is listed."""
    if shutil.which(QEMU) is None or shutil.which(GCC) is None:
        pytest.skip("QEMU or the cross compiler is not installed")
    argv = [sys.executable, str(BENCHMARKS / "run.py"), "--board", name, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout)["sequences"]
    if name == "mps2_an500":
        assert len(rows) >= 40
        assert sum(bool(row["exception"]) for row in rows) <= 3
    # A listed exception is one: it would not agree without being listed.
    assert [row["name"] for row in rows if row["exception"] and row["agrees"]] == []
