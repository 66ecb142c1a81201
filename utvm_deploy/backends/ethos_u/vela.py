"""Runs Vela, Arm's compiler for Ethos-U, in a child process, and reads what it writes."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from typing import TypeAlias, TypeVar
from zipfile import BadZipFile

import numpy as np

from utvm_deploy.backends.ethos_u.check import NpuProgram, Place
from utvm_deploy.backends.ethos_u.configurations import MEMORY_MODES, Configuration
from utvm_deploy.base import process
from utvm_deploy.base.errors import CompileError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.graph.model import Array

_R = TypeVar("_R")
_Ask: TypeAlias = Callable[[bytes, str, Configuration], _R]
#: ResNet-50 takes Vela 5.2.0 a few seconds; its search of allocations may take minutes.
_DEADLINE_S = 600.0
#: Answers that are kept: regions of one model, for a few configurations.
_MOST_KEPT = 64
_COLUMNS = ("cycles_total", "core_clock")
#: How Vela names an operator that it does not compile.
_REFUSED = re.compile(r"^Warning \(supported operators\) operator: \S+, ofm: '(.*)'$", re.MULTILINE)


@dataclass(frozen=True)
class Estimate:
    """What Vela thinks that an inference takes. Nobody measured it."""

    cycles: int  # of the NPU's clock
    clock_hz: int
    system: str  # with whose memories it counts, such as "Ethos_U55_High_End_Embedded"


class VelaRefuses(CompileError):
    """Vela does not compile a model."""


def _once(ask: _Ask[_R]) -> _Ask[_R]:
    """Vela is asked once: a report compiles a model several times, and an answer takes seconds."""

    @lru_cache(_MOST_KEPT)
    def kept(model: bytes, name: str, configuration: Configuration) -> _R | CompileError:
        try:
            return ask(model, name, configuration)
        except CompileError as error:
            return error

    @wraps(ask)
    def answer(model: bytes, name: str, configuration: Configuration) -> _R:
        found = kept(model, name, configuration)
        if isinstance(found, CompileError):
            raise found.with_traceback(None)
        return found

    return answer


@_once
def compiled_by_vela(
    model: bytes, name: str, configuration: Configuration
) -> tuple[NpuProgram, Estimate]:
    """What Vela makes of a .tflite file. CompileError if it cannot compile the whole of it.

    Raises MissingTool if there is no Vela.
    """
    with TemporaryFolder("utvm-vela") as folder:
        _run(model, name, configuration, folder, "raw")
        made = program_in(folder / "region_vela.npz", configuration)
        return made, _estimate_in(folder, configuration)


@_once
def refused_by_vela(model: bytes, name: str, configuration: Configuration) -> frozenset[str]:
    """The names of outputs of operators of a .tflite file that Vela leaves to the core."""
    with TemporaryFolder("utvm-vela") as folder:
        told = _run(model, name, configuration, folder, "tflite")
    return frozenset(_REFUSED.findall(told))


def _run(model: bytes, name: str, configuration: Configuration, folder: Path, form: str) -> str:
    """Vela's output; its file is in the folder."""
    file = folder / "region.tflite"
    file.write_bytes(model)
    argv = [
        *("vela", str(file)),
        *("--accelerator-config", configuration.name, "--config", "Arm/vela.ini"),
        *("--system-config", configuration.system),
        *("--memory-mode", MEMORY_MODES[configuration.memory_mode]),
        *("--output-format", form, "--output-dir", str(folder)),
    ]
    if configuration.cache_limit:
        argv += ["--arena-cache-size", str(configuration.cache_limit)]
    done = process.run(argv, timeout_s=_DEADLINE_S, cwd=folder, is_part_of_plan=True)
    if done.timed_out:
        raise CompileError(
            f"Vela did not finish {name} within {_DEADLINE_S:.0f} s; leave --ethos-u out"
        )
    if done.returncode:
        raise VelaRefuses(f"Vela refuses {name}: {_last_line(done.output)}")
    return done.output


def program_in(path: Path, configuration: Configuration) -> NpuProgram:
    """What Vela's file of its format "raw" has. CompileError if it is another file."""
    try:
        # Vela pickles quantizations; these are not read.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return NpuProgram(
                configuration,
                file["cmd_data"].tobytes(),
                file["weight_data"].tobytes(),
                int(file["scratch_size"]),
                _places(file, "input"),
                _places(file, "output"),
                int(file["scratch_fast_size"]) if configuration.has_cache else 0,
            )
    except (OSError, KeyError, ValueError, EOFError, BadZipFile) as error:
        raise CompileError(f"{path.name} is not what Vela 5.2 writes: {error}") from error


def _places(file: np.lib.npyio.NpzFile, which: str) -> tuple[Place, ...]:
    def column(name: str) -> Array:
        return np.asarray(file[f"{which}_{name}"], np.int64)

    sizes = [int(np.prod(shape)) for shape in column("shape")] * column("elem_size")
    rows = zip(column("region"), column("offset"), sizes, strict=True)
    return tuple(Place(int(region), int(offset), int(size)) for region, offset, size in rows)


def _estimate_in(folder: Path, configuration: Configuration) -> Estimate:
    try:
        (path,) = folder.glob("region_summary_*.csv")
        with path.open(newline="") as file:
            (row,) = csv.DictReader(file)
        cycles, clock = (float(row[name]) for name in _COLUMNS)
    except (OSError, KeyError, ValueError) as error:
        raise CompileError(f"Vela's summary is not what Vela 5.2 writes: {error!r}") from error
    return Estimate(round(cycles), round(clock), configuration.system)


def _last_line(output: str) -> str:
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
