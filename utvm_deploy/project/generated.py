"""Texts of a project that follow from its board: header, linker script, CMake files.

Pure functions from facts to text; tree.py puts the texts into place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from string import Template

from utvm_deploy.boards.facts import Board, Driver, Region
from utvm_deploy.kernels.contract.external_library import ExternalLibrary
from utvm_deploy.project.pools import PlacedPool
from utvm_deploy.targets.emulator import counters

# The rights of runtime/utvm.h's regions.
_READ_EXECUTE = "UTVM_RIGHT_READ | UTVM_RIGHT_EXECUTE"
_READ_WRITE = "UTVM_RIGHT_READ | UTVM_RIGHT_WRITE"

#: How many windows the smallest MPUs have.
MPU_WINDOWS = 8

# What the linker calls a region at its other address.
ALIAS_SUFFIX = "_alias"

# What the host looks up in the ELF although nothing in the image refers to it.
RUNTIME_ENTRY_POINTS = ("utvm_crc32_of", "utvm_fill", "utvm_fill_zones", "utvm_check_zones")
# The same for boards with a cycle model, which forgets earlier runs.
FORGET_ENTRY_POINT = "utvm_forget_history"
# With it come all functions of the host's C library that modules may call.
HOST_LIBRARY_ENTRY_POINT = "utvm_libc_memcpy"


def board_config(
    board: Board,
    externals: Sequence[ExternalLibrary] = (),
    pools: Sequence[PlacedPool] = (),
    weights: Region | None = None,
) -> str:
    """``board_config.h`` of a bare-metal project: the board file's numbers for the C compiler.

    ``weights`` is the region of a model's weights, if it has any.
    """
    project = board.project
    # The board reader demands all three of a board that offers the template.
    assert project.uart is not None and project.timer is not None and project.clock is not None
    uart, timer, clock = project.uart, project.timer.driver, project.clock
    cpu = board.cpu
    settings = (*uart.settings, *timer.settings)
    irqs = [value for key, value in settings if key in ("irq", "rx_irq")]
    assert board.project.timer is not None
    stack = board.data_ram
    lines = [
        f"// Facts of {board.name}, from its board file.",
        "",
        "#ifndef BOARD_CONFIG_H",
        "#define BOARD_CONFIG_H",
        "",
        f"#define BOARD_CPU_HZ {cpu.clock_hz}u",
        f"#define BOARD_HAS_FPU {int(cpu.fpu != 'none' or cpu.mve)}",
        f"#define BOARD_HAS_VECTORS {int(cpu.facts.vectors)}",
        f"#define BOARD_ICACHE_BYTES {cpu.icache_bytes}u",
        f"#define BOARD_DCACHE_BYTES {cpu.dcache_bytes}u",
        f"#define BOARD_CACHE_LINE_BYTES {cpu.facts.cache_line_bytes}u",
        f"#define BOARD_INTERRUPT_COUNT {max(irqs, default=-1) + 1}u",
        f"#define BOARD_STACK_RAM_START 0x{stack.address:08x}u",
        f"#define BOARD_STACK_RAM_END 0x{stack.end:08x}u",
        "",
        *_driver_macros("UART", uart),
        f"#define BOARD_UART_BAUD {board.link.baud}u",
        "",
        *_driver_macros("TIMER", timer),
        f"#define BOARD_TIMER_MULTIPLIER {board.project.timer.multiplier}u",
        f"#define BOARD_TIMER_DIVISOR {board.project.timer.divisor}u",
        f"#define BOARD_TICKS_HZ {board.project.timer.ticks_hz}u",
        f"#define BOARD_TICK_UNIT UTVM_TICK_UNIT_{board.project.timer.unit.upper()}",
        "",
        *_driver_macros("CLOCK", clock),
        *_step_macros(clock),
        *_boot_macros(board),
        "",
        *_counter_macros(board),
        "// Memory that the host may touch: begin, end, rights.",
        "#define BOARD_REGIONS \\",
        ", \\\n".join(f"    REGION({r})" for r in _regions(board, weights)),
        "",
        *_device_windows(externals),
        *_pool_windows(pools),
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _device_windows(externals: Sequence[ExternalLibrary]) -> Iterator[str]:
    """The registers that backends' code in tasks may use."""
    having = [one for one in externals if one.registers]
    if having:
        windows = ", ".join(
            f"{{0x{at:08x}u, 0x{at + size:08x}u}}" for one in having for at, size in one.registers
        )
        yield f"// Registers of {' and '.join(one.name for one in having)}: begin, end."
        yield f"#define BOARD_DEVICE_WINDOWS {windows}"
        yield ""


