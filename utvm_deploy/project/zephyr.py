"""The texts of a Zephyr application, as far as they follow from the board and the model.

    DIR/
      CMakeLists.txt  toolchain.cmake  Kconfig  prj.conf  prj_standalone.conf  west.yml  sample.yaml
      boards/ socs/   what this one board needs of Kconfig and device tree
      runtime/  model/                as in every project
      template/       the port; app_config.h and image_id.h are generated

Pure functions from facts to text; tree.py puts them into place, zephyr_build.py builds. Files that
configure Zephyr contain nothing that changes with the model. So another model leaves the built
kernel as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from utvm_deploy.base.errors import BoardError, CompileError
from utvm_deploy.boards.facts import Board, Zephyr
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import OPTIMIZATION_FLAGS, Objective
from utvm_deploy.project.generated import RUNTIME_ENTRY_POINTS, external_lines, text_in

# The RAM of kernel, runtime, rings and stacks in the workspace's region, generously.
KERNEL_RAM_BYTES = 24 * 1024
# Of GCC for modules: what they call of the C library comes from the image.
LIBRARY_ENTRY_POINTS = ("memcpy", "memset", "memmove")
# The table of the model's own: see kept_entry_points.
MODEL_ENTRY_POINTS = "utvm_entry_points"


def is_zephyr(board: Board) -> bool:
    """Whether the board's images are Zephyr applications."""
    return board.template == "zephyr"


def zephyr_of(board: Board) -> Zephyr:
    """What the board's file says of Zephyr."""
    zephyr = board.project.zephyr
    if zephyr is None:
        raise BoardError(f"{board.name} has no template 'zephyr'; its file names no zephyr_board")
    return zephyr


