"""``utvm_deploy.inspect``: what a model's file holds."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utvm_deploy.api.steps import chosen_of, model_file
from utvm_deploy.backends.custom import CustomOperators
from utvm_deploy.base.errors import ModelError, UtvmError
from utvm_deploy.base.results import Result, picked, plain_object
from utvm_deploy.compiler.stages.first_look import least_activation_bytes, lowering_problems
from utvm_deploy.frontend.files.given_shapes import chosen_now, given
from utvm_deploy.frontend.formats import kinds_in
from utvm_deploy.frontend.tflite import load_model, survey_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.project import Plugins, load_backends
from utvm_deploy.quality.quantizing.model_steps import refusal_of
from utvm_deploy.results.inspecting.facts import (
    Inspection,
    graph_svg,
    inspect_model,
    inspect_refused,
    with_problems,
)
from utvm_deploy.results.inspecting.pass_effects import PassEffects, pass_effects
from utvm_deploy.results.inspecting.quantizable import Quantizable, quantizable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from utvm_deploy.api.steps import Chosen

SCHEMA = "utvm.inspect/1"


@dataclass(frozen=True, repr=False, eq=False)
class InspectResult(Result):
    """What ``inspect`` found; ``found`` has all facts."""

    found: Inspection
    graph: Graph | None  # None if the file cannot be imported
    least_activation_bytes: int | None  # None if it cannot be compiled
    window: Inspection | None  # of a stream: the model that takes the whole window
    passes: PassEffects | None  # None if nobody asked, or if it cannot be compiled

    @property
    def ok(self) -> bool:
        """Whether the model can be compiled, as far as is known."""
        return self.found.ok

    @property
    def headline(self) -> str:
        """Size and memory, or that it cannot be compiled."""
        return self.found.headline

    @property
    def beside(self) -> tuple[str, ...]:
        """Lines on a stream: what it is, and what a hop takes and the whole window."""
        stream, window = None if self.graph is None else self.graph.stream, self.window
        if stream is None or window is None:
            return () if stream is None else (stream.text,)
        figures = {
            "MACs": (self.found.macs, window.macs),
            "bytes of live activations": (
                self.found.peak_activation_bytes,
                window.peak_activation_bytes,
            ),
        }
        return stream.text, stream.beside(figures)

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each operator."""
        return [
            {
                "index": one.index,
                "operator": one.kind,
                "detail": one.detail,
                "output": one.outputs[0].name if one.outputs else "",
                "dtype": one.outputs[0].dtype if one.outputs else "",
                "shape": one.outputs[0].shape if one.outputs else (),
                **picked(
                    one, "macs", "weights_bytes", "zeros", "packed_bytes", "live_bytes", "problem"
                ),
            }
            for one in self.found.operators
        ]

    @property
    def svg(self) -> str | None:
        """The graph as a picture; None if the file cannot be imported."""
        return None if self.graph is None else graph_svg(self.graph)

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm inspect --json``."""
        facts = asdict(self.found)
        facts["sha256"] = facts.pop("digest")
        effects = None if self.passes is None else _passes_object(self.passes)
        least = self.least_activation_bytes
        more = {"least_activation_bytes": least, "svg": None, "estimate": None}
        return plain_object(SCHEMA, {**facts, "ok": self.ok, **more, "passes": effects})


def inspect(
    model: str | Path | Any,
    *,
    plugin: Plugins = None,
    passes: bool = False,
    **chosen: Unpack[Chosen],
) -> InspectResult:
    """What a model holds: operators, shapes, quantization, MACs, and bytes of weights and of RAM.

    ``model`` is a file (.tflite, .onnx, .pt2, .relax), or what ``quantize`` gave. ``chosen`` are
    ``inputs``, ``signature``, ``states``, ``stream``, ``image_input`` and ``number_format`` of
    ``compile``. ``plugin`` is the Python file, the name or the object of a backend with custom
    operators, or a list of them. With ``passes``, the result also says what each pass of the
    compiler removes.

    A model that cannot be compiled has a result, too: ``ok`` is False, and rows of ``table`` name
    the problems. Sizes are in bytes; shapes are those of the file, with the batch. Raises UtvmError
    for a file that is not a model, and UsageError for other objects.
    """
    with chosen_of({**chosen}), model_file(model) as path:
        backends = load_backends(plugin, None)
        graph, found, least = _found(path, CustomOperators(*backends) if backends else None)
        effects = pass_effects(graph) if passes and graph is not None and found.ok else None
        window = None
        if graph is not None and chosen_now().stream is not None:  # not of a file that is a stream
            with given(stream=None):
                window = inspect_model(load_model(path, is_quiet=True))
        return InspectResult(found, graph, least, window, effects)


def _found(
    path: Path, custom: CustomOperators | None
) -> tuple[Graph | None, Inspection, int | None]:
    """The graph if the file can be imported, the facts, and the least bytes of activations."""
    try:
        graph = load_model(path, custom)
    except ModelError as error:
        found = survey_model(path, error)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return None, inspect_refused(path.stem, digest, found), None
    inspected = replace(inspect_model(graph), quantizable=_quantizable(path, graph))
    try:
        problems = lowering_problems(graph)
        if problems:
            return graph, with_problems(inspected, problems), None
        return graph, inspected, least_activation_bytes(graph)
    except UtvmError as error:
        return graph, replace(inspected, problems=(str(error),)), None


def _quantizable(path: Path, graph: Graph) -> Quantizable | None:
    """What `utvm quantize` would do; None if it does not take the file, or is not needed."""
    ending = path.suffix.lower()
    if ending == ".relax":
        return None
    found = quantizable(graph, kinds_in(path), "torch" if ending == ".pt2" else "onnx")
    if found is None or not found.is_of_other_format or all(found.types.values()):
        return found
    # Operators without integers are written in float32, but not all of them can be.
    return replace(found, refused=refusal_of(path))


def _passes_object(effects: PassEffects) -> dict[str, object]:
    return {
        "before": asdict(effects.before),
        "after": asdict(effects.after),
        "removed": [{"pass": name, **asdict(sizes)} for name, sizes in effects.removed.items()],
    }
