"""utvm boards --new from what others describe: CMSIS packs, pyOCD's targets, Zephyr's boards."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from utvm_deploy.boards.board import load_board
from utvm_deploy.boards.facts import Board
from utvm_deploy.boards.new_boards.pack import MOST_TAGS
from utvm_deploy.cli.main import main

# The traps of the schema: what a device inherits, by which attribute; old ids; numbers in both
# bases; another name of a memory; ROM; registers; 256 bytes with a battery; several processors;
# variants.
PDSC = """<?xml version="1.0" encoding="UTF-8"?>
<package schemaVersion="1.7.7"><vendor>V</vendor><name>X_DFP</name>
<releases><release version="2.1.0">now</release><release version="1.0.0">old</release></releases>
<devices><family Dfamily="X" Dvendor="Maker:13">
  <processor Dcore="Cortex-M4" Dfpu="SP_FPU" Dendian="Little-endian"/>
  <memory id="IRAM1" start="0x20000000" size="0x1000"/>
  <subFamily DsubFamily="X1"><processor Dclock="48000000"/>
    <device Dname="X100Ax">
      <memory id="IROM1" start="0x08000000" size="65536" startup="1" default="1"/>
      <memory id="IRAM1" size="8192" start="0x20000000"/>
      <memory name="Mirror" access="rx" alias="IROM1" start="0" size="0x10000"/>
      <memory name="BootROM" access="rx" start="0x1FFF0000" size="0x8000"/>
      <memory name="Registers" access="rwp" start="0x40000000" size="0x1000"/>
    </device>
    <device Dname="X100Bx"><processor Dcore="Cortex-M0+" Dfpu="0" Dclock="24000000"/>
      <memory name="A" access="rx" start="0x08000000" size="0x8000" startup="1"/>
      <memory name="B" access="rx" start="0x08008000" size="0x8000" startup="true"/>
      <variant Dvariant="X100BxT" ><memory id="IRAM1" size="0x4000"/></variant>
    </device>
  </subFamily>
  <device Dname="X900"><processor Pname="big" Dcore="Cortex-M7" Dfpu="DP_FPU" Dclock="400000000"/>
    <processor Pname="small"/>
    <memory Pname="big" name="F1" access="rx" start="0x08000000" size="0x10000" default="1"/>
    <memory Pname="small" name="F2" access="rx" start="0x08100000" size="0x10000" default="1"/>
    <memory Pname="big" name="DTCM" access="rwx" start="0x20000000" size="0x20000"/>
    <memory Pname="big" name="AXI" access="rwx" start="0x24000000" size="0x20000"/>
    <memory Pname="big" name="Backup" access="rw" start="0x38000000" size="0x100"/>
  </device>
  <device Dname="M85"><processor Dcore="Cortex-M85"/></device>
  <device Dname="Odd"><processor Dcore="SC300"/></device>
  <device Dname="Bare"/>
  <device Dname="Bad"><memory id="IROM1" start="here" size="1" startup="1"/></device>
  <device Dname="Wide"><memory id="IROM1" start="0x100000000F" size="1" startup="1"/></device>
