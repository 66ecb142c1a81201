"""What the pools of a compiled model hold, as sentences and for JSON."""

from __future__ import annotations

from typing import Any

from utvm_deploy.compiler.model import CompiledModel


def pool_lines(compiled: CompiledModel) -> list[str]:
    """A sentence for each pool."""
    lines = []
    for pool in compiled.pools:
        copies = sum(one.constant.size_bytes for one in pool.residents)
        layers = sorted({layer for one in pool.residents for layer in one.layers})
        of = f" of layers {', '.join(map(str, layers))}" if layers else ""
        lines.append(
            f"pool {pool.name}: {pool.size_bytes:,} of {pool.limit_bytes:,} bytes: scratch "
            f"{pool.scratch_bytes:,}, copies of weights {copies:,}{of}"
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
