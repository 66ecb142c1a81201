"""What a model takes of RAM, stack and flash, what sets the peak, and what would lower it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from utvm_deploy.base.results import one_line
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.memory_use import ArenaUse
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.graph.names import short_name
from utvm_deploy.project.image import Image
from utvm_deploy.project.model_code import ModelCode, flash_bytes
from utvm_deploy.project.stack_use import plain_name
from utvm_deploy.results.pages.memory_picture import live_bytes

SCRATCH = "scratch"


@dataclass(frozen=True)
class LayerMemory:
    """A layer's share: the bytes of the arena that are in use while it runs."""

    index: int
    operator: str
    name: str
    live_bytes: int
    scratch_bytes: int  # in the arena


@dataclass(frozen=True)
class Peak:
    """The layers that make the arena as large as it is."""

    layers: tuple[int, ...]
    live_bytes: int
    # Of the arena, what no layer at the peak uses: the planner found no better places.
    unused_bytes: int
    uses: tuple[ArenaUse, ...]
    # What would lower it, as sentences.
    lower: tuple[str, ...]


@dataclass(frozen=True)
class ImageMemory:
    """What a whole image with the runtime takes, in bytes: ``utvm profile`` shows the same."""

    scratch: str
    arena_bytes: int
    runtime_ram_bytes: int  # variables and stacks
    ram_bytes: int
    flash_bytes: int


@dataclass(frozen=True, repr=False)
class MemoryReport:
    """Everything that ``utvm memory`` shows. ``code`` and ``image`` are None without a compiler."""

    compiled: CompiledModel
    board: Board
    layers: tuple[LayerMemory, ...]
    peak: Peak
    code: ModelCode | None
    image: ImageMemory | None
    notes: tuple[str, ...]

    __repr__ = one_line

    @property
    def headline(self) -> str:
        """The arena, and which layers set it."""
        compiled, at = self.compiled, ", ".join(map(str, self.peak.layers))
        return (
            f"{compiled.name} on {self.board.name}: arena {compiled.arena_bytes:,} bytes, peak "
            f"{self.peak.live_bytes:,} at layer {at}, weights {compiled.weights_bytes:,} of flash"
        )


def memory_report(
    compiled: CompiledModel,
    board: Board,
    code: ModelCode | None = None,
    image: ImageMemory | None = None,
    notes: Sequence[str] = (),
) -> MemoryReport:
    """The report of a model that was compiled just now; one read from an archive has no map."""
    layers = tuple(
        LayerMemory(
            layer.index,
            layer.kind,
            layer.name,
            live_at(compiled.memory, layer.index),
            sum(
                use.size_bytes
                for use in compiled.memory
                if use.kind == SCRATCH and use.first == layer.index
            ),
        )
        for layer in compiled.layers
    )
    peak = _peak(compiled, layers)
    return MemoryReport(compiled, board, layers, peak, code, image, tuple(notes))


def image_memory(compiled: CompiledModel, image: Image, scratch: str) -> ImageMemory:
    """Of an image that holds the model."""
    return ImageMemory(
        scratch,
        compiled.arena_bytes,
        image.ram_bytes,
        image.ram_bytes + compiled.arena_bytes + compiled.pool_bytes,
        image.flash_bytes,
    )


def live_at(uses: Sequence[ArenaUse], layer: int) -> int:
    """The bytes of the arena that are in use in a layer; what two uses share counts once."""
    alive = (use for use in uses if use.first <= layer <= use.last)
    return live_bytes((use.offset, use.offset + use.size_bytes) for use in alive)


def _peak(compiled: CompiledModel, layers: Sequence[LayerMemory]) -> Peak:
    most = max((layer.live_bytes for layer in layers), default=0)
    at = tuple(layer.index for layer in layers if layer.live_bytes == most)
    uses = tuple(u for u in compiled.memory if any(u.first <= layer <= u.last for layer in at))
    lower: list[str] = []
    for index in at:
        layer = layers[index]
        alive = [u for u in uses if u.first <= index <= u.last]
        if layer.scratch_bytes:
            others = max((o.live_bytes for o in layers if o.index != index), default=0)
            bound = max(others, most - layer.scratch_bytes)
            least = [o.index for o in layers if o.index != index and o.live_bytes == bound]
            limits = f"then layer {least[0]} sets the peak" if least else "its tensors are left"
            lower.append(
                f"layer {index} ({layer.operator}) has {layer.scratch_bytes:,} bytes of scratch: "
                f"without them the arena needs at least {bound:,} bytes, and {limits}"
            )
        tensors = sorted((u for u in alive if u.kind != SCRATCH), key=lambda u: -u.size_bytes)
        if tensors:
            named = " and ".join(
                f"{short_name(u.name)} ({u.size_bytes:,} bytes)" for u in tensors[:2]
            )
            lower.append(
                f"layer {index} ({layer.operator}) holds {named}: fewer channels or a smaller "
                "image there would lower the peak"
            )
    unused = compiled.arena_bytes - most
    if unused:
        lower.append(f"{unused:,} bytes of the arena are unused at the peak, between its tensors")
    return Peak(at, most, unused, uses, tuple(lower))


def memory_json(found: MemoryReport) -> dict[str, Any]:
    """The fields of ``utvm.memory/1``."""
    compiled, board = found.compiled, found.board
    code = found.code
    return {
        "model": compiled.name,
        "board": board.name,
        "core": compiled.core,
        "model_sha256": compiled.model_digest,
        "optimize": compiled.optimize,
        "arena_bytes": compiled.arena_bytes,
        "stack_scratch_bytes": compiled.stack_bytes,
        "weights_bytes": compiled.weights_bytes,
        "pools": [pool.to_dict() for pool in compiled.pools],
        "uses": [_use_json(use, found) for use in compiled.memory],
        "layers": [asdict(layer) for layer in found.layers],
        "peak": {
            "layers": list(found.peak.layers),
            "live_bytes": found.peak.live_bytes,
            "unused_bytes": found.peak.unused_bytes,
            "lower": list(found.peak.lower),
        },
        "stack": None
        if code is None or not code.stack.is_known
        else {
            "bytes": code.stack.total_bytes,
            "path": [
                {"function": plain_name(one.name), "bytes": one.frame_bytes}
                for one in code.stack.path
            ],
            "notes": list(code.stack.notes),
        },
        "flash": flash_parts(found),
        "image": None if found.image is None else asdict(found.image),
        "tradeoff": None if compiled.tradeoff is None else asdict(compiled.tradeoff),
        "flash_plans": [asdict(one) for one in compiled.flash_plans],
        "limits": {
            "ram_bytes": board.ram_bytes,
            "main_ram_bytes": board.main_ram.size,
            "flash_bytes": board.weights_flash(compiled.weights_bytes).size,
            "stack_bytes": board.project.stack_bytes,
        },
        "notes": list(found.notes),
    }


def flash_parts(found: MemoryReport) -> dict[str, int | None]:
    """Bytes of flash by what they hold; None where no compiler told them."""
    code, weights = found.code, found.compiled.weights_bytes
    own = flash_bytes(found.compiled, code)
    image = found.image
    return {
        "code_bytes": None if code is None else code.code_bytes,
        "table_bytes": None if code is None else code.table_bytes,
        "weights_bytes": weights,
        "model_bytes": own,
        "runtime_bytes": None if image is None or own is None else image.flash_bytes - own,
    }


def _use_json(use: ArenaUse, found: MemoryReport) -> dict[str, Any]:
    return {
        **use.to_dict(),
        "layer": use.first,
        "operator": found.compiled.layers[use.first].kind,
        "is_at_peak": use in found.peak.uses,
    }
