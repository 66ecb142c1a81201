"""A module of kernels: generated C and its scratch, both on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from utvm_deploy.boards.board import Board
from utvm_deploy.device.calls import Argument
from utvm_deploy.device.module import Module, load_module
from utvm_deploy.device.session import Session
from utvm_deploy.device.tensor import Tensor
from utvm_deploy.project.link_module import compile_module


def load_kernels(
    session: Session,
    board: Board,
    kernels: Sequence[Any] | Mapping[str, Any],
    name: str,
    flags: Sequence[str],
) -> Module:
    """What ``Device.load_kernels`` does, in this session."""
    # TVM takes a second to load and is needed for nothing else here.
    from utvm_deploy.compiler.lowering.kernel_source import kernel_source

    source = kernel_source(kernels, board.cpu.kernel_core)
    module = compile_module({f"{name}.c": source.text}, board, name=name, flags=flags)
    # Functions run one after the other, so they can share scratch.
    most = max((len(f.scratch) for f in source.functions.values()), default=0)
    sizes = [
        max(f.scratch[i].size_bytes for f in source.functions.values() if i < len(f.scratch))
        for i in range(most)
    ]
    scratch: list[Tensor] = []
    try:
        for index, size in enumerate(sizes):
            block = session.allocate(size, f"scratch {index} of {name}")
            scratch.append(Tensor(session, block, (size,), np.int8, f"scratch{index}"))
        trailing: dict[str, tuple[Argument, ...]] = {
            function: tuple(scratch[: len(c.scratch)]) for function, c in source.functions.items()
        }
        owned = [tensor.block for tensor in scratch]
        return load_module(session, module, trailing=trailing, owned=owned)
    except BaseException:
        for tensor in scratch:
            tensor.free()
        raise
