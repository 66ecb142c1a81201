"""Model Library Format: a compiled model as one tar file, written and read back.

    metadata.json                    microTVM's fields, and our facts under "utvm"
    codegen/host/include/NAME.h
    codegen/host/src/*.c, NAME_private.h
    src/*.tir                        TensorIR of each kernel after scheduling

There is no parameters/ folder: the constants are tables in codegen/host/src/NAME_weights.c.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from utvm_deploy.base.errors import CompileError, ModelError
from utvm_deploy.base.files import check_regular, write_atomically
from utvm_deploy.compiler.c_text import check_prefix
from utvm_deploy.compiler.compiled.library_facts import check_facts, one_line
from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel
from utvm_deploy.compiler.compiled.record import from_json, to_json
from utvm_deploy.targets.table import target_of

#: The format's version that microTVM last wrote.
FORMAT_VERSION = 7
#: Version of the "utvm" section.
SECTION_VERSION = 10
#: No model that fits a microcontroller comes near this with all of its texts.
MAX_MEMBER_BYTES = 256 * 1024 * 1024

_METADATA = "metadata.json"
_INCLUDE = "codegen/host/include"
_SOURCE = "codegen/host/src"
_IR = "src"
# What the tar members carry instead of the metadata, and what differs between equal runs.
_OMITTED = ("sources", "kernel_ir", "seconds")
_CPU_DEVICE = 1  # DLPack's kDLCPU, by which microTVM's tools know the device


def write_library(compiled: CompiledModel, path: Path) -> None:
    """Write the archive; equal models give equal bytes (SOURCE_DATE_EPOCH sets its date)."""
    members = _members(compiled)
    metadata = json.dumps(_metadata(compiled, members), indent=2) + "\n"

    def write(file: IO[bytes]) -> None:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, text in {_METADATA: metadata, **members}.items():
                data = text.encode()
                info = tarfile.TarInfo(name)
                info.size, info.mtime, info.mode = len(data), _epoch(), 0o644
                info.uname = info.gname = "root"
                archive.addfile(info, io.BytesIO(data))

    write_atomically(path, write)


def read_library(path: Path) -> CompiledModel:
    """The compiled model that ``write_library`` wrote, without its compile times.

    Only members that such an archive has are accepted, so a hostile one can add none. Raises
    ModelError.
    """
    try:
        members = _read_members(path)
        metadata = json.loads(members.pop(_METADATA))
        section = metadata["utvm"]
        if section["version"] != SECTION_VERSION:
            raise ValueError(
                f"its section utvm has version {section['version']}, not {SECTION_VERSION}; "
                "write it again with this utvm_deploy"
            )
        if section["sha256"] != _digests(section["model"], members):
            raise ValueError("a member is missing, was added or was altered")
        name = check_prefix(str(section["model"]["name"]))
        compiled = from_json(
            CompiledModel,
            section["model"],
            sources=_sources(name, members),
            kernel_ir=_kernel_ir(members),
            seconds={},
        )
        check_facts(compiled)
        return compiled
    except OSError as exc:
        raise ModelError(
            f"cannot read {path}: {exc.strerror or exc}; give what `utvm compile -o {path}` wrote"
        ) from exc
    except (
        *(tarfile.TarError, ValueError, KeyError, TypeError, AttributeError, IndexError),
        *(OverflowError, EOFError, RecursionError, CompileError),
    ) as exc:
        raise ModelError(
            f"{path} is not a Model Library Format archive of utvm_deploy ({one_line(exc)}); give "
            "what `utvm compile` wrote"
        ) from exc


def _members(compiled: CompiledModel) -> dict[str, str]:
    members = {
        f"{_INCLUDE if file == f'{compiled.name}.h' else _SOURCE}/{file}": text
        for file, text in compiled.sources.items()
    }
    return members | {f"{_IR}/{kernel}.tir": text for kernel, text in compiled.kernel_ir.items()}


def _read_members(path: Path) -> dict[str, str]:
    members: dict[str, str] = {}
    total = 0
    check_regular(path)
    # "r:" takes plain tar only: a compressed one could be a bomb.
    with tarfile.open(path, mode="r:") as archive:
        for info in archive:
            known = info.name == _METADATA or re.fullmatch(
                rf"({_INCLUDE}|{_SOURCE}|{_IR})/\w[\w.]*", info.name, re.ASCII
            )
            if not known or not info.isreg() or info.name in members:
                raise ValueError(f"unexpected member {info.name!r}")
            total += info.size
            if total > MAX_MEMBER_BYTES:
                raise ValueError(f"member {info.name!r} claims {info.size} bytes, {total} in all")
            file = archive.extractfile(info)
            assert file is not None
            members[info.name] = file.read().decode()
    return members


def _sources(name: str, members: Mapping[str, str]) -> dict[str, str]:
    # In the order in which the compiler made them, not that of the archive.
    sources = {f"{name}.h": members[f"{_INCLUDE}/{name}.h"]}
    for suffix in (".c", "_kernels.c", "_weights.c", "_private.h"):
        sources[f"{name}{suffix}"] = members[f"{_SOURCE}/{name}{suffix}"]
    extra = sum(member.startswith("codegen/") for member in members) - len(sources)
    if extra:
        raise ValueError(f"{extra} source file(s) too many")
    return sources


def _kernel_ir(members: Mapping[str, str]) -> dict[str, str]:
    return {
        name[len(_IR) + 1 : -len(".tir")]: text
        for name, text in members.items()
        if name.startswith(f"{_IR}/") and name.endswith(".tir")
    }


def _digests(model: Any, members: Mapping[str, str]) -> dict[str, str]:
    """SHA-256 of every member, and of our section of the metadata, which cannot hold its own."""
    texts = {**members, _METADATA: json.dumps(model, sort_keys=True)}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}


def _epoch() -> int:
    text = os.environ.get("SOURCE_DATE_EPOCH", "0")
    if not text.isdecimal():
        raise CompileError(f"SOURCE_DATE_EPOCH is {text!r}; set it to whole seconds, or unset it")
    return int(text)


def _metadata(compiled: CompiledModel, members: Mapping[str, str]) -> dict[str, Any]:
    io_bytes = sum(b.size_bytes for b in (*compiled.taken, *compiled.outputs))
    main = {
        "device": _CPU_DEVICE,
        # The arena, which holds inputs and outputs too.
        "workspace_size_bytes": compiled.arena_bytes,
        "constants_size_bytes": compiled.weights_bytes,
        "io_size_bytes": io_bytes,
        "inputs": _io(compiled.taken),
        "outputs": _io(compiled.outputs),
    }
    scratch = {layer.kernel: layer.scratch_bytes for layer in compiled.layers}
    operators = [
        {
            "function_name": kernel,
            "workspace": [{"device": _CPU_DEVICE, "workspace_size_bytes": size}],
        }
        for kernel, size in scratch.items()
    ]
    model = to_json(compiled, _OMITTED)
    is_process = target_of(compiled.core).templates.are_processes
    target = {"kind": "c"} | ({} if is_process else {"mcpu": compiled.core})
    return {
        "version": FORMAT_VERSION,
        "modules": {
            compiled.name: {
                "model_name": compiled.name,
                "export_datetime": time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(_epoch())),
                "memory": {"functions": {"main": [main], "operator_functions": operators}},
                "target": [target],
                "executors": ["aot"],
                "style": "full-model",
                "external_dependencies": _dependencies(compiled),
            }
        },
        "utvm": {
            "version": SECTION_VERSION,
            "parameters": f"constant tables in {_SOURCE}/{compiled.name}_weights.c",
            "model": model,
            "sha256": _digests(model, members),
        },
    }


def _dependencies(compiled: CompiledModel) -> list[dict[str, str]]:
    return [
        {"short_name": one.name, "url": one.url, "url_type": "git"} for one in compiled.externals
    ]


def _io(buffers: tuple[Buffer, ...]) -> dict[str, Any]:
    return {b.name: {"size": b.size_bytes, "dtype": b.dtype} for b in buffers}