def workspace_bytes(board: Board) -> int:
    """RAM for the host to lay out, if the board's file does not say: all that is left."""
    stated = zephyr_of(board).workspace_bytes
    if stated is not None:
        return stated
    stack_bytes = 0 if stack_is_coupled(board) else board.project.stack_bytes
    left = board.main_ram.size - KERNEL_RAM_BYTES - stack_bytes
    # A quarter is left to a kernel on the smallest boards.
    return max(left, board.main_ram.size // 4) // 64 * 64


def stack_is_coupled(board: Board) -> bool:
    """Whether the tasks' stack goes to the tightly coupled RAM that the device tree chooses."""
    return board.data_ram.kind == "tcm" and board.data_ram != board.main_ram


def application_files(
    board: Board, compiled: CompiledModel | None, base_stack_bytes: int, templates: Sequence[Path]
) -> dict[str, str]:
    """Path within the tree -> text of what is Zephyr's own; sources and image id excepted.

    ``board`` has the stack that the model's tasks need, ``base_stack_bytes`` of it its own share.
    """
    zephyr = zephyr_of(board)
    words = {
        "BOARD": board.name,
        "NAME": compiled.name if compiled else "runtime",
        "ZEPHYR_BOARD": zephyr.board,
        "WORKSPACE_BYTES": str(workspace_bytes(board)),
        "OPTIMIZATION_FLAG": OPTIMIZATION_FLAGS[
            Objective.TIME if compiled is None else compiled.optimize
        ],
        "STACK_BYTES": str(base_stack_bytes),
        "MAIN_STACK_BYTES": str(board.project.stack_bytes),
        "KEEP": " ".join(
            f"-Wl,-u,{name}"
            for name in (*RUNTIME_ENTRY_POINTS, *LIBRARY_ENTRY_POINTS, MODEL_ENTRY_POINTS)
        ),
        "CONFIG": "\n".join(_common_config(board, compiled)),
        "HARNESS": _harness(board, compiled),
    }

    def text(name: str) -> str:
        return fill(text_in(templates, f"{name}.in"), words)

    files = {
        name: text(name)
        for name in (
            "CMakeLists.txt",
            "Kconfig",
            "prj.conf",
            "prj_standalone.conf",
            "west.yml",
            "sample.yaml",
        )
    }
    words = {"WRAPPED_TOOLS": text_in(templates, "wrapped_tools.cmake")}
    files["toolchain.cmake"] = fill(text_in(templates, "toolchain.cmake"), words)
    for own in _own_files(zephyr):
        if zephyr.config:
            files[f"{own}.conf"] = _config_text(zephyr.config)
        if zephyr.overlay:
            files[f"{own}.overlay"] = "\n".join([*zephyr.overlay, ""])
    files["template/app_config.h"] = app_config(board, compiled, base_stack_bytes)
    files["template/entry_points.c"] = kept_entry_points(compiled)
    files["template/libraries.cmake"] = _libraries(compiled)
    return files


def fill(template: str, words: Mapping[str, str]) -> str:
    """``template`` with @KEY@ replaced for every key; CMake's and C's own signs stay."""
    return re.sub(r"@([A-Z_]+)@", lambda match: words[match[1]], template)


def file_name(zephyr_board: str) -> str:
    """How Zephyr names a board's files: mps2/an521/cpu0 has boards/mps2_an521_cpu0.conf."""
    return re.sub(r"[/@]", "_", zephyr_board)


def _own_files(zephyr: Zephyr) -> list[str]:
    """Where every release looks for files that only this board needs, without the suffix.

    From 4.0 on, a file in boards/ with a renamed board's older name is refused. In socs/, where
    names begin after the board's, each release ignores the other's.
    """
    if not zephyr.other_names:
        return [f"boards/{file_name(zephyr.board)}"]
    names = [name.partition("/") for name in (zephyr.board, *zephyr.other_names)]
    return [f"socs/{file_name(soc)}" if soc else f"boards/{board}" for board, _, soc in names]


def _config_text(lines: tuple[str, ...]) -> str:
    """Kconfig's files allow comments only on separate lines."""
    found: list[str] = []
    for line in lines:
        setting, _, comment = line.partition(" #")
        if comment:
            found.append(f"#{comment}")
        found.append(setting.strip())
    return "\n".join([*found, ""])


def _common_config(board: Board, compiled: CompiledModel | None) -> list[str]:
    lines = []
    if board.cpu.fpu != "none" or board.cpu.mve:
        lines.append("CONFIG_FPU=y")
        lines += board.cpu.target.templates.zephyr_fpu
    if board.cpu.icache_bytes or board.cpu.dcache_bytes:
        lines.append("CONFIG_CACHE_MANAGEMENT=y")
    for external in compiled.linked if compiled is not None else ():
        lines.append(f"# The model calls it, and was made for SHA-256 {external.digest}.")
        lines += [f"CONFIG_{option}=y" for option in external.zephyr_config]
    return lines


def app_config(board: Board, compiled: CompiledModel | None, base_stack_bytes: int) -> str:
    """``app_config.h``: the board file's and the model's numbers for the C compiler."""
    zephyr = zephyr_of(board)
    lines = [
        f"// Facts of {board.name}, from its board file, and of the model.",
        "",
        "#ifndef APP_CONFIG_H",
        "#define APP_CONFIG_H",
        "",
        "// Ticks are counts of the timing API times this.",
        f"#define UTVM_TICKS_MULTIPLIER {zephyr.multiplier}u",
        f"#define UTVM_TICKS_DIVISOR {zephyr.divisor}u",
        f"#define UTVM_TICKS_UNIT UTVM_TICK_UNIT_{zephyr.tick_unit.upper()}",
        "",
        "// What the model needs of a task's stack in addition to the board's share.",
        f"#define UTVM_MODEL_STACK_BYTES {board.project.stack_bytes - base_stack_bytes}u",
        "// Whether that stack, or the arena of a model that stands alone, goes to the tightly",
        "// coupled RAM that the device tree chooses as zephyr,dtcm.",
        f"#define UTVM_USE_DTCM {int(stack_is_coupled(board))}",
        "",
        "// What the host opens its port with.",
        f"#define UTVM_UART_BAUD {board.link.baud}u",
        "",
        f"#define UTVM_HAS_MODEL {int(compiled is not None)}",
    ]
    if compiled is not None and compiled.input_rows is not None:
        raise CompileError(
            f"the application for {board.name} gives {compiled.name} a whole input, and it takes "
            "rows; leave --input-rows out, or write a bundle (utvm bundle --format zephyr)"
        )
    if compiled is not None and compiled.pools:
        raise CompileError(
            f"the application for {board.name} has no memory for the pool "
            f"{compiled.pools[0].name} of {compiled.name}; leave --pool out, take the template "
            "baremetal, or write a bundle (utvm bundle --format zephyr)"
        )
    if compiled is not None:
        name, upper = compiled.name, compiled.name.upper()
        reset = f"{name}_reset(arena)" if compiled.states else "(void)(arena)"
        if compiled.initialized:
            reset = (
                f"do {{ int32_t status; {name}_initialize(arena, &status); {reset}; }} while (0)"
            )
        lines += [
            f'#define UTVM_MODEL_NAME "{name}"',
            f'#define UTVM_MODEL_HEADER "{name}.h"',
            f"#define UTVM_MODEL_RUN {name}_run",
            f"#define UTVM_MODEL_RESET(arena) {reset}",
            f"#define UTVM_MODEL_ARENA_BYTES {upper}_ARENA_BYTES",
            f"#define UTVM_MODEL_ARENA_ALIGNMENT {upper}_ARENA_ALIGNMENT",
        ]
        for direction in ("INPUT", "OUTPUT"):
            for fact in ("OFFSET", "BYTES"):
                lines.append(f"#define UTVM_MODEL_{direction}_{fact} {upper}_{direction}_0_{fact}")
    return "\n".join([*lines, "", "#endif", ""])


def _libraries(compiled: CompiledModel | None) -> str:
    """``libraries.cmake``: links static libraries that the model calls."""
    lines = ["# Static libraries that the model calls."]
    for external in compiled.linked if compiled is not None else ():
        lines += external_lines(external, "app") if external.library else ()
    return "\n".join([*lines, ""])


def image_id_header(image_id: str) -> str:
    """``image_id.h``: what the image says it is."""
    return (
        "// What the image says it is when a host greets it: a digest of all files here.\n"
        f'#define UTVM_IMAGE_ID "{image_id}"\n'
    )


def _harness(board: Board, compiled: CompiledModel | None) -> str:
    if compiled is None or board.emulator is None:
        return "    build_only: true"
    return "\n".join(
        [
            "    harness: console",
            "    harness_config:",
            "      type: one_line",
            "      regex:",
            f'        - "{compiled.name}: output .* CRC-32 [0-9a-f]+"',
        ]
    )


def kept_entry_points(compiled: CompiledModel | None) -> str:
    """``entry_points.c``: it keeps the model's functions, which only the host calls."""
    if compiled is None:
        return f"// No model is in this project.\nvoid *const {MODEL_ENTRY_POINTS}[1];\n"
    return "\n".join(
        [
            "// The host calls these; nothing in the image refers to them.",
            f'#include "{compiled.name}.h"',
            "",
            f"void *const {MODEL_ENTRY_POINTS}[] = {{",
            *(f"    (void *)&{name}," for name in compiled.entry_points),
            "};",
            "",
        ]
    )