</family></devices></package>
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files are written, with the pack."""
    monkeypatch.chdir(tmp_path)
    Path("x.pdsc").write_text(PDSC)
    return tmp_path


def made(*argv: str) -> Board:
    """The board of the file that the options make."""
    assert main(["boards", "--new", "mine", *argv]) == 0
    return load_board("mine.toml")


def regions(board: Board) -> list[tuple[str, int, int, str, bool]]:
    return [(r.name, r.address, r.size, r.kind, r.executable) for r in board.memory]


def test_a_device_inherits_what_it_does_not_say() -> None:
    board = made("--from-pack", "x.pdsc", "--device", "x100a")
    cpu = board.cpu
    assert (cpu.core, cpu.fpu, cpu.dsp, cpu.clock_hz) == ("cortex-m4", "single", True, 48_000_000)
    assert regions(board) == [
        ("irom1", 0x0800_0000, 65536, "flash", True),
        ("iram1", 0x2000_0000, 8192, "ram", True),
    ]
    text = Path("mine.toml").read_text()
    assert "# Made of x.pdsc 2.1.0." in text and '# <memory id="IROM1"> of x.pdsc' in text
    assert 'vendor = "Maker" # Dvendor=Maker:13' in text
    # The clock is the highest one, and nothing sets it: doctor asks.
    assert any("cpu.clock_hz is the highest clock of X100Ax" in one for one in board.cautions)


def test_neighbours_are_one_region_and_a_variant_has_more() -> None:
    board = made("--from-pack", "x.pdsc", "--device", "X100BxT", "--clock", "8M")
    assert (board.cpu.core, board.cpu.fpu) == ("cortex-m0plus", "none")
    assert regions(board) == [
        ("a", 0x0800_0000, 0x1_0000, "flash", True),
        ("iram1", 0x2000_0000, 0x4000, "ram", True),
    ]
    # What the command line says replaces what the pack says.
    assert board.cpu.clock_hz == 8_000_000


def test_a_processor_of_several_has_its_own_memories(capsys: pytest.CaptureFixture[str]) -> None:
    board = made("--from-pack", "x.pdsc", "--device", "X900:big")
    assert (board.cpu.core, board.cpu.fpu) == ("cortex-m7", "double")
    assert regions(board) == [
        ("f1", 0x0800_0000, 0x1_0000, "flash", True),
        ("dtcm", 0x2000_0000, 0x2_0000, "tcm", False),
        ("axi", 0x2400_0000, 0x2_0000, "ram", True),
    ]
    # What nobody states is asked for.
    capsys.readouterr()
    main(["doctor", "--board", "mine.toml", "--json"])
    cautions = json.loads(capsys.readouterr().out)["cautions"]
    assert any(one.startswith("nobody states the sizes of the caches") for one in cautions)


def test_a_pack_is_an_archive_with_a_description() -> None:
    with zipfile.ZipFile("x.pack", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("examples/other.pdsc", "<package/>")
        archive.writestr("V.X_DFP.pdsc", PDSC)
    assert made("--from-pack", "x.pack", "--device", "X100Ax").cpu.core == "cortex-m4"


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        ([], 1, "x.pdsc has 9 devices; give --device, such as X100Ax, X100Bx, X100BxT"),
        (
            ["--device", "X9000"],
            1,
            "has no device X9000; give --device with one of its names, such",
        ),
        (["--device", "X100"], 1, "x.pdsc has 3 devices X100; give --device"),
        (["--device", "X900"], 1, "has these processors: big, small; give --device X900:big or X9"),
        (["--device", "X900:tiny"], 1, "give --device X900:big or X900:small"),
        (["--device", "X900:small", "--clock", "1M"], 0, ""),
        (["--device", "M85"], 1, "the core Cortex-M85 of M85 in x.pdsc: Cortex-M85 is not supp"),
        (["--device", "Odd"], 1, "the core SC300 of Odd in x.pdsc is not one of cortex-m0, "),
        (["--device", "Bare"], 1, "x.pdsc 2.1.0 states no flash; say where it is by --flash SIZE@"),
        (["--device", "Bad"], 1, "start='here' of the pack is not a number"),
        (["--device", "Wide"], 1, "start='0x100000000F' of the pack is not a number of 32 bits"),
        (["--device", "X100Ax", "--core", "cortex-m3"], 2, "--core goes without --from-pack"),
        (["--device", "X100Ax", "--flash", "1M"], 1, "has no address"),
        (["--from", "microbit"], 2, "--from and --from-pack exclude each other"),
    ],
)
def test_a_pack_that_does_not_do_is_one_sentence(
    argv: list[str], code: int, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["boards", "--new", "mine", "--from-pack", "x.pdsc", *argv]) == code
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == bool(code)
    assert Path("mine.toml").exists() == (code == 0)


def _bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.pdsc", " " * (65 << 20))


def _tags(path: Path) -> None:
    path.write_text("<" * (MOST_TAGS + 1))


def _name_that_is_no_text(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("\u00e4.pdsc", "<package/>")
    path.write_bytes(path.read_bytes().replace("\u00e4".encode(), b"\xff\xfe"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot read other: "),
        (_bomb, "has more than 64 MiB"),
        (b"PK\x03\x04 nothing", "is neither a .pack nor a .pdsc file"),
        (b"\x00\xff", "is neither a .pack nor a .pdsc file"),
        (_tags, "has more than 4,000,000 tags"),
        (_name_that_is_no_text, "is a damaged pack ('utf-8' codec"),
        (b"<html/>", "has the element <html>, not <package>"),
        (b"<package/>", "describes no device"),
        (b'<!DOCTYPE a [<!ENTITY b "cc">]><package>&b;</package>', "declares a document type"),
        ('<?xml version="1.0" encoding="utf-16"?><!DOCTYPE a>'.encode("utf-16"), "other"),
    ],
)
def test_a_file_that_is_no_pack_is_one_sentence(
    content: object, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if isinstance(content, bytes):
        Path("other").write_bytes(content)
    elif callable(content):
        content(Path("other"))
    assert main(["boards", "--new", "mine", "--from-pack", "other", "--device", "X"]) == 1
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_a_device_with_too_many_memories_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    more = "".join(f'<memory name="m{i}" start="{i}" size="1"/>' for i in range(501))
    Path("x.pdsc").write_text(
        PDSC.replace(
            '<device Dname="Bare"/>',
            f'<device Dname="B"><processor Dcore="Cortex-M3"/>{more}</device>',
        )
    )
    assert main(["boards", "--new", "mine", "--from-pack", "x.pdsc", "--device", "B"]) == 1
    assert "x.pdsc has 502 memories for one device" in capsys.readouterr().err


def test_the_options_go_with_new(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["boards", "--from-pack", "x.pdsc"]) == 2
    assert "--from-pack goes with --new NEW" in capsys.readouterr().err


PYOCD = """
from pathlib import Path
from types import SimpleNamespace as Some
TYPES = {name: Some(name=name) for name in ("FLASH", "RAM", "ROM")}
def region(name, start, length, kind="RAM", access="rwx", **more):
    given = {"alias": None, "is_external": False, "is_boot_memory": False, "is_testable": True}
    return Some(name=name, start=start, length=length, type=TYPES[kind],
                attributes={"access": access}, **{**given, **more})
