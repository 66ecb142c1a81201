"""A float32 program of ``torch.export`` as a Relax module, by TVM's importer."""

from __future__ import annotations

import warnings
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


def _converters() -> dict[str, Any]:
    """Of operators that TVM's importer lacks: what makes Relax of their nodes."""
    from tvm import relax

    def extremum(operator: Any) -> Any:
        def converted(node: Any, importer: Any) -> Any:
            x, axes, keeps = [*node.args, (), False, False][:3]
            made = operator(importer.env[x], list(axes) or None, keeps is True)
            return importer.block_builder.emit(made)

        return converted

    return {"amax.default": extremum(relax.op.max), "amin.default": extremum(relax.op.min)}


def importable_names() -> frozenset[str]:
    """ATen's names of the operators that TVM's importer knows."""
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    known = ExportedProgramImporter().create_convert_map()
    return frozenset(name.partition(".")[0] for name in known)
