"""What a model on a device takes, and what its layers left behind, as lines and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.results import Tabled, one_line
from utvm_deploy.compiler.compiled.file_layers import FileLayer
from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel, Layer
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.names import shape_text, short_name
from utvm_deploy.graph.user_arrays import in_shape, other_order, shapes_text


@dataclass(frozen=True, repr=False)
class LayerRun(Tabled):
    """What one layer left behind; one that was replaced took 0 ticks.

    Of a layer in strips, ``outputs`` are whole, and ``ticks`` are those of all its calls.
    """

    layer: Layer
    ticks: int
    outputs: tuple[Array, ...]
    is_replaced: bool = False
    strips: int = 0  # in which it was computed; 0: it is one call

    @property
    def headline(self) -> str:
        """The layer, what it took, and the types and shapes of what it made."""
        made = ", ".join(shape_text(str(one.dtype), one.shape) for one in self.outputs)
        took = "replaced" if self.is_replaced else f"{self.ticks:,} ticks"
        if self.strips:
            took += f" in {self.strips} strips"
        return f"layer {self.layer.index} {self.layer.kind}: {took}, {made}"

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each output."""
        return [
            {
                "output": place,
                "shape": list(one.shape),
                "dtype": str(one.dtype),
                "least": one.min().item() if one.size else None,
                "greatest": one.max().item() if one.size else None,
            }
            for place, one in enumerate(self.outputs)
        ]


class LayerRuns(list[LayerRun], Tabled):
    """What ``run_layers`` returns: a list with a table."""

    @property
    def headline(self) -> str:
        """Layers and ticks."""
        return f"{len(self)} layers, {sum(one.ticks for one in self):,} ticks"

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each layer; a replaced one took 0 ticks."""
        return [
            {
                "layer": one.layer.index,
                "operator": one.layer.kind,
                "ticks": one.ticks,
                "replaced": one.is_replaced,
                "strips": one.strips,
                "outputs": ", ".join(shape_text(str(o.dtype), o.shape) for o in one.outputs),
            }
            for one in self
        ]

    __repr__ = one_line


def runs_of_file(layers: Sequence[FileLayer], calls: Sequence[LayerRun]) -> LayerRuns:
    """The layers of the file; ``calls`` has what each call of the compiled model left behind."""
    runs = LayerRuns()
    for one in layers:
        made = [calls[call.index] for call in one.calls]
        if one.loop is not None:
            left = {call.index: calls[call.index] for call in one.writers}
            outputs = tuple(array for run in left.values() for array in run.outputs)
            is_replaced = all(run.is_replaced for run in left.values())
            ticks = 0 if is_replaced else sum(run.ticks for run in made)
            runs.append(LayerRun(one.layer, ticks, outputs, is_replaced))
            continue
        if not one.is_streamed:
            runs += made
            continue
        last = made[-1]
        is_replaced = last.is_replaced
        ticks = 0 if is_replaced else sum(run.ticks for run in made)
        (output,) = one.layer.outputs
        whole = last.outputs[0] if last.layer.outputs[0].rows is None else _put_together(one, calls)
        runs.append(
            LayerRun(one.layer, ticks, (whole.reshape(output.shape),), is_replaced, len(one.strips))
        )
    return runs


def arrays_of_calls(layer: FileLayer, arrays: Sequence[Array]) -> Mapping[int, tuple[Array, ...]]:
    """Index of each call of a layer that leaves a part of these outputs -> that part."""
    if layer.loop is not None:
        rest = iter(arrays)
        return {call.index: tuple(next(rest) for _ in call.outputs) for call in layer.writers}
    if not layer.is_streamed:
        return {layer.layer.index: tuple(arrays)}
    (whole,) = arrays
    return {call.index: (call.outputs[0].rows_of(whole),) for call in layer.writers}


def _put_together(layer: FileLayer, calls: Sequence[LayerRun]) -> Array:
    """The whole tensor of the rows that strips made."""
    parts = []
    for index, (first, end) in layer.new_rows.items():
        run = calls[index]
        begin, stop = run.layer.outputs[0].rows or (first, end)
        parts.append(run.outputs[0].reshape(stop - begin, -1)[first - begin : end - begin])
    return np.concatenate(parts)


def checked_inputs(
    compiled: CompiledModel, inputs: Sequence[Array], wanted: Sequence[Buffer] = ()
) -> list[Array]:
    """An array for each input as the model wants it; a missing leading dimension of 1 is added.

    ``wanted`` are the inputs that are given if these are not all. Raises ModelError for another
    number, shape or type: values are never converted silently.
    """
    wanted = wanted or compiled.taken
    if len(inputs) != len(wanted):
        raise ModelError(f"{compiled.name} takes {len(wanted)} input(s), {len(inputs)} given")
    return [
        checked_array(array, buffer, f"input {position}")
        for position, (array, buffer) in enumerate(zip(inputs, wanted, strict=True))
    ]


def checked_array(array: Array, buffer: Buffer, what: str) -> Array:
    """The array as the tensor has it. Raises ModelError as ``checked_inputs`` does."""
    array = np.asarray(array)
    name = short_name(buffer.name)
    if array.dtype != np.dtype(buffer.dtype):
        hint = ""
        if buffer.dtype == "int8" and np.issubdtype(array.dtype, np.floating):
            hint = f"; quantize it: round(x / {buffer.scale:g}) + {buffer.zero_point}"
        raise ModelError(f"{what} ({name}) is {buffer.dtype}, the array is {array.dtype}{hint}")
    shaped = in_shape(array, buffer.shape)
    if shaped is None:
        hint = other_order(array.shape, buffer.shape)
        raise ModelError(
            f"{what} ({name}) has shape {buffer.shape}, the array has {array.shape}; give "
            f"an array of shape {shapes_text(buffer.shape)}{hint and '; '}{hint}"
        )
    given: Any = shaped
    outside = [] if buffer.most is None else given[(given < 0) | (given > buffer.most)]
    if len(outside):
        raise ModelError(
            f"{what} ({name}) says {outside[0]}, and there are 0 to {buffer.most}: a token of the "
            "vocabulary, or a position within the cache; nothing was run"
        )
    return np.ascontiguousarray(shaped)
