"""The files of a bundle as text, manifest excepted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from utvm_deploy import __version__
from utvm_deploy.base.errors import BundleError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.facts import ESP_IDF
from utvm_deploy.bundling.external import external_values
from utvm_deploy.bundling.layout import FORMATS, VECTORS_USAGE, Layout
from utvm_deploy.bundling.pools import pool_values
from utvm_deploy.bundling.running import run_values
from utvm_deploy.bundling.rust import rust_values
from utvm_deploy.bundling.vectors import vectors_header
from utvm_deploy.compiler.c_text import c_type, comment, float_literal
from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel
from utvm_deploy.compiler.emission.pools import load_call
from utvm_deploy.compiler.options import MODEL_STACK_BYTES
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import VECTORS_ON
from utvm_deploy.project.fit import with_larger_stack
from utvm_deploy.project.model_code import ModelCode, flash_bytes
from utvm_deploy.targets.contract.target import Selftest
from utvm_deploy.targets.table import TARGETS

#: What a task of ESP-IDF needs that prints, as CONFIG_ESP_MAIN_TASK_STACK_SIZE is without us.
TASK_STACK_BYTES = 3584


def bundle_files(
    compiled: CompiledModel,
    board: Board,
    model_file: str,
    layout: Layout,
    inputs: Sequence[Sequence[Array]],
    expected: Sequence[Sequence[Array]],
    oracle: str,
    tolerance: float = 0.0,
    code: ModelCode | None = None,
    report: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Path in the bundle -> text; ``tolerance`` and what follows are as in ``write_bundle``."""
    name = compiled.name
    values = _values(compiled, board, model_file, layout, len(inputs), oracle)
    values |= within(tolerance) if tolerance else EXACTLY
    values |= _measured(compiled, code, report)
    if layout is FORMATS["rust"]:
        values |= rust_values(compiled, board, inputs[0], expected[0], tolerance)
    header = f"{name}.h"
    files = {
        f"{layout.include_dir if file == header else layout.source_dir}/{file}": text
        for file, text in compiled.sources.items()
    }
    templates = {
        "CMakeLists.txt": "CMakeLists.txt",
        "README.md": "README.md",
        layout.example: layout.example_template,
        f"{layout.selftest_dir}/{name}_selftest.c": "selftest.c.in",
        f"{layout.selftest_dir}/{name}_selftest.h": "selftest.h.in",
        f"{layout.selftest_dir}/main.c": "selftest_main.c.in",
        **{path: path for path in layout.extra},
    }
    templates = {path: f"bundle/{template}" for path, template in templates.items()}
    bare = _bare_selftest(board)
    if bare is not None:
        for file in ("toolchain.cmake", "selftest.ld", "startup.c"):
            path = f"{layout.selftest_dir}/{bare.folder}/{file}"
            templates[path] = bare.startup if file == "startup.c" else f"bundle/bare/{file}"
    for path, template in templates.items():
        files[fill(path, values)] = fill(
            (data_dir("templates") / template).read_text(encoding="utf-8"), values
        )
    vectors = vectors_header(compiled, inputs, expected, tolerance)
    files[f"{layout.selftest_dir}/{name}_vectors.h"] = vectors
    return files


def _bare_selftest(board: Board) -> Selftest | None:
    """None where somebody else starts the chip, or where the target has none."""
    return None if board.template == ESP_IDF else board.cpu.target.templates.selftest


#: How the self-test compares outputs.
EXACTLY = {
    "IS_WRONG": "",
    "WRONG": "got[i] != expected[i]",
    "PASSED": "every output byte equal",
}
_IS_WRONG = """\
// Whether the byte at i is wrong: of float32 the element that begins there, by more than the
// tolerance. A tolerance below 0 asks for equal bytes.
static int is_wrong(const uint8_t *got, const uint8_t *expected, uint32_t i, float tolerance) {
    union {
        float value;
        uint8_t bytes[sizeof(float)];
    } a, b;
    float difference;
    int differs = 0;
    if (tolerance < 0.0f) {
        return got[i] != expected[i];
    }
    if (i % sizeof(float) != 0u) {
        return 0;
    }
    for (uint32_t k = 0u; k < sizeof(float); k++) {
        a.bytes[k] = got[i + k];
        b.bytes[k] = expected[i + k];
        differs |= a.bytes[k] != b.bytes[k];
    }
    difference = a.value - b.value;
    return differs && !(difference <= tolerance && -difference <= tolerance);
}

"""


