"""Projects of ESP-IDF: their texts, what the build is told, and what is said of what is missing."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_model import tiny_model

import utvm_deploy
from utvm_deploy.base import process
from utvm_deploy.base.errors import BoardError, BuildError, CompileError, MissingTool, NoDevice
from utvm_deploy.base.paths import data_dir
from utvm_deploy.base.process import Completed
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.cli.main import main
from utvm_deploy.device.doctor.installed import installed_checks
from utvm_deploy.kernels.contract.external_library import ExternalLibrary
from utvm_deploy.project import build_image, build_project, create_project
from utvm_deploy.project.esp_idf_build import find_esp_idf
from utvm_deploy.project.tree import project_files
from utvm_deploy.silicon_kit.models import ModelFile
from utvm_deploy.silicon_kit.origin import Place
from utvm_deploy.silicon_kit.report import EQUAL
from utvm_deploy.silicon_kit.run import Wanted, check_ready, measure
from utvm_deploy.silicon_kit.sequences import Count, cases_of, count_cases
from utvm_deploy.targets.table import target_of

NAME = "esp32c3_devkitm"


def test_the_texts_follow_from_the_board() -> None:
    board = load_board(NAME)
    files = project_files(tiny_model(board), board)
    defaults = files["sdkconfig.defaults"].splitlines()
    for line in (
        'CONFIG_IDF_TARGET="esp32c3"',
        "CONFIG_ESP_DEFAULT_CPU_FREQ_MHZ_160=y",
        "CONFIG_ESP_TASK_WDT_INIT=n",
        "CONFIG_ESPTOOLPY_FLASHSIZE_4MB=y",
        "CONFIG_ESP_SYSTEM_MEMPROT_FEATURE=n",
        "CONFIG_ESP_CONSOLE_NONE=y",
    ):
        assert line in defaults
    config = files["template/app_config.h"]
    for macro in (
        "UTVM_CPU_HZ 160000000u",
        "UTVM_UART_BAUD 460800",
        "UTVM_LINK_USB 0",
        "UTVM_CODE_OFFSET 0x700000u",
        "UTVM_WORKSPACE_EXECUTE 0u",
    ):
        assert f"#define {macro}\n" in config
    component = files["main/CMakeLists.txt"]
    assert "../template/guard.c\n" in component and "../model/tiny" not in component
    assert "../model/" in files["model/sources.cmake"]
    # Another model changes nothing that the system is built from.
    other = project_files(None, board)
    for name in ("CMakeLists.txt", "main/CMakeLists.txt", "sdkconfig.defaults"):
        assert other[name] == files[name]


def test_a_users_library_is_linked_into_the_component() -> None:
    board = load_board(NAME)
    nn = ExternalLibrary("N-N", "", ("/nn/Include",), "/nn/libnn.a", "0f", "gcc", ("nn_f",))
    files = project_files(replace(tiny_model(board), external=nn), board)
    assert files["main/CMakeLists.txt"].endswith("/../model/library.cmake)\n")
    library = files["model/library.cmake"]
    assert "set(N_N_LIBRARY /nn/libnn.a CACHE " in library
    assert 'target_link_libraries(${COMPONENT_LIB} PRIVATE "${N_N_LIBRARY}")\n' in library
    assert (
        "target_include_directories(${COMPONENT_LIB} SYSTEM PRIVATE ${N_N_INCLUDE_DIRS})" in library
    )
    assert "(void *)&tiny_check_library" in files["template/entry_points.c"]


def with_esp_idf(tmp_path: Path, lines: str, ram: str = "") -> Path:
    text = load_board(NAME).source
    before, _, after = text.partition("[project.esp_idf]\n")
    path = tmp_path / f"{NAME}.toml"
    path.write_text(f"{before}[project.esp_idf]\n{lines}\n[link]{after.partition('[link]')[2]}")
    if ram:
        path.write_text(
            path.read_text()
            .replace("alias = 0x4038_0000\n", "")
            .replace('kind = "ram"\nexecutable = true', f'kind = "ram"\n{ram}')
        )
    return path


def test_what_a_board_file_may_say(tmp_path: Path) -> None:
    lines = 'target = "esp32c6"\nlink = "usb_serial_jtag"\nworkspace_bytes = 4096\n'
    board = load_board(with_esp_idf(tmp_path, f"{lines}config = ['CONFIG_A=y']"))
    files = project_files(None, board)
    assert files["sdkconfig.defaults"].endswith("CONFIG_A=y\n")
    assert "UTVM_LINK_USB 1\n" in files["template/app_config.h"]
    assert "UTVM_WORKSPACE_BYTES 4096\n" in files["template/app_config.h"]
    # One bus for both: code is executed where it was written.
    board = load_board(with_esp_idf(tmp_path, lines, "executable = true"))
    config = project_files(None, board)["template/app_config.h"]
    assert "UTVM_CODE_OFFSET 0x0u\n" in config
    assert "UTVM_WORKSPACE_EXECUTE UTVM_RIGHT_EXECUTE\n" in config
    for lines, ram, says in (
        ('target = "ESP 32"', "", "is not a chip's name, such as 'esp32c3'"),
        ('target = "esp32c3"\nlink = "spi"', "", "link"),
        ('target = "esp32c3"\nconfig = [\'CONFIG_A="$(rm x)"\']', "", "project.esp_idf.config"),
        (
            'target = "esp32c3"',
            "executable = false\nalias = 0x4038_0000",
            "ram runs no code; write executable = true",
        ),
    ):
        with pytest.raises(BoardError, match=says.replace("$", r"\$")):
            load_board(with_esp_idf(tmp_path, lines, ram))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """What the build would have run, and its environment."""
    calls: list[tuple[list[str], dict[str, str]]] = []

    def run(argv: Sequence[str], **options: object) -> Completed:
        calls.append((list(argv), dict(options.get("env") or {})))  # type: ignore[call-overload]
        return Completed(tuple(argv), 0, "", "")

    monkeypatch.setattr(process, "run", run)
    return calls


def test_the_arguments_of_the_build(
    idf: Path, tmp_path: Path, said: list[tuple[list[str], dict[str, str]]]
) -> None:
    board = load_board(NAME)
    tree = create_project(None, board, tmp_path / "tree")
    # By a relative name, from the working folder.
    build_project("tree")
    ((argv, env),) = said
    build = tree / "build"
    assert argv == [
        *(f"{sys.prefix}/bin/python", str(idf.resolve() / "tools" / "idf.py")),
        *("-C", str(tree), "-B", str(build), "-D", f"SDKCONFIG={build / 'sdkconfig'}", "build"),
    ]
    assert env == {"IDF_PATH": str(idf.resolve()), "IDF_TARGET": "esp32c3"}


@pytest.mark.tools
def test_a_built_project_is_flashed_through_its_port(
    double: Board, idf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the double of ESP-IDF, as for the real chip; the image of the cache, too."""
    board = load_board(NAME)
    image = build_image(None, double)
    assert {one.name for one in image.elf.parent.iterdir()} == {
        *("image.elf", "image.bin", "flasher_args.json"),
    }
    tree = create_project(None, board, tmp_path / "tree")
    argv = ["project", "flash", str(tree), "--port", "/dev/ttyUSB7", "--dry-run"]
    assert main(argv) == 0
    build, flash = map(shlex.split, capsys.readouterr().out.splitlines())
    assert build[1:4] == [str(idf.resolve() / "tools" / "idf.py"), "-C", str(tree)]
    assert flash[:5] == ["esptool", "--chip", "esp32c3", "--port", "/dev/ttyUSB7"]


