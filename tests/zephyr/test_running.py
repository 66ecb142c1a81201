"""Zephyr applications built and run for real, in QEMU: what the ordinary suite cannot look at."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from vendor_library import vendor_plugin
from zephyr_apps import build_by_cmake, console_of, zephyr_board

import utvm_deploy
from utvm_deploy.base.errors import DeviceFault, NoDevice, TaskTimeout
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.cli.main import main
from utvm_deploy.device import Device
from utvm_deploy.device.probe.flash import flash_image
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import load_golden, random_samples
from utvm_deploy.project import build_image, build_project, create_project, find_cmsis_nn
from utvm_deploy.project.zephyr_build import Zephyr
from utvm_deploy.results.profiling.layer_costs import profile
from utvm_deploy.results.verifying.on_board import verify

DIGITS = data_dir("models") / "digits.tflite"
EXAMPLE = data_dir("models").parent / "examples" / "zephyr_digits"
EMULATED = ("qemu_x86", "qemu_riscv32", "mps2_an385", "mps2_an521", "mps3_an547")
#: Boards of different architectures; their counts are the same in every run.
COUNTING = EMULATED[:2]
REAL = ("nucleo_f746zg", "stm32f746g_disco")
MODELS = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")
SOAK_CALLS = 10_000

pytestmark = [pytest.mark.emulator, pytest.mark.slow, pytest.mark.usefixtures("zephyr")]

#: One good function, and some that must not take the runtime down.
FUNCTIONS = """
#include <stdint.h>
#include <string.h>
static const int32_t steps[4] = {1, 2, 3, 4};
void add(int32_t *x, int32_t n) { for (int32_t i = 0; i < n; i++) x[i] += steps[i & 3]; }
void scale(float *x) { x[0] *= 1.5f; }
void copy(uint8_t *to, const uint8_t *from, uint32_t n) { memcpy(to, from, n); }
void stray(void) { *(volatile int *)(uintptr_t)0xfffffff0u = 1; }
void illegal(void) { __builtin_trap(); }
void spin(void) { for (;;) __asm__ volatile(""); }
"""


#: What only an MPU notices: a stack that runs into its neighbour, and a write to code.
UNGUARDED = """
#include <stdint.h>
void count(int32_t *x) { x[0]++; }
int32_t __attribute__((noinline)) deep(int32_t n, volatile int32_t *up) {
    volatile int32_t frame[2];
    frame[0] = n ? n - up[0] : 0;
    return (n ? deep(n - 1, frame) : 0) + frame[0];
}
/* One frame that is larger than the stack, used from its far end. */
void skip(int32_t *x) {
    volatile int32_t frame[4096];
    frame[0] = 1;
    x[0] = frame[0];
}
void poke(volatile int32_t *x) { *x = 1; }
"""


@pytest.fixture(params=EMULATED)
def zephyr_name(request: pytest.FixtureRequest) -> str:
    """Each emulated board in turn."""
    return str(request.param)


@pytest.fixture
def zephyr_target(zephyr_name: str) -> Board:
    return zephyr_board(zephyr_name)


@pytest.fixture
def target(zephyr_target: Board) -> Iterator[Device]:
    with utvm_deploy.connect(zephyr_target) as connected:
        yield connected


@pytest.mark.parametrize("zephyr_name", [*COUNTING, "mps3_an547"], indirect=True)
@pytest.mark.parametrize("name", MODELS)
def test_every_byte_and_layer(name: str, target: Device, shared_models: Path) -> None:
    path = shared_models / f"{name}.tflite"
    samples = load_golden(shared_models / f"{name}.golden.npz", load_model(path))
    found = verify(target.load(utvm_deploy.compile(path, target.board)), path, samples)
    assert found.ok, found
    assert found.samples_run == len(samples.inputs)


@pytest.mark.parametrize(
    ("zephyr_name", "name"),
    [*(("mps2_an521", name) for name in MODELS), ("mps3_an547", MODELS[1])],
    indirect=["zephyr_name"],
)
def test_cmsis_nn_beside_our_kernels(
    name: str, target: Device, shared_models: Path, zephyr: Zephyr
) -> None:
    """Only its fully connected layers may make other bytes of equal inputs."""
    folder = zephyr.base.parent / "modules" / "lib" / "cmsis-nn"
    if not folder.is_dir():
        pytest.skip(
            "the west workspace has no module cmsis-nn (docs/guides/zephyr.md says how to get it)"
        )
    path = shared_models / f"{name}.tflite"
    library = find_cmsis_nn(folder, target.board)
    compiled = utvm_deploy.compile(path, target.board, kernels="cmsis-nn", cmsis_nn=library)
    assert any(layer.is_external for layer in compiled.layers)
    found = verify(target.load(compiled), path, random_samples(load_model(path), 1))
    wrong = [check.layer.kind for check in found.layers if check.mismatch is not None]
    assert wrong[:1] in ([], ["FULLY_CONNECTED"])


def test_modules_run_and_their_faults_end_them_alone(target: Device) -> None:
    module = target.load_module(FUNCTIONS)
    x = target.tensor(np.arange(6, dtype=np.int32))
    module["add"](x, 6)
    np.testing.assert_array_equal(x.numpy(), [1, 3, 5, 7, 5, 7])
    real = target.tensor(np.array([3.0], np.float32))
    module["scale"](real)
    assert real.numpy()[0] == 4.5
    for name in ("stray", "illegal"):
        with pytest.raises(DeviceFault, match=rf"{name}\(\)"):
            module[name]()
            target.sync()
    module["spin"]()
    with pytest.raises(TaskTimeout):
        target.sync()
    module["add"](x, 6)
    np.testing.assert_array_equal(x.numpy(), [2, 5, 8, 11, 6, 9])


@pytest.mark.parametrize("zephyr_name", EMULATED[1:], indirect=True)
def test_the_mpu_guards_stack_and_flash_while_modules_run_from_ram(target: Device) -> None:
    module = target.load_module(UNGUARDED)
    x = target.tensor(np.zeros(1, np.int32))
    for name, arguments, why in (
        ("deep", (1_000_000, x), "stack overflow|stack limit"),
        ("poke", (target.image.symbols["utvm_crc32_of"] & ~3,), "forbidden address"),
    ):
        with pytest.raises(DeviceFault, match=why):
            module[name](*arguments)
            target.sync()
        module["count"](x)
    assert x.numpy()[0] == 2


@pytest.mark.parametrize("zephyr_name", EMULATED[1:], indirect=True)
def test_a_frame_that_skips_the_stacks_guard_changes_nothing(target: Device) -> None:
    module = target.load_module(UNGUARDED)
    x = target.tensor(np.zeros(1, np.int32))
    if target.board.cpu.core == "cortex-m3":
        # There is no RAM below its stack; QEMU swallows what silicon takes for a bus fault.
        assert target.image.symbols["task_stack"] == target.board.main_ram.address
        module["skip"](x)
    else:
        with pytest.raises(DeviceFault, match=r"stack limit|stack overflowed"):
            module["skip"](x)
            target.sync()
    before = x.numpy()[0]
    module["count"](x)
    assert x.numpy()[0] == before + 1


def test_every_byte_value_crosses_the_uart(target: Device) -> None:
    rng = np.random.default_rng(1)
    sent = np.concatenate([np.arange(256), rng.integers(0, 256, 65_280)]).astype(np.uint8)
    np.testing.assert_array_equal(target.tensor(sent).numpy(), sent)


def test_a_reset_is_noticed_and_survived(target: Device) -> None:
    nonces = [target.hello.nonce]
    for _ in range(3):
        target.reset()
        nonces.append(target.hello.nonce)
    assert len(set(nonces)) == len(nonces)


@pytest.mark.parametrize("zephyr_name", COUNTING, indirect=True)
def test_instruction_counts_are_identical_over_20_runs(zephyr_target: Board) -> None:
    compiled = utvm_deploy.compile(DIGITS, zephyr_target)
    samples = random_samples(load_model(DIGITS), 1)
    counts = set()
    for _ in range(4):
        with utvm_deploy.connect(zephyr_target) as device:
            assert device.hello.tick_unit == "instructions"
            model = device.load(compiled)
            for _ in range(5):
                counts.add(tuple(layer.ticks for layer in profile(model, samples).layers))
    assert len(counts) == 1


@pytest.mark.parametrize("zephyr_name", COUNTING, indirect=True)
def test_the_command_line_is_the_same(
    zephyr_target: Board, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = tmp_path / "records.jsonl"
    assert main(["verify", str(DIGITS), "--board", zephyr_target.name, "--samples", "2"]) == 0
    arguments = ["--board", zephyr_target.name, "--trials", "6", "--records", str(records)]
    assert main(["tune", str(DIGITS), *arguments]) == 0
    assert records.read_text().count("instructions") >= 6
    assert (
        main(["profile", str(DIGITS), "--board", zephyr_target.name, "--records", str(records)])
        == 0
    )
    assert "instructions" in capsys.readouterr().out


@pytest.mark.parametrize("zephyr_name", ["mps2_an385"], indirect=True)
def test_the_template_is_named_where_a_board_has_two(zephyr_target: Board) -> None:
    assert load_board(zephyr_target.name).template == "baremetal"
    argv = ["verify", str(DIGITS), "--board", zephyr_target.name, "--samples", "2"]
    assert main([*argv, "--template", "zephyr"]) == 0


@pytest.mark.parametrize("name", REAL)
def test_images_for_real_boards_build(name: str, shared_models: Path, figures: list[str]) -> None:
    board = zephyr_board(name)
    for model in MODELS:
        compiled = utvm_deploy.compile(shared_models / f"{model}.tflite", board, scratch="auto")
        image = build_image(compiled, board)
        assert compiled.arena_bytes <= image.workspace_bytes
        assert image.flash_bytes <= board.main_flash.size
        coupled, ram = board.region("dtcm"), board.main_ram
        stack_bytes = image.section_bytes[".dtcm_noinit"]
        assert coupled.address <= image.symbols["task_stack"] <= coupled.end - stack_bytes
        assert stack_bytes >= board.project.stack_bytes + compiled.stack_bytes
        assert ram.address <= image.symbols["utvm_workspace"]
        assert image.symbols["utvm_workspace_end"] <= ram.end
        figures.append(
            f"{name:17}{model:24}flash {image.flash_bytes:7,}  RAM {image.ram_bytes:6,}, of them "
            f"{stack_bytes:6,} tasks' stack in DTCM, beside an arena of {compiled.arena_bytes:6,}"
        )


def test_another_model_does_not_rebuild_the_kernel(tmp_path: Path, figures: list[str]) -> None:
    board = zephyr_board("qemu_x86")
    tree, kernel = tmp_path / "tree", tmp_path / "tree/build/zephyr/kernel/libkernel.a"

    def build(model: Path, name: str) -> float:
        compiled = utvm_deploy.compile(model, board, name=name)
        create_project(compiled, board, tree)
        begin = time.monotonic()
        build_project(tree)
        return time.monotonic() - begin

    clean_s = build(DIGITS, "model")
    made = kernel.stat().st_mtime_ns
    again_s = build(data_dir("models") / "cifar10_cnn.tflite", "model")
    renamed_s = build(DIGITS, "digits")
    assert kernel.stat().st_mtime_ns == made
    figures.append(
        f"build on {board.name}: clean {clean_s:.1f} s, another model {again_s:.1f} s, "
        f"a model of another name {renamed_s:.1f} s"
    )


@pytest.mark.parametrize("name", COUNTING)
def test_a_project_stands_alone(name: str, tmp_path: Path) -> None:
    board = zephyr_board(name)
    tree = create_project(utvm_deploy.compile(DIGITS, board), board, tmp_path / "tree")
    elf = build_by_cmake(tree, tmp_path / "build", "-DFILE_SUFFIX=standalone")
    assert "digits: output " in console_of(board, elf, until="cycles")


def test_a_bundle_is_a_module_of_an_application(tmp_path: Path, zephyr: Zephyr) -> None:
    board = zephyr_board("qemu_x86")
    module = tmp_path / "digits"
    arguments = ["--board", board.name, "-o", str(module), "--format", "zephyr", "--name", "digits"]
    assert main(["bundle", str(DIGITS), *arguments]) == 0
    elf = build_by_cmake(
        EXAMPLE, tmp_path / "build", "-DBOARD=qemu_x86", f"-DDIGITS_MODULE={module}"
    )
    assert "10 of 10 right" in console_of(board, elf, until="right")


def test_west_builds_it_too(tmp_path: Path, zephyr: Zephyr) -> None:
    west = Path(zephyr.python).with_name("west")
    if not west.is_file():
        pytest.skip("no west beside the Python that Zephyr's scripts run with")
    top = subprocess.run([west, "topdir"], cwd=zephyr.base, capture_output=True, check=False)
    if top.returncode:
        pytest.skip("ZEPHYR_BASE is not part of a west workspace")
    board = zephyr_board("mps2_an385")
    tree = create_project(utvm_deploy.compile(DIGITS, board), board, tmp_path / "tree")
    argv = [west, "build", "-b", "mps2/an385", "-d", tmp_path / "build", tree]
    done = subprocess.run(argv, cwd=zephyr.base, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "build" / "zephyr" / "zephyr.elf").is_file()


def test_west_flashes_a_cached_image_and_misses_the_board(zephyr: Zephyr) -> None:
    """Of a serial number that no probe has, so that a board on the desk keeps what it runs."""
    for program in ("west", "openocd"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not on PATH")
    image = build_image(None, zephyr_board("stm32f746g_disco"))
    with pytest.raises(NoDevice) as caught:
        flash_image(image, probe="west_openocd", serial="none-has-this-one")
    assert str(caught.value).startswith(
        "flashing stm32f746g_disco with west failed: no debug probe"
    )
    assert "\n" not in str(caught.value)


def test_twister_builds_and_runs_it(tmp_path: Path, zephyr: Zephyr) -> None:
    needed = ("ply", "colorama", "psutil", "natsort", "anytree", "tabulate", "serial", "jsonschema")
    imports = f"import {', '.join(needed)}, pkg_resources"
    found = subprocess.run([zephyr.python, "-c", imports], capture_output=True, check=False)
    if found.returncode:
        pytest.skip("no packages for twister (scripts/requirements-build-test.txt, -run-test.txt)")
    board = zephyr_board("mps2_an385")
    tree = create_project(utvm_deploy.compile(DIGITS, board), board, tmp_path / "tree")
    variant = {"ZEPHYR_TOOLCHAIN_VARIANT": "gnuarmemb", "GNUARMEMB_TOOLCHAIN_PATH": "/usr"}
    environment = {**variant, **os.environ, "ZEPHYR_BASE": str(zephyr.base)}
    script = str(zephyr.base / "scripts" / "twister")
    argv = [zephyr.python, script, "-T", str(tree), "-p", "mps2/an385", "-O", str(tmp_path / "out")]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 test configurations passed" in done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("zephyr_name", [*COUNTING, "mps3_an547"], indirect=True)
def test_ten_thousand_calls_without_a_loss(target: Device, figures: list[str]) -> None:
    module = target.load_module(FUNCTIONS)
    add = module["add"]
    x = target.tensor(np.zeros(4, np.int32))
    begin = time.monotonic()
    for number in range(1, SOAK_CALLS + 1):
        add(x, 4)
        # One exchange for each call, and its result looked at now and then.
        target.sync()
        if number % 500 == 0:
            np.testing.assert_array_equal(x.numpy(), number * np.arange(1, 5))
    seconds = time.monotonic() - begin
    figures.append(f"{SOAK_CALLS:,} calls on {target.board.name}: none lost, {seconds:.0f} s")


@pytest.mark.parametrize("zephyr_name", ["mps2_an385"], indirect=True)
def test_a_static_library_of_a_plugin_is_linked(zephyr_target: Board, tmp_path: Path) -> None:
    plugin = vendor_plugin(
        tmp_path / "vendor", ("-mcpu=cortex-m3", "-mthumb"), prefix="arm-none-eabi-"
    )
    compiled = utvm_deploy.compile(DIGITS, zephyr_target, plugin=plugin)
    assert "Vendor dense" in {layer.engine for layer in compiled.layers}
    with utvm_deploy.connect(zephyr_target) as device:
        found = verify(device.load(compiled), DIGITS, random_samples(load_model(DIGITS), 2))
    assert found.ok, found
    # A tree stands alone, too: its start prepares the library.
    tree = create_project(compiled, zephyr_target, tmp_path / "tree")
    elf = build_by_cmake(tree, tmp_path / "build", "-DFILE_SUFFIX=standalone")
    assert "digits: output " in console_of(zephyr_target, elf, until="cycles")


def test_a_bundle_for_zephyr_asks_for_the_library(tmp_path: Path, zephyr: Zephyr) -> None:
    board = zephyr_board("qemu_x86")
    flags = ("-m32", "-march=pentium", "-fno-pic", "-fno-stack-protector", "-ffreestanding")
    plugin = vendor_plugin(tmp_path / "vendor", flags)
    module = tmp_path / "digits"
    arguments = ["--board", board.name, "-o", str(module), "--format", "zephyr", "--name", "digits"]
    assert main(["bundle", str(DIGITS), *arguments, "--plugin", str(plugin)]) == 0
    given = (
        f"-DVENDOR_DENSE_LIBRARY={plugin.parent}/libvendor_dense.a",
        f"-DVENDOR_DENSE_INCLUDE_DIRS={plugin.parent}",
    )
    options = ("-DBOARD=qemu_x86", f"-DDIGITS_MODULE={module}")
    elf = build_by_cmake(EXAMPLE, tmp_path / "build", *options, *given)
    assert b"vendor_dense_s8" in elf.read_bytes()


@pytest.mark.parametrize("zephyr_name", ["mps2_an385"], indirect=True)
def test_the_engine_of_a_plugin_runs(zephyr_target: Board) -> None:
    plugin = EXAMPLE.parent / "accelerator" / "plugin.py"
    compiled = utvm_deploy.compile(DIGITS, zephyr_target, plugin=plugin)
    assert "MX8" in {layer.engine for layer in compiled.layers}
    with utvm_deploy.connect(zephyr_target) as device:
        found = verify(device.load(compiled), DIGITS, random_samples(load_model(DIGITS), 2))
    assert found.ok, found
