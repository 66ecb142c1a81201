"""The bundle for browsers and JavaScript: modules, types, a page, and the self-test's samples."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy import __version__
from utvm_deploy.base.errors import BundleError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board
from utvm_deploy.bundling.contents import EXACTLY, fill, io_table, within
from utvm_deploy.bundling.standalone import standalone_modules, standalone_stack_bytes
from utvm_deploy.compiler.c_text import comment
from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel
from utvm_deploy.graph.model import Array
from utvm_deploy.results.pages.assets import assets
from utvm_deploy.results.pages.embedded_json import for_page
from utvm_deploy.results.pages.render import render

#: Element type -> JavaScript's array of it.
_ARRAYS = {
    "bool": "Uint8Array",
    **{f"{sign}int{n}": f"{sign.title()}Int{n}Array" for sign in ("", "u") for n in (8, 16, 32)},
    "int64": "BigInt64Array",
    "uint64": "BigUint64Array",
    "float32": "Float32Array",
}
#: What a module may be without being compiled for size.
_MOST_OF_WEIGHTS, _MOST_CODE_BYTES = 1.3, 40 * 1024
_EXPORTS = ("utvm_arena", "utvm_run", "utvm_reset")
_STATE_TEXT = " The model keeps\nstate between runs: `net.reset()` clears it."


def check_browser(board: Board) -> None:
    """BundleError for a board whose code no browser runs."""
    if board.cpu.toolchain.binaries is None:
        raise BundleError(
            f"no browser runs code of {board.name} ({board.cpu.core}); give --board wasm"
        )


def _check_model(compiled: CompiledModel) -> None:
    if compiled.input_rows is not None or compiled.pools:
        raise BundleError(
            "a bundle for browsers takes whole inputs and has one memory; leave --input-rows and "
            "--pool out"
        )
    others = {one.dtype for one in (*compiled.inputs, *compiled.outputs)} - _ARRAYS.keys()
    if others:
        raise BundleError(
            f"JavaScript has no arrays of {', '.join(sorted(others))}; bundle a model whose inputs "
            "and outputs have other types"
        )


def browser_files(
    compiled: CompiledModel,
    board: Board,
    model_file: str,
    inputs: Sequence[Sequence[Array]],
    expected: Sequence[Sequence[Array]],
    oracle: str,
    tolerance: float = 0.0,
) -> dict[str, bytes]:
    """Path in the bundle -> bytes; the arguments are as in ``write_bundle``."""
    _check_model(compiled)
    name = compiled.name
    golden = {
        "oracle": oracle,
        "tolerance": tolerance,
        "samples": [
            {"inputs": [_base64(one) for one in given], "outputs": [_base64(one) for one in wanted]}
            for given, wanted in zip(inputs, expected, strict=True)
        ],
    }
    outputs = [_ARRAYS[one.dtype] for one in compiled.outputs]
    elements = {_ARRAYS[one.dtype] for one in compiled.inputs}
    values = {
        "NAME": name,
        "UPPER": name.upper(),
        "PACKAGE": name.lower().replace("_", "-"),
        "VERSION": __version__,
        "MODEL_FILE": comment(Path(model_file).name),
        "DIGEST": compiled.model_digest,
        "ORACLE": oracle,
        "SAMPLES": str(len(inputs)),
        "PASSED": (within(tolerance) if tolerance else EXACTLY)["PASSED"],
        "RESET": f"{name}_reset(arena);" if compiled.states else "(void)arena;",
        "STATE_TEXT": _STATE_TEXT if compiled.states else "",
        "IO_TABLE": io_table(compiled),
        "INPUT_TYPES": ", ".join(
            f"input{i}: {_ARRAYS[one.dtype]}" for i, one in enumerate(compiled.inputs)
        ),
        "OUTPUT_TYPES": outputs[0] if len(outputs) == 1 else f"[{', '.join(outputs)}]",
        "ELEMENT_TYPES": " | ".join(sorted(elements)),
        "INFO": for_page(_info(compiled)).replace("@", "\\u0040"),
        "NET_JS": assets()["net.js"].content.decode(),
    }
    entry = _text("entry.c.in", values)
    most = _MOST_OF_WEIGHTS * compiled.weights_bytes + _MOST_CODE_BYTES
    modules = standalone_modules(compiled, board, entry, _EXPORTS, most)
    data = {
        "info": _info(compiled),
        "modules": {key: _base64(data) for key, data in modules.items()},
        "golden": golden,
    }
    texts = {
        "README.md": "README.md",
        f"{name}.mjs": "module.mjs",
        f"{name}.d.mts": "types.d.mts",
        "package.json": "package.json",
        "selftest.mjs": "selftest.mjs",
    }
    files = {path: _text(template, values).encode() for path, template in texts.items()}
    files["index.html"] = render("try_page.html", name=name, data=for_page(data)).encode()
    files["selftest.json"] = json.dumps(golden).encode()
    first, *others = modules
    files[f"{name}.wasm"] = modules[first]
    return files | {f"{name}.{other}.wasm": modules[other] for other in others}


def _text(template: str, values: Mapping[str, str]) -> str:
    path = data_dir("templates") / "bundle" / "browser" / template
    return fill(path.read_text(encoding="utf-8"), values)


def _base64(data: Array | bytes) -> str:
    if not isinstance(data, bytes):
        data = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<")).tobytes()
    return base64.b64encode(data).decode("ascii")


def _info(compiled: CompiledModel) -> dict[str, Any]:
    """What JavaScript knows of the model."""
    parts = (compiled.arena_bytes, compiled.weights_bytes, standalone_stack_bytes(compiled))
    return {
        "name": compiled.name,
        "version": __version__,
        "modelSha256": compiled.model_digest,
        "macs": compiled.macs,
        "arenaBytes": compiled.arena_bytes,
        "weightsBytes": compiled.weights_bytes,
        "memoryBytes": sum(parts),
        "keepsState": bool(compiled.states),
        "inputs": [_tensor(one) for one in compiled.inputs],
        "outputs": [_tensor(one) for one in compiled.outputs],
    }


def _tensor(buffer: Buffer) -> dict[str, Any]:
    is_quantized = buffer.scale is not None and buffer.zero_point is not None
    return {
        "name": buffer.name,
        "dtype": buffer.dtype,
        "shape": list(buffer.shape),
        "scale": buffer.scale if is_quantized else None,
        "zeroPoint": buffer.zero_point if is_quantized else None,
        "elements": int(np.prod(buffer.shape, dtype=np.int64)),
        "bytes": buffer.size_bytes,
        "offset": buffer.offset,
    }
