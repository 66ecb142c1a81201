"""``utvm_deploy.verify``: every byte on the board against the reference interpreter."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from utvm_deploy.api import steps
from utvm_deploy.api.compile_function import compile
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.results import Result, plain_object
from utvm_deploy.boards.board import Board
from utvm_deploy.device import INSTRUCTIONS, Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.origin import Difference, difference
from utvm_deploy.oracle.samples import load_golden, random_samples
from utvm_deploy.oracle.with_custom import run_oracle
from utvm_deploy.results.verifying import on_board
from utvm_deploy.results.verifying.on_board import Verification
from utvm_deploy.results.verifying.summary import verification_summary

SCHEMA = "utvm.verify/1"
#: Enough to meet every rounding case a layer has, quick enough for an emulated board.
DEFAULT_SAMPLES = 8


@dataclass(frozen=True, repr=False, eq=False)
class VerifyResult(Result):
    """What ``verify`` found."""

    found: Verification
    # The reference against the runtime that a converted model came from; None without one.
    origin: Difference | None
    # Backends that were given, and compute none of the layers.
    idle: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every byte is equal or within its bound, and the reference near float32."""
        return self.found.ok

    @property
    def headline(self) -> str:
        """What was compared, and how it went."""
        idle = "".join(f"; {name} computes none of the layers" for name in self.idle)
        return self.found.headline + idle

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each layer."""
        return [
            {
                "index": check.layer.index,
                "operator": check.layer.kind,
                "name": check.layer.name,
                "engine": check.layer.engine,
                "samples": check.samples,
                "bytes_each": check.bytes_each,
                "bound": check.bound.text if not check.bound.is_exact else "equal",
                "wrong_elements": check.mismatch.wrong_elements if check.mismatch else 0,
            }
            for check in self.found.layers
        ]

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm verify --json``."""
        origin = None if self.origin is None else asdict(self.origin)
        return plain_object(SCHEMA, {**verification_summary(self.found), "origin": origin})


def verify(
    model: str | Path | Any,
    board: Board | str | Path | Device,
    *,
    samples: int = DEFAULT_SAMPLES,
    golden: str | Path | None = None,
    allow_float_gap: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> VerifyResult:
    """Run a model on a board, and compare each output byte and layer with the reference kernels.

    ``model`` is a file, or what ``quantize`` gave. ``board`` is a name, a board file, a ``Board``,
    ``utvm://HOST/BOARD``, or a device: this stays open. ``samples`` is how many random samples are
    run. ``golden`` is an .npz file instead, with the arrays "inputs" and "outputs", whose first
    axis counts the samples. ``options`` are those of ``compile``, which ``profile`` lists.
    ``progress(what, done, total)`` is called on the way.

    ``ok`` of the result says whether all bytes are equal. Outputs of inexact float32 operators are
    compared within their bounds. The reference itself is compared with float32, layer by layer
    (``found.shadow``). A layer that is too far from it is not ok, unless ``allow_float_gap``.

    Raises ModelError for a file or samples that do not fit, and FileRefused for a file that LiteRT
    refuses. Raises CompileError for a model that does not fit the board, and UtvmError if the board
    fails.
    """
    told = progress or no_progress
    with (
        steps.chosen_of(options, compile),
        steps.model_file(model, options.get("name")) as path,
        steps.device_of(board, INSTRUCTIONS) as device,
    ):
        target = device.board
        options, custom = steps.with_backend(options, target)
        graph = load_model(path, custom, is_quiet=True)  # compile says it
        taken = (
            random_samples(graph, samples) if golden is None else load_golden(Path(golden), graph)
        )
        compiled = steps.compile_fitting(path, target, told, **options)
        told("running the reference interpreter", 0, 1)
        reference = run_oracle(path, taken.inputs, custom, with_shadow=True)
        told(f"building the image and starting {target.name}", 0, 1)
        loaded = device.load(compiled)
        found = on_board.verify(
            loaded, path, taken, told, reference=reference, allow_float_gap=allow_float_gap
        )
        at_work = {one.name for one in compiled.externals}
        idle = (one.name for one in options.get("plugin") or () if one.name not in at_work)
        origin = difference(path, graph, taken.inputs, reference.outputs)
        return VerifyResult(found, origin, tuple(idle))
