"""Project trees: what is in them, that they build without us, and what a misfit is told."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from shipped_chips import VECTORS
from tiny_model import tiny_model

from utvm_deploy.base import process
from utvm_deploy.base.errors import BoardError, BuildError, CompileError, MissingTool
from utvm_deploy.base.temporary import MARK
from utvm_deploy.boards.board import board_names, load_board
from utvm_deploy.project import build_image, build_project, check_fits, create_project
from utvm_deploy.project.fit import RUNTIME_FLASH_BYTES, RUNTIME_RAM_BYTES, SERIAL_RAM_BYTES

BUILD_TIMEOUT_S = 120
#: Boards whose images are ours alone; tests/zephyr has those that need Zephyr.
OTHERS = ("zephyr", "esp-idf")
BARE_BOARDS = [
    name
    for name in board_names()
    if load_board(name).template not in OTHERS and name not in VECTORS
]


@pytest.mark.tools
@pytest.mark.parametrize("name", BARE_BOARDS)
def test_an_image_builds_without_a_warning_and_within_the_estimate(name: str) -> None:
    board = load_board(name)
    image = build_image(None, board)
    log = (image.elf.parent.parent / "build.log").read_text()
    assert "warning" not in log
    assert image.symbols["utvm_crc32_of"]
    if not board.is_host:  # a process has the C library's start-up and frames of 32 KiB besides
        taken = image.ram_bytes - board.project.stack_bytes
        estimate = RUNTIME_RAM_BYTES + (SERIAL_RAM_BYTES if "monitor" in board.link.kinds else 0)
        # No more than it says, and not much less: a smaller model may use the difference.
        assert estimate - 1024 <= taken <= estimate
        assert image.flash_bytes <= RUNTIME_FLASH_BYTES
        # Behind the stack of tasks lies the runtime's own.
        assert image.section_bytes[".stack"] == board.project.stack_bytes + 1024
        # Everything of the largest RAM is either used or lent to the host.
        workspace_end = image.symbols["utvm_workspace_end"]
        assert workspace_end == board.main_ram.end
        used_here = image.ram_bytes if board.data_ram == board.main_ram else 0
        # An MPU of v7-M keeps the two apart by eighths of a power of two.
        assert 0 <= board.main_ram.size - used_here - image.workspace_bytes <= used_here // 4
    else:
        assert image.workspace_bytes == board.main_ram.size
        assert image.symbols["utvm_workspace_end"] < 1 << 32
        assert 0 < image.ram_bytes < 2 << 20


@pytest.mark.tools
@pytest.mark.parametrize("name", BARE_BOARDS)
def test_entry_points_survive_the_linker(name: str) -> None:
    board = load_board(name)
    symbols = build_image(tiny_model(board), board).symbols
    assert {"tiny_run", "tiny_run_layer", "utvm_crc32_of"} <= set(symbols)
    assert not any(symbol.startswith("$") for symbol in symbols)


@pytest.mark.tools
@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
@pytest.mark.parametrize("name", ["host", "mps2_an500"])
def test_a_tree_builds_by_hand_elsewhere(name: str, generator: str, tmp_path: Path) -> None:
    board = load_board(name)
    tree = create_project(tiny_model(board), board, tmp_path / "made")
    moved = tmp_path / "moved by its user"
    tree.rename(moved)
    environment = {"PATH": os.environ["PATH"]}
    for argv in (["cmake", "-G", generator, "-B", "build"], ["cmake", "--build", "build"]):
        done = subprocess.run(
            argv,
            cwd=moved,
            env=environment,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning" not in (done.stdout + done.stderr).lower()
    image = build_project(moved)
    assert image.elf == moved / "build" / "image.elf"
    # The folder it is built in leaves no trace in what is loaded.
    cached = build_image(tiny_model(board), board)
    assert loaded_bytes(image.elf) == loaded_bytes(cached.elf)


def loaded_bytes(elf: Path) -> bytes:
    binary = elf.with_suffix(".loaded")
    sections = ["-j", ".text", "-j", ".rodata"]
    objcopy = shutil.which("arm-none-eabi-objcopy") or "objcopy"
    tool = "objcopy" if elf.read_bytes()[18] == 62 else objcopy  # e_machine: 62 is x86-64
    argv = [tool, "-O", "binary", *sections, str(elf), str(binary)]
    subprocess.run(argv, check=True, timeout=BUILD_TIMEOUT_S)
    return binary.read_bytes()


def test_a_tree_says_what_it_is(tmp_path: Path) -> None:
    board = load_board("mps2_an500")
    tree = create_project(tiny_model(board), board, tmp_path / "tree")
    described = json.loads((tree / "utvm_project.json").read_text())
    assert described["board"] == "mps2_an500"
    assert described["template"] == "baremetal"
    assert described["model"]["name"] == "tiny"
    assert load_board(tree / "mps2_an500.toml") == board
    everything = "".join(p.read_text() for p in tree.rglob("*") if p.is_file())
    assert str(Path(__file__).parents[2]) not in everything
    # Only the drivers that this board needs.
    drivers = {p.name for p in (tree / "template").glob("*_*.c") if p.name != "sync_code.c"}
    assert drivers == {
        "uart_cmsdk.c",
        "timer_cmsdk.c",
        "clock_none.c",
        "ticks_cycle_model.c",
        "guard_armv7m.c",
    }


def test_a_tree_that_a_full_disk_cut_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text

    def full(path: Path, text: str, encoding: str) -> int:
        if path.name == "CMakeLists.txt":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, text, encoding=encoding)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(BuildError, match="No space left on device; make room"):
            create_project(None, load_board("host"), tmp_path / "p")
    create_project(None, load_board("host"), tmp_path / "p")
    assert (tmp_path / "p" / "CMakeLists.txt").is_file()


def test_a_users_folder_is_not_overwritten(tmp_path: Path) -> None:
    board = load_board("host")
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(BuildError, match="is not empty and not a project of utvm"):
        create_project(None, board, tmp_path)
    with pytest.raises(BuildError, match="is not a folder"):
        create_project(None, board, tmp_path / "thesis.txt")
    tree = create_project(None, board, tmp_path / "tree")
    assert create_project(None, board, tree) == tree


def test_an_absent_template_is_named(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match=r"host has no template 'baremetal' \(it has host\)"):
        create_project(None, load_board("host"), tmp_path / "tree", "baremetal")


def test_a_model_for_another_board_is_refused() -> None:
    with pytest.raises(BoardError, match="was compiled for host, not for mps2_an500"):
        build_image(tiny_model(load_board("host")), load_board("mps2_an500"))


def test_no_project_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        BuildError, match=r"is not a project tree .* project create MODEL DIR --board B$"
    ):
        build_project(tmp_path)


def test_too_much_ram_is_refused_before_building(monkeypatch: pytest.MonkeyPatch) -> None:
    board = load_board("mps2_an500")
    monkeypatch.setattr(process, "run", None)  # nothing may be started
    model = tiny_model(board, arena_bytes=board.main_ram.size + 1)
    with pytest.raises(CompileError) as caught:
        build_image(model, board)
    assert str(caught.value) == (
        "model 'tiny' needs 262,145 bytes of RAM for its activations, and mps2_an500 has 262,144 "
        "bytes for it (327,680 bytes of RAM in all; the region of arenas is ram with 262,144, of "
        "which runtime and stack take 0); take less (utvm docs small-ram), or a "
        "board with more RAM"
    )
    check_fits(tiny_model(board, arena_bytes=board.main_ram.size), board)


def test_too_much_flash_is_refused_before_building(monkeypatch: pytest.MonkeyPatch) -> None:
    board = load_board("mps2_an500")
    monkeypatch.setattr(process, "run", None)
    with pytest.raises(CompileError, match=r"needs 1,048,576 bytes of flash for its weights, and"):
        build_image(tiny_model(board, weights_bytes=1 << 20), board)


@pytest.mark.tools
def test_a_link_overflow_is_one_sentence() -> None:
    board = load_board("mps2_an500")
    # The report claims less than the sources hold, so that the linker is the first to see.
    source = "const unsigned char big[1 << 20] = {1};\n"
    body = "const unsigned char *%s(void);\nconst unsigned char *%s(void) { return big; }\n"
    source += body % ("tiny_run", "tiny_run") + body % ("tiny_run_layer", "tiny_run_layer")
    with pytest.raises(CompileError) as caught:
        build_image(tiny_model(board, source=source), board)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert "bytes of flash, and mps2_an500's region flash has 1,048,576 (" in sentence


@pytest.mark.tools
def test_a_compile_error_shows_its_line_and_keeps_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A cache of its own: in the shared one another worker may be building.
    monkeypatch.setenv("UTVM_CACHE", str(tmp_path / "cache"))
    board = load_board("mps2_an500")
    with pytest.raises(BuildError) as caught:
        build_image(tiny_model(board, source="int tiny_run(void) { return oops; }\n"), board)
    assert "tiny.c:1:" in str(caught.value) and "oops" in str(caught.value)
    assert "\n" not in str(caught.value)
    log = caught.value.log_path
    assert log is not None and "oops" in log.read_text()
    assert str(log) in str(caught.value)
    assert not list((tmp_path / "cache" / "images").glob(f"*{MARK}*"))


@pytest.mark.tools
def test_a_warning_in_a_model_is_an_error() -> None:
    board = load_board("host")
    source = "static int unused;\nvoid tiny_run(void);\nvoid tiny_run(void) {}\n"
    with pytest.raises(BuildError, match="unused"):
        build_image(tiny_model(board, source=source), board)


@pytest.mark.tools
def test_the_cache_is_hit_and_keyed_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    board = load_board("host")
    first = build_image(tiny_model(board), board)
    other = build_image(tiny_model(board, weights_bytes=9), board)
    assert first.elf != other.elf
    commands: list[list[str]] = []
    real = process.run

    def recording(argv: list[str], **options: object) -> process.Completed:
        commands.append(argv)
        return real(argv, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(process, "run", recording)
    assert build_image(tiny_model(board), board).elf == first.elf
    assert commands == [["cc", "--version"]]


@pytest.mark.tools
def test_two_builders_at_once_get_the_same_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UTVM_CACHE", str(tmp_path / "cache"))
    board = load_board("host")
    elves: list[bytes] = []

    def build() -> None:
        elves.append(build_image(tiny_model(board), board).elf.read_bytes())

    threads = [threading.Thread(target=build) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BUILD_TIMEOUT_S)
    assert len(elves) == 2
    assert not list((tmp_path / "cache" / "images").glob(f"*{MARK}*"))
    assert len(list((tmp_path / "cache" / "images").iterdir())) == 1


@pytest.mark.tools
def test_images_share_the_objects_of_their_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("UTVM_CACHE", str(cache))
    programs = tmp_path / "bin"
    programs.mkdir()
    compiler = programs / "cc"
    compiler.write_text(
        f'#!/bin/sh\necho "$@" >>"{tmp_path}/calls"\nexec {shutil.which("cc")} "$@"\n'
    )
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    board = load_board("host")

    def compiled_by(weights_bytes: int) -> tuple[set[str], bytes]:
        (tmp_path / "calls").unlink(missing_ok=True)
        image = build_image(tiny_model(board, weights_bytes=weights_bytes), board)
        calls = (tmp_path / "calls").read_text().splitlines()
        return {Path(c.split()[-1]).name for c in calls if " -c " in c}, image.elf.read_bytes()

    everything, _ = compiled_by(8)
    assert {"utvm.c", "main.c", "tiny.c"} < everything
    (objects,) = (cache / "objects").iterdir()
    models_own, _ = compiled_by(9)
    assert models_own == {"main.c", *(name for name in everything if name.startswith("tiny"))}
    _, with_objects = compiled_by(10)
    # A folder of which a part is gone counts for nothing, and is made anew.
    next(objects.rglob("utvm_crc.c.o")).unlink()
    again, _ = compiled_by(11)
    assert again == everything
    # It is the same image however its objects came.
    tree = create_project(tiny_model(board, weights_bytes=10), board, tmp_path / "tree")
    assert build_project(tree).elf.read_bytes() == with_objects


@pytest.mark.tools
def test_an_unwritable_cache_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file, where a folder should be")
    monkeypatch.setenv("UTVM_CACHE", str(tmp_path / "cache"))
    with pytest.raises(BuildError, match="set UTVM_CACHE to another folder"):
        build_image(None, load_board("host"))


def test_a_missing_compiler_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cmake = tmp_path / "cmake"
    cmake.write_text("#!/bin/sh\nexit 0\n")
    cmake.chmod(cmake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match="sudo apt install gcc-arm-none-eabi"):
        build_image(None, load_board("mps2_an500"))