def within(tolerance: float) -> dict[str, str]:
    """How the self-test compares outputs that may differ by a part of their largest magnitude."""
    return {
        "IS_WRONG": _IS_WRONG,
        "WRONG": "is_wrong(got, expected, i, sample_tolerances[sample][output])",
        "PASSED": f"every output within {tolerance:g} of the largest magnitude",
    }


def fill(text: str, values: Mapping[str, str]) -> str:
    """A template with its values; BundleError for a placeholder that has none."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise BundleError(f"a template of the bundle asks for @{match[1]}@, which has no value")
        return values[match[1]]

    # A value may hold placeholders itself (the usage text), but no further level.
    once = re.sub(r"@([A-Z_]+)@", value, text)
    return re.sub(r"@([A-Z_]+)@", value, once)


def _values(
    compiled: CompiledModel,
    board: Board,
    model_file: str,
    layout: Layout,
    samples: int,
    oracle: str,
) -> dict[str, str]:
    output, stack_bytes = compiled.outputs[0], MODEL_STACK_BYTES + compiled.stack_bytes
    values = {
        "NAME": compiled.name,
        "UPPER": compiled.name.upper(),
        "VERSION": __version__,
        "CORE": compiled.core,
        "BOARD": board.name,
        "MODEL_FILE": comment(Path(model_file).name),
        "DIGEST": compiled.model_digest,
        "ORACLE": oracle,
        "SAMPLES": str(samples),
        "ARENA_BYTES": f"{compiled.arena_bytes:,}",
        "RAM_BYTES": str(compiled.arena_bytes + compiled.pool_bytes),
        "MACS": f"{compiled.macs:,}",
        "OPTIMIZATION_FLAG": compiled.optimization_flag,
        "IO_TABLE": io_table(compiled),
        "INCLUDE_DIR": layout.include_dir,
        "SOURCE_DIR": layout.source_dir,
        "SELFTEST_DIR": layout.selftest_dir,
        "STACK_NEED": f"{stack_bytes:,}",
        "TASK_STACK_BYTES": str(TASK_STACK_BYTES + stack_bytes),
        "ISA": board.cpu.facts.architecture,
        "FOR_CORE": _for_core(compiled, board),
        "USAGE": layout.usage,
        "LIBRARY": layout.library,
        "FIRST_CMAKE": layout.cmake,
        **run_values(compiled),
        **pool_values(compiled, board),
        "FILL_ARENA": _fill_arena(compiled),
        "RESET": _before_first_run(compiled),
        "RESET_ONCE": "".join(f"    {line}\n" for line in _reset(compiled)),
        "HOW_OFTEN": "once" if compiled.stream is None else "hop by hop",
        "ZEROS": "an input" if compiled.stream is None else "columns",
        "OUTPUT_TYPE": c_type(output.dtype),
        "OUTPUT_VALUE": _real_output(compiled, output),
        "BARE": "",
        "INITIALIZE": _initialize_selftest(compiled),
        **external_values(compiled, board, layout),
    }
    bare = _bare_selftest(board)
    values |= _bare_build(board.cpu.target.templates.selftest or _FIRST_BARE)
    if bare is not None:
        values |= _bare_values(compiled, board, layout, bare)
    return values


#: For targets without one: a build for a bare core then says that its start-up code is missing.
_FIRST_BARE = next(
    one.templates.selftest for one in TARGETS.values() if one.templates.selftest is not None
)


def _bare_build(bare: Selftest) -> dict[str, str]:
    """What CMakeLists.txt says of the self-test on a bare core."""
    return {
        "BARE_CORE": bare.core,
        "BARE_FOLDER": bare.folder,
        "BARE_OPTION": bare.folder.upper(),
        "BARE_LINK": "".join(f"{option} " for option in bare.link_options),
    }


def _measured(
    compiled: CompiledModel, code: ModelCode | None, report: Mapping[str, Any] | None
) -> dict[str, str]:
    """Rows of the README's table: flash, and what was counted on the board."""
    flash, weights = flash_bytes(compiled, code), f"{compiled.weights_bytes:,} bytes"
    values = {
        "FLASH_ROW": f"| Flash: constants; `utvm memory` also shows the code | {weights} |"
        if flash is None
        else f"| Flash: code and constants | {flash:,} bytes, of which constants {weights} |",
        "LATENCY_ROWS": "",
    }
    if code is not None and code.library:
        names = ", ".join(f"`{name}`" for name in code.library)
        values["FLASH_ROW"] += (
            "\n| Flash: what the C library and the compiler add, unless your firmware has it: "
            f"{names} | {code.library_bytes:,} bytes |"
        )
    if report is not None and "tick_unit" in report:
        unit, told = report["tick_unit"], f"{report['ticks']:,}"
        if report["seconds"] is not None:
            # Nanoseconds are counted by a clock on the wall, not by the core's.
            hertz = report["ticks_per_second"]
            clock = "" if unit == "nanoseconds" else f" at {hertz / 1e6:g} MHz"
            told = f"{1e3 * report['seconds']:.3f} ms{clock}: {told}"
        unit = f"modelled {unit}, never measured on silicon" if report["is_modelled"] else unit
        told = f"{told} {unit}"
        sizes = f"{report['ram_bytes']:,} bytes of RAM, {report['flash_bytes']:,} of flash"
        values["LATENCY_ROWS"] = (
            f"| Time of one run on {compiled.board} | {told} |\n"
            f"| An image with the runtime (`utvm profile`) | {sizes} |\n"
        )
    return values


