"""manifest.json: the contents of a bundle, in one canonical text.

The manifest lists every other file with its SHA-256, and has a digest of its content. So a
changed byte of a bundle is always found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from utvm_deploy import __version__
from utvm_deploy.base.errors import BundleError, CompileError
from utvm_deploy.base.results import picked
from utvm_deploy.compiler.c_text import check_prefix
from utvm_deploy.compiler.compiled.library_facts import check_buffers, check_sizes, one_line
from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel, InputRows
from utvm_deploy.compiler.compiled.record import from_json
from utvm_deploy.kernels.contract.external_library import ExternalLibrary
from utvm_deploy.project.model_code import ModelCode, flash_bytes
from utvm_deploy.targets.table import CORES

MANIFEST = "manifest.json"
#: Of the manifest's own form; raised when a reader of the old one could misread it.
SCHEMA = "utvm.bundle/1"


def manifest_text(
    compiled: CompiledModel,
    format_name: str,
    model_file: str,
    samples: int,
    oracle: str,
    report: Mapping[str, Any] | None,
    code: ModelCode | None,
    files: Mapping[str, bytes],
) -> str:
    """The manifest of a bundle with these files."""
    manifest = {
        "schema": SCHEMA,
        "name": compiled.name,
        "format": format_name,
        "versions": {"utvm_deploy": __version__, "apache-tvm": version("apache-tvm")},
        "model": {"file": model_file, "sha256": compiled.model_digest},
        **picked(compiled, "board", "core", "arena_bytes", "arena_alignment", "weights_bytes"),
        "flash_bytes": flash_bytes(compiled, code),
        "library_bytes": None if code is None else code.library_bytes,
        "pools": [{"name": p.name, "bytes": p.size_bytes} for p in compiled.pools],
        "macs": compiled.macs,
        "inputs": [_buffer(buffer) for buffer in compiled.taken],
        "input_rows": None if compiled.input_rows is None else _rows(compiled.input_rows),
        "stream": None if compiled.stream is None else asdict(compiled.stream),
        "outputs": [_buffer(buffer) for buffer in compiled.outputs],
        "layers": [
            {
                **picked(
                    layer,
                    "index",
                    "kind",
                    "name",
                    "kernel",
                    "why",
                    "macs",
                    "scratch_bytes",
                    "weights_bytes",
                ),
            }
            for layer in compiled.layers
        ],
        "external_dependencies": _dependencies(compiled.externals),
        "golden": {"samples": samples, "oracle": oracle},
        "report": report,
        "files": {path: _entry(files[path]) for path in sorted(files)},
    }
    try:
        return _canonical({**manifest, "digest": _digest(manifest)})
    except (TypeError, ValueError) as exc:
        raise BundleError(
            f"the report given for the bundle cannot be written as JSON: {exc}"
        ) from exc


def read_manifest(data: bytes) -> dict[str, Any]:
    """The manifest, once its own digest is found right; else BundleError."""
    try:
        manifest = json.loads(data)
        if manifest["schema"] != SCHEMA:
            schema = one_line(ValueError(repr(manifest["schema"])))
            raise BundleError(
                f"{MANIFEST} has the schema {schema}, not {SCHEMA!r}; check it with "
                "the utvm_deploy that wrote it"
            )
        content = {key: value for key, value in manifest.items() if key != "digest"}
        is_whole = manifest["digest"] == _digest(content) and data == _canonical(manifest).encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise BundleError(f"{MANIFEST} is damaged: {one_line(exc)}") from exc
    if not is_whole:
        raise BundleError(f"{MANIFEST} was altered: its digest is wrong; write the bundle again")
    try:
        _check_facts(manifest)
    except (
        *(ValueError, KeyError, TypeError, AttributeError),
        *(OverflowError, CompileError),
    ) as exc:
        raise BundleError(
            f"{MANIFEST} holds what no bundle has: {one_line(exc)}; write the bundle again"
        ) from exc
    return dict(manifest)


def _check_facts(manifest: dict[str, Any]) -> None:
    """The digest finds damage; a forged manifest has the right digest."""
    check_prefix(str(manifest["name"]))
    if manifest["core"] not in CORES:
        raise ValueError(f"core {manifest['core']!r} is none of {', '.join(CORES)}")
    sizes = [manifest[key] for key in ("arena_bytes", "arena_alignment", "weights_bytes")]
    if any(type(size) is not int for size in sizes):
        raise ValueError("a size is not an integer")
    check_sizes(*sizes)
    inputs, outputs = (
        tuple(_buffer_of(one) for one in manifest[key]) for key in ("inputs", "outputs")
    )
    check_buffers(inputs, outputs, sizes[0], _rows_of(manifest.get("input_rows"), inputs))
    for path, entry in manifest["files"].items():
        if type(entry["bytes"]) is not int or not isinstance(entry["sha256"], str):
            raise ValueError(f"the file {path!r} has no size and digest")


def _buffer_of(entry: dict[str, Any]) -> Buffer:
    unsaid = {"source": None, "first": "", "channels": None, "rows": None, "pool": ""}
    facts = {**entry, **unsaid, "size_bytes": entry["bytes"]}
    del facts["bytes"]
    return from_json(Buffer, facts)


def _rows(rows: InputRows) -> dict[str, int]:
    return {"count": rows.count, "bytes": rows.row_bytes, "state_offset": rows.state_offset}


def _rows_of(entry: dict[str, Any] | None, inputs: tuple[Buffer, ...]) -> InputRows | None:
    """The rows that are pushed of the only input; older bundles do not mention any."""
    if entry is None:
        return None
    numbers = [entry[key] for key in ("count", "bytes", "state_offset")]
    if any(type(number) is not int for number in numbers) or len(inputs) != 1:
        raise ValueError("the rows of the input are not numbers, or there is another input")
    count, row_bytes, state_offset = numbers
    return InputRows(inputs[0], count, row_bytes, state_offset, strips=())


def check_files(manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Raise BundleError naming the first file that is missing, altered or extra."""
    listed = manifest["files"]
    for path in sorted(set(listed) | set(files)):
        if path not in files:
            raise BundleError(f"{path} is missing from the bundle; write the bundle again")
        if path not in listed:
            raise BundleError(f"{path} does not belong to the bundle; move it elsewhere")
        if listed[path] != _entry(files[path]):
            raise BundleError(f"{path} was altered; write the bundle again")


def _entry(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _buffer(buffer: Buffer) -> dict[str, Any]:
    return {
        "name": buffer.name,
        "dtype": buffer.dtype,
        "shape": list(buffer.shape),
        "scale": buffer.scale,
        "zero_point": buffer.zero_point,
        "offset": buffer.offset,
        "bytes": buffer.size_bytes,
    }


def _dependencies(externals: Sequence[ExternalLibrary]) -> list[dict[str, Any]]:
    """What must be linked with the bundle; where it lay on our computer is nobody's business."""
    return [
        {
            "name": external.name,
            "url": external.url,
            "compiled_against_sha256": external.digest,
            "built_with": external.built_with,
            "functions": list(external.functions),
        }
        for external in externals
    ]


def _canonical(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=2, allow_nan=False) + "\n"


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(content).encode()).hexdigest()
