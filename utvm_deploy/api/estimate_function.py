"""``utvm_deploy.estimate``: what a model would take on a board, without compiling it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utvm_deploy.api import steps
from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.results import Result, plain_object
from utvm_deploy.boards.board import Board
from utvm_deploy.device import Device
from utvm_deploy.frontend.files.given_shapes import chosen_now
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.results.estimating.figures import Estimated, estimated
from utvm_deploy.results.estimating.shape_plan import shaped
from utvm_deploy.results.pages.bars_picture import bars_svg
from utvm_deploy.torch.in_memory import is_module
from utvm_deploy.torch.shape_graph import shape_graph

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from utvm_deploy.api.steps import Chosen

SCHEMA = "utvm.estimate/1"
#: Models whose shapes are kept.
MOST_MODELS = 64


@dataclass(frozen=True, repr=False, eq=False)
class EstimateResult(Result):
    """What ``estimate`` found; ``found`` has the figures and their errors."""

    found: Estimated

    @property
    def cycles(self) -> int | None:
        """None on boards whose core has no cycle model."""
        return self.found.ticks if self.found.unit == "cycles" else None

    @property
    def instructions(self) -> int | None:
        """None on boards whose core has a cycle model."""
        return self.found.ticks if self.found.unit == "instructions" else None

    @property
    def milliseconds(self) -> float | None:
        """At the board's clock; None without cycles."""
        return self.found.milliseconds

    @property
    def ram(self) -> int:
        """Bytes of RAM of an image with the runtime."""
        return self.found.ram_bytes

    @property
    def flash(self) -> int:
        """Bytes of flash of an image with the runtime."""
        return self.found.flash_bytes

    @property
    def headline(self) -> str:
        """Time, RAM and flash, and their errors."""
        return self.found.headline

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each layer; the column of its ticks has their unit as its name."""
        return [
            {
                "index": one.index,
                "operator": one.kind,
                "shape": one.shape,
                "macs": one.macs or None,
                self.found.unit: one.ticks,
                "weights_bytes": one.weights_bytes or None,
                "scratch_bytes": one.scratch_bytes or None,
                "kernel": one.kernel,
                "is_known": one.is_known,
            }
            for one in self.found.layers
        ]

    @property
    def svg(self) -> str | None:
        """The time of each layer as bars."""
        unit = self.found.unit
        rows = [(f"{one.index} {one.kind}", [float(one.ticks)]) for one in self.found.layers]
        title = f"{self.found.model} on {self.found.board}, estimated, in {unit}"
        return bars_svg(title, rows, [unit])

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm inspect --board BOARD --json``, under ``estimate``."""
        more = {"milliseconds": self.milliseconds, "unlike": self.found.unlike}
        return plain_object(SCHEMA, {**asdict(self.found), **more})


def estimate(
    model: str | Path | Any, board: Board | str | Path | Device, **chosen: Unpack[Chosen]
) -> EstimateResult:
    """What a model would take on a board by formulas: cycles of each layer, RAM and flash.

    Nothing is compiled, and nothing runs on the board. ``model`` is a file (.tflite, .onnx, .pt2),
    what ``quantize`` gave, or a float ``nn.Module``. Of a module, the int8 form is estimated,
    without quantizing it: only shapes count. It needs ``inputs``, example tensors. ``board`` and
    ``chosen`` are as for ``compile``: ``inputs``, ``signature``, ``states``, ``stream`` and
    ``image_input``.

    ``found.errors`` states the error of the estimate against ``profile``, in the median and at
    worst, over nets that the formulas have not seen. It is empty where it does not hold, and
    ``found.notes`` says why: for other boards than the one that was measured, and for layers that
    no formula is of. Cores without a cycle model have instructions instead of cycles. Records of
    the user and options of ``compile`` are not asked.

    Raises ModelError for a model that cannot be imported, and UnsupportedOperator for operators
    without a kernel.
    """
    target = steps.board_of(board)
    inputs, of_module = chosen.get("inputs"), is_module(model)
    if not of_module and inputs is not None and not isinstance(inputs, Mapping):
        raise UsageError("inputs of a file are a mapping of names to shapes or arrays; give that")
    # It refuses other keywords. Example tensors of a module are not shapes of a file.
    context = steps.chosen_of({**chosen, "inputs": None} if of_module else {**chosen})
    if of_module:
        if (chosen.get("stream"), chosen.get("image_input")) != (None, None):
            raise UsageError("stream and image_input are for files; quantize the module first")
        return EstimateResult(
            estimated(shaped(shape_graph(model, inputs), has_weights=False), target)
        )
    with context, steps.model_file(model) as path:
        return EstimateResult(estimated(_graph_of(path), target))


def _graph_of(path: Path) -> Graph:
    """The shapes of a file, which is read once for equal bytes of which the same is chosen."""
    given = repr((path.stem, path.suffix, chosen_now()))
    content = path.read_bytes() if path.is_file() else b""
    key = hashlib.sha256(content + given.encode()).hexdigest()
    if key not in _KEPT or not content:
        if len(_KEPT) >= MOST_MODELS:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[key] = shaped(load_model(path))
    return _KEPT[key]


_KEPT: dict[str, Graph] = {}
