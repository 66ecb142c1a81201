"""Probes: the argument lists that programs are started with, and what a missing piece is told."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from utvm_deploy.base import process
from utvm_deploy.base.errors import BoardError, MissingTool, NoDevice, ProbeError
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.boards.probe_programs import PROBE_PROGRAMS
from utvm_deploy.cli.main import main
from utvm_deploy.device.probe import detect, flash_image, start
from utvm_deploy.device.probe import flash as flash_module
from utvm_deploy.device.probe.argv import (
    Wanted,
    emulator_argv,
    probe_argv,
    probe_script,
    server_argv,
)
from utvm_deploy.device.probe.failures import failure
from utvm_deploy.device.probe.flash import reset_board
from utvm_deploy.project import Image, build_image, create_project

ELF = Path("/images/image.elf")

QEMU_ARGV = [
    "qemu-system-arm",
    *("-machine", "mps2-an500"),
    *("-icount", "shift=6,sleep=off"),
    *("-nodefaults", "-display", "none", "-monitor", "none"),
    *("-chardev", "stdio,id=link,signal=off", "-serial", "chardev:link"),
    *("-kernel", "/images/image.elf"),
    *("-device", "loader,addr=0x20001234,data=0x0badcafe,data-len=4"),
]
NO_PORTS = ["-c", "gdb_port disabled; tcl_port disabled; telnet_port disabled"]
OPENOCD_ARGV = [
    "openocd",
    *("-f", "board/stm32f746g-disco.cfg"),
    *NO_PORTS,
    *("-c", "program {/images/image.elf} verify reset exit"),
]
OPENOCD_SERIAL_ARGV = [
    "openocd",
    *("-c", "adapter serial 0670FF"),
    *("-f", "board/stm32f746g-disco.cfg"),
    *NO_PORTS,
    *("-c", "program {/images/image.elf} verify reset exit"),
]
OBJCOPY_ARGV_START = ["arm-none-eabi-objcopy", "-O", "binary", "/images/image.elf"]
CUBE = "STM32_Programmer_CLI"
JLINK_DEVICE = ["-device", "STM32F746NG", "-if", "SWD", "-speed", "4000"]
JLINK_QUIET = ["-autoconnect", "1", "-ExitOnError", "1", "-NoGui", "1"]
WEST = ["west", "flash", "--skip-rebuild", "-d", "/images", "--runner"]
PYOCD_TARGET = ["--no-wait", "--target", "stm32f746nghx"]
ST_FLASH_WRITE = ["--reset", "write", "/images/image.bin", "0x08000000"]
CUBE_WRITE = ["mode=UR", "-w", "/images/image.elf", "-v", "-rst"]
# Probe -> without and with a serial number.
ARGV = {
    "pyocd": (
        ["pyocd", "flash", *PYOCD_TARGET, "/images/image.elf"],
        ["pyocd", "flash", *PYOCD_TARGET, "--uid", "0670FF", "/images/image.elf"],
    ),
    "stm32cubeprogrammer": (
        [CUBE, "-c", "port=SWD", *CUBE_WRITE],
        [CUBE, "-c", "port=SWD", "sn=0670FF", *CUBE_WRITE],
    ),
    "jlink": (
        ["JLinkExe", *JLINK_DEVICE, *JLINK_QUIET, "-CommandFile", "COMMANDS"],
        ["JLinkExe", "-USB", "0670FF", *JLINK_DEVICE, *JLINK_QUIET, "-CommandFile", "COMMANDS"],
    ),
    "st_flash": (
        ["st-flash", *ST_FLASH_WRITE],
        ["st-flash", "--serial", "0670FF", *ST_FLASH_WRITE],
    ),
    "west_openocd": ([*WEST, "openocd"], [*WEST, "openocd", "--serial", "0670FF"]),
    "west_jlink": ([*WEST, "jlink"], [*WEST, "jlink", "--dev-id", "0670FF"]),
}
RESET_ARGV = {
    "openocd": [
        *("openocd", "-f", "board/stm32f746g-disco.cfg"),
        *(*NO_PORTS, "-c", "init; reset run; shutdown"),
    ],
    "pyocd": ["pyocd", "reset", *PYOCD_TARGET],
    "stm32cubeprogrammer": [CUBE, "-c", "port=SWD", "-rst"],
    "jlink": ["JLinkExe", *JLINK_DEVICE, *JLINK_QUIET, "-CommandFile", "COMMANDS"],
    "st_flash": ["st-flash", "reset"],
}
SERVER_ARGV = {
    "openocd": [
        *("openocd", "-c", "bindto 127.0.0.1", "-c", "adapter serial 0670FF"),
        *("-f", "board/stm32f746g-disco.cfg"),
        *("-c", "gdb_port 3333; tcl_port disabled; telnet_port disabled"),
    ],
    "pyocd": [
        *("pyocd", "gdbserver", *PYOCD_TARGET, "--uid", "0670FF"),
        *("--persist", "--port", "3333", "--telnet-port", "3334"),
    ],
    "jlink": [
        *("JLinkGDBServerCLExe", "-LocalhostOnly", "1", "-select", "usb=0670FF", *JLINK_DEVICE),
        *("-port", "3333", "-telnetport", "3334", "-swoport", "3335", "-nogui"),
    ],
    "st_flash": ["st-util", "--serial", "0670FF", "-m", "-p", "3333"],
}


class FakeTool:
    """A program of a shell script's that notes its arguments."""

    def __init__(self, folder: Path, name: str, script: str) -> None:
        self.folder = folder / "fake-bin"
        self.folder.mkdir(exist_ok=True)
        self._seen = folder / f"{name}.argv"
        self.shadow(name, f"printf '%s\\n' \"$@\" > '{self._seen}'\n{script}")

    def shadow(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def argv(self) -> list[str]:
        """The arguments of the last start."""
        return self._seen.read_text().splitlines()


@pytest.fixture
def disco() -> Image:
    return Image(ELF, load_board("stm32f746g_disco"))


def dry(action: object, *args: object, **options: object) -> list[list[str]]:
    """The commands that ``action`` would run."""
    commands: list[Sequence[str]] = []
    with process.dry_run(commands.append):
        action(*args, **options)  # type: ignore[operator]
    return [list(argv) for argv in commands]


def test_the_emulators_arguments() -> None:
    board = load_board("mps2_an500")
    assert emulator_argv(board, ELF, 0x2000_1234, 0x0BADCAFE) == QEMU_ARGV
    assert emulator_argv(board, ELF, None, 0) == QEMU_ARGV[:-2]
    with pytest.raises(BoardError, match="host is not an emulated board"):
        emulator_argv(load_board("host"), ELF, None, 0)


def test_flashing_arguments(disco: Image) -> None:
    assert dry(flash_image, disco) == [OPENOCD_ARGV]
    assert dry(flash_image, disco, serial="0670FF") == [OPENOCD_SERIAL_ARGV]
    for probe, (plain, chosen) in ARGV.items():
        assert dry(flash_image, disco, probe=probe)[-1] == plain
        assert dry(flash_image, disco, probe=probe, serial="0670FF")[-1] == chosen
    assert {*ARGV, "openocd"} == set(disco.board.probe.kinds)
    objcopy, _ = dry(flash_image, disco, probe="st_flash")
    assert objcopy[:-1] == OBJCOPY_ARGV_START


def test_resetting_arguments(disco: Image) -> None:
    for probe, argv in RESET_ARGV.items():
        assert dry(reset_board, disco.board, probe=probe) == [argv]
    assert dry(reset_board, disco.board, serial="0670FF") == [
        ["openocd", "-c", "adapter serial 0670FF", *RESET_ARGV["openocd"][1:]]
    ]
    with pytest.raises(ProbeError, match=r"west_jlink cannot reset .*press its reset button"):
        reset_board(disco.board, probe="west_jlink")


def test_the_command_line_runs_the_same(
    disco: Image, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create_project(None, disco.board, tmp_path / "tree")
    elf = tmp_path / "tree" / "build" / "image.elf"

    def flashing(*arguments: str) -> list[str]:
        assert main(["project", "flash", str(tmp_path / "tree"), "--dry-run", *arguments]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "cmake" in lines[0]
        commands = [shlex.split(line) for line in lines]
        programs = {"JLinkExe", "west", "pyocd", "openocd", "st-flash", "STM32_Programmer_CLI"}
        (found,) = [argv for argv in commands if argv and argv[0] in programs]
        return found

    for probe, (plain, chosen) in {"openocd": (OPENOCD_ARGV, OPENOCD_SERIAL_ARGV), **ARGV}.items():

        def here(argv: Sequence[str]) -> list[str]:
            built = [argument.replace("/images/image", str(elf)[:-4]) for argument in argv]
            return [str(tmp_path / "tree" / "build") if a == "/images" else a for a in built]

        assert flashing("--probe", probe) == here(plain)
        assert flashing("--probe", probe, "--serial", "0670FF") == here(chosen)
    assert flashing() == here(OPENOCD_ARGV)


def test_serving_arguments(disco: Image) -> None:
    for commands in disco.board.probe.commands:
        if commands.name not in SERVER_ARGV:
            assert commands.server is None
            continue
        assert commands.server is not None
        wanted = Wanted(serial="0670FF", ports=(3333, 3334, 3335))
        assert server_argv(commands.name, commands.server, wanted) == SERVER_ARGV[commands.name]


def test_no_placeholder_is_left() -> None:
    """Of every program that a board may name, in everything that it does."""
    for name, program in PROBE_PROGRAMS.items():
        facts = {"flash_address": "0x0", **{fact: fact.upper() for fact in program.facts}}
        commands = program.for_board(facts)
        for action in (commands.flash, commands.reset, commands.server):
            if action is not None:
                serial = "S" if action.select else None
                wanted = Wanted("I", "B", serial, (1, 2, 3), "C")
                words = [*probe_argv(name, action, wanted), probe_script(action, wanted)]
                left = re.compile("[{](?![IB][}])")  # OpenOCD's own braces around paths stay
                assert not [word for word in words if left.search(word)]
                assert serial is None or any("S" in word for word in words)


@pytest.mark.tools
def test_a_command_file_is_there_while_the_program_runs(
    disco: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = FakeTool(
        tmp_path, "JLinkExe", 'while [ $# -gt 1 ]; do shift; done; cat "$1" >&2; exit 3'
    )
    tool.shadow("arm-none-eabi-objcopy", 'for last; do :; done; : > "$last"')
    monkeypatch.setenv("PATH", f"{tool.folder}:/bin:/usr/bin")
    image = Image(tmp_path / "image.elf", disco.board)
    with pytest.raises(ProbeError, match="with JLinkExe failed: q; is the board") as caught:
        flash_image(image, probe="jlink")
    assert "COMMANDS" not in str(caught.value)
    argv = tool.argv()
    assert argv[-2] == "-CommandFile" and not Path(argv[-1]).exists()
    flash = next(one.flash for one in disco.board.probe.commands if one.name == "jlink")
    assert probe_script(flash, Wanted(image="a b.hex")) == 'r\nloadfile "a b.hex"\nr\ng\nq\n'


@pytest.mark.tools
def test_west_flashes_zephyr_builds_only(
    disco: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elf = tmp_path / "app" / "build" / "zephyr" / "zephyr.elf"
    elf.parent.mkdir(parents=True)
    image = Image(elf, disco.board)
    with pytest.raises(
        ProbeError, match=r"west_openocd flashes what Zephyr built, and .*zephyr\.elf"
    ):
        flash_image(image, probe="west_openocd")
    (elf.parent / "runners.yaml").write_text("config:\n")
    west = FakeTool(tmp_path, "west", "exit 0")
    monkeypatch.setenv("PATH", f"{west.folder}:/bin:/usr/bin")
    flash_image(image, probe="west_openocd")
    assert west.argv()[:4] == ["flash", "--skip-rebuild", "-d", str(elf.parents[1])]


def test_the_bench_file_names_the_probe(disco: Image, tmp_path: Path) -> None:
    (tmp_path / "bench.toml").write_text('[boards.stm32f746g_disco]\nprobe_serial = "0670FF"\n')
    assert dry(flash_image, disco) == [OPENOCD_SERIAL_ARGV]


def test_several_boards_of_a_kind(disco: Image, tmp_path: Path) -> None:
    (tmp_path / "bench.toml").write_text(
        '[[boards.stm32f746g_disco]]\nprobe_serial = "AA"\nprobe = "pyocd"\n'
        '[[boards.stm32f746g_disco]]\nprobe_serial = "BB"\n'
    )
    assert dry(flash_image, disco, serial="AA")[0][0] == "pyocd"
    assert dry(flash_image, disco, serial="BB")[0][0] == "openocd"
    with pytest.raises(
        BoardError, match=r"lists 2 boards .* serial number \(AA, BB\) with --serial"
    ):
        flash_image(disco)


def test_every_real_board_can_be_flashed_with_each_of_its_probes() -> None:
    for name in ("stm32f746g_disco", "nucleo_f746zg"):
        board = load_board(name)
        assert len(board.probe.kinds) >= 2
        for commands in board.probe.commands:
            *_, argv = dry(flash_image, Image(ELF, board), probe=commands.name)
            words = [*argv, *commands.flash.script]
            assert any("/images" in word or word.endswith('{image}"') for word in words)


def test_a_probe_that_cannot_choose_says_so(disco: Image, tmp_path: Path) -> None:
    text = disco.board.source.replace('"openocd",', '"mine",', 1).replace(
        "[[probe.usb]]",
        '[probe.commands.mine]\nprogram = "p"\nimage_format = "elf"\nselect = []\n'
        'flash = ["{image}"]\nreset = ["again"]\nserver = ["{gdb_port}"]\n'
        'server_program = "q"\n\n[[probe.usb]]',
        1,
    )
    path = tmp_path / "stm32f746g_disco.toml"
    path.write_text(text.replace('openocd = { config = "board/stm32f746g-disco.cfg" }', ""))
    board = load_board(path, trust=True)
    assert dry(flash_image, Image(ELF, board)) == [["p", str(ELF)]]
    assert dry(reset_board, board) == [["p", "again"]]
    assert board.probe.commands[0].programs == ("p", "q")
    with pytest.raises(BoardError, match="cannot choose a probe by its serial number '0670FF'"):
        flash_image(Image(ELF, board), probe="mine", serial="0670FF")


def test_the_pages_example_of_a_flashing_program(disco: Image, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "boards.md").read_text(encoding="utf-8")
    section = page.partition("### Another flashing program")[2]
    example = section.partition("```toml\n")[2].partition("```")[0]
    before, _, rest = disco.board.source.partition("[probe]\n")
    after = rest[rest.index("[[probe.usb]]") :]
    path = tmp_path / "stm32f746g_disco.toml"

    def board_with(text: str) -> Board:
        path.write_text(before + text + after)
        return load_board(path, trust=True)

    board = board_with(example)
    elf = ELF.with_suffix(".hex")
    assert dry(flash_image, Image(ELF, board))[-1] == ["my-flasher", "write", str(elf)]
    assert dry(flash_image, Image(ELF, board), serial="066DFF")[-1] == [
        *("my-flasher", "write", "--probe", "066DFF", str(elf))
    ]
    assert dry(reset_board, board) == [["my-flasher", "reset"]]
    # What the page calls required is.
    for key in ("program", "image_format", "select", "flash", "reset"):
        lines = [line for line in example.splitlines() if not line.startswith(f"{key} =")]
        with pytest.raises(BoardError, match=rf"probe\.commands\.flasher\.{key}: missing key"):
            board_with("\n".join([*lines, ""]))
    with pytest.raises(BoardError, match=r"did you mean 'flasher'\?"):
        board_with(example.replace('["flasher"]', '["commands.flasher"]'))


def test_an_unknown_probe_gets_a_suggestion(disco: Image) -> None:
    with pytest.raises(BoardError, match=r"has no probe 'openocd2'; did you mean 'openocd'\?"):
        flash_image(disco, probe="openocd2")


def test_what_runs_here_is_not_flashed() -> None:
    with pytest.raises(ProbeError, match="mps2_an500 is started on this computer, not flashed"):
        flash_image(Image(ELF, load_board("mps2_an500")))


def test_a_missing_program_names_the_package(
    disco: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool) as caught:
        flash_image(disco)
    assert str(caught.value) == (
        "openocd is not installed; it is needed to flash boards. "
        "Install it: sudo apt install openocd"
    )


def test_a_failing_program_is_quoted(
    disco: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openocd = FakeTool(
        tmp_path, "openocd", 'echo "Info: hello"\necho "Error: flash is worn" >&2\nexit 1'
    )
    monkeypatch.setenv("PATH", f"{openocd.folder}:/bin:/usr/bin")
    with pytest.raises(ProbeError) as caught:
        flash_image(disco)
    assert str(caught.value) == (
        "flashing stm32f746g_disco with openocd failed: Error: flash is worn; is the board plugged "
        "in, and does no other program use its probe?"
    )
    assert openocd.argv() == OPENOCD_ARGV[1:]


@pytest.mark.parametrize(
    ("said", "kind", "meaning"),
    [
        ("Error: open failed", NoDevice, "no debug probe is there"),
        ("usb.c: Couldn't find any ST-Link devices", NoDevice, "no debug probe is there"),
        ("Error: No debug probe detected.", NoDevice, "no debug probe is there"),
        ("0000318 E No target device available [load_cmd]", NoDevice, "no debug probe is there"),
        ("Connecting to J-Link via USB...FAILED", NoDevice, "no debug probe is there"),
        ("Cannot connect to J-Link.", NoDevice, "no debug probe is there"),
        (
            "Error: libusb_open() failed with LIBUSB_ERROR_ACCESS\nError: open failed",
            ProbeError,
            "you may not open the USB probe",
        ),
        (
            "Error: libusb_claim_interface() failed with LIBUSB_ERROR_BUSY\nError: open failed",
            ProbeError,
            "another program holds the probe",
        ),
        (
            "Error: init mode failed (unable to connect to the target)",
            ProbeError,
            "the chip does not answer",
        ),
        ("Error: No STM32 target found!", ProbeError, "the chip does not answer"),
        ("C Target type x not recognized. Use 'pyocd list'", ProbeError, "pyocd pack install"),
        ("Error: Can't find board/x.cfg", ProbeError, "correct probe.openocd.config"),
        (
            "FATAL ERROR: one or more Python dependencies were missing; see the getting started",
            ProbeError,
            "lacks a Python package",
        ),
        (
            "FATAL ERROR: required program JLinkExe not found; install it or add its location",
            ProbeError,
            "install what it names",
        ),
        ("Error: couldn't bind gdb to socket: Address already in use", ProbeError, "TCP port"),
        ("", ProbeError, "status 7"),
    ],
)
def test_what_a_program_says_becomes_a_sentence(
    said: str, kind: type[ProbeError], meaning: str
) -> None:
    error = failure("flashing b", "tool", f"Info: first\n{said}\nlast" if said else "", 7)
    assert type(error) is kind
    assert meaning in str(error) and "\n" not in str(error)
    assert str(error).startswith("flashing b with tool failed: ")
    if "with LIBUSB" not in said and said:
        assert said[:100] in str(error)


@pytest.mark.tools
@pytest.mark.parametrize("probe", ["openocd", "st_flash", "pyocd"])
def test_real_programs_say_that_no_probe_is_there(disco: Image, tmp_path: Path, probe: str) -> None:
    program = next(c.program for c in disco.board.probe.commands if c.name == probe)
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    elf = tmp_path / "image.elf"
    elf.write_bytes(build_image(None, disco.board).elf.read_bytes())
    # A serial number that no probe has: a board that is plugged in stays as it is.
    with pytest.raises(NoDevice, match="no debug probe is there"):
        flash_image(Image(elf, disco.board), probe=probe, serial="0" * 24)


def test_a_program_that_hangs_is_ended(
    disco: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openocd = FakeTool(tmp_path, "openocd", f"sleep 600 & echo $! > '{tmp_path}/child'; wait")
    monkeypatch.setenv("PATH", f"{openocd.folder}:/bin:/usr/bin")
    monkeypatch.setattr(flash_module, "FLASH_FLOOR_S", 0.5)
    with pytest.raises(ProbeError, match=r"took longer than 0\.5 s; replug the board"):
        flash_image(disco)
    wait_until_gone(int((tmp_path / "child").read_text()))


@pytest.mark.tools
def test_ctrl_c_ends_the_flashing_program_and_its_children(disco: Image, tmp_path: Path) -> None:
    create_project(None, disco.board, tmp_path / "tree")
    child = tmp_path / "child"
    openocd = FakeTool(
        tmp_path,
        "openocd",
        f"trap '' TERM\nsleep 600 & echo $! > '{child}.new'\n"
        f"mv '{child}.new' '{child}'; wait; wait",
    )
    utvm = subprocess.Popen(
        [sys.executable, "-m", "utvm_deploy", "project", "flash", str(tmp_path / "tree")],
        env={**os.environ, "PATH": f"{openocd.folder}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not child.exists():
            assert utvm.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        utvm.send_signal(signal.SIGINT)
        _, err = utvm.communicate(timeout=30)
    finally:
        utvm.kill()
        utvm.communicate()
    assert utvm.returncode == 130
    assert err.splitlines()[-1] == "interrupted"
    wait_until_gone(int(child.read_text()))


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        state = Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0]
        if state == "Z":
            return
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


def test_a_real_board_needs_a_port(disco: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "serial_ports", list)
    monkeypatch.setattr(process, "run", None)  # nothing may be flashed first
    with pytest.raises(NoDevice) as caught:
        start(disco.board, disco)
    assert str(caught.value) == (
        "no serial port is known for stm32f746g_disco, and no USB device 0483:374b or 0483:3752 "
        "has one; plug it in, give port=... (--port), or write "
        '[boards.stm32f746g_disco] port = "/dev/ttyACM0" into bench.toml; '
        "verbs such as verify and profile take its twin on mps2_an500 by --emulate"
    )
    with pytest.raises(NoDevice, match="serial port /dev/ttyNOWHERE is not there"):
        start(disco.board, disco, port="/dev/ttyNOWHERE")


@pytest.mark.tools
def test_a_missing_emulator_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from utvm_deploy.project import build_image

    board = load_board("mps2_an500")
    image = build_image(None, board)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match="sudo apt install qemu-system-arm"):
        start(board, image)


@pytest.mark.tools
def test_an_emulator_that_refuses_leaves_last_words(tmp_path: Path) -> None:
    from utvm_deploy.base.errors import LinkError
    from utvm_deploy.device.link.monitor import MonitorLink
    from utvm_deploy.project import build_image

    text = load_board("mps2_an500").source.replace('"mps2-an500"', '"mps2-an5OO"')
    path = tmp_path / "mps2_an500.toml"
    path.write_text(text)
    board = load_board(path)
    with start(board, build_image(None, board)) as running:
        with pytest.raises(LinkError):
            MonitorLink(running.stream).hello()
        assert "unsupported machine type" in running.last_words()
    assert "unsupported machine type" in running.last_words()
