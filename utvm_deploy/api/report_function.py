"""One report on a model and a board: all that the other functions find, in one object."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm_deploy.api.bench_function import bench
from utvm_deploy.api.bundle_function import bundle
from utvm_deploy.api.evaluate_function import evaluate
from utvm_deploy.api.inspect_function import inspect
from utvm_deploy.api.memory_function import memory
from utvm_deploy.api.profile_function import profile
from utvm_deploy.api.steps import Chosen, Connected, board_of, take
from utvm_deploy.api.verify_function import verify
from utvm_deploy.backends.ethos_u.configurations import OPTION
from utvm_deploy.base.errors import MissingTool, UtvmError
from utvm_deploy.base.files import file_digest
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.results import Result, plain_object
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.digest import facts_digest
from utvm_deploy.compiler.options import Objective
from utvm_deploy.device import CYCLES, connect
from utvm_deploy.project import origins_of
from utvm_deploy.project.build import compiler_version
from utvm_deploy.records import now, read_records
from utvm_deploy.results.pages.embedded_json import MODEL, embedded_json
from utvm_deploy.results.pages.report_digest import DIGEST, content_digest
from utvm_deploy.results.profiling.summary import npu_lines
from utvm_deploy.results.reporting.page import report_html
from utvm_deploy.results.reporting.stored import OPTIONS, SCHEMA, check_named
from utvm_deploy.results.runs.origin import git_revision, versions

#: Random samples whose bytes are compared, layer by layer.
VERIFIED_SAMPLES = 4


@dataclass(frozen=True, repr=False, eq=False)
class ReportResult(Result):
    """A report; ``found`` is the object that ``utvm report MODEL --json`` prints.

    ``try_it`` is JSON of the model that runs in the page; empty if none does.
    """

    found: Mapping[str, Any]
    try_it: str = ""

    @property
    def ok(self) -> bool:
        """Whether every byte compared is that of the reference; a stand-in's are not compared."""
        checked = self.found["verify"]
        return checked is None or bool(checked["ok"])

    @property
    def headline(self) -> str:
        """The model, the board, and what it takes."""
        one = self.found["profile"]
        told = "every byte as the reference" if self.ok else "WRONG BYTES"
        if one["stand_in"]:
            told = "no byte compared"
        return (
            f"{one['model']} on {one['board']}: {one['ticks']:,} {one['tick_unit']}"
            f"{' without ' + one['stand_in'] if one['stand_in'] else ''}, RAM "
            f"{one['ram_bytes']:,} bytes, flash {one['flash_bytes']:,} bytes, {told}"
        )

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each layer."""
        unit = self.found["profile"]["tick_unit"]
        whole = self.found["profile"]["ticks"] or 1
        return [
            {
                "index": layer["index"],
                "operator": layer["operator"],
                unit: layer["ticks"],
                "percent": 100 * layer["ticks"] / whole,
                "macs": layer["macs"] or None,
                f"{unit}_per_mac": layer["ticks_per_mac"],
                "npu_cycles": layer["npu_cycles"],
                "kernel": layer["kernel"],
                "why": layer["why"],
            }
            for layer in self.found["profile"]["layers"]
        ]

    @property
    def html(self) -> str:
        """The page, which needs no network; it holds the report's object, too."""
        return report_html(self.found, self.try_it)

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm report MODEL --json``."""
        return dict(self.found)


def report(
    model: str | Path,
    board: Board | str | Path,
    *,
    given_board: str | None = None,
    data: str | Path | None = None,
    labels: str | Path | None = None,
    reference: str | Path | None = None,
    samples: int | None = None,
    records: str | Path | None = None,
    cmsis_nn: Any = None,
    library: Any = None,
    plugin: Any = None,
    try_it: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> ReportResult:
    """Inspect, measure, verify and compare a model on a board, and evaluate it where there is data.

    ``model`` is a file. ``data``, ``labels``, ``reference`` and ``samples`` are as for
    ``evaluate``; without ``data`` the report has no accuracy. ``records`` is a file that ``tune``
    wrote; its curves are shown. ``cmsis_nn`` is as for ``bench``: without it, recorded figures are
    shown where layers have them. ``library`` is CMSIS-NN for ``kernels="cmsis-nn"``. With
    ``try_it`` the page runs the model in a browser, as a bundle of the format "wasm". ``options``
    are the others of ``compile``, and ``port``, ``probe``, ``serial``, ``link``, ``server`` and
    ``timing`` of ``connect``. ``given_board`` is how the report names the board.

    Raises ModelError, CompileError and UtvmError as the functions that it calls. What cannot be
    compared with CMSIS-NN is a note in the report.
    """
    told, started = progress or no_progress, time.monotonic()
    target, path = board_of(board), Path(model)
    connection, chosen = take(Connected, options), take(Chosen, options)
    check_named(chosen.get("number_format"))
    stated = {**options, **chosen, "timing": connection.get("timing", CYCLES)}
    compiled_with = {**options, "records": records, "cmsis_nn": library, "plugin": plugin}
    notes = [target.emulator.twin_note] if target.emulator and target.emulator.twin_note else []
    in_page = _in_page(path, options, plugin, chosen, told) if try_it else ""
    told(f"inspecting {path.name}", 0, 1)
    inspected = inspect(path, plugin=plugin, **chosen)
    digest = file_digest(path)
    where = board if isinstance(board, str) else target
    with connect(where, **connection) as device:
        measured = profile(path, device, progress=told, **chosen, **compiled_with)
        profiled = measured.to_dict()
        notes += (*measured.beside, *npu_lines(profiled))
        checked = None
        if not measured.found.stand_in:
            checked = verify(
                path, device, samples=VERIFIED_SAMPLES, progress=told, **chosen, **compiled_with
            )
        judged = None
        if data is not None:
            judged = evaluate(
                path,
                data,
                device,
                reference=reference,
                samples=samples,
                labels=labels,
                progress=told,
                **chosen,
                **compiled_with,
            )
    needed = memory(path, target, progress=told, **chosen, **compiled_with)
    beside = _beside(
        path, where, options, plugin, notes, told, connection, records, cmsis_nn, chosen
    )
    files = {"data": data, "labels": labels, "reference": reference, "records": records}
    found = plain_object(
        SCHEMA,
        {
            "model": {
                "name": profiled["model"],
                "file": str(path),
                "sha256": digest,
                "bytes": path.stat().st_size,
            },
            "board": {
                "name": target.name,
                "given": given_board or target.name,
                "core": target.cpu.core,
                "digest": facts_digest(target),
                "is_twin": bool(target.emulator and target.emulator.twin_note),
            },
            "options": {
                name: value
                for name, value in stated.items()
                if name in OPTIONS and (value or (name == "flash_rate" and value is not None))
            }
            | {"allow_float": options.get("allow_float", True)},
            **_code_of(plugin),
            "cmsis_nn": cmsis_nn is not None,
            "evaluated": {"samples": samples},
            "files": {what: _file(file) for what, file in files.items() if file is not None},
            "environment": _environment(target),
            "time": now(),
            "seconds": round(time.monotonic() - started, 1),
            "notes": notes,
            "graph": inspected.svg,
            "inspect": inspected.to_dict(),
            "profile": profiled,
            "memory": needed.to_dict(),
            "verify": None if checked is None else checked.to_dict(),
            "bench": beside,
            "evaluation": None if judged is None else judged.to_json(),
            "tuning": None if records is None else _tried(Path(records), profiled),
        },
    )
    return ReportResult({**found, DIGEST: content_digest(found)}, in_page)


def _code_of(plugins: Any) -> dict[str, Any]:
    """Whether the report needs code that it cannot name, and the Ethos-U."""
    origins = origins_of(plugins)
    npus = [one.removeprefix(OPTION) for one in origins if one.startswith(OPTION)]
    return {"plugin": len(origins) > len(npus), "ethos_u": next(iter(npus), None)}


def _in_page(
    path: Path,
    options: Mapping[str, Any],
    plugin: Any,
    chosen: Mapping[str, Any],
    progress: Progress,
) -> str:
    """JSON of the model for the page, with its modules and the reference's samples."""
    kept = {
        name: options[name] for name in ("name", "allow_float", "float_math") if name in options
    }
    with TemporaryFolder("utvm-try") as folder:
        written = bundle(
            path,
            "wasm",
            folder / "bundle",
            format="wasm",
            latency=False,
            plugin=plugin,
            progress=progress,
            **kept,
            **chosen,
        ).path
        return embedded_json((written / "index.html").read_text(encoding="utf-8"), MODEL)


