"""What every test gets: a clean environment, and a device on each board there is.

pytest                      host process and every emulated core
pytest --bench bench.toml   also the real boards that the bench file lists
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import spread
import without_tools
from fork_server import ForkServers
from needed_machine import skip_without_machine

import utvm_deploy
from utvm_deploy.base.toml_table import read_toml
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.device import CYCLES, INSTRUCTIONS, Device
from utvm_deploy.frontend import formats
from utvm_deploy.oracle import origin, reference
from utvm_deploy.quality.quantizing import child_steps

# Threads of OpenMP and of OpenBLAS that wait for each other compute while they wait. Beside other
# tests, PyTorch's training of a small net took many times the processor seconds that it needs.
# Children get this, too.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# Hundreds of child processes load the package. Without bytecode on the disk each of them compiles
# it again, which takes half of its time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# TVM and thousands of tests are many objects; to look for garbage among them took a fifteenth of
# the time.
gc.set_threshold(50_000, 20, 100)

ROOT = Path(__file__).resolve().parents[1]
#: Every board that runs on this computer; each end-to-end test runs once on each.
RUNNABLE_BOARDS = (
    "host",
    "mps2_an500",
    "mps2_an386",
    "mps2_an385",
    "mps3_an547",
    "netduinoplus2",
    "qemu_rv32imc",
    "wasm",
)
#: Boards that differ from one of these in their kernels only. They run the tests of kernels, and
#: with ``--every-board`` all.
KERNEL_BOARDS = ("qemu_rv32imcv",)
#: Boards with less RAM than most tests need, and cores that cannot isolate tasks.
SMALL_BOARDS = ("microbit",)

#: Kernels are made for a core, however a board is reached: here the first board of each will do.
KERNEL_TESTS = ROOT / "tests" / "kernels"
#: Folders whose tests convert and quantize often.
FORKING_FOLDERS = frozenset(
    (
        "api",
        "cli",
        "evaluating",
        "frontend",
        "models",
        "oracle",
        "other_formats",
        "precision",
        "quantizing",
        "relax",
        "tutorials",
    )
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bench", help="a bench.toml: run the end-to-end tests on its boards too")
    without_tools.add_option(parser)
    spread.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Signals that a shell ignores for what it runs in the background, or nohup, count here.

    Children inherit what is ignored, so without this no test could interrupt one.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    without_tools.configure(config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``--without-tools`` modules that have no test for it are not imported."""
    if config.getoption(without_tools.OPTION) and collection_path.suffix == ".py":
        return without_tools.leaves_out(collection_path) or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long runs are asked for by ``-m soak``; without it only the short ones run."""
    for item in items:
        without_tools.mark(item)
    left_out: set[pytest.Item] = set()
    if config.getoption(without_tools.OPTION):
        left_out = {item for item in items if not without_tools.is_fast(item)}
    elif "soak" not in config.option.markexpr:
        left_out = {item for item in items if item.get_closest_marker("soak")}
    if not config.getoption(spread.OPTION):
        left_out |= spread.left_out(items)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def is_about_cores(test: pytest.Item) -> bool:
    """Whether nothing but a board's core matters to the test."""
    is_marked = test.get_closest_marker("each_core") is not None
    return is_marked or test.path.is_relative_to(KERNEL_TESTS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "board" not in metafunc.fixturenames:
        return
    boards = list(RUNNABLE_BOARDS)
    if metafunc.definition.get_closest_marker("small_boards") is not None:
        boards += SMALL_BOARDS
    if is_about_cores(metafunc.definition) or metafunc.config.getoption(spread.OPTION):
        boards += KERNEL_BOARDS
    if metafunc.definition.get_closest_marker("runtime") is not None:
        boards = [name for name in boards if spread.known_board(name).cpu.target.machine is None]
    if is_about_cores(metafunc.definition):
        of_core: dict[str, str] = {}
        for name in boards:
            of_core.setdefault(spread.known_board(name).cpu.core, name)
        boards = list(of_core.values())
    params = [
        pytest.param(name, marks=[] if name == "host" else [pytest.mark.emulator])
        for name in boards
    ]
    bench = metafunc.config.getoption("--bench")
    if bench:
        names = read_toml(Path(bench)).table("boards").keys_present
        params += [pytest.param(name, marks=pytest.mark.hardware) for name in names]
    metafunc.parametrize("board", params, indirect=True)


@pytest.fixture(autouse=True)
def no_tools_unless_marked(pytestconfig: pytest.Config) -> Iterator[None]:
    """With ``--without-tools`` a test that starts a compiler, an emulator or the oracle fails."""
    yield from without_tools.refusing(pytestconfig)


@pytest.fixture(scope="session")
def fork_servers() -> Iterator[ForkServers]:
    """What runs, converts and quantizes models, loaded once for all tests of this process."""
    with ForkServers() as servers:
        yield servers


@pytest.fixture(autouse=True)
def forked_children(
    fork_servers: ForkServers, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """In some folders, what converts, quantizes or runs a model of another format is forked.

    A module that starts such children as users do has a fixture of this name that does nothing.
    """
    if request.path.parent.name in FORKING_FOLDERS:
        for module in (formats, origin, child_steps):
            monkeypatch.setattr(module, "process", fork_servers.stand_in())


@pytest.fixture(autouse=True)
def forked_oracle(fork_servers: ForkServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle is forked from a process that has its packages loaded.

    A module that starts it as users do has a fixture of this name that does nothing.
    """
    monkeypatch.setattr(reference, "process", fork_servers.stand_in())


@pytest.fixture(scope="session", autouse=True)
def unsynced_files() -> Iterator[None]:
    """No test cuts the power, so none waits until a disk has what was written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def clean_environment(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    image_cache: Path,
    pytestconfig: pytest.Config,
) -> None:
    """No setting of the user's reaches a test, and none is left behind."""
    for name in list(os.environ):
        if name.startswith("UTVM_") and name not in ("UTVM_SHARED", "UTVM_TEST_JOBS"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UTVM_CACHE", str(image_cache))
    monkeypatch.setenv("UTVM_RUNS", str(tmp_path / "runs.sqlite"))
    bench = pytestconfig.getoption("--bench")
    if bench:
        monkeypatch.setenv("UTVM_BENCH", str(Path(bench).resolve()))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def image_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of built images for the whole run, shared between parallel workers."""
    base = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        base = base.parent
    cache = base / "image-cache"
    cache.mkdir(exist_ok=True)
    return cache


@pytest.fixture
def board(request: pytest.FixtureRequest) -> Board:
    """Each board in turn."""
    board = load_board(request.param)
    if board.emulator and not shutil.which(board.emulator.program):
        pytest.skip(f"{board.emulator.program} is not installed")
    skip_without_machine(board)
    return board


@pytest.fixture
def device(board: Board, request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device on each board in turn."""
    # Bytes are the same without the cycle model, and take half of the time.
    timing = INSTRUCTIONS if is_about_cores(request.node) else CYCLES
    with utvm_deploy.connect(board, timing=timing) as connected:
        yield connected


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """The folder of the MLPerf Tiny reference models, which do not belong to this project."""
    folder = Path(os.environ.get("UTVM_SHARED", ROOT.parent / "shared")) / "models"
    if not folder.is_dir():
        pytest.skip(f"no folder of shared models at {folder}; set UTVM_SHARED")
    return folder