class Chip:
    vendor = "Maker"
    def __init__(self, session):
        self.memory_map = [
            region("flash", 0, 0x10000, "FLASH", "rx", is_boot_memory=True),
            region("settings", 0x10001000, 0x400, "FLASH", "rx", is_testable=False),
            region("rom", 0x1fff0000, 0x400, "ROM", "rx"),
            region("ram", 0x20000000, 0x4000),
            region("more", 0x20004000, 0x4000),
            region("secure", 0x30000000, 0x8000, alias=1),
            region("sdram", 0x80000000, 0x10000, is_external=True),
        ]
        self._svd_location = Some(filename=str(Path(__file__).with_name("chip.svd")))
class Silent(Chip):
    def __init__(self, session):
        super().__init__(session)
        self._svd_location = None
BUILTIN_TARGETS = {"chip4": Chip, "silent": Silent}
"""


@pytest.fixture
def pyocd_double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program pyocd, and a package that has what is asked of pyOCD's."""
    package = tmp_path / "lib" / "pyocd" / "target" / "builtin"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(PYOCD)
    (package / "chip.svd").write_text(
        "<device><cpu><name>CM33</name><fpuPresent>1</fpuPresent></cpu></device>"
    )
    (package.parent / "__init__.py").write_text("")
    (package.parents[1] / "__init__.py").write_text("__version__ = '9.9'\n")
    program = tmp_path / "bin" / "pyocd"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"), prepend=":")


