"""What is said of a library that is absent, incomplete or built for something else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_library import build_library

from utvm_deploy.base.errors import BuildError
from utvm_deploy.boards.board import load_board, with_template
from utvm_deploy.project import find_cmsis_nn
from utvm_deploy.project.static_library import read_static_library

ARM = "arm-none-eabi-gcc"
M7 = ("-mcpu=cortex-m7", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard")

#: A function of the right name, with the one instruction that every DSP kernel has.
WITH_DSP = """\
int arm_convolve_wrapper_s8(int a, int b, int c) {
    __asm__("smlad %0, %1, %2, %0" : "+r"(c) : "r"(a), "r"(b));
    return c;
}
"""
#: Its bytes as data, and SMUAD, which is not evidence.
LOOKS_LIKE_DSP = """\
int arm_convolve_wrapper_s8(int a, int b) {
    __asm__ volatile("b 1f\\n .word 0x2302fb21\\n .word 0x2302fb21\\n 1:");
    __asm__("smuad %0, %1, %2" : "=r"(a) : "r"(a), "r"(b));
    return a;
}
"""

needs_arm = pytest.mark.skipif(shutil.which(ARM) is None, reason=f"{ARM} is not installed")


@pytest.fixture
def arm_library(tmp_path: Path) -> Callable[..., Path]:
    def build(text: str, *flags: str) -> Path:
        source = tmp_path / "source.c"
        source.write_text(text)
        return build_library(tmp_path / "cmsis", *flags, compiler=ARM, source=source)

    return build


def refusal(directory: Path, board: str = "mps2_an500", library: Path | None = None) -> str:
    with pytest.raises(BuildError) as caught:
        find_cmsis_nn(directory, load_board(board), library)
    return str(caught.value)


def test_zephyr_builds_the_library_itself(tmp_path: Path) -> None:
    for name in ("Include/arm_nnfunctions.h", "Source/arm_softmax_s8.c", "Source/arm_pad_s8.c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("// made up")
    board = with_template(load_board("mps3_an547"), "zephyr")
    found = find_cmsis_nn(tmp_path, board)
    assert found.library == "" and found.has_mve and "cortex-m55" in found.built_with
    # Zephyr has no option that builds the other one.
    assert found.has("arm_softmax_s8") and not found.has("arm_pad_s8")
    (tmp_path / "Source/arm_softmax_s8.c").write_text("// another revision")
    assert find_cmsis_nn(tmp_path, board).digest != found.digest
    assert "holds CMSIS-NN's headers but no libcmsis-nn.a" in refusal(tmp_path, "mps3_an547")


def test_absent(tmp_path: Path) -> None:
    said = refusal(tmp_path / "none")
    assert said.startswith("there is no CMSIS-NN at") and "UTVM_CMSIS_NN" in said
    assert "holds no Include/arm_nnfunctions.h" in refusal(tmp_path)


def test_headers_without_library(tmp_path: Path) -> None:
    build_library(tmp_path)
    (tmp_path / "libcmsis-nn.a").unlink()
    said = refusal(tmp_path)
    assert "holds CMSIS-NN's headers but no libcmsis-nn.a" in said
    assert "for cortex-m7 with -mcpu=cortex-m7" in said and "--cmsis-nn-library" in said


def test_several_libraries(tmp_path: Path) -> None:
    build_library(tmp_path)
    (tmp_path / "build").mkdir()
    shutil.copy(tmp_path / "libcmsis-nn.a", tmp_path / "build")
    assert "several libraries (build/libcmsis-nn.a, libcmsis-nn.a)" in refusal(tmp_path, "host")
    chosen = find_cmsis_nn(tmp_path, load_board("host"), tmp_path / "build/libcmsis-nn.a")
    assert chosen.library.endswith("build/libcmsis-nn.a")


def test_not_a_library(tmp_path: Path) -> None:
    build_library(tmp_path)
    path = tmp_path / "libcmsis-nn.a"
    for data in (b"", b"!<thin>\n", b"!<arch>\n" + b"x" * 100, b"\x7fELF"):
        path.write_bytes(data)
        assert "is not a static library" in refusal(tmp_path)
    path.write_bytes(b"!<arch>\n")
    assert "holds no object" in refusal(tmp_path)
    path.unlink()
    path.mkdir()
    assert "no libcmsis-nn.a" in refusal(tmp_path)


def test_another_machine(tmp_path: Path) -> None:
    build_library(tmp_path)
    said = refusal(tmp_path)
    assert "was built for another machine" in said and "cortex-m7" in said
    assert find_cmsis_nn(tmp_path, load_board("host")).built_with.endswith("plain C")


@needs_arm
def test_another_library(arm_library: Callable[..., Path]) -> None:
    folder = arm_library("int arm_relu_q7(void) { return 0; }", *M7)
    assert "does not define arm_convolve_wrapper_s8" in refusal(folder)


@needs_arm
def test_right_for_the_core(arm_library: Callable[..., Path]) -> None:
    folder = arm_library(WITH_DSP, *M7)
    found = find_cmsis_nn(folder, load_board("mps2_an500"))
    assert found.built_with.startswith("GCC") and found.built_with.endswith("armv7e-m, DSP")
    assert not found.has_mve
    before = found.digest
    assert find_cmsis_nn(folder, load_board("mps2_an500")).digest == before
    (folder / "Include" / "arm_nnfunctions.h").write_text("// changed\n")
    assert find_cmsis_nn(folder, load_board("mps2_an500")).digest != before


@needs_arm
@pytest.mark.parametrize("text", [LOOKS_LIKE_DSP, "int arm_convolve_wrapper_s8(void){return 0;}"])
def test_without_dsp(arm_library: Callable[..., Path], text: str) -> None:
    folder = arm_library(text, *M7)
    assert "was built without DSP instructions (no SMLAD in it" in refusal(folder)


@needs_arm
def test_for_another_core(arm_library: Callable[..., Path]) -> None:
    folder = arm_library(WITH_DSP, *M7)
    assert "armv7-m, which cannot run it" in refusal(folder, "mps2_an385")
    assert "without the vector extension (MVE)" in refusal(folder, "mps3_an547")
    facts = read_static_library(folder / "libcmsis-nn.a")
    built = facts.built
    assert (built.architecture, built.is_hard_float, built.has_dsp) == ("armv7e-m", True, True)


@needs_arm
def test_with_another_float_abi(arm_library: Callable[..., Path]) -> None:
    folder = arm_library(WITH_DSP, "-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=soft")
    said = refusal(folder)
    assert "was built with -mfloat-abi=soft" in said and "need -mfloat-abi=hard" in said


@needs_arm
def test_application_processors_are_another_architecture(
    arm_library: Callable[..., Path],
) -> None:
    folder = arm_library("int arm_convolve_wrapper_s8(void){return 0;}", "-march=armv7-a")
    assert "was built for armv7-a or -r" in refusal(folder)
