"""pyOCD's built-in targets: their memory map, and the core by the SVD file that comes with them.

A script runs in the Python of the user's pyOCD, and no probe is asked.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from utvm_deploy.base import process
from utvm_deploy.base.errors import BoardError, MissingTool
from utvm_deploy.base.paths import data_dir
from utvm_deploy.base.toml_table import did_you_mean
from utvm_deploy.boards.new_boards.description import (
    Description,
    Fact,
    Memory,
    check_core,
    check_part,
    kind_of_ram,
    merged,
)
from utvm_deploy.targets.table import CORES

_TIMEOUT_S = 60.0
_SCRIPT = data_dir("templates") / "board_sources" / "pyocd_target.py"


def read_pyocd(target: str, core: str | None) -> Description:
    """What pyOCD says of one of its built-in targets.

    ``core`` is taken where no SVD file names one. Memories of the result are in bytes. Raises
    BoardError for a target that pyOCD does not have, and MissingTool without pyOCD.
    """
    check_part(target, "--from-pyocd")
    said = _asked(target)
    if "names" in said:
        hint = did_you_mean(target.lower(), said["names"])
        raise BoardError(
            f"pyOCD has no built-in target {target}{hint} (pyocd list --targets); for a pack's "
            "device give --from-pack FILE"
        )
    source, cpu = f"pyOCD {said['version']}, target {target.lower()}", said["cpu"]
    name = core or _core_of(cpu.get("name", ""))
    if not name:
        raise BoardError(f"{source} does not say which core it has; give --core CORE, too")
    where = "--core" if core else f"<cpu> of its SVD file: {cpu['name']}"
    facts = check_core(name, f"the core {name} of {source}")
    has_fpu = _flag(cpu, "fpuPresent")
    fpu = None
    if has_fpu is not None:
        is_double = _flag(cpu, "fpuDP") and "double" in facts.fpus
        unit = "double" if is_double else next(iter(facts.fpus), "none")
        fpu = Fact(unit if has_fpu else "none", f"fpuPresent={cpu['fpuPresent']} of its SVD file")
    dsp, mve = (_flag(cpu, key) for key in ("dspPresent", "mvePresent"))
    return Description(
        device=target,
        source=source,
        core=Fact(name, where),
        memories=merged(map(_memory, filter(_is_ours, said["memories"]))),
        vendor=Fact(said["vendor"], "the target's vendor"),
        fpu=fpu,
        dsp=None if dsp is None else Fact(dsp, "dspPresent of its SVD file"),
        mve=None if mve is None else Fact(mve, "mvePresent of its SVD file"),
        pyocd=Fact(target.lower(), "one of pyOCD's built-in targets"),
    )


def _asked(target: str) -> Any:
    program = Path(process.find_tool("pyocd"))
    for python in (_interpreter(program), sys.executable):
        with suppress(MissingTool):
            done = process.run([python, str(_SCRIPT), target], timeout_s=_TIMEOUT_S)
            with suppress(ValueError):
                return json.loads(done.stdout)
    raise BoardError(
        f"{program} does not say what its targets are; pip install -U pyocd brings one that does"
    )


def _interpreter(program: Path) -> str:
    """The Python that runs a script, by its first line."""
    with program.open("rb") as file:
        first = file.readline(1024).decode("utf-8", "replace").split()
    return first[0][2:] if first and first[0].startswith("#!/") else sys.executable


def _core_of(name: str) -> str:
    """Of a name in an SVD file, such as CM0+ and CM0PLUS, which is also CM0P."""
    plain = name.upper().replace("+", "PLUS")
    series = plain.removeprefix("CM")
    if not name or series == plain:
        return name.lower()
    number = series.removesuffix("PLUS").removesuffix("P")
    return next(
        (one for one in CORES if one.endswith(f"-m{number}{'plus' * (number != series)}")),
        name,
    )


def _flag(cpu: dict[str, str], key: str) -> bool | None:
    return cpu[key].lower() in ("1", "true") if key in cpu else None


def _is_ours(one: dict[str, Any]) -> bool:
    """Neither ROM, nor registers that are written as flash, nor another name of a memory."""
    is_flash = one["type"] == "FLASH"
    return not one["alias"] and (one["type"] == "RAM" or (is_flash and one["testable"]))


def _memory(one: dict[str, Any]) -> Memory:
    is_flash = one["type"] == "FLASH"
    runs = "x" in one["access"] and "dtcm" not in one["name"].lower()
    return Memory(
        name=one["name"],
        address=one["address"],
        size=one["size"],
        kind="flash" if is_flash else kind_of_ram(one["name"]),
        executable=runs,
        source=f"{'Flash' if is_flash else 'Ram'}Region {one['name']} of the target",
        boot=True if is_flash and one["boot"] else None,
        needs_init=True if one["external"] else None,
    )
