"""Reads a PyTorch export (.pt2), which ``torch.export.save`` wrote.

If PT2E has quantized the program, each ATen operator is stated as the ONNX operator that does the
same. So both formats share one conversion. A float program goes to Relax.
"""

from __future__ import annotations

import importlib
import logging
import math
import operator
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError, UnsupportedOperator, refused_with
from utvm_deploy.frontend.files.given_shapes import chosen_now
from utvm_deploy.frontend.files.other_files import is_pickled, other_framework
from utvm_deploy.frontend.qdq.convert_graph import convert
from utvm_deploy.frontend.qdq.job import all_at_once
from utvm_deploy.frontend.qdq.operators import Node, QdqModel
from utvm_deploy.frontend.relax.from_torch import relax_of_program
from utvm_deploy.frontend.relax.torch_evaluation import check_evaluation
from utvm_deploy.frontend.torch.batch import batch_notes, with_batch_of_one
from utvm_deploy.frontend.torch.calls import ASSERTIONS, Call, Tensors, aten_name, operator_kinds
from utvm_deploy.frontend.torch.modules import quiet_torch
from utvm_deploy.frontend.torch.statements import STATEMENTS
from utvm_deploy.frontend.torch.states import with_states_outside
from utvm_deploy.graph.quantize_hint import quantize_command

#: Calls that make a constant of one number; NaN: of their last argument.
FILLED: Mapping[str, float] = {
    "full": math.nan,
    "full_like": math.nan,
    "ones": 1.0,
    "ones_like": 1.0,
    "scalar_tensor": math.nan,
    "zeros": 0.0,
    "zeros_like": 0.0,
}
#: Letters of PyTorch's words that a message keeps.
_MOST_SAID = 200
_INSTALL = "pip install 'utvm-deploy[torch]'"
#: The names of PT2E's operators in a file.
_QUANTIZERS = (b"quantized_decomposed", b"torchao")


def load_torch(path: Path | None = None) -> Any:
    """The package ``torch``; ModelError if it is missing.

    ``path`` is the file that needs it, if one does. PT2E's operators come with it, unless the file
    names none: their package takes as long as PyTorch itself.
    """
    try:
        import torch
        import torch.export
    except ImportError as exc:
        needs = f"{path}: reading .pt2 files needs PyTorch" if path else "this needs PyTorch"
        raise ModelError(f"{needs}: {_INSTALL}") from exc
    if path is None or _names_quantizers(path):
        register_quantizers()
    return torch


def _names_quantizers(path: Path) -> bool:
    """Whether a file has operators of PT2E, or may have them because it is compressed."""
    try:
        content = path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            is_compressed = any(one.compress_type for one in archive.infolist())
    except (OSError, ValueError, zipfile.BadZipFile):  # the reader of the model says so
        return False
    return is_compressed or any(name in content for name in _QUANTIZERS)


def torch_to_model(path: Path) -> bytes:
    """What a ``.pt2`` file becomes: a .tflite file if PT2E has quantized it, else a Relax model.

    Raises ModelError if ``torch`` is missing or the file cannot be used, UnsupportedOperator for
    what cannot be imported.
    """
    program = loaded_program(path)
    with refused_with(path):
        check_types(program)
        notes = batch_notes(program)
        program = with_batch_of_one(load_torch(path), program)
        made = stateful_tflite(program, path.stem, f"converted from {path.name}")
        if made is not None:
            return made
        has_states = bool(chosen_now().states)
        if not is_quantized(program) and not has_states:
            # The import changes the program.
            kinds = operator_kinds(program)
            return replace(relax_of_program(program), kinds=kinds, notes=notes).dumped()
        told = f"converted from {path.name}"
        return program_to_tflite(program, path.stem, told, is_float_converted=has_states)


def stateful_tflite(program: Any, name: str, description: str) -> bytes | None:
    """The .tflite file of a program that writes into its buffers; None for any other."""
    made, states = with_states_outside(load_torch(), program)
    if not states:
        return None
    from utvm_deploy.frontend.files.tflite_states import with_kept_states

    data = program_to_tflite(made, name, description, is_float_converted=True)
    return with_kept_states(data, states)


def loaded_program(path: Path) -> Any:
    """The ``ExportedProgram`` in a file; ModelError if ``torch`` is missing or cannot read it."""
    torch = load_torch(path)
    if is_pickled(path):
        raise ModelError(f"{path} {other_framework(path)}")
    try:
        # Its reader takes no path that is not UTF-8.
        with _logged_causes() as causes, path.open("rb") as file:
            program = torch.export.load(file)
    except Exception as exc:  # any exception of the many readers that it calls
        raise ModelError(
            f"{path} cannot be read as a file that torch.export.save wrote: "
            f"{_cause((*causes, exc)[0])}; export it again with the PyTorch that is installed, "
            f"{torch.__version__}"
        ) from exc
    _detach_copies(torch, program)
    return program


