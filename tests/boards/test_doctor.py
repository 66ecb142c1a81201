"""The doctor before a real board: one line for each thing that is missing, in order."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from pathlib import Path

import pytest
from test_detect import Desk
from test_probe import FakeTool

from utvm_deploy.base.paths import cache_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.device.doctor import Check, desk, examine
from utvm_deploy.device.doctor.desk import desk_checks
from utvm_deploy.device.probe import usb

pytestmark = pytest.mark.tools

BOARD = "stm32f746g_disco"
DOCS = Path(__file__).parents[2] / "docs"
RULE = (
    'ATTRS{idVendor}=="0483", ATTRS{idProduct}=="374B", MODE="660", GROUP="plugdev", TAG+="uaccess"'
)

BACKSLASH = "\\\n MODE"


class Computer:
    """sysfs, device nodes and udev's rules in a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        for name in ("sys", "nodes", "rules", "bin"):
            (folder / name).mkdir()
        monkeypatch.setattr(usb, "SYSFS", folder / "sys")
        monkeypatch.setattr(usb, "NODES", folder / "nodes")
        monkeypatch.setattr(usb, "RULES", (folder / "rules",))
        self.desk = Desk(monkeypatch)

    def plug(self, serial: str, port: Path) -> Path:
        device = self.folder / "sys" / "1-2"
        device.mkdir()
        facts = {"idVendor": "0483", "idProduct": "374b", "busnum": "1", "devnum": "7"}
        for name, value in {**facts, "serial": serial}.items():
            (device / name).write_text(f"{value}\n")
        node = self.folder / "nodes" / "001" / "007"
        node.parent.mkdir()
        node.touch()
        port.touch()
        self.desk.plug(str(port), serial)
        return node


@pytest.fixture
def computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Computer:
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    folder = tmp_path / "computer"
    folder.mkdir()
    return Computer(folder, monkeypatch)


def checks_of(board: str = BOARD) -> dict[str, Check]:
    return {check.what: check for check in examine(load_board(board))}


def test_everything_is_there(computer: Computer, tmp_path: Path) -> None:
    port = tmp_path / "ttyACM0"
    computer.plug("066AFF", port)
    checks = checks_of()
    assert checks["board on USB"].found == "0483:374b 066AFF"
    assert checks["rights to the probe"].found == "may be opened"
    assert checks["serial port"].found == str(port)
    found = checks["image"].found
    assert found is not None and "bytes of flash" in found
    kept = checks["cache"].found
    assert kept is not None and kept.endswith(f" MB in {cache_dir()}")


@pytest.mark.parametrize("name", ["stm32f746g_disco", "nucleo_f746zg"])
def test_the_checklist_has_the_doctors_rows_in_their_order(name: str, computer: Computer) -> None:
    page = (DOCS / "guides" / "stm32f746.md").read_text(encoding="utf-8")
    steps = page.partition("## Checklist")[2].partition("\n6. ")[0]
    rows = [check.what for check in desk_checks(load_board(name), port=None, serial=None)]
    assert sorted(rows, key=lambda row: steps.index(f"`{row}`")) == rows
    for program in {one.program for one in load_board(name).probe.commands} - {"west"}:
        assert f"`{program}`" in steps


def test_a_chip_that_locks_its_debug_port_says_so(
    computer: Computer, capsys: pytest.CaptureFixture[str]
) -> None:
    (caution,) = load_board("nrf52840dk").cautions
    assert caution.startswith("from revision 3 on, its debug port is locked at each reset")
    main(["doctor", "--board", "nrf52840dk"])
    assert f"\ntake care: {caution}\n" in capsys.readouterr().out
    assert main(["boards", "nrf5340dk"]) == 0
    assert (
        "  take care its debug port is locked at each reset (APPROTECT)" in capsys.readouterr().out
    )


