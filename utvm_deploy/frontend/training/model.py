"""A model that can be trained on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from utvm_deploy.base.readable import counted
from utvm_deploy.base.results import one_line
from utvm_deploy.frontend.relax.facts import RelaxModel
from utvm_deploy.frontend.relax.road import module_of_text
from utvm_deploy.frontend.training.recipe import Recipe
from utvm_deploy.frontend.training.stored import TrainedWeights, digest_of
from utvm_deploy.graph.model import Graph


@dataclass(frozen=True, eq=False, repr=False)
class Trainable:
    """What ``utvm_deploy.trainable`` returns: ``compile`` takes it as a model."""

    graph: Graph
    recipe: Recipe
    #: The names of the weights that train.
    weights: tuple[str, ...]

    __repr__ = one_line

    @property
    def name(self) -> str:
        """The prefix of C symbols."""
        return self.graph.name

    @property
    def headline(self) -> str:
        """What trains, and how."""
        return (
            f"{self.graph.headline}; {counted(len(self.weights), 'weight')} train by "
            f"{self.recipe.optimizer} ({self.recipe.loss}): {', '.join(self.weights)}"
        )

    def begun_with(self, weights: TrainedWeights) -> Trainable:
        """The same with these first weights. Raises ModelError for those of another model."""
        weights.check_digest(self.graph.digest, self.name)
        tensors = list(self.graph.tensors)
        found = (number for number, _ in self.graph.states[1:])
        for number, array in zip(found, weights.arrays(), strict=False):
            tensors[number] = replace(tensors[number], first=array)
        return replace(self, graph=self.graph.replaced(tensors=tuple(tensors)))


def trainable_of(
    model: RelaxModel | Graph,
    recipe: Recipe,
    name: str | None,
    names: Mapping[bytes, Sequence[str]],
) -> Trainable:
    """A float model that trains by a recipe; ``names`` are its layers' by their weights' bytes.

    A graph is that of a .tflite file, whose body stays as it is. Raises ModelError,
    UnsupportedOperator or UsageError if it cannot train.
    """
    from utvm_deploy.frontend.relax.passes import MAIN
    from utvm_deploy.frontend.training.graph import step_graph
    from utvm_deploy.frontend.training.step import train_step
    from utvm_deploy.frontend.training.weights import identity_of

    if isinstance(model, Graph):
        from utvm_deploy.frontend.training.of_graph import graph_that_trains

        made, weights = graph_that_trains(model.replaced(name=name or model.name), recipe)
        return Trainable(made, recipe, weights)
    module = module_of_text(model.given)
    step = train_step(module, recipe, names)
    weights = tuple(label for label, _ in step.states[: step.weights])
    digest = digest_of(identity_of(module, MAIN), weights)
    return Trainable(step_graph(step, name or "model", digest), recipe, weights)
