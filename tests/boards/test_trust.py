"""A board file of somebody else's runs nothing on this computer unless the user trusts it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from utvm_deploy.base.errors import BoardError, NoDevice, ProbeError
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.boards.probe_programs import PROBE_PROGRAMS
from utvm_deploy.boards.safe_arguments import COMPILER_FLAG, EMULATOR_ARGUMENTS, PROBE_ARGUMENTS
from utvm_deploy.cli.main import main
from utvm_deploy.device.link import stream
from utvm_deploy.device.link.stream import SerialStream
from utvm_deploy.device.probe.argv import Wanted, probe_argv
from utvm_deploy.device.probe.detect import locate
from utvm_deploy.project import create_project
from utvm_deploy.project.generated import compile_options

ROOT = Path(__file__).parents[2]
REAL, EMULATED, HOST = "nucleo_f746zg", "mps2_an386", "host"


@pytest.fixture
def disco() -> Board:
    return load_board("stm32f746g_disco")


def changed(folder: Path, name: str, old: str, new: str) -> Path:
    """A user's own copy of a shipped board's file."""
    text = (ROOT / "boards" / f"{name}.toml").read_text()
    assert old in text
    path = folder / "mine.toml"
    path.write_text(text.replace(f'name = "{name}"', 'name = "mine"').replace(old, new, 1))
    return path


def own_probe(program: str, flash: str, more: str = "") -> str:
    return (
        f'kinds = ["own"]\n[probe.commands.own]\nprogram = "{program}"\nimage_format = "elf"\n'
        f"select = []\nflash = {flash}\nreset = []\n{more}\n[probe.other]\n"
    )


FLAGS = "compiler_flags = []"
DOUBTFUL = [
    (HOST, FLAGS, 'compiler_flags = ["-wrapper", "x.sh"]', "project.compiler_flags: '-wrapper'"),
    *(
        (HOST, FLAGS, f"compiler_flags = ['{flag}']", f"project.compiler_flags: '{flag}'")
        for flag in (
            *("-fplugin=x.so", "-specs=x", "@file", "-B.", "-Wl,-T,x", "-Xlinker", "-T", "-Ix"),
            *("-fdump-tree-all", "-include/etc/passwd", "-o/tmp/x", "-save-temps", "-flto"),
            *("-Dstrlen=system", "-Dmain(x)=f(x)", "-Wa,x", "-fuse-ld=./x", "-O2 -B.", "-D"),
            *("-mllvm", "-mllvm=-load"),
            *("-mx=/tmp/x", "-x", "-dumpdir", "-iplugindir=.", "-O2;-B.", "$ENV{HOME}"),
        )
    ),
    (EMULATED, '"qemu-system-arm"', '"./qemu-system-arm"', "emulator.program: './qemu"),
    (EMULATED, '"qemu-system-arm"', '"sh"', "emulator.program: 'sh'"),
    (EMULATED, '"mps2-an386"', '"mps2-an386,dumpdtb=/tmp/x"', "emulator.machine: 'mps2-an386,d"),
    *(
        (EMULATED, '["-icount", "shift=6,sleep=off"]', f"{arguments}", "emulator.arguments: '-")
        for arguments in (
            '["-plugin", "./x.so"]',
            '["-chardev", "file,id=x,path=/tmp/x"]',
            '["-semihosting"]',
            '["-semihosting-config", "enable=on"]',
            '["-D", "/tmp/x"]',
            '["-device", "loader,file=/etc/passwd"]',
            '["-gdb", "tcp::1234"]',
            '["-icount"]',
        )
    ),
    (REAL, '"board/st_nucleo_f7.cfg"', '"./evil.cfg"', "probe openocd: './evil.cfg'"),
    (REAL, '"board/st_nucleo_f7.cfg"', '"/tmp/evil.cfg"', "probe openocd: '/tmp/evil.cfg'"),
    (REAL, '"board/st_nucleo_f7.cfg"', '"board/../../x.cfg"', "probe openocd: 'board/../../x"),
    # OpenOCD is started in "/", and looks there before it looks among its own scripts.
    (REAL, '"board/st_nucleo_f7.cfg"', '"tmp/evil.cfg"', "probe openocd: 'tmp/evil.cfg'"),
    (REAL, '"board/st_nucleo_f7.cfg"', '"home/me/x/y.cfg"', "probe openocd: 'home/me/x/y.cfg'"),
    (REAL, '"stm32f746zgtx"', '"--script=x.py"', "probe pyocd: '--script=x.py'"),
    (REAL, '"STM32F746ZG"', '"-CommandFile"', "probe jlink: '-CommandFile'"),
    (REAL, '"CONFIG_HW_STACK_PROTECTION=y"', "'CONFIG_COMPILER_OPT=\"-wrapper,x\"'",
     "project.zephyr.config: 'CONFIG_COMPILER_OPT="),
    (REAL, "[project.zephyr]", "[project.zephyr]\noverlay = ['/incbin/(\"/etc/passwd\")']",
     "project.zephyr.overlay: '/incbin/"),
    (REAL, "[project.zephyr]", "[project.zephyr]\noverlay = ['#include \"/etc/passwd\"']",
     "project.zephyr.overlay: '#include"),
]  # fmt: skip

OWN_PROBES = [
    ("sh", '["flash.sh"]', "'sh'"),
    ("./openocd", '["{image}"]', "'./openocd'"),
    ("openocd", '["-c", "exec sh x"]', "'exec sh x'"),
    ("openocd", '["-c", "init; exec sh; reset"]', "'init; exec sh; reset'"),
    ("openocd", '["-c", "program [exec sh] {image}"]', "'program [exec sh] {image}'"),
    ("openocd", '["-c", "program {image}"]', "'program {image}'"),
    ("pyocd", '["commander", "-c", "$x"]', "'commander'"),
    ("pyocd", '["flash", "--script", "x.py"]', "'--script'"),
    ("st-flash", '["read", "/home/me/.profile", "0", "16"]', "'read'"),
    ("dfu-util", '["-U", "/home/me/.profile"]', "'-U'"),
    ("nrfjprog", '["--readcode", "x"]', "'--readcode'"),
    ("west", '["flash", "--", "--cmd-load", "sh"]', "'--'"),
    ("west", '["build"]', "'build'"),
    ("STM32_Programmer_CLI", '["-u", "0", "16", "/home/me/.profile"]', "'-u'"),
]


@pytest.mark.parametrize(("name", "old", "new", "says"), DOUBTFUL)
def test_what_could_run_a_program_needs_trust(
    tmp_path: Path, name: str, old: str, new: str, says: str
) -> None:
    path = changed(tmp_path, name, old, new)
    with pytest.raises(BoardError) as caught:
        load_board(path)
    assert str(caught.value).startswith(f"{path}: {says}")
    assert "give --trust-board" in str(caught.value)
    assert load_board(path, trust=True).name == "mine"


@pytest.mark.parametrize(("program", "flash", "says"), OWN_PROBES)
def test_a_probe_of_the_files_own_does_what_probes_do(
    tmp_path: Path, program: str, flash: str, says: str
) -> None:
    text = (ROOT / "boards" / f"{REAL}.toml").read_text().replace(REAL, "mine")
    kinds = re.compile(r"kinds = \[\n.*?jlink = \{.*?\n", re.DOTALL)
    own = own_probe(program, flash).replace("[probe.other]\n", "")
    path = tmp_path / "mine.toml"
    path.write_text(kinds.sub(lambda _: own, text, count=1))
    with pytest.raises(BoardError) as caught:
        load_board(path)
    assert str(caught.value).startswith(f"{path}: probe own: {says} could run a program")
    assert load_board(path, trust=True).probe.commands[0].program == program


def test_what_only_drives_a_board_needs_no_trust(tmp_path: Path) -> None:
    flags = ("-mcpu=cortex-m4", "-mthumb", "-DX", "-DX=0x10u", "-DX=Y", "-Os", "-O3", "-g3")
    flags += ("-fno-strict-aliasing", "-ffp-contract=off", "-falign-functions=16", "-Wno-unused")
    new = f"compiler_flags = {list(flags)}"
    assert load_board(changed(tmp_path, HOST, FLAGS, new)).project.compiler_flags == flags
    for program, arguments in (
        ("probe-rs", ["download", "--chip", "nRF52840_xxAA", "--probe", "{serial}", "{image}"]),
        ("nrfjprog", ["--program", "{image}", "--sectorerase", "--verify", "--reset"]),
        ("dfu-util", ["-a", "0", "-s", "0x08000000:leave", "-D", "{image}"]),
        ("st-flash", ["--reset", "write", "{image}", "0x08000000"]),
        ("openocd", ["-f", "interface/stlink.cfg", "-f", "target/stm32f4x.cfg", "-c", "init"]),
    ):
        assert PROBE_ARGUMENTS[program].first_refused(arguments) is None
    assert EMULATOR_ARGUMENTS.first_refused(["-cpu", "qemu32,+nx,+pae", "-m", "32"]) is None


def test_the_programs_that_ship_are_on_the_list() -> None:
    for program in PROBE_PROGRAMS.values():
        facts = {fact: "board/y.cfg" if fact == "config" else "NAME" for fact in program.facts}
        commands = program.for_board({"flash_address": "0x08000000", **facts})
        for action in filter(None, (commands.flash, commands.reset, commands.server)):
            known = PROBE_ARGUMENTS[action.program]
            arguments = [one for one in action.arguments if one != "{select}"]
            assert known.first_refused(arguments) is None
            assert known.first_refused(action.select) is None
            assert known.first_refused_line(action.script) is None


@pytest.mark.tools
def test_the_command_line_asks_for_trust_and_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way: nothing runs without it, and the compiler's wrapper with it."""
    ran = tmp_path / "ran"
    script = tmp_path / "x.sh"
    script.write_text(f'#!/bin/sh\ntouch "{ran}"\nexec "$@"\n')
    script.chmod(0o755)
    board = changed(tmp_path, HOST, FLAGS, f'compiler_flags = ["-wrapper", "{script}"]')
    model = ROOT / "models" / "digits.tflite"
    verbs = (["doctor"], ["run", str(model)], ["bench", str(model)], ["verify", str(model)])
    for verb in (*verbs, ["tune", str(model)], ["project", "create", str(model), "tree"]):
        assert main([*verb, "--board", str(board)]) == 1
        assert "--trust-board" in capsys.readouterr().err
    assert not ran.exists()
    tree = create_project(None, load_board(board, trust=True), tmp_path / "tree")
    assert main(["project", "build", str(tree)]) == 1
    assert "--trust-board" in capsys.readouterr().err
    assert not ran.exists()
    assert main(["project", "build", str(tree), "--trust-board"]) == 0
    assert ran.exists()


