"""Calls on an emulated core that may touch only the memory that is theirs.

Loads count as stores do, and what lies beside a buffer in the arena is outside like anything else.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from unittest import mock

import pytest
from fence import Fence, Stretch

from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.arena import shared_bytes
from utvm_deploy.compiler.compiled.model import CompiledModel, Layer
from utvm_deploy.device import INSTRUCTIONS, Device, DeviceModel, connect
from utvm_deploy.device.link.fault import nearest_symbol
from utvm_deploy.device.tensor import Tensor as DeviceTensor
from utvm_deploy.device.workspace_blocks import Block
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.c_function import CFunction
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.targets.table import target_of

#: Where a task's function returns to (guard*.c of templates/*/baremetal).
RETURN_SYMBOL = "leave_task"


@contextlib.contextmanager
def watched(
    fence: Fence, device: Device, entry: int, allowed: Sequence[Stretch]
) -> Iterator[list[str]]:
    """Watch what the block calls at ``entry``; afterwards the list says what was out of bounds.

    Outside of the workspace are code and stack in memory that tasks may use, or a fault.
    """
    device.sync()
    memory = device.session.memory
    workspace = Stretch(memory.address, memory.size)
    fence.arm(entry, device.symbol(RETURN_SYMBOL), workspace, allowed)
    found: list[str] = []
    yield found
    device.sync()
    fence.disarm()
    assert fence.accesses, "the fence saw no access at all: it was not armed for this call"
    symbols = device.session.symbols()
    for one in fence.crossings():
        place = nearest_symbol(one.pc, symbols, target_of(device.board.cpu.core).code_bit)
        found.append(f"{place}: {one}, {_near(one.address, allowed)}")


def _near(address: int, allowed: Sequence[Stretch]) -> str:
    """Where that is, seen from the nearest stretch."""
    nearest = min(allowed, key=lambda s: max(s.address - address, address - s.address - s.size))
    return f"{address - nearest.address} from the start of {nearest.size} bytes of its own"


def stretch(block: Block) -> Stretch:
    """A block without its zones."""
    return Stretch(block.address, block.size)


def source_of(graph: Graph, operator: Operator) -> int:
    """The position in the file of an operator's only output."""
    (position,) = operator.outputs
    source = graph.tensors[position].source
    assert source is not None
    return source


def placed(
    device: Device,
    graph: Graph,
    operator: Operator,
    call: KernelCall,
    function: CFunction,
    values: Mapping[int, Array],
) -> tuple[list[DeviceTensor], list[object]]:
    """What a kernel call needs on a device: the tensors, the output first, and the arguments.

    ``values`` are tensors by their position in the file.
    """
    (position,) = operator.outputs
    expected = values[source_of(graph, operator)]
    made = [device.empty(expected.shape, str(expected.dtype), name="output")]
    arguments: list[object] = []
    for argument in call.arguments:
        if isinstance(argument, ScalarArgument):
            arguments.append(argument.value)
        elif isinstance(argument, ConstantArgument):
            made.append(device.tensor(argument.data, name=argument.name))
            arguments.append(made[-1])
        elif argument.tensor == position:
            arguments.append(made[0])
        else:
            source = graph.tensors[argument.tensor].source
            assert source is not None
            made.append(device.tensor(values[source], name="input"))
            arguments.append(made[-1])
    for scratch in function.scratch:
        made.append(device.empty((scratch.size_bytes,), "int8", name=scratch.name))
        arguments.append(made[-1])
    return made, arguments


def hides_accesses(compiled: CompiledModel) -> bool:
    """Whether what is behind a layer's buffer may be another's byte, of the same layer.

    Where an output lies exactly in place of an input there is no such byte.
    """
    return any(
        one != other
        and one.offset < other.offset + other.size_bytes
        and other.offset < one.offset + one.size_bytes
        for layer in compiled.layers
        for one, other in combinations(layer.arena, 2)
    )


def planned_apart() -> contextlib.AbstractContextManager[object]:
    """No output lies on what its kernel has read of its input by then."""
    return mock.patch.object(shared_bytes, "overlap_of", return_value=None)


def crossings_of(fence: Fence, loaded: DeviceModel, inputs: Sequence[Array]) -> list[str]:
    """Run a model that is loaded into RAM layer by layer; every access that is none of a layer's.

    A layer may touch its inputs, outputs, scratch, constants and their copies in pools, and the
    code with its own literals.
    """
    device, compiled = loaded.device, loaded.compiled
    loaded.set_inputs(inputs)
    entry = device.session.symbols()[f"{compiled.name}_run_layer"]
    found = []
    for layer in compiled.layers:
        with watched(fence, device, entry, _memory_of(loaded, layer, entry)) as crossings:
            loaded.call_layer(layer)
        found += [f"layer {layer.index}, {layer.kind} ({layer.kernel}): {c}" for c in crossings]
    return found


def _memory_of(loaded: DeviceModel, layer: Layer, entry: int) -> list[Stretch]:
    arena, weights = loaded.arena_address, loaded.weights_address
    own = [Stretch(arena + span.offset, span.size_bytes) for span in layer.arena]
    for pool, address in zip(loaded.compiled.pools, loaded.pool_addresses, strict=True):
        if pool.is_written:
            own += [Stretch(address + span.offset, span.size_bytes) for span in layer.pool]
        own += [
            Stretch(address + one.offset, one.constant.size_bytes)
            for one in pool.residents
            if layer.index in one.layers
        ]
    blocks = loaded.device.session.memory.blocks()
    (module,) = [stretch(b) for b in blocks if b.address <= entry < b.address + b.size]
    if weights is None:
        return [*own, module]
    own += [Stretch(weights + span.offset, span.size_bytes) for span in layer.constants]
    end = weights + loaded.compiled.weights_bytes
    behind = Stretch(end, module.address + module.size - end)
    return [*own, Stretch(module.address, weights - module.address), behind]


@contextlib.contextmanager
def fenced_device(name: str) -> Iterator[tuple[Fence, Device]]:
    """The fence and a device on an emulated board; skips the test if there is no emulator."""
    board = load_board(name)
    assert board.emulator is not None
    if not shutil.which(board.emulator.program):
        pytest.skip(f"{board.emulator.program} is not installed")
    with Fence(board) as fence, connect(fence.board, timing=INSTRUCTIONS) as device:
        yield fence, device
