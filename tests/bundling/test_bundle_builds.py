"""Bundles built as their users build them: by CMake alone, for this computer and bare Cortex-M."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bundle_cases import LIBRARIES, Case, make_case, make_float_case, make_state_case, write
from elftools.elf.elffile import ELFFile
from float_writer import FloatWriter
from tflite_writer import ModelWriter

from utvm_deploy.boards.board import load_board
from utvm_deploy.bundling import check_bundle
from utvm_deploy.cli.main import main
from utvm_deploy.project.model_code import flash_bytes, model_code

#: Builds take seconds and self-tests milliseconds, but the machine may be busy.
TIMEOUT_S = 120
STRICT = "-Wall -Wextra -pedantic -Werror"
PASS = "PASS net: 2 sample(s), every output byte equal\n"
CORTEX_M_BOARDS = ("mps2_an385", "mps2_an386", "mps2_an500", "mps3_an547")

pytestmark = pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")


def run(*command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Both streams come in ``stdout``: emulators print what is semihosted to stderr."""
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert not check or done.returncode == 0, done.stdout
    return done


def build(source: Path, folder: Path, *options: str) -> Path:
    flags = (f"-DCMAKE_C_FLAGS={STRICT}", f"-DCMAKE_CXX_FLAGS={STRICT}")
    run("cmake", "-S", source, "-B", folder, *flags, *options)
    run("cmake", "--build", folder)
    return folder


@pytest.mark.parametrize("form", LIBRARIES)
def test_selftest_passes_on_this_computer(form_case: Case, tmp_path: Path, form: str) -> None:
    bundle = write(form_case, tmp_path / "bundle", format=form)
    folder = build(bundle, tmp_path / "build")
    assert run(folder / "net_selftest").stdout == PASS
    if (bundle / "example" / "main.c").is_file():
        assert len(run(folder / "net_example").stdout.splitlines()) == 5
    check_bundle(bundle)


@pytest.mark.tools
def test_selftest_of_a_model_with_state(tmp_path: Path) -> None:
    case = make_state_case(tmp_path, "mps2_an500")
    bundle = write(case, tmp_path / "bundle")
    folder = build(bundle, tmp_path / "build")
    assert run(folder / "net_selftest").stdout == PASS
    assert "net_reset(arena);" in (bundle / "example" / "main.c").read_text()
    assert len(run(folder / "net_example").stdout.splitlines()) == 5


def test_selftest_names_the_first_mismatch(case: Case, tmp_path: Path) -> None:
    first, second = ([array.copy() for array in sample] for sample in case.expected)
    right = int(second[1].flat[3])
    second[1].flat[3] = wrong = right - 1 if right > 0 else right + 1
    bundle = write(replace(case, expected=[first, second]), tmp_path / "bundle")
    done = run(build(bundle, tmp_path / "build") / "net_selftest", check=False)
    assert done.returncode == 1
    assert done.stdout == (
        f"FAIL net: sample 1, output 1, element 3: got {right}, expected {wrong}\n"
    )


def test_selftest_runs_clean_under_sanitizers(case: Case, tmp_path: Path) -> None:
    sanitize = f"{STRICT} -g -fsanitize=address,undefined -fno-sanitize-recover=all"
    bundle = write(case, tmp_path / "bundle")
    folder = build(bundle, tmp_path / "build", f"-DCMAKE_C_FLAGS={sanitize}")
    assert run(folder / "net_selftest").stdout == PASS


@pytest.mark.tools
def test_float_inputs_and_outputs(tmp_path: Path) -> None:
    made = make_float_case(tmp_path, "host")
    folder = build(write(made, tmp_path / "bundle"), tmp_path / "build")
    assert run(folder / "net_selftest").stdout == PASS
    assert len(run(folder / "net_example").stdout.splitlines()) == 18
    wrong = [array.copy() for array in made.expected[0]]
    wrong[0].view(np.uint8).flat[4 * 5] ^= 1
    damaged = write(replace(made, expected=[wrong, made.expected[1]]), tmp_path / "damaged")
    done = run(build(damaged, tmp_path / "build-damaged") / "net_selftest", check=False)
    got, expected = (a[0].view(np.uint8).ravel()[20:24] for a in (made.expected[0], wrong))
    assert done.stdout == (
        f"FAIL net: sample 0, output 0, element 5: got bytes {' '.join(map(str, got))}, "
        f"expected bytes {' '.join(map(str, expected))}\n"
    )