@contextmanager
def _logged_causes() -> Iterator[list[BaseException]]:
    """The exceptions that PyTorch logs until the end of the block.

    Its loader logs the first one, and raises another that points to the log.
    """
    causes: list[BaseException] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            causes.append(record.exc_info[1])
        return not record.exc_info

    logger = logging.getLogger("torch.export")
    # The filters of a logger are asked in turn until one refuses: this must be the first.
    logger.filters.insert(0, keep)
    try:
        yield causes
    finally:
        logger.removeFilter(keep)


def _cause(error: BaseException) -> str:
    """What the first of a chain of exceptions says, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    said = " ".join(str(error).split())
    said = said.rstrip(".") if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]}..."
    # The text of others, such as KeyError, is only a name.
    is_told = isinstance(error, ValueError | RuntimeError)
    return said if is_told else f"{type(error).__name__}: {said}"


def _detach_copies(torch: Any, program: Any) -> None:
    """Let ``detach`` make a copy: in place, it fails in a module that is exported again.

    A call of ``torch.tensor`` in ``forward`` is exported with one.
    """
    aten = torch.ops.aten
    for node in program.graph.nodes:
        if node.target is aten.detach_.default:
            node.target = aten.detach.default
    program.graph_module.recompile()


def check_types(program: Any) -> None:
    """Raise ModelError for inputs and weights of floats other than float32."""
    signature = program.graph_signature
    weights = signature.inputs_to_parameters
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        is_weight = node.name in weights
        dtype = str(getattr(node.meta.get("val"), "dtype", "")).removeprefix("torch.")
        is_used = is_weight or node.name in signature.user_inputs
        if is_used and "float" in dtype and dtype != "float32":
            what = f"weight '{weights[node.name]}'" if is_weight else f"input '{node.name}'"
            raise ModelError(
                f"{what} is {dtype}, and only float32 is supported; call model.float() before the "
                "export, and give it float32 examples"
            )


def program_to_tflite(
    program: Any, name: str, description: str, *, is_float_converted: bool = False
) -> bytes:
    """The .tflite file of a PT2E-quantized ``torch.export.ExportedProgram``.

    With ``is_float_converted``, a float program becomes a float .tflite file, too. Otherwise it is
    a ModelError. Raises UnsupportedOperator for what cannot be imported.
    """
    check_evaluation(program, is_quantized=True)
    model = _Reader(decomposed(load_torch(), program), name).read()
    is_float = all(node.kind != "QuantizeLinear" for node in model.nodes)
    if is_float and not is_float_converted:
        raise ModelError(f"the model is not quantized; run {quantize_command('MODEL.pt2')}")
    return convert(model, description)


def is_quantized(program: Any) -> bool:
    """Whether PT2E has quantized any part of an ``ExportedProgram``."""
    return any(
        node.op == "call_function" and aten_name(node.target).startswith("quantize_per_")
        for node in program.graph.nodes
    )


def decomposed(torch: Any, program: Any) -> Any:
    """The exported program with every operator that is not in STATEMENTS in terms of others.

    Recurrent layers are unrolled, and attention becomes matrix products and a softmax. PyTorch's
    decompositions do that, except for attention and variance.
    """
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    known = {*STATEMENTS, *FILLED, *ASSERTIONS}
    if all(target is operator.getitem or aten_name(target) in known for target in calls):
        return program
    table = torch.export.default_decompositions()
    for target in list(table):
        if aten_name(target) in known:
            table.pop(target)
    aten = torch.ops.aten
    table[aten.scaled_dot_product_attention.default] = partial(_attention, torch)
    table[aten.var.correction] = partial(_variance, torch)
    return program.run_decompositions(table)


def _attention(
    torch: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(query * scale @ key^T + mask) @ value; PyTorch's also guards rows without a key."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.matmul(with_rows_of(query * factor, key), key.transpose(-2, -1))
    if enable_gqa:
        scores = scores.reshape(*query.shape[:-1], key.shape[-2])
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(attn_mask.logical_not(), -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    made = torch.matmul(with_rows_of(torch.softmax(scores, -1), value), value)
    return made.reshape(*query.shape[:-1], value.shape[-1]) if enable_gqa else made


def with_rows_of(x: Any, shared: Any) -> Any:
    """The heads of ``x`` that share keys or values, as the rows of one head."""
    same = x.shape[-3] == shared.shape[-3] if x.dim() > 2 else True
    return x if same else x.reshape(*shared.shape[:-2], -1, x.shape[-1])


def _variance(
    torch: Any, x: Any, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    axes = list(range(x.dim())) if dim is None else list(dim)
    count = math.prod(x.shape[axis] for axis in axes)
    centred = x - x.mean(axes, keepdim=True)
    share = count / max(count - (1 if correction is None else correction), 1)
    return (centred * centred).mean(axes, keepdim=keepdim) * share


def register_quantizers() -> None:
    """Import the modules that register PT2E's operators with torch, if they are installed."""
    with quiet_torch():
        for name in ("torch.ao.quantization.fx._decomposed", "torchao.quantization.pt2e"):
            try:
                importlib.import_module(name)
            except ImportError:
                continue


