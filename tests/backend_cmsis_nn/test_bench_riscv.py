"""utvm bench on RISC-V: CMSIS-NN in plain C, and muRISCV-NN, by stand-ins or the user's copies."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fake_library import COMPILE_TIMEOUT_S, FAKE, build_library

from utvm_deploy.backends.cmsis_nn import CMSIS_NN, MURISCV_NN, Product
from utvm_deploy.base.errors import BuildError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.project import find_cmsis_nn_builds
from utvm_deploy.project.static_library import read_static_library

GCC = "riscv64-unknown-elf-gcc"
BOARD = "qemu_rv32imc"
RV32 = ("-march=rv32imc", "-mabi=ilp32", "--specs=picolibc.specs")
#: As docs/guides/riscv.md has them.
VECTOR_FLAGS = "clang-19, -march=rv32imc_zve32x_zvl128b -mabi=ilp32 -DUSE_VEXT"
#: Read before the tests' clean environment takes them away.
COPIES = {product: os.environ.get(product.variable) for product in (CMSIS_NN, MURISCV_NN)}

pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(
        shutil.which(GCC) is None,
        reason=f"{GCC} is not installed: sudo apt install gcc-riscv64-unknown-elf",
    ),
]
needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-system-riscv32") is None,
    reason="qemu-system-riscv32 is not installed: sudo apt install qemu-system-misc",
)


def build_muriscv_nn(folder: Path, *flags: str) -> Path:
    """As a user's muRISCV-NN: a header gives its functions the names of CMSIS-NN's."""
    header = (FAKE / "arm_nnfunctions.h").read_text()
    renames = "".join(
        f"#define {name} muriscv_nn_{name.removeprefix('arm_')}\n"
        for name in sorted(set(re.findall(r"\barm_\w+(?=\()", header)))
    )
    include = folder / "Include"
    names = include / "CMSIS" / "NN" / "Include"
    names.mkdir(parents=True)
    (names / "arm_nnfunctions.h").write_text(renames + '#include "muriscv_nn_functions.h"\n')
    (include / "muriscv_nn_functions.h").write_text(header)
    # Beside the original lies the original's header.
    source, compiled = shutil.copy(FAKE / "fake.c", folder), folder / "fake.o"
    for command in (
        [GCC, "-O1", *flags, f"-I{names}", f"-I{include}", "-c", source, "-o", compiled],
        [GCC.replace("gcc", "ar"), "rcs", folder / "libmuriscvnn.a", compiled],
    ):
        subprocess.run([str(part) for part in command], check=True, timeout=COMPILE_TIMEOUT_S)
    compiled.unlink()
    return folder


@needs_qemu
@pytest.mark.emulator
@pytest.mark.parametrize("product", [CMSIS_NN, MURISCV_NN])
def test_the_rival_has_our_bytes_and_its_name(
    product: Product, small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, page = tmp_path / "theirs", tmp_path / "page.html"
    if product == CMSIS_NN:
        build_library(folder, *RV32, compiler=GCC)
    else:
        build_muriscv_nn(folder, *RV32)
    argv = ["bench", str(small_model), "--board", BOARD, "--against", product.option]
    argv += [f"--{product.option}", str(folder), "--html", str(page), "--json"]
    assert main(argv) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    (model,) = result["models"]
    assert result["against"] == product.option
    assert re.fullmatch(rf"{product.name} \(GCC.*, rv32imc, plain C\)", model["engine"])
    assert [layer["differing_bytes"] for layer in model["layers"]] == [0, 0, 0, 0]
    assert model["layers"][0]["their_kernel"] == "arm_convolve_wrapper_s8"
    assert model["theirs"]["instructions"] > model["ours"]["instructions"] > 0
    other = CMSIS_NN if product == MURISCV_NN else MURISCV_NN
    for text in (captured.err, page.read_text()):
        assert product.name in text and other.name not in text


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("-march=rv64imac", "-mabi=lp64"), "was built for rv64imac, and qemu_rv32imc's core"),
        (("-march=rv32imafc", "-mabi=ilp32f"), "was built for rv32imafc"),
    ],
)
def test_a_library_for_another_core_is_refused(
    flags: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    build_library(tmp_path, *flags, "--specs=picolibc.specs", compiler=GCC)
    with pytest.raises(BuildError, match=says):
        find_cmsis_nn_builds(tmp_path, load_board(BOARD))


def test_how_values_are_passed_counts(tmp_path: Path) -> None:
    build_library(tmp_path, *RV32, compiler=GCC)
    assert read_static_library(tmp_path / "libcmsis-nn.a").built.architecture == "rv32imc"
    with pytest.raises(BuildError, match="in other registers than qemu_rv32imafc"):
        find_cmsis_nn_builds(tmp_path, load_board("qemu_rv32imafc"))


def test_cores_of_one_instruction_set_run_one_library(tmp_path: Path) -> None:
    build_library(tmp_path, *RV32, compiler=GCC)
    for board in (BOARD, "qemu_ibex", "qemu_cv32e40p", "qemu_rv32imcv"):
        assert len(find_cmsis_nn_builds(tmp_path, load_board(board))) == 1


def test_a_port_without_the_vectors_of_the_core_is_refused(tmp_path: Path) -> None:
    folder = build_muriscv_nn(tmp_path / "theirs", *RV32)
    with pytest.raises(BuildError, match=r"without the vectors .* its figures would mean") as told:
        find_cmsis_nn_builds(folder, load_board("qemu_rv32imcv"), product=MURISCV_NN)
    assert VECTOR_FLAGS in str(told.value) and "UTVM_VECTORS" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("qemu_rv32imcv", 2, f"with {VECTOR_FLAGS} -O3"),
        ("mps2_an500", 1, "muRISCV-NN is for RISC-V, and mps2_an500's core is cortex-m7"),
        ("host", 1, "muRISCV-NN is for RISC-V, and host's core is"),
    ],
)
def test_without_a_library_the_message_fits_the_board(
    name: str, code: int, says: str, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["bench", str(small_model), "--board", name, "--against", "muriscv-nn"]
    assert main(argv) == code
    assert says in capsys.readouterr().err


def test_what_is_missing_is_one_sentence(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = build_muriscv_nn(tmp_path / "theirs", *RV32)
    (folder / "libmuriscvnn.a").rename(tmp_path / "other.a")
    bench, theirs = ["bench", str(small_model), "--board", BOARD], ["--muriscv-nn", str(folder)]
    for more, code, says in (
        (["--against", "muriscv-nn"], 2, "no figures of muRISCV-NN were recorded; give your own"),
        (theirs, 2, "--muriscv-nn goes with --against muriscv-nn"),
        (["--against", "muriscv-nn", *theirs], 1, "headers but no libmuriscvnn.a"),
        (
            ["--against", "muriscv-nn", "--muriscv-nn", str(tmp_path)],
            1,
            "holds no Include/CMSIS/NN/Include/arm_nnfunctions.h; name the folder of a muRISCV-NN",
        ),
    ):
        assert main([*bench, *more]) == code
        assert says in capsys.readouterr().err


@needs_qemu
@pytest.mark.emulator
@pytest.mark.parametrize("product", [CMSIS_NN, MURISCV_NN])
def test_the_users_copy(product: Product, capsys: pytest.CaptureFixture[str]) -> None:
    """All bytes but those of dense layers, which round otherwise."""
    copy = COPIES[product]
    if copy is None:
        pytest.skip(f"{product.variable} names no {product.name} that was built for rv32imc")
    try:
        find_cmsis_nn_builds(Path(copy), load_board(BOARD), product=product)
    except BuildError as error:
        pytest.skip(f"{product.variable}: {error}")
    argv = ["bench", str(data_dir("models") / "cifar10_cnn.tflite"), "--board", BOARD]
    argv += ["--against", product.option, f"--{product.option}", copy, "--json"]
    assert main(argv) == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    differing = {one["operator"] for one in model["layers"] if one["differing_bytes"]}
    assert all(one["their_kernel"] for one in model["layers"])
    assert differing <= {"FULLY_CONNECTED"}
