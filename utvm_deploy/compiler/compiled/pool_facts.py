"""What the pools of a compiled model hold, as sentences and for JSON."""

from __future__ import annotations

from typing import Any

from utvm_deploy.compiler.compiled.model import CompiledModel, MemoryPool


def pool_lines(compiled: CompiledModel) -> list[str]:
    """A sentence for each pool."""
    lines = []
    for pool in compiled.pools:
        copies = sum(one.constant.size_bytes for one in pool.residents)
        layers = sorted({layer for one in pool.residents for layer in one.layers})
        of = f" of layers {', '.join(map(str, layers))}" if layers else ""
        lines.append(
            f"pool {pool.name}: {pool.size_bytes:,} of {pool.limit_bytes:,} bytes: scratch "
            f"{pool.scratch_bytes:,}, activations {_activation_bytes(pool):,}, copies of weights "
            f"{copies:,}{of}"
        )
    return lines


def pools_summary(compiled: CompiledModel) -> list[dict[str, Any]]:
    """The pools for ``--json``."""
    return [
        {
            "name": pool.name,
            "limit_bytes": pool.limit_bytes,
            "bytes": pool.size_bytes,
            "scratch_bytes": pool.scratch_bytes,
            "activation_bytes": _activation_bytes(pool),
            "activations": [
                {
                    "name": use.name,
                    "offset": use.offset,
                    "bytes": use.size_bytes,
                    "first": use.first,
                    "last": use.last,
                }
                for use in pool.uses
            ],
            "weights": [
                {
                    "table": one.table,
                    "offset": one.offset,
                    "bytes": one.constant.size_bytes,
                    "layers": list(one.layers),
                }
                for one in pool.residents
            ],
        }
        for pool in compiled.pools
    ]


def _activation_bytes(pool: MemoryPool) -> int:
    """Bytes that activations take, at different times."""
    end = max((use.offset + use.size_bytes for use in pool.uses), default=0)
    return end - min((use.offset for use in pool.uses), default=0)