def _for_core(compiled: CompiledModel, board: Board) -> str:
    """What the README says of the compiler's options; nothing where no assembly is."""
    if VECTORS_ON in compiled.sources[f"{compiled.name}_private.h"]:
        return VECTORS_USAGE
    if not board.cpu.toolchain.compiles_assembly:
        return ""
    flags = " ".join(board.cpu.compiler_flags)
    return (
        f"Compile for the core, with options such as `{flags}`. For another core, GCC\n"
        "compiles plain C instead of the assembly: the same bytes, but slower.\n\n"
    )


def _before_first_run(compiled: CompiledModel) -> str:
    """C that an application calls before the first run."""
    lines = [load_call(compiled)] if compiled.load_function is not None else []
    if compiled.initialized:
        lines += [
            "int32_t status = 0;",
            f"{compiled.name}_initialize(arena, &status);",
            "if (status != 0) {",
            "    return 1;",
            "}",
        ]
    return "".join(f"    {line}\n" for line in [*lines, *_reset(compiled)])


def _reset(compiled: CompiledModel) -> list[str]:
    """C that has a model forget earlier runs, where it remembers any."""
    remembers = compiled.states or compiled.input_rows is not None
    return [f"{compiled.name}_reset(arena);"] if remembers else []


def _initialize_selftest(compiled: CompiledModel) -> str:
    """C of the self-test that prepares the device and the arena for a backend."""
    if not compiled.initialized:
        return ""
    name = compiled.name
    lines = [
        *_dirty_arena(compiled),
        *_reset(compiled),
        "int32_t status = 0;",
        f"{name}_initialize(arena, &status);",
        "if (status != 0) {",
        f'    print(&out, "FAIL {name}: its initialization returned an error\\n");',
        "    return 1;",
        "}",
    ]
    return "".join(f"    {line}\n" for line in lines)


