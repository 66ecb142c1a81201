"""RISC-V: its board files, what its fault records say, and what only its boards show."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import (
    BoardError,
    BuildError,
    BundleError,
    DeviceFault,
    LinkClosed,
    TaskTimeout,
)
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.bundling import write_bundle
from utvm_deploy.cli.main import main
from utvm_deploy.device.link.base import Task
from utvm_deploy.device.link.fault import describe_fault
from utvm_deploy.project.build import build_project
from utvm_deploy.project.tree import create_project
from utvm_deploy.targets.table import CORES, TARGETS, registered

BOARDS = ("qemu_rv32imc", "qemu_rv32imafc", "qemu_rv32imcv")
COMPILER = "riscv64-unknown-elf-gcc"
RV32IMC = ("-march=rv32imc", "-mabi=ilp32")
needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, (COMPILER, "qemu-system-riscv32"))),
    reason="needs riscv64-unknown-elf-gcc and qemu-system-riscv32",
)
TASKS = """
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
void endless(void) { for (;;) { } }
void poke(uint32_t address) { *(volatile uint32_t *)address = 1u; }
uint32_t deep(uint32_t depth) {
    volatile uint32_t frame[16];
    frame[0] = depth;
    return depth == 0u ? 0u : deep(depth - 1u) + frame[0];
}
void call(void) { __asm volatile("ecall"); }
void logarithm(float *x) { x[0] = logf(x[0]); }
void too_large(int32_t *error) { errno = 0; (void)strtol("99999999999", 0, 10); *error = errno; }
void sum(float *x) { x[3] = x[0] * x[1] + x[2]; }
"""
#: A store that leaves its region after eight bytes, in another rounding mode; and what follows.
VECTOR_TASKS = """
#include <stdint.h>
#define VECTORS ".option push\\n.option arch, +zicsr, +zve32x\\n"
void halfway(uint32_t end) {
    uint32_t count = 16;
    __asm volatile(VECTORS "csrwi vxrm, 2\\nvsetvli zero, %0, e8, m1, ta, ma\\nvse8.v v0, (%1)\\n"
                   ".option pop" : : "r"(count), "r"(end - 8u) : "memory");
}
void state(uint32_t *seen) {
    uint32_t start, mode;
    __asm volatile(VECTORS "csrr %0, vstart\\ncsrr %1, vcsr\\n.option pop"
                   : "=r"(start), "=r"(mode));
    seen[0] = start;
    seen[1] = mode;
}
"""


def fault(**words: int) -> str:
    faults = TARGETS["riscv"].faults
    return describe_fault(
        faults.decode([words.get(name, 0) for name in faults.names]), "<{:x}>".format
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            {
                "mcause": 7,
                "mtval": 0x10,
                "pc": 0x8000_0100,
                "sp": 0x8040_0100,
                "stack": 0x8040_0000,
            },
            "access fault: data access to a forbidden address at address 0x00000010, in <80000100>",
        ),
        (
            {"mcause": 5, "mtval": 0x803F_FFF0, "pc": 4, "sp": 0x803F_FFE0, "stack": 0x8040_0000},
            "load access fault: the stack overflowed at address 0x803ffff0, in <4>",
        ),
        (
            {"mcause": 1, "mtval": 6, "pc": 6, "ra": 8},
            "forbidden address at address 0x00000006, called from <8>",
        ),
        ({"mcause": 2, "mtval": 0x30200073, "pc": 6}, "illegal instruction, in <6>"),
        ({"mcause": 2, "mtval": 0x0D00_7057, "pc": 6}, "whose core has none, in <6>"),
        ({"mcause": 2, "mtval": 0x0205_E407, "pc": 6}, "whose core has none, in <6>"),
        ({"mcause": 2, "mtval": 0x0005_2007, "pc": 6}, "illegal instruction, in <6>"),
        ({"mcause": 24, "pc": 6}, "exception 24, in <6>"),
        ({"mcause": 1 << 31 | 7, "pc": 6}, "interrupt 7, in <6>"),
    ],
)
def test_what_a_record_says(words: dict[str, int], says: str) -> None:
    assert fault(**words).endswith(says)


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        (
            "qemu_rv32imc",
            '"rv32imc"',
            '"rv32ic"',
            "RV32IC and RV32E are not supported: without the extension M",
        ),
        (
            "qemu_rv32imc",
            '"rv32imc"',
            '"rv32imac"',
            "'rv32imac' here: write rv32imc; the extension A is not used",
        ),
        ("qemu_rv32imc", '"rv32imc"', '"rv32imc_zba_zbb"', "rv32imc; Zba and Zbb are not used"),
        ("qemu_rv32imc", '"rv32imc"', '"rv32imac_zicsr_zba"', "rv32imc; A and Zba are not used"),
        ("qemu_rv32imc", '"rv32imc"', '"rv32gc"', "write rv32imafc; the extension D is not used"),
        ("qemu_rv32imc", '"rv32imc"', '"rv32imcv"', r"write rv32imc_zve32x \("),
        ("qemu_rv32imc", '"rv32imc"', '"rv32im"', "core that has the extension C, too"),
        (
            "qemu_rv32imc",
            "flags = []",
            'flags = ["-march=rv32imc_zba_zbb"]',
            "means -march=rv32imc .*; write rv32imc; Zba and Zbb are not used, and remove the flag",
        ),
        ("qemu_rv32imc", 'fpu = "none"', 'fpu = "single"', "no single-precision"),
        ("qemu_rv32imafc", 'fpu = "single"', 'fpu = "none"', "has a floating-point unit"),
        ("qemu_rv32imc", "flags = []", 'flags = ["-march=rv32imafc"]', "means -march=rv32imc"),
        ("qemu_rv32imc", "flags = []", 'flags = ["-mabi=ilp32f"]', "means -march=rv32imc"),
        ("qemu_rv32imcv", "flags = []", 'flags = ["-march=rv32imcv"]', "means -march=rv32imc"),
        ("qemu_rv32imc", "clint", "dwt", "clint"),
    ],
)
def test_board_files_that_contradict_themselves(
    tmp_path: Path, name: str, old: str, new: str, says: str
) -> None:
    path = tmp_path / f"{name}.toml"
    path.write_text(load_board(name).source.replace(old, new))
    with pytest.raises(BoardError, match=says):
        load_board(path)


@pytest.mark.tools
@pytest.mark.emulator
@needs_tools
@pytest.mark.parametrize("link", ["monitor", "debug"])
@pytest.mark.parametrize("name", BOARDS)
def test_what_stops_a_task_is_named_and_nothing_is_lost(name: str, link: str) -> None:
    with utvm_deploy.connect(name, link=link) as device:
        module = device.load_module(TASKS, name="tasks")
        kept = device.tensor(np.arange(64, dtype=np.uint8))
        for task, arguments, says in (
            ("poke", (0xF000_0000,), r"store access fault: .* at address 0xf0000000, in poke"),
            ("poke", (device.symbol("reset_handler"),), "store access fault"),
            ("deep", (1_000_000,), r"access fault: the stack overflowed at .* in deep\+"),
            ("call", (), r"environment call from user mode, in call\+"),
        ):
            with pytest.raises(DeviceFault, match=says):
                module[task](*arguments)
                device.sync()
        with pytest.raises(TaskTimeout, match=r"it was in endless"):
            device.execute([Task(module["endless"].address, (), 1, 0.2)], 30.0)
        np.testing.assert_array_equal(kept.numpy(), np.arange(64, dtype=np.uint8))


@pytest.mark.tools
@pytest.mark.emulator
@needs_tools
@pytest.mark.parametrize("name", BOARDS)
def test_floating_point_in_tasks(name: str) -> None:
    """Products are rounded before they are added, and the C library has its variables."""
    x = np.array([1 + 2**-12, 1 + 2**-12, -(1 + 2**-11), 9], np.float32)
    with utvm_deploy.connect(name) as device:
        module = device.load_module(TASKS, name="tasks")
        values, error = device.tensor(x), device.empty(1, np.int32)
        module["sum"](values)
        assert values.numpy()[3] == 0  # fused: 2**-24
        module["logarithm"](values)
        assert 0 < values.numpy()[0] < 2**-11
        module["too_large"](error)
        assert error.numpy()[0] == 34  # ERANGE


@pytest.mark.tools
@pytest.mark.emulator
@needs_tools
def test_a_core_with_longer_extensions_is_a_row_and_a_board_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the guide to cores says. The C library is that of the letters."""
    monkeypatch.chdir(tmp_path)
    name, model = "rv32imc_zba_zbb", str(data_dir("models") / "digits.tflite")
    argv = ["boards", "--new", "mine", "--from", "qemu_rv32imc", "--core", "rv32imc"]
    assert main([*argv, "--clock", "15625000"]) == 0
    text = Path("mine.toml").read_text().replace('core = "rv32imc"', f'core = "{name}"')
    Path("mine.toml").write_text(text)
    row = replace(CORES["rv32imc"], name=name, architecture=name)
    with registered(replace(TARGETS["riscv"], name="more", tag=99, cores=(row,))):
        assert load_board("mine.toml").cpu.compiler_flags[0] == f"-march={name}"
        assert main(["verify", model, "--board", "mine.toml"]) == 0
    assert "all equal to LiteRT" in capsys.readouterr().out