def _pool_windows(pools: Sequence[PlacedPool]) -> Iterator[str]:
    """The memory besides the workspace that tasks may use."""
    if pools:
        windows = ", ".join(f"{{0x{pool.address:08x}u, 0x{pool.end:08x}u}}" for pool in pools)
        yield "// Pools of the model: begin, end."
        yield f"#define BOARD_POOLS {windows}"
        yield ""


def _driver_macros(prefix: str, driver: Driver) -> Iterator[str]:
    for key, value in driver.settings:
        # Addresses are read more easily in hexadecimal.
        text = f"0x{value:08x}u" if value >= 1 << 28 else f"{value}u"
        yield f"#define BOARD_{prefix}_{key.upper()} {text}"


def _step_macros(clock: Driver) -> Iterator[str]:
    if clock.steps:
        yield "// Register, mask, value, and whether to wait for it."
        yield "#define BOARD_CLOCK_STEPS \\"
        yield ", \\\n".join(
            f"    {{0x{step.register:08x}u, 0x{step.mask:08x}u, 0x{step.value:08x}u, "
            f"{int(step.waits)}u}}"
            for step in clock.steps
        )


def _boot_macros(board: Board) -> Iterator[str]:
    if board.project.boot_block != "none":
        yield f"#define BOARD_BOOT_START 0x{board.vector_flash.address:08x}u"
        yield f"#define BOARD_BOOT_BYTES 0x{board.vector_flash.size:08x}u"


def _counter_macros(board: Board) -> Iterator[str]:
    if board.has_cycle_model:
        yield "// The block that an emulator's cycle model fills."
        yield f"#define BOARD_COUNTER_WORDS {len(counters.NAMES)}"
        yield f"#define BOARD_COUNTER_CYCLES {counters.NAMES.index('memory')}"
        yield f"#define BOARD_COUNTER_INSTRUCTIONS {counters.NAMES.index('instructions')}"
        yield ""


def _regions(board: Board, weights: Region | None) -> Iterator[str]:
    flashes = {board.vector_flash.name, board.main_flash.name}
    flashes |= {weights.name} if weights else set()
    for region in board.memory:
        if region.kind == "flash" and region.name not in flashes:
            continue
        rights = _READ_EXECUTE if region.kind == "flash" else _READ_WRITE
        if region.kind != "flash" and region.executable:
            rights += " | UTVM_RIGHT_EXECUTE"
        yield f"0x{region.address:08x}u, 0x{region.end:08x}u, {rights}"
        if region == board.main_flash and board.project.through_alias:
            assert region.alias is not None
            yield f"0x{region.alias:08x}u, 0x{region.alias + region.size:08x}u, {rights}"


def without_window(
    board: Board,
    externals: Sequence[ExternalLibrary],
    pools: Sequence[PlacedPool],
    weights: Region | None,
) -> list[str]:
    """What an MPU of ``MPU_WINDOWS`` keeps from tasks, because others come first in mpu.c."""
    flashes = sum(_READ_EXECUTE in region for region in _regions(board, weights))
    # The workspace and the stack. Before v8-M, one hides what is below the workspace in its region,
    # where the linker script has the runtime's data.
    has_below = board.data_ram == board.main_ram and not board.cpu.facts.has_any_windows
    room = MPU_WINDOWS - flashes - 2 - has_below
    wanted = [f"registers at 0x{at:08x}" for one in externals for at, _ in one.registers]
    return [*wanted, *(f"pool {pool.name}" for pool in pools)][max(room, 0) :]


def text_in(folders: Sequence[Path], name: str) -> str:
    """The file of the last folder that has it."""
    path = next(folder / name for folder in reversed(folders) if (folder / name).is_file())
    return path.read_text(encoding="utf-8")