def test_nothing_is_plugged_in(computer: Computer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--board", BOARD, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    missing = [check["what"] for check in report["checks"] if not check["ok"]]
    assert missing[-3:] == ["board on USB", "rights to the probe", "serial port"]
    fixes = {check["what"]: check["fix"] for check in report["checks"]}
    assert "0483:374b or 0483:3752" in fixes["board on USB"]
    assert "sudo apt install openocd" in fixes["rights to the probe"]
    assert 'ATTR{idVendor}=="0483"' in fixes["rights to the probe"]
    assert "no serial port is known" in fixes["serial port"]
    assert all("\n" not in fix for fix in fixes.values())


def test_udevs_rules_wait_for_the_probe(computer: Computer) -> None:
    rules = computer.folder / "rules"
    # Another product's rule, and a comment, do not count.
    (rules / "10-other.rules").write_text(RULE.replace("374B", "3744"))
    assert checks_of()["rights to the probe"].found is None
    (rules / "60-openocd.rules").write_text(f"# ST-Link\n{RULE.replace(' MODE', BACKSLASH)}\n")
    assert checks_of()["rights to the probe"].found == "60-openocd.rules waits for it"


def test_what_may_not_be_opened(
    computer: Computer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = tmp_path / "ttyACM0"
    node = computer.plug("066AFF", port)
    closed = {node, port}
    # Not os.chmod: to root everything is open.
    monkeypatch.setattr(desk.os, "access", lambda path, _mode: Path(path) not in closed)
    checks = checks_of()
    assert checks["rights to the probe"].found is None
    assert checks["serial port"].found is None
    assert checks["serial port"].fix == "sudo usermod -aG dialout $USER, then log in again"


def test_one_flashing_program_is_enough(
    computer: Computer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    check = checks_of()["flashing program"]
    assert not check.ok and check.fix == "sudo apt install openocd"
    tool = FakeTool(tmp_path, "st-flash", "echo 1.7.0")
    monkeypatch.setenv("PATH", str(tool.folder))
    checks = checks_of()
    assert checks["flashing program"].found == "st_flash"
    assert checks["openocd"].ok and checks["openocd"].found is None
    assert checks["debug server"].ok and checks["debug server"].found is None
    # The bench file insists on one.
    Path("bench.toml").write_text(f'[boards.{BOARD}]\nprobe = "jlink"\n')
    check = checks_of()["flashing program"]
    assert not check.ok and "segger.com" in check.fix


def test_a_board_without_a_serial_line_needs_a_debug_server_instead(
    computer: Computer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = load_board("nrf52840dk")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    checks = {check.what: check for check in examine(board)}
    assert "serial port" not in checks
    assert not checks["debug server"].ok and "segger.com" in checks["debug server"].fix
    tool = FakeTool(tmp_path, "pyocd", "echo 0.46.0")
    monkeypatch.setenv("PATH", str(tool.folder))
    assert {check.what: check for check in examine(board)}["debug server"].found == "pyocd"


def test_an_image_that_does_not_build_is_told(
    computer: Computer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    image = checks_of()["image"]
    assert not image.ok and "arm-none-eabi-gcc is not installed" in image.fix


def test_a_port_that_is_named_and_absent(computer: Computer) -> None:
    Path("bench.toml").write_text(f'[boards.{BOARD}]\nport = "/dev/ttyNOWHERE"\n')
    assert checks_of()["serial port"].fix == "/dev/ttyNOWHERE is not there: plug the board in"
    Path("bench.toml").write_text(f'[boards.{BOARD}]\nport = "socket://lab:1"\n')
    assert checks_of()["serial port"].found == "socket://lab:1 (not tried)"


def test_each_extra_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    rows = {row["what"] for row in json.loads(capsys.readouterr().out)["checks"]}
    extras = importlib.metadata.metadata("utvm-deploy").get_all("Provides-Extra") or []
    # Tests alone need [test] and [micro]; west, the part of [zephyr] that matters, has its own row.
    assert {f"[{extra}]" for extra in extras if extra not in ("test", "micro", "zephyr")} <= rows


def test_extras_whose_packages_are_absent_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    version = importlib.metadata.version

    def absent(package: str) -> str:
        if package in ("distributed", "ethos-u-vela"):
            raise importlib.metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    assert main(["doctor", "--json"]) == 0
    rows = {row["what"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    assert rows["[client]"]["found"] == "installed"
    for extra in ("cluster", "service", "ethos-u"):
        assert rows[f"[{extra}]"]["found"] is None
        assert rows[f"[{extra}]"]["fix"] == f"pip install 'utvm-deploy[{extra}]'"