@pytest.mark.tools
@pytest.mark.emulator
@needs_tools
def test_a_task_finds_nothing_of_a_vector_instruction_that_was_stopped() -> None:
    with utvm_deploy.connect("qemu_rv32imcv") as device:
        module = device.load_module(VECTOR_TASKS, name="vectors")
        seen = device.tensor(np.ones(2, np.uint32))
        with pytest.raises(DeviceFault, match="store access fault"):
            module["halfway"](device.symbol("utvm_workspace_end"))
            device.sync()
        module["state"](seen)
        np.testing.assert_array_equal(seen.numpy(), [0, 0])


@pytest.mark.tools
@pytest.mark.emulator
@needs_tools
def test_vector_instructions_without_vectors_are_faults() -> None:
    with utvm_deploy.connect("qemu_rv32imc") as device:
        module = device.load_module(VECTOR_TASKS, name="vectors")
        with pytest.raises(DeviceFault, match="illegal instruction: this core has no vectors"):
            module["state"](device.tensor(np.ones(2, np.uint32)))
            device.sync()


@pytest.mark.tools
@pytest.mark.emulator
@needs_tools
@pytest.mark.parametrize(
    ("cpu", "says"),
    [
        ("v=off", "faulted: illegal instruction: this core has no vectors"),
        ("v=on,new=on", "Property '.*new' not found; this emulator is older than the board's"),
    ],
)
def test_an_emulator_without_vectors_is_named(tmp_path: Path, cpu: str, says: str) -> None:
    path = tmp_path / "qemu_rv32imcv.toml"
    text = load_board("qemu_rv32imcv").source
    path.write_text(text.replace("v=on,elen=32,vlen=128,vext_spec=v1.0", cpu))
    with (
        pytest.raises((DeviceFault, LinkClosed), match=says),
        utvm_deploy.connect(load_board(path)) as device,
    ):
        device.load_module(TASKS, name="tasks")["sum"](device.tensor(np.ones(4, np.float32)))
        device.sync()


