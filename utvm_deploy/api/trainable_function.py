"""``utvm_deploy.trainable``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from utvm_deploy.frontend.files.given_shapes import chosen_now, given, shapes_for, with_chosen
from utvm_deploy.frontend.relax.facts import RelaxModel, is_relax, loaded
from utvm_deploy.frontend.relax.road import relax_model
from utvm_deploy.frontend.tflite import load_model, tflite_bytes
from utvm_deploy.frontend.training.model import Trainable, trainable_of
from utvm_deploy.frontend.training.recipe import Recipe, check_recipe
from utvm_deploy.frontend.training.stored import TrainedWeights
from utvm_deploy.graph.model import Graph
from utvm_deploy.torch import in_memory


def trainable(
    model: str | Path | Any,
    *,
    loss: str = "cross_entropy",
    optimizer: str = "sgd",
    layers: str | Sequence[int | str] = "last",
    rate: float = 0.01,
    seed: int = 0,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    name: str | None = None,
    weights: str | Path | TrainedWeights | None = None,
) -> Trainable:
    """A model that trains on a device by a step in C; give it to ``compile``.

    - ``model`` is a file (.tflite, .onnx, .pt2, .relax), a Relax module (``tvm.IRModule``), a
      PyTorch module, or what ``torch.export.export`` made. Of a quantized file, the layers from the
      first one that trains become float32. Those in front of it stay as they are.
    - ``loss`` is "cross_entropy", of labels that are integers, or "mse", of targets. A softmax
      at the end of the model is a part of the former.
    - ``optimizer`` is "sgd", "momentum" (0.9) or "adam", as PyTorch has them.
    - ``layers`` says what trains: "last", "all", or a list of positions and names. Only dense
      layers, convolutions, layer and group normalizations train. Batch normalizations do not.
    - ``rate`` is the learning rate.
    - ``seed`` is that of the masks of dropouts, from 0 to 2**32 - 1. They drop in train steps only.
    - ``inputs`` is as for ``compile``: a batch of more than 1 is that of a step.
    - ``name`` is the prefix of every C symbol; by default it follows from the file's name.
    - ``weights`` are those to begin with: a file that ``train`` wrote.

    Raises UsageError for what cannot be chosen, with what can be. Raises ModelError, and
    UnsupportedOperator for what has no gradient.
    """
    chosen = layers if isinstance(layers, str) else tuple(layers)
    recipe = Recipe(loss, optimizer, chosen, rate, seed)
    check_recipe(recipe)
    is_torch = in_memory.is_module(model) or in_memory.is_program(model)
    found: RelaxModel | Graph
    names: Mapping[bytes, Sequence[str]] = {}
    with with_chosen(None if is_torch else inputs, weights=weights):
        begin = chosen_now().weights
        with given(weights=None):
            if is_torch:
                found, names = in_memory.relax_of_torch(model, inputs)
            else:
                found = _relax_of(model)
    if isinstance(model, str | Path):
        name = name or Path(model).stem
    made = trainable_of(found, recipe, name, names)
    return made if begin is None else made.begun_with(begin)


def _relax_of(model: str | Path | Any) -> RelaxModel | Graph:
    """A Relax module or the file of one, lowered; of a .tflite file the graph."""
    if not isinstance(model, str | Path):
        in_memory.check_object(model)
        return relax_model(model, shapes_for)
    data = tflite_bytes(Path(model))
    return loaded(data) if is_relax(data) else load_model(model)