@pytest.mark.tools
def test_a_tolerance_of_float_outputs(tmp_path: Path) -> None:
    """Outputs may differ by a part of the largest magnitude; NaN is always wrong."""
    made = make_float_case(tmp_path, "host")
    expected = made.expected[0][0]
    largest = np.abs(expected).max()
    passed = "PASS net: 2 sample(s), every output within 0.01 of the largest magnitude\n"
    for added, ends_well in ((0.009 * largest, True), (-0.02 * largest, False), (np.nan, False)):
        near = expected.copy()
        near.flat[7] += np.float32(added)
        case = replace(made, expected=[[near], made.expected[1]])
        bundle = write(case, tmp_path / f"bundle {added}", tolerance=0.01)
        done = run(build(bundle, tmp_path / f"build {added}") / "net_selftest", check=False)
        if ends_well:
            assert done.stdout == passed
        else:
            assert done.stdout.startswith("FAIL net: sample 0, output 0, element 7: ")


@pytest.mark.tools
def test_the_verb_allows_inexact_functions_their_bound(tmp_path: Path) -> None:
    m = FloatWriter()
    m.output(m.softmax(m.input((2, 7))))
    model = m.save(tmp_path / "net.tflite")
    bundle = tmp_path / "bundle"
    assert main(["bundle", str(model), "--board", "host", "--samples", "2", "-o", str(bundle)]) == 0
    said = run(build(bundle, tmp_path / "build") / "net_selftest").stdout
    assert said == "PASS net: 2 sample(s), every output within 0.0001 of the largest magnitude\n"


def rounded_sigmoid(path: Path) -> Path:
    """A sigmoid in float32 between int8, with a scale that rounds the last place to a step.

    Of 0.9, the reference's sigmoid is 0.7109495, and ours is the next float32.
    """
    theirs, ours, half = np.float32(0.7109495), np.float32(0.71094954), np.float32(0.5)
    scale = next(
        scale
        for scale in ours / (np.arange(20, 120, dtype=np.float32) + half)
        if np.floor(theirs / scale + half) != np.floor(ours / scale + half)
    )
    m = ModelWriter()
    real = m.dequantize(m.input((1, 512), scale=0.05))
    sigmoid = m.tensor((1, 512), "float32")
    m.operator("LOGISTIC", [real], [sigmoid])
    m.output(m.quantize(sigmoid, scale=float(scale)))
    return m.save(path)