@pytest.mark.tools
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("a.s:24: Error: unrecognized .option directive: arch", "arch; .*binutils 2.38 or newer"),
        ("error: cannot read spec file 'picolibc.specs': No", "No; sudo apt install picolibc-"),
        (
            "ld: libc.a(a.o): ABI is incompatible\ncollect2: error: ld",
            "failed: ld: libc.*ompatible",
        ),
        (
            "ld: cannot find -lnothere\ncollect2: error: ld returned",
            "failed: ld: cannot find -lnothere",
        ),
    ],
)
def test_a_toolchain_that_lacks_something_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, says: str
) -> None:
    compiler = tmp_path / "bin" / COMPILER
    compiler.parent.mkdir()
    compiler.write_text(f'#!/bin/sh\necho "{words}" >&2\nexit 1\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(compiler.parent), prepend=":")
    tree = create_project(None, load_board("qemu_rv32imc"), tmp_path / "tree")
    with pytest.raises(BuildError, match=says):
        build_project(tree)


@pytest.mark.tools
@pytest.mark.emulator
@needs_tools
@pytest.mark.parametrize(
    ("name", "form"), [*zip(BOARDS, ("esp-idf", "cmake", "cmake"), strict=True)]
)
def test_the_selftest_of_a_bundle(name: str, form: str, tmp_path: Path) -> None:
    board = load_board(name)
    emulator, bundle, built = board.emulator, tmp_path / "bundle", tmp_path / "built"
    assert emulator is not None
    model = data_dir("models") / "digits.tflite"
    argv = ["bundle", str(model), "--board", name, "-o", str(bundle), "--no-latency"]
    assert main([*argv, "--format", form]) == 0
    toolchain = bundle / "selftest" / "riscv" / "toolchain.cmake"
    run(["cmake", "-S", bundle, "-B", built, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"])
    machine = [emulator.program, "-machine", emulator.machine, "-display", "none"]
    machine += ["-bios", "none", "-semihosting", "-kernel", str(built / "digits_selftest.elf")]
    machine += emulator.arguments[: emulator.arguments.index("-bios")]
    run(["cmake", "--build", built])
    assert "PASS digits" in run(machine)
    # One weight differs: the verdict does.
    weights = next(bundle.rglob("digits_weights.c"))
    text = weights.read_text()
    weights.write_text(re.sub(r"\{\s*(-?\d+),", r"{ \1 ^ 64,", text, count=1))
    assert weights.read_text() != text
    run(["cmake", "--build", built])
    assert "FAIL digits" in run(machine, expected=1)


@needs_tools
@pytest.mark.parametrize("form", ["cmake", "arduino"])
@pytest.mark.tools
def test_whoever_compiles_a_bundle_gets_its_vectors(form: str, tmp_path: Path) -> None:
    """By the instruction set alone; other cores, and those who ask for it, get plain C."""
    model, bundle = data_dir("models") / "digits.tflite", tmp_path / "bundle"
    argv = ["bundle", str(model), "--board", "qemu_rv32imcv", "-o", str(bundle), "--no-latency"]
    assert main([*argv, "--format", form]) == 0
    assert "must have the vector instructions Zve32x" in (bundle / "README.md").read_text()
    kernels, header = (next(bundle.rglob(f"digits{end}")) for end in ("_kernels.c", ".h"))
    for flags, has_vectors in (
        (RV32IMC, True),
        ((*RV32IMC, "-DUTVM_VECTORS"), True),
        ((*RV32IMC, "-DUTVM_NO_VECTORS"), False),
        ((*RV32IMC, "-DUTVM_VECTORS", "-DUTVM_NO_VECTORS"), False),
        (("-march=rv64imac", "-mabi=lp64"), False),
    ):
        command = [COMPILER, *flags, "--specs=picolibc.specs", "-Wall", "-Wundef", "-Werror"]
        text = run([*command, f"-I{header.parent}", "-S", kernels, "-o", "-"])
        assert ("vsetvli" in text) == has_vectors, flags


@needs_tools
@pytest.mark.tools
def test_a_bundle_built_without_our_toolchain_file_runs_its_vectors(tmp_path: Path) -> None:
    """Its start-up code turns them on, too."""
    model, bundle = data_dir("models") / "digits.tflite", tmp_path / "bundle"
    board = load_board("qemu_rv32imcv")
    assert (
        main(["bundle", str(model), "--board", board.name, "-o", str(bundle), "--no-latency"]) == 0
    )
    selftest, elf = bundle / "selftest", tmp_path / "digits.elf"
    sources = [
        *bundle.glob("src/*.c"),
        selftest / "digits_selftest.c",
        selftest / "riscv/startup.c",
    ]
    flags = [*RV32IMC, "--specs=picolibc.specs", "-O3", "-ffunction-sections", "-nostartfiles"]
    script = f"-T{selftest / 'riscv' / 'selftest.ld'}"
    folders = [f"-I{bundle / 'include'}", f"-I{selftest}"]
    run([COMPILER, *flags, *folders, *sources, "-Wl,--no-gc-sections", script, "-o", elf])
    assert board.emulator is not None
    machine = [board.emulator.program, "-machine", board.emulator.machine, "-display", "none"]
    machine += ["-bios", "none", "-semihosting", "-kernel", str(elf)]
    machine += board.emulator.arguments[: board.emulator.arguments.index("-bios")]
    assert "PASS digits" in run(machine)


def run(command: Sequence[str | Path], expected: int = 0) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout + done.stderr


ESP32C3 = "esp32c3_devkitm"
TEN_LINES = """\
name = "mine"
vendor = "Espressif"
description = "ESP32-C6 under ESP-IDF"
cpu = { core = "rv32imc", clock_hz = 160_000_000, fpu = "none", dsp = false }
memory = [
  { name = "flash", address = 0x0, size = 0x0080_0000, kind = "flash", executable = true },
  { name = "ram", address = 0x4080_0000, size = 0x0008_0000, kind = "ram", executable = true },
]
project = { templates = ["esp-idf"] }
"""


@pytest.mark.parametrize(
    "argv",
    [
        ["project", "create", "MODEL", "tree"],
        ["verify", "MODEL"],
        ["profile", "MODEL"],
        ["tune", "MODEL", "--trials", "2", "--records", "r.jsonl"],
        ["silicon", "-o", "s.json"],
    ],
)
def test_what_a_board_without_a_chip_cannot_do_is_one_sentence(
    argv: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(TEN_LINES)
    model = str(data_dir("models") / "digits.tflite")
    given = [model if word == "MODEL" else word for word in argv]
    assert main([*given, "--board", "mine.toml"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ESP-IDF builds the firmware of mine, and its file does not say")
    assert "write [project.esp_idf]" in error
    assert "utvm bundle MODEL --board mine --format esp-idf" in error
    if argv[0] in ("verify", "profile"):
        assert error.endswith("; qemu_rv32imc, which is emulated, can run the model")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


@pytest.mark.tools
def test_a_component_for_an_esp32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its kernels are those of the core; the chip's own boot starts it."""
    monkeypatch.chdir(tmp_path)
    model, bundle = data_dir("models") / "digits.tflite", tmp_path / "digits"
    argv = ["bundle", str(model), "--board", ESP32C3, "--format", "esp-idf", "-o", str(bundle)]
    assert main(argv) == 0
    assert "does not run on this computer" in capsys.readouterr().out
    assert "compiled for rv32imc" in (bundle / "README.md").read_text()
    assert not (bundle / "selftest" / "riscv").exists()
    readme = (bundle / "README.md").read_text()
    assert "target_compile_definitions(${COMPONENT_LIB} PRIVATE" in readme
    # What ESP-IDF writes stays out of the bundle.
    assert "cd digits_selftest/examples/selftest\n" in readme
    cmake = (bundle / "CMakeLists.txt").read_text()
    assert "for a RISC-V core" in cmake and "cortex" not in cmake.lower()
    assert main(["boards", "--new", "mine", "--device", "ESP32-C3-MINI-1"]) == 0
    assert load_board("mine.toml").project.esp_idf == load_board(ESP32C3).project.esp_idf


def test_a_component_for_a_cortex_m_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, bundle = data_dir("models") / "digits.tflite", tmp_path / "digits"
    argv = ["bundle", str(model), "--board", "mps2_an500", "--format", "esp-idf", "-o", str(bundle)]
    says = (
        "ESP-IDF does not build for mps2_an500 (cortex-m7); give --board esp32c3_devkitm, or "
        "--board host"
    )
    for options in ([], ["--dry-run"]):
        assert main([*argv, *options]) == 1
        assert says in capsys.readouterr().err
    board = load_board("mps2_an500")
    compiled = utvm_deploy.compile(model, board=board)
    with pytest.raises(BundleError, match=re.escape(says)):
        write_bundle(compiled, board, model, bundle, format="esp-idf", inputs=[], expected=[])
    assert not bundle.exists()


@pytest.mark.tools
def test_the_doctor_says_that_esp_idf_is_absent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in ("idf.py", "esptool", "openocd"):
        if shutil.which(program):
            pytest.skip(f"{program} is installed; take it from PATH to see what is said without it")
    monkeypatch.delenv("IDF_PATH", raising=False)
    assert main(["doctor", "--board", ESP32C3]) == 1
    said = capsys.readouterr().out
    assert "\nESP-IDF is missing: install ESP-IDF 5.1 or newer, then run its export.sh " in said
    assert "\nflashing program is missing: pip install 'esptool>=5'\n" in said
    assert "\nserial port is missing: " in said
    assert re.search("^absent +openocd .* export.sh of ESP-IDF, which puts Espressif", said, re.M)


def test_a_board_of_esp_idf_is_ten_lines(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEN_LINES)
    board = load_board(path)
    assert board.why_no_image
    path.write_text(
        TEN_LINES.replace("project = {", 'project = { esp_idf = { target = "esp32c6" },')
    )
    assert not load_board(path).why_no_image
    path.write_text(TEN_LINES.replace('"rv32imc"', '"cortex-m3"'))
    with pytest.raises(BoardError, match="do not fit the core 'cortex-m3'"):
        load_board(path)