def _dirty_arena(compiled: CompiledModel) -> list[str]:
    return [
        f"for (uint32_t i = 0u; i < {compiled.name.upper()}_ARENA_BYTES; i++) {{",
        "    arena[i] = FILL;",
        "}",
    ]


def _fill_arena(compiled: CompiledModel) -> str:
    """C that dirties the arena before a sample; what a model keeps, only before the first one."""
    if compiled.initialized:
        return ""  # done before the first sample
    lines = [*_dirty_arena(compiled), *_reset(compiled)]
    if not compiled.states:
        return "\n".join(f"    {line}" for line in lines)
    return "\n".join(["    if (sample == 0u) {", *(f"        {line}" for line in lines), "    }"])


def _bare_values(
    compiled: CompiledModel, board: Board, layout: Layout, bare: Selftest
) -> dict[str, str]:
    flash, ram = board.main_flash, board.main_ram
    vectors = board.region(board.project.vectors) if board.project.vectors else flash
    pools = [board.region(pool.name) for pool in compiled.pools]
    regions = {region.name: region for region in (vectors, flash, ram, *pools)}
    memory = "\n".join(
        f"    {region.name} : ORIGIN = 0x{region.address:08X}, LENGTH = 0x{region.size:X}"
        for region in regions.values()
    )
    return {
        "SYSTEM": "\n".join(board.cpu.toolchain.system),
        "COMPILER": board.cpu.toolchain.compiler,
        "COMPILER_FLAGS": " ".join(board.cpu.compiler_flags),
        "MEMORY": memory,
        "VECTORS": vectors.name,
        "HAS_VECTORS": str(int(board.cpu.facts.vectors)),
        "FLASH": flash.name,
        "RAM": ram.name,
        # Scratch on the stack comes in addition to what the self-test takes.
        "STACK_BYTES": str(with_larger_stack(board, compiled.stack_bytes).project.stack_bytes),
        "BARE": _bare_text(compiled, board, layout, bare),
    }


def _bare_text(compiled: CompiledModel, board: Board, layout: Layout, bare: Selftest) -> str:
    name = compiled.name
    lines = [
        "",
        f"On a bare {compiled.core} (printing by {bare.printing}",
        f"serve it; memory as on {board.name}):",
        "",
        f"    cmake -S . -B ../{name}-build-{bare.build} \\",
        f"        -DCMAKE_TOOLCHAIN_FILE={layout.selftest_dir}/{bare.folder}/toolchain.cmake",
        f"    cmake --build ../{name}-build-{bare.build}",
    ]
    if board.emulator is not None:
        words = board.emulator.arguments
        at = words.index("-cpu") if "-cpu" in words else len(words)
        machine = " ".join(("-machine", board.emulator.machine, *words[at : at + 2]))
        lines += [
            f"    {board.emulator.program} {machine} -nographic \\",
            f"        {' '.join(bare.emulator_options)} -kernel "
            f"../{name}-build-{bare.build}/{name}_selftest.elf",
        ]
    return "\n".join([*lines, ""])


def io_table(compiled: CompiledModel) -> str:
    rows = ["| | type | shape | scale | zero point |", "|---|---|---|---|---|"]
    for direction, buffers in (("input", compiled.taken), ("output", compiled.outputs)):
        for index, buffer in enumerate(buffers):
            shape = " x ".join(map(str, buffer.shape))
            scale = "" if buffer.scale is None else float_literal(buffer.scale)[:-1]
            zero_point = "" if buffer.zero_point is None else str(buffer.zero_point)
            kind = c_type(buffer.dtype)
            rows.append(f"| {direction} {index} | {kind} | {shape} | {scale} | {zero_point} |")
    return "\n".join(rows)


def _real_output(compiled: CompiledModel, output: Buffer) -> str:
    if output.scale is None:
        return "(double)output[i]"
    macro = f"{compiled.name.upper()}_OUTPUT_0"
    return f"(double)({macro}_SCALE * (float)(output[i] - {macro}_ZERO_POINT))"