def linker_script(board: Board, templates: Sequence[Path], weights: Region | None = None) -> str:
    """The bare-metal linker script for the board's memory, made of ``*.ld.in`` in its folders.

    ``weights`` is as for ``board_config``.
    """

    def template(name: str) -> Template:
        return Template(text_in(templates, f"{name}.ld.in"))

    workspace, data = board.main_ram, board.data_ram
    # An MPU of v7-M keeps tasks from the runtime's memory by eighths of a power of two.
    used = f"(ld_data_region_used - ORIGIN({data.name}))"
    aligned = f"ALIGN(ld_data_region_used, MAX(32, (1 << LOG2CEIL({used})) / 8))"
    start = aligned if data == workspace else f"ORIGIN({workspace.name})"
    regions = list(board.memory)
    flash = board.main_flash
    if board.project.through_alias:
        assert flash.alias is not None
        regions.append(replace(flash, name=_alias_name(flash), address=flash.alias))
        sections = template("sections_through_alias").substitute(
            flash=flash.name, code=_view(board, "code"), constants=_view(board, "constants")
        )
        data_at, data_load = " AT(ld_data_at)", ""
    else:
        sections = template("sections").substitute(flash=flash.name)
        data_at, data_load = "", f" AT > {flash.name}"
    if weights is not None and weights != flash:
        sections = _WEIGHTS.substitute(weights=weights.name) + sections
    width = max(len(region.name) for region in regions)
    words = {
        "data": data.name,
        "workspace": workspace.name,
        "workspace_start": start,
        "stack_bytes": board.project.stack_bytes,
    }
    return template("link").substitute(
        words,
        board=board.name,
        memory="\n".join(_memory_line(region, width) for region in regions),
        vectors=board.vector_flash.name,
        flash_sections=sections,
        data_at=data_at,
        data_load=data_load,
        protection=template("protection").substitute(words).rstrip(),
    )


# First, because what a section takes is not there for those that follow.
_WEIGHTS = Template("""\
    .weights : { *model/*_weights.c.*(.rodata .rodata.*) } > $weights

""")


def _alias_name(flash: Region) -> str:
    return f"{flash.name}{ALIAS_SUFFIX}"


def _view(board: Board, part: str) -> str:
    flash = board.main_flash
    return _alias_name(flash) if part in board.project.through_alias else flash.name


def _memory_line(region: Region, width: int) -> str:
    attributes = "rx" if region.kind == "flash" else "rwx" if region.executable else "rw"
    return (
        f"    {region.name:{width}} ({attributes}) : "
        f"ORIGIN = 0x{region.address:08x}, LENGTH = 0x{region.size:x}"
    )


def toolchain_file(board: Board) -> str:
    """``toolchain.cmake``: the compiler, and that it needs no trial runs."""
    toolchain = board.cpu.toolchain
    lines = [
        f"# The compiler for {board.cpu.core}. Another one: cmake -DCMAKE_C_COMPILER=...",
        *toolchain.system,
        "if(NOT CMAKE_C_COMPILER)",
        f"  set(CMAKE_C_COMPILER {toolchain.compiler})",
        "endif()",
        "# A bare-metal compiler cannot link CMake's test programs; and it is known to work.",
        "set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)",
        "set(CMAKE_C_COMPILER_WORKS 1)",
        "",
    ]
    return "\n".join(lines)