@pytest.mark.tools
@pytest.mark.parametrize("target", ["host", "nucleo_f746zg"])
def test_selftest_of_integers_behind_inexact_float32(
    tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rounding turns the last place of a float32 into a step, which no right bundle fails for."""
    model = rounded_sigmoid(tmp_path / "net.tflite")
    bundle = tmp_path / "bundle"
    assert main(["bundle", str(model), "--board", target, "-o", str(bundle), "--no-latency"]) == 0
    assert "the self-test expects our bytes of" in capsys.readouterr().out
    text = run(build(bundle, tmp_path / "build") / "net_selftest").stdout
    assert text.startswith("PASS net: 4 sample(s)")


def test_ctest_runs_the_selftest(case: Case, tmp_path: Path) -> None:
    folder = build(write(case, tmp_path / "bundle"), tmp_path / "build")
    assert "100% tests passed" in run("ctest", "--test-dir", folder).stdout


@pytest.mark.emulator
@pytest.mark.parametrize("board_name", CORTEX_M_BOARDS)
def test_selftest_passes_on_an_emulated_core(tmp_path: Path, board_name: str) -> None:
    board = load_board(board_name)
    assert board.emulator is not None
    for program in (board.cpu.toolchain.compiler, board.emulator.program):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    made = make_case(tmp_path, "net", board_name)
    bundle = write(made, tmp_path / "bundle")
    toolchain = "-DCMAKE_TOOLCHAIN_FILE=selftest/cortex_m/toolchain.cmake"
    folder = build(bundle, tmp_path / "build", toolchain)
    # As the bundle's README says.
    command = re.search(
        rf"^    ({board.emulator.program} .*?\.elf)$",
        (bundle / "README.md").read_text().replace(" \\\n", " "),
        re.M,
    )
    assert command
    arguments = command[1].split()
    arguments[-1] = str(folder / "net_selftest.elf")
    assert run(*arguments).stdout == PASS


@pytest.mark.emulator
def test_failure_and_fault_reach_the_exit_code(case: Case, tmp_path: Path) -> None:
    emulator = case.board.emulator
    assert emulator is not None
    for program in (case.board.cpu.toolchain.compiler, emulator.program):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    bundle = write(replace(case, expected=[*case.expected[1:], case.expected[0]]), tmp_path / "b")
    toolchain = "-DCMAKE_TOOLCHAIN_FILE=selftest/cortex_m/toolchain.cmake"

    def verdict(folder: Path) -> tuple[str, int]:
        arguments = ("-machine", emulator.machine, "-nographic", "-semihosting", "-kernel")
        done = run(emulator.program, *arguments, folder / "net_selftest.elf", check=False)
        return done.stdout, done.returncode

    text, code = verdict(build(bundle, tmp_path / "swapped", toolchain))
    assert text.startswith("FAIL net: sample 0, output 0, element ")
    assert code == 1
    source = bundle / "src" / "net.c"
    begin = "void net_run(uint8_t *arena, uint8_t *pool_dtcm) {\n"
    undefined = f'{begin}    __asm volatile("udf #0");\n'
    source.write_text(source.read_text().replace(begin, undefined))
    assert verdict(build(bundle, tmp_path / "fault", toolchain)) == (
        "FAIL net: processor fault\n",
        3,
    )


SECTIONS_CMAKE = """\
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES C)
set(NET_BUILD_SELFTEST ON)
add_subdirectory(net)
@DEFINITIONS@
target_link_options(net_selftest PRIVATE -Wl,-Map=${CMAKE_BINARY_DIR}/net.map)
"""


@pytest.mark.emulator
def test_kernels_and_weights_go_where_the_user_puts_them(case: Case, tmp_path: Path) -> None:
    """By the README's lines; calls reach far kernels, and kernels their weights."""
    emulator = case.board.emulator
    assert emulator is not None
    for program in (case.board.cpu.toolchain.compiler, emulator.program):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    (tmp_path / "user").mkdir()
    bundle = write(case, tmp_path / "user" / "net")
    readme = (bundle / "README.md").read_text()
    definitions = re.search(r"^ +target_compile_definitions\(.*?\"\)$", readme, re.M | re.S)
    assert definitions
    cmake = SECTIONS_CMAKE.replace("@DEFINITIONS@", definitions[0])
    (tmp_path / "user" / "CMakeLists.txt").write_text(cmake)
    script = bundle / "selftest" / "cortex_m" / "selftest.ld"
    text = script.read_text()
    for begin, added in (
        ("MEMORY\n{\n", "itcm : ORIGIN = 0x20300000, LENGTH = 0x10000\n"),
        ("MEMORY\n{\n", "qspi : ORIGIN = 0x60000000, LENGTH = 0x10000\n"),
        ("SECTIONS\n{\n", ".kernels : { *(.kernels) } > itcm\n"),
        ("SECTIONS\n{\n", ".weights : { *(.weights) } > qspi\n"),
    ):
        text = text.replace(begin, begin + added)
    script.write_text(text)
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={bundle}/selftest/cortex_m/toolchain.cmake"
    folder = build(tmp_path / "user", tmp_path / "build", toolchain)
    linked = (folder / "net.map").read_text().partition("Linker script and memory map")[2]
    sections = {
        (name, source): (int(address, 16), int(size, 16))
        for name, address, size, source in re.findall(
            r"^ (\.\w+)\S*\s+(0x\w+)\s+(0x\w+) \S*libnet\.a\((\w+)\.c\.obj\)$", linked, re.M
        )
        if int(size, 16) and name in (".kernels", ".weights", ".text", ".rodata")
    }
    assert sections[".weights", "net_weights"] == (0x60000000, case.compiled.weights_bytes)
    assert sections[".kernels", "net_kernels"][0] == 0x20300000
    others = {(".text", "net"), (".rodata", "net")}
    assert sections.keys() == {(".weights", "net_weights"), (".kernels", "net_kernels")} | others
    elf = next(folder.rglob("net_selftest.elf"))
    arguments = ("-machine", emulator.machine, "-nographic", "-semihosting", "-kernel", elf)
    assert run(emulator.program, *arguments).stdout == PASS