def test_looking_at_a_board_needs_no_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(tmp_path, HOST, FLAGS, 'compiler_flags = ["-wrapper", "x.sh"]')
    monkeypatch.setenv("UTVM_BOARDS", str(tmp_path))
    assert main(["boards"]) == 0
    assert main(["boards", str(path)]) == 0
    assert "mine" in capsys.readouterr().out


@pytest.mark.tools
def test_a_flag_is_one_argument_for_cmake(tmp_path: Path) -> None:
    """CMake takes semicolons, dollars and quotes for signs of its own."""
    odd = r'-DX="a;b $ENV{HOME} ${CMAKE_COMMAND} \ ) #"'
    path = changed(tmp_path, HOST, FLAGS, f"compiler_flags = ['''{odd}''']")
    board = load_board(path, trust=True)
    (flag,) = [option for option in compile_options(board) if "-DX" in option]
    script, found = tmp_path / "script.cmake", tmp_path / "found"
    script.write_text(
        f"list(APPEND OPTIONS -Da {flag} -Db)\nlist(GET OPTIONS 1 FOUND)\n"
        f'file(WRITE "{found}" "${{FOUND}}")\n'
    )
    subprocess.run(["cmake", "-P", script], check=True, capture_output=True, timeout=60)
    assert found.read_text() == odd