class _Reader:
    """Walks an exported program."""

    def __init__(self, program: Any, name: str) -> None:
        self.program = program
        self.name = name
        self.tensors = Tensors()
        self.nodes: list[Node] = []
        # What a call that makes several tensors made, by its name.
        self.parts: dict[str, tuple[str, ...]] = {}
        # What depends on no input and no weight, by the node that makes it.
        self.values: dict[Any, Any] = {}

    def read(self) -> QdqModel:
        """The whole program."""
        signature = self.program.graph_signature
        self._read_constants(signature)
        inputs = [str(name) for name in signature.user_inputs if isinstance(name, str)]
        problems: list[UnsupportedOperator] = []
        types = {}
        for index, node in enumerate(self.program.graph.nodes):
            self._note_shape(node)
            if node.op == "placeholder" and node.name in inputs:
                types[node.name] = str(node.meta["val"].dtype).removeprefix("torch.")
            elif node.op == "call_function":
                if aten_name(node.target) in ASSERTIONS or self._is_known(node):
                    continue
                try:
                    self._call(node, index)
                except UnsupportedOperator as exc:
                    problems.append(exc)
        if problems:
            raise all_at_once(problems)
        for name in inputs:
            if name not in self.tensors.shapes:
                raise ModelError(
                    f"input '{name}' has no fixed shape; export without dynamic shapes"
                )
        return QdqModel(
            self.name,
            tuple(self.nodes),
            self.tensors.shapes,
            self.tensors.constants,
            tuple(inputs),
            tuple(str(name) for name in signature.user_outputs),
            tuple(types[name] for name in inputs),
        )

    def _read_constants(self, signature: Any) -> None:
        program = self.program
        stored = {**program.state_dict, **program.constants}
        for table in (
            signature.inputs_to_parameters,
            signature.inputs_to_buffers,
            signature.inputs_to_lifted_tensor_constants,
        ):
            for name, target in table.items():
                tensor = stored.get(target)
                if tensor is not None:
                    self.tensors.constants[str(name)] = tensor.detach().cpu().numpy()

    def _is_known(self, node: Any) -> bool:
        """Whether a call depends on no input and no weight, such as ``arange``: it is computed."""
        import torch

        tags = getattr(node.target, "tags", ())
        is_random = torch.Tag.nondeterministic_seeded in tags or "empty" in str(node.target)
        if is_random or not all(one in self.values for one in node.all_input_nodes):
            return self._is_filled(node)
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        kwargs = {**kwargs, **({"device": "cpu"} if kwargs.get("device") else {})}
        value = self.values[node] = node.target(*args, **kwargs)
        if isinstance(value, torch.Tensor):
            self.tensors.constants[str(node.name)] = value.numpy()
        return True

    def _is_filled(self, node: Any) -> bool:
        """Whether a call makes a constant of one number, which is noted."""
        value = FILLED.get(aten_name(node.target))
        if value is None:
            return False
        number = next((a for a in reversed(node.args) if isinstance(a, int | float)), 0.0)
        made = node.meta["val"]
        dtype = str(made.dtype).removeprefix("torch.")
        filled = np.full(tuple(made.shape), number if math.isnan(value) else value, dtype)
        self.tensors.constants[str(node.name)] = filled
        return True

    def _note_shape(self, node: Any) -> None:
        value = node.meta.get("val")
        if hasattr(value, "shape") and all(isinstance(d, int) for d in value.shape):
            self.tensors.shapes[str(node.name)] = tuple(int(d) for d in value.shape)
        elif isinstance(value, list | tuple):
            names = tuple(f"{node.name}_{i}" for i in range(len(value)))
            for name, part in zip(names, value, strict=True):
                if hasattr(part, "shape"):
                    self.tensors.shapes[name] = tuple(int(d) for d in part.shape)
            self.parts[str(node.name)] = names

    def _call(self, node: Any, index: int) -> None:
        if node.target is operator.getitem:
            source, part = node.args
            inputs = (self.parts[str(source.name)][int(part)],)
            self.nodes.append(Node(index, "Identity", inputs, (str(node.name),)))
            return
        kind = aten_name(node.target)
        outputs = self.parts.get(str(node.name), (str(node.name),))
        statement = STATEMENTS.get(kind)
        if statement is None:
            raise Node(index, kind, (), outputs).unsupported(
                "there is no such operator here; `utvm inspect --supported --format torch` lists "
                "those that there are"
            )
        stated = statement(self.tensors, Call(node, index, self._arguments(node)))
        made = Node(index, stated.kind, stated.inputs, outputs, stated.attributes)
        self.nodes.append(made)

    def _arguments(self, node: Any) -> dict[str, Any]:
        """By the names of the operator's schema, which every ATen operator has."""
        names = [argument.name for argument in node.target._schema.arguments]
        given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        return {name: _plain(value) for name, value in given.items()}


def _plain(value: Any) -> Any:
    """Nodes as their names, through lists."""
    if hasattr(value, "op") and hasattr(value, "name"):
        return str(value.name)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
