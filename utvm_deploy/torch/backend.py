"""The backend "utvm" of ``torch.compile``: the largest partition on a board, the rest in eager.

    Dynamo's graph ──bind──▶ ATen graph ──split──▶ partition ──compile──▶ model on a device

Nothing is compiled before the first call, because only a call has tensors of known shapes.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from utvm_deploy.base.errors import ModelError, last_words
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_bytes
from utvm_deploy.frontend.torch.export import is_quantized, load_torch
from utvm_deploy.quality.quantizing.facts import FLOAT
from utvm_deploy.quality.quantizing.model_steps import quantize_model
from utvm_deploy.quality.quantizing.torch.files import file_of_module
from utvm_deploy.torch.binding import Bound, bound
from utvm_deploy.torch.in_memory import graph_of_torch
from utvm_deploy.torch.options import Options, Place, checked_options, place_of
from utvm_deploy.torch.partitions import Splitter, kinds_text
from utvm_deploy.torch.probing import changes_arguments, is_by_row, rows_of, state_of

_log = logging.getLogger(__name__)


def backend(
    graph: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """What ``torch.compile(model, backend="utvm", options={"board": ...})`` calls."""
    load_torch()
    return _Graph(graph, checked_options(options))


@dataclass(eq=False)
class _Built:
    """A graph for inputs of certain shapes; the partition is replaced when it is on the device."""

    module: Any  # the graph with the partition as a submodule
    partition: str  # the name of the submodule
    eager: Any  # the submodule as PyTorch runs it
    inner: Any  # the partition by itself, on tensors that are not constants
    takes: tuple[int, ...]  # which of its arguments these are
    samples: list[tuple[Any, ...]] = field(default_factory=list)
    is_loaded: bool = False
    is_random: bool = False  # whether the partition draws random numbers


class _Graph:
    """A graph that Dynamo captured."""

    def __init__(self, graph: Any, options: Options) -> None:
        self.graph = graph
        self.options = options
        self._is_eager: bool | None = None  # known from the first call on
        self._built: _Built | None = None
        self._key: Any = None  # shapes, and numbers such as sizes, that are built for
        self._state: Any = None  # of the parameters and buffers
        self._apart: dict[Any, bool] = {}  # by shapes and numbers: whether rows are independent
        self._place: Place | None = None  # kept: the last graph that goes closes the device

    def __call__(self, *arguments: Any) -> Any:
        import torch

        tensors = [one for one in arguments if isinstance(one, torch.Tensor)]
        if torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
            raise ModelError(
                "the backend utvm computes no gradients; call the model under torch.no_grad()"
            )
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what PyTorch deprecates in itself
            if self._is_eager is None:
                self._is_eager = changes_arguments(self.graph, arguments)
                if self._is_eager:
                    _log.warning(
                        "everything runs in eager: the model changes its inputs or buffers, as "
                        "batch norm does in training; call model.eval()"
                    )
            if self._is_eager or not all(one.numel() for one in tensors):
                return self.graph(*arguments)
            return self._computed(arguments)

    def _computed(self, arguments: Sequence[Any]) -> Any:
        import torch

        module, users, constants = bound(self.graph, arguments)
        state = state_of([one for one in constants if not _is_number(one)])
        if state != self._state:
            # The weights on the board are those of an earlier call.
            self._state, self._built, self._key, self._apart = state, None, None, {}
        numbers = tuple(one for one in constants if not isinstance(one, torch.Tensor))
        sizes = {one.shape[0] if one.ndim else 0 for one in users}
        size = sizes.pop() if len(sizes) == 1 else 0
        if size < 2:
            return self._one(module, users, numbers)
        # A number that equals the batch may be its size, which is 1 for a row.
        alone = [1 if _is_number(one) and one == size else one for one in arguments]
        single, _, _ = bound(self.graph, alone)
        key = ([tuple(one.shape) for one in users], numbers)
        if str(key) not in self._apart:
            self._apart[str(key)] = is_by_row(module, single, users)
        if not self._apart[str(key)]:
            return self._one(module, users, numbers)
        of_row = tuple(1 if one == size else one for one in numbers)
        made = [self._one(single, row, of_row) for row in rows_of(users)]
        return tuple(torch.cat(parts) for parts in zip(*made, strict=True))

    def _one(self, module: Any, users: tuple[Any, ...], numbers: tuple[Any, ...]) -> Any:
        key = ([tuple(one.shape) for one in users], numbers)
        if self._key is None:
            self._built, self._key = self._build(module, users), key
        if self._built is None or key != self._key:
            if key != self._key:
                _log.warning(
                    "inputs of %s run in eager: the board has %s", _told(key), _told(self._key)
                )
            return module(*users)
        built = self._built
        made = built.module(*users)
        if built.is_random:
            _log.warning("everything runs in eager: the model draws random numbers")
            self._built = None
        elif not built.is_loaded and len(built.samples) >= self._wanted(built):
            self._load(built)
        return made

    def _wanted(self, built: _Built) -> int:
        return 1 if self.options.scheme == FLOAT else self.options.calibrate

    def _build(self, module: Any, users: tuple[Any, ...]) -> _Built | None:
        import torch

        try:
            aten = torch.export.export(module, users).module(check_guards=False)
        except Exception as exc:  # of many classes
            _log.warning("everything runs in eager: PyTorch cannot export it: %s", last_words(exc))
            return None
        splitter = Splitter(aten, self.options.scheme)
        told = splitter.explanation()
        if told.board is None:
            _log.warning("no operator can run on a board: %s", kinds_text(told.eager))
            return None
        if told.eager or told.others:
            _log.warning("%s", str(told).replace("\n", "; "))
        split, name = splitter.split(0)
        node = next(n for n in split.graph.nodes if n.op == "call_module" and n.target == name)
        constants = {
            position: _attribute(split, source.target)
            for position, source in enumerate(node.args)
            if source.op == "get_attr"
        }
        takes = tuple(p for p in range(len(node.args)) if p not in constants)
        partition = split.get_submodule(name)
        built = _Built(split, name, partition, Bound(partition, constants, len(node.args)), takes)
        setattr(split, name, _recorder(built, partition))
        return built

    def _load(self, built: _Built) -> None:
        """Put the partition on the device; from the next call on, it runs there."""
        try:
            self._compile_and_load(built)
        except ModelError as exc:
            _log.warning("everything runs in eager: %s", exc)
            setattr(built.module, built.partition, built.eager)
        built.is_loaded = True
        built.samples.clear()

    def _compile_and_load(self, built: _Built) -> None:
        import torch

        example, scheme, board = built.samples[0], self.options.scheme, self.options.board
        program = torch.export.export(built.inner, example)
        name = "partition"
        if scheme != FLOAT and not is_quantized(program):
            with file_of_module(built.inner, built.samples, example) as (file, data):
                made = quantize_model(file, data, scheme=scheme, float_ends=True)
            graph = load_bytes(made.data, name)
        else:
            graph = graph_of_torch(program, None, name)
        compiled = compile_model(graph, board, CompileOptions(name=name))
        self._place = place_of(self.options)
        setattr(built.module, built.partition, _on_device(self._place, compiled, built.takes))


def _is_number(value: Any) -> bool:
    import torch

    return not isinstance(value, torch.Tensor)


def _told(key: Any) -> str:
    shapes, numbers = key
    return f"{shapes} with {', '.join(map(str, numbers))}" if numbers else str(shapes)


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _recorder(built: _Built, partition: Any) -> Any:
    import torch

    class Recorder(torch.nn.Module):  # type: ignore[misc]
        """Runs the partition in eager, and keeps its inputs."""

        def forward(self, *arguments: Any) -> Any:
            built.samples.append(tuple(arguments[p].detach().clone() for p in built.takes))
            before = torch.get_rng_state()
            made = partition(*arguments)
            built.is_random = not torch.equal(before, torch.get_rng_state())
            return made

    return Recorder()


def _on_device(place: Place, compiled: CompiledModel, takes: tuple[int, ...]) -> Any:
    import torch

    class OnDevice(torch.nn.Module):  # type: ignore[misc]
        """Runs the partition on the device."""

        def forward(self, *arguments: Any) -> Any:
            return place.model(compiled)(*(arguments[p] for p in takes))

    return OnDevice()