@pytest.mark.tools
def test_flash_figures_say_what_the_c_library_adds(tmp_path: Path) -> None:
    """All of the bundle's objects, linked, are as large as the figures together."""
    made = make_case(tmp_path, "net", "microbit")
    compiler = made.board.cpu.toolchain.compiler
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    code = model_code(made.compiled, made.board, with_library=True)
    assert "memcpy" in code.library and "__aeabi_idiv" in code.library
    assert "net_weights" not in code.library
    bundle = write(made, tmp_path / "bundle", code=code)
    readme = (bundle / "README.md").read_text()
    assert f"`memcpy` | {code.library_bytes:,} bytes |" in readme
    assert json.loads((bundle / "manifest.json").read_text())["library_bytes"] == code.library_bytes
    flags = (*made.board.cpu.compiler_flags, *made.board.project.compiler_flags)
    options = (*flags, made.compiled.optimization_flag, "-std=c99", f"-I{bundle / 'include'}")
    linked = tmp_path / "net.elf"
    sources = sorted((bundle / "src").glob("*.c"))
    run(compiler, *options, "-nostartfiles", "-Wl,--entry=0", *sources, "-o", linked)
    total = flash_bytes(made.compiled, code) + code.library_bytes
    with linked.open("rb") as file:
        found = [s for s in ELFFile(file).iter_sections() if s.name in (".text", ".rodata")]
        assert total <= sum(section["sh_size"] for section in found) < total + 32  # padding


TWO_MODELS_CMAKE = """\
cmake_minimum_required(VERSION 3.16)
project(two LANGUAGES C CXX)
add_subdirectory(one)
add_subdirectory(two)
add_executable(both_c main.c)
add_executable(both_cxx main.cpp)
foreach(program both_c both_cxx)
    target_link_libraries(${program} PRIVATE one two)
endforeach()
"""

TWO_MODELS_MAIN = """\
#include <stdio.h>
#include <string.h>

#include "one.h"
#include "two.h"

static uint8_t arena_one[2][ONE_ARENA_BYTES] __attribute__((aligned(ONE_ARENA_ALIGNMENT)));
static uint8_t arena_two[TWO_ARENA_BYTES] __attribute__((aligned(TWO_ARENA_ALIGNMENT)));

static void fill(int8_t *to, const signed char *from) {
    memcpy(to, from, ONE_INPUT_0_BYTES);
}

static void show(const int8_t *values) {
    for (int i = 0; i < ONE_OUTPUT_0_ELEMENTS; i++) {
        printf("%d ", values[i]);
    }
    printf("\\n");
}

int main(void) {
    static const signed char inputs[3][ONE_INPUT_0_BYTES] = {
        @INPUTS@
    };
    fill(one_input_0(arena_one[0]), inputs[0]);
    fill(one_input_0(arena_one[1]), inputs[1]);
    fill(two_input_0(arena_two), inputs[2]);
    for (uint32_t layer = 0; layer < ONE_LAYER_COUNT; layer++) {
        one_run_layer(layer, arena_one[0]);
        two_run_layer(layer, arena_two);
        one_run_layer(layer, arena_one[1]);
    }
    show(one_output_0(arena_one[0]));
    show(one_output_0(arena_one[1]));
    show(two_output_0(arena_two));
    return 0;
}
"""


@pytest.mark.tools
def test_two_bundles_in_one_program_run_interleaved(tmp_path: Path) -> None:
    """One model twice and another between, layer by layer, from C and from C++."""
    one, two = (make_case(tmp_path, name, "host", seed) for seed, name in ((1, "one"), (2, "two")))
    application = tmp_path / "application"
    application.mkdir()
    for case, name in ((one, "one"), (two, "two")):
        write(case, application / name)
    samples = (one.inputs[0][0], one.inputs[1][0], two.inputs[0][0])
    rows = ",\n".join(f"{{{','.join(map(str, a.ravel().tolist()))}}}" for a in samples)
    for name in ("main.c", "main.cpp"):
        (application / name).write_text(TWO_MODELS_MAIN.replace("@INPUTS@", rows))
    (application / "CMakeLists.txt").write_text(TWO_MODELS_CMAKE)
    folder = build(application, tmp_path / "build")
    expected = [one.expected[0][0], one.expected[1][0], two.expected[0][0]]
    for program in ("both_c", "both_cxx"):
        lines = run(folder / program).stdout.splitlines()
        assert [list(map(int, line.split())) for line in lines] == [
            array.ravel().tolist() for array in expected
        ]
    # As a part of another project a bundle builds nothing but its library.
    assert not list(folder.rglob("*selftest*"))