@pytest.mark.tools
def test_what_is_missing_is_one_sentence(
    idf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = load_board(NAME)
    assert find_esp_idf().version == "5.3.1"

    def fix() -> str:
        (check,) = [one for one in installed_checks(board) if one.what == "ESP-IDF"]
        assert check.needed
        return check.fix if not check.ok else ""

    monkeypatch.delenv("IDF_PYTHON_ENV_PATH")
    with pytest.raises(BuildError, match=r"run in this shell: \. .*/idf/export\.sh"):
        build_image(None, board)
    assert "export.sh" in fix()
    old = tmp_path / "old" / "tools" / "cmake"
    old.mkdir(parents=True)
    (old / "version.cmake").write_text("set(IDF_VERSION_MAJOR 4)\nset(IDF_VERSION_MINOR 4)\n")
    monkeypatch.setenv("IDF_PATH", str(tmp_path / "old"))
    with pytest.raises(BuildError, match=r"4\.4 in .* is too old; install 5\.1 or newer"):
        build_image(None, board)
    monkeypatch.setenv("IDF_PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"where no ESP-IDF is \(no file .*\); correct it"):
        build_image(None, board)
    monkeypatch.delenv("IDF_PATH")
    with pytest.raises(MissingTool, match=r"ESP-IDF is not installed.*install ESP-IDF 5\.1"):
        build_image(None, board)


@pytest.mark.parametrize(
    ("output", "kind", "says"),
    [
        ("ld: region `dram0_0_seg' overflowed by 4096 bytes", CompileError, "does not fit"),
        (
            "Error: app partition is too small for binary image.bin size 0x5f0000:",
            CompileError,
            "does not fit .app partition is too small for binary image.bin size 0x5f0000:",
        ),
        ("x\nmain.c:3: error: no such thing\n", BuildError, "error: no such thing"),
    ],
)
def test_a_build_that_fails_says_why(
    output: str,
    kind: type[BuildError],
    says: str,
    idf: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = create_project(None, load_board(NAME), tmp_path / "tree")
    monkeypatch.setattr(process, "run", lambda argv, **_: Completed(tuple(argv), 2, output, ""))
    with pytest.raises(kind, match=says):
        build_project(tree)


@pytest.mark.tools
def test_the_sequences_for_silicon() -> None:
    """One for each instruction stands where no table is published; nothing crosses words."""
    board = load_board(NAME)
    cases = cases_of(board)
    known = target_of(board.cpu.core).sequences
    assert known is not None and len(cases) > 15
    assert all("1(a0)" not in case.body for case in cases)
    assert {case.cycles for case in cases if case.name == "mul chain"} == {2}
    with pytest.raises(NoDevice, match=f"{NAME} is not ready, missing: "):
        check_ready(board, Place())


@pytest.mark.tools
@pytest.mark.emulator
def test_each_sequence_has_as_many_instructions_as_it_says() -> None:
    """On an emulated core of the same instruction set, where ticks are instructions."""
    board = load_board("qemu_rv32imc")
    if not shutil.which("qemu-system-riscv32"):
        pytest.skip("install the emulator with: sudo apt install qemu-system-misc")
    counts: list[Count] = []
    with utvm_deploy.connect(board) as device:
        count_cases(device, cases_of(board), counts.extend)
    assert {one.case.name: one.ticks for one in counts} == {
        one.case.name: one.case.cycles for one in counts
    }


@pytest.mark.tools
def test_silicon_measures_models_through_the_port(double: Board, tmp_path: Path) -> None:
    path = data_dir("models") / "digits.tflite"
    wanted = Wanted(double, Place(), tmp_path / "report.json", (ModelFile.at(path),), (), samples=1)
    report = measure(wanted, lambda *_: None)
    assert [one.state for one in report.models] == [EQUAL] and not report.unfinished
    assert report.timing is not None and report.timing.unit == "cycles"
    assert report.timing.source == "esp-idf"
