"""A compiled model as the object that ``utvm compile --json`` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel
from utvm_deploy.compiler.compiled.pool_facts import pools_summary


def compiled_summary(compiled: CompiledModel) -> dict[str, Any]:
    """The compiled model for ``--json``."""
    return {
        "name": compiled.name,
        "board": compiled.board,
        "core": compiled.core,
        "model_sha256": compiled.model_digest,
        "macs": compiled.macs,
        "weights_bytes": compiled.weights_bytes,
        "arena_bytes": compiled.arena_bytes,
        "stack_bytes": compiled.stack_bytes,
        "optimize": compiled.optimize,
        "float_math": compiled.float_math,
        "input_rows": _rows_summary(compiled),
        "pools": pools_summary(compiled),
        "inputs": [buffer_summary(buffer) for buffer in compiled.taken],
        "outputs": [buffer_summary(buffer) for buffer in compiled.outputs],
        "layers": [
            {
                "index": layer.index,
                "operator": layer.kind,
                "name": layer.name,
                "kernel": layer.kernel,
                "engine": layer.engine,
                "why": layer.why,
                "origin": layer.origin,
                "macs": layer.macs,
                "weights_bytes": layer.weights_bytes,
                "scratch_bytes": layer.scratch_bytes,
            }
            for layer in compiled.layers
        ],
        "memory": [
            {
                "name": use.name,
                "kind": use.kind,
                "offset": use.offset,
                "bytes": use.size_bytes,
                "first": use.first,
                "last": use.last,
            }
            for use in compiled.memory
        ],
        "hint": compiled.hint,
        "tradeoff": None if compiled.tradeoff is None else asdict(compiled.tradeoff),
        "seconds": dict(compiled.seconds),
    }


def _rows_summary(compiled: CompiledModel) -> dict[str, int] | None:
    """The rows of an input that is pushed."""
    rows = compiled.input_rows
    return None if rows is None else {"count": rows.count, "bytes": rows.row_bytes}


def buffer_summary(buffer: Buffer) -> dict[str, Any]:
    """An input or output for ``--json``."""
    return {
        "name": buffer.name,
        "dtype": buffer.dtype,
        "shape": buffer.shape,
        "scale": buffer.scale,
        "zero_point": buffer.zero_point,
        "offset": buffer.offset,
        "bytes": buffer.size_bytes,
    }
