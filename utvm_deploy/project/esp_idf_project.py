"""The texts of a project of ESP-IDF, as far as they follow from the board and the model.

    DIR/
      CMakeLists.txt  sdkconfig.defaults  partitions.csv
      main/CMakeLists.txt             the one component: its sources are those of the other folders
      runtime/  model/                as in every project; model/sources.cmake lists the model's
      template/                       the port; app_config.h and image_id.h are generated

Pure functions from facts to text; tree.py puts them into place, esp_idf_build.py builds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from utvm_deploy.base.errors import CompileError
from utvm_deploy.boards.facts import ESP_IDF, Board, EspIdf
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.project.generated import RUNTIME_ENTRY_POINTS, external_lines, text_in
from utvm_deploy.project.zephyr import MODEL_ENTRY_POINTS, fill, kept_entry_points

#: The RAM of ESP-IDF without radio: code that runs in RAM, variables, rings, stacks and heap. An
#: estimate; the linker says if it is too little.
SYSTEM_RAM_BYTES = 160 * 1024
#: The boot loader and the partition table are in front of the application.
BEFORE_APP_BYTES = 0x10000
#: What an interrupt saves on a task's stack, and what is watched at its end.
STACK_MARGIN_BYTES = 512


def esp_idf_of(board: Board) -> EspIdf | None:
    """What the board's file says of ESP-IDF, if its images are projects of that."""
    return board.project.esp_idf if board.template == ESP_IDF else None


def workspace_bytes(board: Board, esp_idf: EspIdf) -> int:
    """RAM for the host to lay out, if the board's file does not say: all that is left."""
    if esp_idf.workspace_bytes is not None:
        return esp_idf.workspace_bytes
    left = board.main_ram.size - SYSTEM_RAM_BYTES - board.project.stack_bytes
    # A quarter is left to a system on the smallest boards.
    return max(left, board.main_ram.size // 4) // 64 * 64


def esp_idf_files(
    board: Board,
    esp_idf: EspIdf,
    compiled: CompiledModel | None,
    sources: Iterable[str],
    templates: Sequence[Path],
) -> dict[str, str]:
    """Path within the tree -> text of what is ESP-IDF's own; sources and image id excepted.

    ``board`` has the stack that the model's tasks need. ``sources`` are the C files of the tree.
    """
    if compiled is not None and compiled.pools:
        raise CompileError(
            f"the project for {board.name} has no memory for the pool {compiled.pools[0].name} of "
            f"{compiled.name}; leave --pool out, or write a bundle (utvm bundle --format {ESP_IDF})"
        )
    own = [f"../{name}" for name in (*sources, "template/entry_points.c")]
    model = [name for name in own if name.startswith("../model/")]
    words = {
        "BOARD": board.name,
        "TARGET": esp_idf.target,
        "CPU_MHZ": str(board.cpu.clock_hz // 1_000_000),
        "FLASH_MB": str(board.main_flash.size >> 20),
        "APP_KB": str((board.main_flash.size - BEFORE_APP_BYTES) >> 10),
        "CONFIG": "\n".join(esp_idf.config),
        "SOURCES": "\n         ".join(name for name in own if name not in model),
        "KEEP": " ".join(f'"-u {name}"' for name in (*RUNTIME_ENTRY_POINTS, MODEL_ENTRY_POINTS)),
    }
    lines = ["# What changes with the model.", f'set(MODEL_SOURCES "{";".join(model)}")']
    library = ["# What the model calls of others."]
    for external in compiled.linked if compiled is not None else ():
        library += external_lines(external, "${COMPONENT_LIB}")
    if compiled is not None:
        lines.append(f'set(MODEL_OPTIONS "-std=c99;{compiled.optimization_flag}")')
    return {
        "CMakeLists.txt": fill(text_in(templates, "CMakeLists.txt.in"), words),
        "main/CMakeLists.txt": fill(text_in(templates, "component.cmake.in"), words),
        "partitions.csv": fill(text_in(templates, "partitions.csv.in"), words),
        "sdkconfig.defaults": fill(text_in(templates, "sdkconfig.defaults.in"), words),
        "model/sources.cmake": "\n".join([*lines, ""]),
        "model/library.cmake": "\n".join([*library, ""]),
        "template/app_config.h": _app_config(board, esp_idf),
        "template/entry_points.c": kept_entry_points(compiled),
    }


def _app_config(board: Board, esp_idf: EspIdf) -> str:
    return "\n".join(
        [
            f"// Facts of {board.name}, from its board file, and of the model.",
            "",
            "#ifndef APP_CONFIG_H",
            "#define APP_CONFIG_H",
            "",
            f"#define UTVM_CPU_HZ {board.cpu.clock_hz}u",
            f"#define UTVM_LINK_USB {int(esp_idf.has_usb)}",
            f"#define UTVM_UART_BAUD {board.link.baud}",
            f"#define UTVM_TASK_STACK_BYTES {board.project.stack_bytes + STACK_MARGIN_BYTES}u",
            "",
            "// A plain number, because the assembler reads it too.",
            f"#define UTVM_WORKSPACE_BYTES {workspace_bytes(board, esp_idf)}",
            "// What is added to an address there to execute what is there.",
            f"#define UTVM_CODE_OFFSET 0x{board.code_offset:x}u",
            f"#define UTVM_WORKSPACE_EXECUTE {'0u' if board.code_offset else 'UTVM_RIGHT_EXECUTE'}",
            "",
            "#endif",
            "",
        ]
    )
