"""What a bundle says of a library that its sources call and that it does not hold."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from utvm_deploy.boards.board import Board
from utvm_deploy.bundling.layout import Layout
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.kernels.contract.external_library import ExternalLibrary

_DEVICE = (
    "Layers of this model run on this device. They call the functions of its driver that",
    "`external_dependencies` in `manifest.json` names: link your build, also with the self-test.",
    "Prepare the driver before the first run. The device must reach arena and weights, so neither",
    "may be in tightly coupled RAM.",
    "",
)


def external_values(compiled: CompiledModel, board: Board, layout: Layout) -> dict[str, str]:
    """What the templates say of it, by placeholder; empty texts without such a library."""
    return {
        "EXTERNAL": "".join(_external_cmake(compiled.name, one) for one in compiled.linked),
        "EXTERNAL_ZEPHYR": "".join(
            textwrap.indent(_external_cmake(compiled.name, one, is_zephyr=True), "    ")
            for one in compiled.linked
            if one.library
        ),
        "EXTERNAL_KCONFIG": external_kconfig(compiled.externals, board),
        "EXTERNAL_TEXT": "".join(
            _external_text(compiled.name, one, layout)
            for one in compiled.externals
            if one.is_linked or one.is_prepared or one.has_device
        ),
    }


def _external_cmake(name: str, external: ExternalLibrary, *, is_zephyr: bool = False) -> str:
    """CMake lines that ask for a library which the sources call and the bundle does not hold."""
    variable = _variable(external)
    include = f"target_include_directories({name} SYSTEM PRIVATE ${{{variable}_INCLUDE_DIRS}})"
    link = f"target_link_libraries({name} PUBLIC ${{{variable}_LIBRARY}})"
    if is_zephyr:
        include = f"zephyr_library_include_directories(${{{variable}_INCLUDE_DIRS}})"
        link = f"zephyr_link_libraries(${{{variable}_LIBRARY}})"
    return f"""
# {external.name} is not part of this bundle{_origin(external)}: the sources call it, give yours.
set({variable}_INCLUDE_DIRS "" CACHE STRING "folders of {external.name}'s headers")
set({variable}_LIBRARY "" CACHE STRING "its static library, or a CMake target")
if(NOT {variable}_LIBRARY)
    message(FATAL_ERROR "{name} needs {external.name}: give -D{variable}_LIBRARY=... and "
        "-D{variable}_INCLUDE_DIRS=...")
endif()
{include}
{link}
"""


def external_kconfig(externals: Sequence[ExternalLibrary], board: Board) -> str:
    """Kconfig lines that have Zephyr build what the sources call."""
    options = [option for one in externals for option in one.zephyr_config]
    if not options:
        return ""
    symbol = board.cpu.target.templates.zephyr_symbol
    depends = [f"\tdepends on {symbol}"] if symbol else []
    return "\n".join([*depends, *(f"\tselect {name}" for name in options), ""])


def _external_text(name: str, external: ExternalLibrary, layout: Layout) -> str:
    """What the README says of a library that is not in the bundle."""
    variable = _variable(external)
    prepared = [
        f"`{name}_initialize()` prepares device and arena. Call it once after each reset, before",
        "the first run, and do not run the model if it writes another status than 0.",
        *([f"`{name}_release()` ends what that began."] if external.engines else ()),
        "",
    ]
    if not external.is_linked:
        parts = (prepared, external.is_prepared), (_DEVICE, external.has_device)
        told = [line for lines, is_told in parts if is_told for line in lines]
        return "\n".join(["", f"## {external.name}", "", *told])
    lines = [
        "",
        f"## {external.name}",
        "",
        *(prepared if external.is_prepared else ()),
        f"Layers of this model call {external.name}{_origin(external)}, which is not part of the",
        f"bundle: link your own copy. This one was tried with: {external.built_with}. Call",
        f"`{name}_check_library()` once before the first run; it says whether your copy is content",
        "with the scratch memory that was planned for it.",
        "",
    ]
    if "zephyr/Kconfig" in layout.extra and external.zephyr_config:
        options = ", ".join(f"`CONFIG_{option}`" for option in external.zephyr_config)
        lines.append(f"Under Zephyr `CONFIG_{name.upper()}=y` selects {options}.")
    lines += [
        f"For CMake: `-D{variable}_LIBRARY=FILE.a -D{variable}_INCLUDE_DIRS=FOLDER`, in the",
        "commands below too.",
        "",
    ]
    return "\n".join(lines)


def _origin(external: ExternalLibrary) -> str:
    return f" ({external.url})" if external.url else ""


def _variable(external: ExternalLibrary) -> str:
    return re.sub(r"\W", "_", external.name.upper())