@pytest.mark.usefixtures("pyocd_double")
def test_a_target_of_pyocd_is_a_board(capsys: pytest.CaptureFixture[str]) -> None:
    board = made("--from-pyocd", "chip4")
    assert (board.cpu.core, board.cpu.fpu) == ("cortex-m33", "single")
    assert regions(board) == [
        ("flash", 0, 0x1_0000, "flash", True),
        ("ram", 0x2000_0000, 0x8000, "ram", True),
        ("sdram", 0x8000_0000, 0x1_0000, "ram", True),
    ]
    assert board.region("sdram").needs_init and board.main_ram.name == "ram"
    assert board.probe.kinds[0] == "pyocd"
    # Nobody states the clock, nor whether there are DSP instructions.
    asked = [one for one in board.cautions if one.startswith("nobody states")]
    assert len(asked) == 2 and "counts as 1 MHz" in asked[0] and "cpu.dsp" in asked[1]
    assert "from pyOCD 9.9, target chip4:" in capsys.readouterr().out


@pytest.mark.usefixtures("pyocd_double")
@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["chip5"], 1, "pyOCD has no built-in target chip5; did you mean 'chip4'?"),
        (["silent"], 1, "target silent does not say which core it has; give --core CORE, too"),
        (["silent", "--core", "cortex-m85"], 1, "Cortex-M85 is not supported"),
        (["silent", "--core", "cortex-m3"], 0, ""),
        (["chip4", "--device", "X"], 2, "--device goes without --from-pyocd"),
        (["../x"], 1, "--from-pyocd '../x' must be letters"),
    ],
)
def test_a_target_that_does_not_do_is_one_sentence(
    argv: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["boards", "--new", "mine", "--from-pyocd", *argv]) == code
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == bool(code)


def test_real_targets_of_pyocd() -> None:
    if shutil.which("pyocd") is None:
        pytest.skip("pyOCD is not installed: pip install pyocd")
    board = made("--from-pyocd", "nrf52840")
    assert (board.cpu.core, board.cpu.fpu) == ("cortex-m4", "single")
    assert regions(board) == [
        ("flash", 0, 1 << 20, "flash", True),
        ("ram", 0x2000_0000, 256 << 10, "ram", True),
    ]


DTS = """/dts-v1/;
#include "chip.dtsi"
/ {
    model = "A board";
    chosen { zephyr,flash = &flash0; zephyr,sram = &sram0; zephyr,console = &uart0;
             zephyr,dtcm = &dtcm; };
    sram0: memory@20010000 { compatible = "mmio-sram"; reg = <0x20010000 SIZE_K(64)>; };
    dtcm: memory@20000000 { reg = <0x20000000 SIZE_K(64)>; };
    off: memory@30000000 { compatible = "mmio-sram"; reg = <0x30000000 64>; status = "disabled"; };
    none: memory-placeholder@90000000 { compatible = "mmio-sram"; reg = <0x90000000 0x1000>; };
};
"""
DTSI = """
#define SIZE_K(n) ((n) * 1024)
/ {
    #address-cells = <1>;
    #size-cells = <1>;
    cpus { #address-cells = <1>; #size-cells = <0>;
        cpu@0 { compatible = "arm,cortex-m0+"; reg = <0>; };
        cpu@1 { compatible = "arm,cortex-m7"; reg = <1>; };
    };
    clocks { hse { #clock-cells = <0>; compatible = "v,hse"; clock-frequency = <8000000>; }; };
    soc { #address-cells = <1>; #size-cells = <1>; ranges = <0 0x40000000 0x10000000>;
        uart0: serial@4000 { reg = <0x4000 64>; current-speed = <230400>; };
        rcc@5000 { reg = <0x5000 64>; #clock-cells = <2>; clock-frequency = <200000000>; };
        sram@6000 { compatible = "mmio-sram"; reg = <0x6000 0x1000>; };
        flash-controller { #address-cells = <1>; #size-cells = <1>;
            flash0: flash@8000000 { compatible = "soc-nv-flash"; reg = <0x8000000 SIZE_K(512)>; };
        };
    };
};
"""