def _beside(
    path: Path,
    board: Board | str,
    options: Mapping[str, Any],
    plugin: Any,
    notes: list[str],
    progress: Progress,
    connection: Mapping[str, Any],
    records: str | Path | None,
    cmsis_nn: Any,
    chosen: Mapping[str, Any],
) -> dict[str, Any] | None:
    """CMSIS-NN next to ours; None, with a note, where it cannot be."""
    other = [
        name
        for name in ("ram_budget", "flash_budget", "cycle_budget", "pools", "input_rows")
        if options.get(name)
    ]
    if options.get("flash_rate") is not None:
        other.append("flash_rate")
    if options.get("optimize", Objective.TIME) != Objective.TIME:
        other.append("optimize")
    if options.get("kernels", "best") != "best":
        other.append("kernels")
    if plugin is not None:
        other.append("plugin")
    if other:
        notes.append(
            "there are no figures of CMSIS-NN: it is compared with our fastest kernels, and this "
            f"model is compiled with {', '.join(other)} (utvm bench)."
        )
        return None
    try:
        found = bench(
            path,
            board,
            cmsis_nn=cmsis_nn,
            records=records,
            allow_float=options.get("allow_float", True),
            progress=progress,
            **chosen,
            **connection,
        )
    except UtvmError as error:
        notes.append(f"there are no figures of CMSIS-NN: {error}.")
        return None
    return found.to_dict()


def _environment(board: Board) -> dict[str, str]:
    found = versions()
    try:
        found["C compiler"] = compiler_version(board).partition("\n")[0]
    except MissingTool:
        found["C compiler"] = "none"
    found["system"] = f"{platform.system()} {platform.machine()}"
    revision = git_revision(Path.cwd())
    return found | ({"git": revision} if revision else {})


def _file(path: str | Path) -> dict[str, str | None]:
    """A file's name and digest; a folder has no digest."""
    given = Path(path)
    return {"file": str(path), "sha256": file_digest(given) if given.is_file() else None}


def _tried(path: Path, profiled: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records of the model's kernels; all records if none is of them."""
    prefix = f"{profiled['model']}_"
    calls = [call for layer in profiled["layers"] for call in layer["calls"] or [layer]]
    kernels = [call["kernel"].removeprefix(prefix) for call in calls]
    records = list(read_records(path))
    own = [one for one in records if any(kernel.startswith(one.kernel.name) for kernel in kernels)]
    return [json.loads(one.to_line()) for one in own or records]