def compile_as_cxx(bundle: Path, compiler: str, standard: str, *options: str) -> list[Path]:
    """Compile every C file of the bundle as C++, warnings being errors; returns the objects.

    What includes headers of a framework is left out.
    """
    sources = sorted(path for path in bundle.rglob("*.c") if "examples" not in path.parts)
    assert sources
    folders = sorted({f"-I{header.parent}" for header in bundle.rglob("*.h")})
    for source in sources:
        strict = (*STRICT.split(), f"-std={standard}", *options, *folders)
        run(compiler, *strict, "-x", "c++", "-c", source, "-o", source.with_suffix(".o"))
    return [source.with_suffix(".o") for source in sources]


@pytest.mark.parametrize("standard", ["c++11", "c++17", "c++20"])
@pytest.mark.parametrize("form", LIBRARIES)
def test_c_files_are_valid_cxx(host_case: Case, tmp_path: Path, form: str, standard: str) -> None:
    objects = compile_as_cxx(write(host_case, tmp_path / "bundle", format=form), "g++", standard)
    # The example has a main function of its own.
    selftest = [path for path in objects if "example" not in path.parent.name]
    run("g++", *selftest, "-o", tmp_path / "selftest")
    assert run(tmp_path / "selftest").stdout == PASS


@pytest.mark.tools
@pytest.mark.parametrize("board_name", CORTEX_M_BOARDS)
def test_c_files_for_a_cortex_m_are_valid_cxx(tmp_path: Path, board_name: str) -> None:
    compiler = "arm-none-eabi-g++"
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    made = make_case(tmp_path, "net", board_name)
    bundle = write(made, tmp_path / "bundle")
    assert (bundle / "selftest" / "cortex_m" / "startup.c").is_file()
    compile_as_cxx(bundle, compiler, "c++11", *made.board.cpu.compiler_flags)


STRICT_CXX = (
    *("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wold-style-cast", "-Wcast-qual"),
    *("-Wcast-align", "-Wzero-as-null-pointer-constant", "-Wconversion", "-Wsign-conversion"),
)
USER_CPP = """\
#include "net.h"
#include "net_selftest.h"

alignas(NET_ARENA_ALIGNMENT) static uint8_t arena[NET_ARENA_BYTES];
alignas(NET_POOL_DTCM_ALIGNMENT) static uint8_t pool[NET_POOL_DTCM_BYTES];

static void put(char, void *) {}

int main() {
    net_input_0(arena)[0] = NET_INPUT_0_ZERO_POINT;
    net_run(arena, pool);
    net_run_layer(0, arena, pool);
    const int sum = net_output_0(arena)[0] + net_output_1(arena)[0];
    return net_selftest(arena, pool, put, nullptr) + sum;
}
"""


@pytest.mark.parametrize("standard", ["c++11", "c++20"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_strict_cxx_takes_the_headers(
    case: Case, tmp_path: Path, compiler: str, standard: str
) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    bundle = write(case, tmp_path / "bundle")
    source = tmp_path / "main.cpp"
    source.write_text(USER_CPP)
    options = (*STRICT_CXX, *(("-Wuseless-cast",) if compiler == "g++" else ()))
    folders = (f"-I{bundle / 'include'}", f"-I{bundle / 'selftest'}")
    run(compiler, f"-std={standard}", *options, *folders, "-fsyntax-only", source)


ARDUINO_STUB = """\
#include <stdint.h>
struct Stream {
    void begin(long) {}
    template <typename T> void print(T) {}
    template <typename T> void println(T) {}
} Serial;
static unsigned long micros() { return 0; }
static void delay(unsigned long) {}
"""


def test_arduino_sketch_is_valid_cxx(case: Case, tmp_path: Path) -> None:
    check_sketch(write(case, tmp_path / "bundle", format="arduino"), tmp_path)


def check_sketch(bundle: Path, folder: Path) -> None:
    """Compile the Arduino example against a stand-in for its framework."""
    stub = folder / "Arduino.h"
    stub.write_text(ARDUINO_STUB)
    sketch = bundle / "examples" / "net" / "net.ino"
    options = (*STRICT.split(), "-fsyntax-only", f"-I{bundle / 'src'}", "-include", stub)
    run("g++", *options, "-x", "c++", sketch)


def test_cortex_m_selftest_of_a_host_bundle_is_one_clear_error(
    host_case: Case, tmp_path: Path
) -> None:
    bundle = write(host_case, tmp_path / "bundle")
    done = run(
        "cmake", "-S", bundle, "-B", tmp_path / "build", "-DNET_SELFTEST_CORTEX_M=ON", check=False
    )
    assert done.returncode != 0
    assert "made for host" in done.stdout