@pytest.mark.parametrize("serial", ["x; exec sh", "-c", "", "a b", "[exec sh]", "a\nb"])
def test_a_serial_number_is_no_command(serial: str) -> None:
    """USB devices say their own, and OpenOCD's Tcl would read it."""
    commands = PROBE_PROGRAMS["openocd"].for_board({"config": "board/x.cfg"})
    with pytest.raises(ProbeError, match="characters that openocd may take for commands"):
        probe_argv("openocd", commands.flash, Wanted(image="/x.elf", serial=serial))
    argv = probe_argv("openocd", commands.flash, Wanted(image="/x.elf", serial="066D-FF:1.2"))
    assert "adapter serial 066D-FF:1.2" in argv


def test_a_path_is_no_command() -> None:
    commands = PROBE_PROGRAMS["openocd"].for_board({"config": "board/x.cfg"})
    with pytest.raises(ProbeError, match="characters that openocd may take for commands"):
        probe_argv("openocd", commands.flash, Wanted(image="/a} ; exec sh ; {b/x.elf"))


def test_a_port_is_a_device_or_leads_to_one(tmp_path: Path, disco: Board) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    ports = (f"spy:///dev/null?file={precious}", f"SPY://x?file={precious}", "alt://x", "loop://")
    for port in (*ports, "hwgrep://x", "cp2110://x"):
        with pytest.raises(
            NoDevice, match=r"is neither a device nor a socket:// or rfc2217:// address"
        ):
            SerialStream(port)
        with pytest.raises(NoDevice, match=r"is neither a device nor a socket://"):
            locate(disco, port=port)
    assert precious.read_text() == "mine"
    assert locate(disco, port="socket://lab:4000").port == "socket://lab:4000"
    assert stream.PORT_SCHEMES == ["socket", "rfc2217"]


def test_the_lists_take_no_line_break() -> None:
    assert not re.fullmatch(COMPILER_FLAG, "-O2\n", re.ASCII)