@pytest.fixture
def zephyr_double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with one board for each of two processors, and Zephyr's own reader of trees."""
    dtlib = importlib.util.find_spec("devicetree")
    if dtlib is None or not dtlib.submodule_search_locations:
        pytest.skip("Zephyr's reader of device trees is not installed: pip install devicetree")
    base = tmp_path / "zephyr"
    files = {
        "VERSION": "VERSION_MAJOR = 4\nVERSION_MINOR = 1\nPATCHLEVEL = 0\n",
        "boards/maker/desk/board.yml": "board:\n  name: desk\n  vendor: maker\n",
        "boards/maker/desk/desk_x7.dts": DTS,
        "boards/maker/desk/desk_x7.yaml": "identifier: desk/x7\n",
        "boards/maker/desk/desk_x7_defconfig": "CONFIG_SERIAL=y\n",
        "boards/maker/desk/board.cmake": "include(${ZEPHYR_BASE}/boards/common/jlink.board.cmake)",
        "boards/maker/desk/Kconfig.desk": "config BOARD_DESK\n\tselect SOC_X7 if BOARD_DESK_X7\n",
        "soc/maker/Kconfig": "config SOC_X7\n\tselect SERIES\nconfig SERIES\n"
        "\tselect CPU_HAS_FPU\n\tselect CPU_CORTEX_M7\n"
        "\tselect CPU_HAS_FPU_DOUBLE_PRECISION if !SMALL\n",
        "dts/maker/chip.dtsi": DTSI,
    }
    for name, text in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    source = base / "scripts" / "dts" / "python-devicetree" / "src"
    source.mkdir(parents=True)
    (source / "devicetree").symlink_to(next(iter(dtlib.submodule_search_locations)))
    monkeypatch.setenv("ZEPHYR_BASE", str(base))
    return base


def test_a_board_of_zephyr_is_a_board(zephyr_double: Path) -> None:
    board = made("--from-zephyr", "desk/x7")
    cpu = board.cpu
    # The processor is the one that Kconfig selects, and not the tree's first.
    assert (cpu.core, cpu.fpu, cpu.clock_hz) == ("cortex-m7", "double", 200_000_000)
    assert regions(board) == [
        ("flash", 0x0800_0000, 512 << 10, "flash", True),
        ("dtcm", 0x2000_0000, 64 << 10, "tcm", False),
        ("ram", 0x2001_0000, 64 << 10, "ram", True),
        ("ram_3", 0x4000_6000, 0x1000, "ram", True),
    ]
    assert (board.template, board.main_ram.name) == ("zephyr", "ram")
    assert board.project.zephyr is not None and board.project.zephyr.board == "desk/x7"
    assert (board.link.kinds, board.link.baud) == (("monitor",), 230_400)
    assert board.probe.kinds == ("west", "west_jlink")
    text = Path("mine.toml").read_text()
    assert "# Made of Zephyr 4.1.0, boards/maker/desk/desk_x7.dts." in text
    assert "clock_hz = 200000000 # clock-frequency of /soc/rcc@5000" in text


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("desk", "Zephyr's board desk is desk/x7; give one of these"),
        ("desk/x8", "has no board desk/x8; did you mean 'desk/x7'?"),
        ("../x", "--from-zephyr '../x' is not a name of a board"),
    ],
)
def test_a_board_that_zephyr_lacks_is_one_sentence(
    name: str, says: str, zephyr_double: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["boards", "--new", "mine", "--from-zephyr", name]) == 1
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_a_tree_without_its_modules_is_one_sentence(
    zephyr_double: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (zephyr_double / "dts/maker/chip.dtsi").unlink()
    argv = ["boards", "--new", "mine", "--from-zephyr", "desk/x7"]
    assert main(argv) == 1
    assert "chip.dtsi is not there; west update brings it" in capsys.readouterr().err
    # A module beside the tree has it.
    module = zephyr_double.parent / "modules" / "hal" / "maker" / "dts"
    module.mkdir(parents=True)
    (module / "chip.dtsi").write_text(DTSI.replace("arm,cortex-m7", "arm,cortex-m4f"))
    assert main(argv) == 1
    error = capsys.readouterr().err
    assert "has the processors cortex-m0plus and cortex-m4; choose one by --core" in error
    assert made("--from-zephyr", "desk/x7", "--core", "cortex-m4").cpu.fpu == "single"


def test_without_zephyr_it_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ZEPHYR_BASE", raising=False)
    assert main(["boards", "--new", "mine", "--from-zephyr", "desk"]) == 1
    assert "set ZEPHYR_BASE to its folder" in capsys.readouterr().err
