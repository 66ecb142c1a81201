"""A float32 program of ``torch.export`` as a Relax module, by TVM's importer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from utvm_deploy.base.errors import ModelError, last_words
from utvm_deploy.frontend.relax.facts import RelaxModel
from utvm_deploy.frontend.relax.road import relax_model
from utvm_deploy.frontend.relax.torch_evaluation import check_evaluation
from utvm_deploy.frontend.relax.torch_spectra import without_complex


def relax_of_program(program: Any) -> RelaxModel:
    """The ``ExportedProgram``, lowered.

    Raises ModelError or UnsupportedOperator for what TVM cannot import or lower, and for programs
    that train or that change their buffers.
    """
    from tvm.relax.frontend.torch import from_exported_program

    check_evaluation(program)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what PyTorch deprecates in itself
            module = from_exported_program(
                _prepared(program), run_ep_decomposition=False, custom_convert_map=_converters()
            )
    except ModelError:
        raise
    except Exception as exc:  # of many classes
        raise ModelError(f"TVM cannot import the program: {last_words(exc)}") from exc
    return relax_model(module)


def _prepared(program: Any) -> Any:
    """The program in PyTorch's core operators, without what TVM's importer makes wrong."""
    import torch

    aten = torch.ops.aten
    with _kept_dropouts(program):
        core = without_complex(program)
    for node in list(core.graph.nodes):
        if node.target is not aten.select.int:
            continue
        # TVM would read in front of the tensor for an index that counts from the end.
        source, axis, index = node.args
        index %= source.meta["val"].shape[axis]
        with core.graph.inserting_before(node):
            part = core.graph.call_function(aten.slice.Tensor, (source, axis, index, index + 1))
            one = core.graph.call_function(aten.squeeze.dims, (part, [axis]))
        one.meta = dict(node.meta)
        part.meta = {**node.meta, "val": node.meta["val"].unsqueeze(axis)}
        node.replace_all_uses_with(one)
        core.graph.erase_node(node)
    return core


@contextmanager
def _kept_dropouts(program: Any) -> Iterator[None]:
    """In it, the program has our operators for its dropouts, which train steps need.

    PyTorch's decompositions remove its own, as they do nothing in evaluation.
    """
    import torch

    if not hasattr(torch.ops.utvm_deploy, "dropout"):
        torch.library.define("utvm_deploy::dropout", "(Tensor x, float p) -> Tensor")
        torch.library.register_fake("utvm_deploy::dropout", lambda x, p: x.clone())
    before = []
    try:
        for node in program.graph.nodes:
            name = getattr(getattr(node.target, "_schema", None), "name", "")
            if name.rstrip("_") in ("aten::dropout", "aten::feature_dropout"):
                before.append((node, node.target, node.args))
                x, probability = node.args[:2]
                node.target = torch.ops.utvm_deploy.dropout.default
                # Below 0, it is that of whole channels.
                node.args = (x, -probability if "feature" in name else probability)
        yield
    finally:
        for node, target, args in before:
            node.target, node.args = target, args


def _converters() -> dict[str, Any]:
    """Of operators that TVM's importer lacks: what makes Relax of their nodes."""
    from tvm import relax

    def extremum(operator: Any) -> Any:
        def converted(node: Any, importer: Any) -> Any:
            x, axes, keeps = [*node.args, (), False, False][:3]
            made = operator(importer.env[x], list(axes) or None, keeps is True)
            return importer.block_builder.emit(made)

        return converted

    def dropout(node: Any, importer: Any) -> Any:
        x, rate = node.args
        made = importer.block_builder.emit(relax.op.nn.dropout(importer.env[x], rate))
        return importer.block_builder.emit(relax.TupleGetItem(made, 0))

    extremes = {"amax.default": relax.op.max, "amin.default": relax.op.min}
    own = {name: extremum(operator) for name, operator in extremes.items()}
    return own | {"dropout.default": dropout}


def importable_names() -> frozenset[str]:
    """ATen's names of the operators that TVM's importer knows."""
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    known = ExportedProgramImporter().create_convert_map()
    return frozenset(name.partition(".")[0] for name in known)