def cmake_lists(
    board: Board,
    sources: Sequence[str],
    model_sources: Sequence[str] = (),
    externals: Sequence[ExternalLibrary] = (),
    optimization_flag: str = "-O3",
    model_entry_points: Sequence[str] = (),
) -> str:
    """``CMakeLists.txt`` for the project's sources, and those of a model.

    ``optimization_flag`` is the C compiler's flag for the model's sources.

    ``externals`` are libraries of the user that the model's sources call, and
    ``model_entry_points`` its functions that stay, though nothing calls them.
    """
    entry_points = [*RUNTIME_ENTRY_POINTS, *model_entry_points]
    if board.has_cycle_model:
        entry_points.append(FORGET_ENTRY_POINT)
    link = ["-Wl,--gc-sections"]
    machine = board.cpu.target.machine
    if machine is not None:
        link += board.cpu.toolchain.link_flags(board.cpu.facts)
    elif board.is_host:
        link.append("-no-pie")
        entry_points.append(HOST_LIBRARY_ENTRY_POINT)
    else:
        toolchain = board.cpu.toolchain
        script = f"{toolchain.script_option}${{CMAKE_SOURCE_DIR}}/link.ld"
        link = [*toolchain.link_flags(board.cpu.facts), *link]
        link += ["-nostartfiles", script, "-Wl,--fatal-warnings"]
    link += [f"-Wl,-u,{name}" for name in entry_points]
    lines = [
        f"# An image for {board.name}: cmake -B build && cmake --build build",
        "cmake_minimum_required(VERSION 3.16)",
        "if(NOT CMAKE_TOOLCHAIN_FILE)",
        '  set(CMAKE_TOOLCHAIN_FILE "${CMAKE_CURRENT_SOURCE_DIR}/toolchain.cmake")',
        "endif()",
        "project(image C)",
        "include(image_id.cmake)",
        "",
        "add_executable(image",
        *(f"  {name}" for name in (*sources, *model_sources)),
        ")",
        "set_target_properties(image PROPERTIES SUFFIX .elf)",
        "target_include_directories(image PRIVATE runtime template model)",
        _cmake_call("target_compile_options(image PRIVATE", compile_options(board)),
        # This one source alone depends on the model.
        "set_source_files_properties(template/main.c PROPERTIES",
        '  COMPILE_DEFINITIONS "UTVM_IMAGE_ID=${UTVM_IMAGE_ID}")',
    ]
    if model_sources:
        lines += [
            _cmake_call("set_source_files_properties(", model_sources, "PROPERTIES"),
            f"  COMPILE_OPTIONS {optimization_flag})",
        ]
    for external in externals:
        lines += external_lines(external, "image") if external.is_linked else ()
    lines += [
        _cmake_call("target_link_options(image PRIVATE", [*_machine_flags(board), *link]),
        f"target_link_libraries(image PRIVATE {'m' if board.is_host else 'c m gcc'})",
    ]
    if not board.is_host:
        lines.append(
            "set_property(TARGET image APPEND PROPERTY LINK_DEPENDS ${CMAKE_SOURCE_DIR}/link.ld)"
        )
    return "\n".join([*lines, ""])


def compile_options(board: Board) -> list[str]:
    """The C compiler's options for every source of an image, in CMake's words."""
    options = [
        *_machine_flags(board),
        "-std=c99",
        "-O2",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-ffunction-sections",
        "-fdata-sections",
        # The same image in every build folder.
        "-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.",
    ]
    if board.is_host:
        # Addresses on the wire have 32 bits, so nothing may lie above 4 GiB.
        position = [] if board.cpu.target.machine else ["-fno-pie"]
        options += [*position, f"-DUTVM_WORKSPACE_BYTES={board.main_ram.size}"]
    return options


def _machine_flags(board: Board) -> list[str]:
    own = (quoted(flag) for flag in board.project.compiler_flags)
    return [*board.cpu.compiler_flags, *own]


def quoted(text: str) -> str:
    """An argument for CMake that holds any text."""
    if re.fullmatch(r"[\w.+=/:,-]+", text, re.ASCII):
        return text
    # In a list of options a semicolon would begin the next one.
    return '"' + re.sub(r'([\\"$;])', r"\\\1", text) + '"'


def external_lines(external: ExternalLibrary, target: str) -> Iterator[str]:
    """CMake's lines that link ``target`` with a user's library."""
    variable = re.sub(r"\W", "_", external.name.upper())
    origin = f" ({external.url})" if external.url else ""
    yield f"# {external.name}{origin} is not part of this tree: it is the user's copy,"
    yield f"# SHA-256 {external.digest}."
    folders = " ".join(quoted(folder) for folder in external.include_dirs)
    yield f'set({variable}_INCLUDE_DIRS {folders} CACHE STRING "folders of its headers")'
    library = quoted(external.library)
    yield f'set({variable}_LIBRARY {library} CACHE FILEPATH "its static library")'
    yield f'if(NOT EXISTS "${{{variable}_LIBRARY}}")'
    yield f'  message(FATAL_ERROR "no {external.name} at ${{{variable}_LIBRARY}}: give '
    yield f'-D{variable}_LIBRARY=... and -D{variable}_INCLUDE_DIRS=...")'
    yield "endif()"
    yield f"target_include_directories({target} SYSTEM PRIVATE ${{{variable}_INCLUDE_DIRS}})"
    # In front of the C library, whose memcpy it calls.
    yield f'target_link_libraries({target} PRIVATE "${{{variable}_LIBRARY}}")'
    yield f'set_property(TARGET {target} APPEND PROPERTY LINK_DEPENDS "${{{variable}_LIBRARY}}")'


def _cmake_call(head: str, values: Sequence[str], tail: str = ")") -> str:
    return "\n".join([head, *(f"  {value}" for value in values), f"  {tail}"])
