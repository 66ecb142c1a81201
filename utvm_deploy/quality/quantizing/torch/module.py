"""A float PyTorch module, quantized by PT2E with our quantizer.

nn.Module ──export──▶ ATen graph ──PT2E──▶ ExportedProgram with integers ──frontend──▶ .tflite
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.relax.torch_evaluation import check_evaluation
from utvm_deploy.quality.quantizing.facts import INT8, Range, too_wide
from utvm_deploy.quality.quantizing.torch.decompositions import decomposed
from utvm_deploy.quality.quantizing.torch.quantizer import pt2e_quantizer
from utvm_deploy.quality.quantizing.torch.shared_ranges import share_ranges, tie_ends


def quantized_program(
    torch: Any,
    module: Any,
    calibration: Any,
    example: tuple[Any, ...],
    scheme: str,
    declared: Range | None = None,
    tied: Sequence[tuple[int, int]] = (),
) -> Any:
    """The ``ExportedProgram`` that PT2E makes of a module.

    ``declared`` is the range of the inputs; by default, it is the observed one. ``tied`` has the
    positions of inputs and outputs that get one range.
    """
    quantizer = pt2e_quantizer(scheme, example)
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    check_weights(torch, module)
    program = torch.export.export(module, example)
    check_evaluation(program, is_quantized=True)
    exported = program.module(check_guards=False)
    prepared = prepare_pt2e(exported, quantizer)
    for sample in calibration:
        prepared(*sample)
    share_ranges(prepared)
    tie_ends(torch, prepared, tied)
    for node in prepared.graph.nodes:
        if node.op == "placeholder" and declared is not None:
            for user in node.users:
                if user.op == "call_module":
                    observer = prepared.get_submodule(user.target)
                    observer.min_val = torch.tensor(declared.low)
                    observer.max_val = torch.tensor(declared.high)
    _check_ranges(prepared)
    return torch.export.export(convert_pt2e(prepared), example)


def positional(torch: Any, program: Any) -> Any:
    """An ``ExportedProgram`` whose inputs are given by position, in place.

    One that was exported with named inputs takes these by name only.
    """
    _, named = program.call_spec.in_spec.children_specs
    if named.num_leaves:
        given = tuple(program.graph_signature.user_inputs)
        _, spec = torch.utils._pytree.tree_flatten((given, {}))
        program.module_call_graph[0].signature.in_spec = spec
    return program


def float_program(torch: Any, module: Any, example: tuple[Any, ...]) -> Any:
    """The ``ExportedProgram`` of a float module without composite operators."""
    # What has a kernel of int8 stays one operator. Where it has none of int16, that layer is float.
    return torch.export.export(decomposed(module, example, INT8), example)


def _check_ranges(prepared: Any) -> None:
    """Raise ModelError for a tensor whose observed range has no scale."""
    for node in prepared.graph.nodes:
        observer = prepared.get_submodule(node.target) if node.op == "call_module" else None
        low, high = (getattr(observer, name, None) for name in ("min_val", "max_val"))
        if low is None or high is None or not low.numel():
            continue
        seen = Range(float(low.min()), float(high.max()))
        if seen.is_too_wide:
            raise ModelError(too_wide(str(node.args[0]), seen))


def eager_outputs(torch: Any, module: Any, calibration: Any) -> list[Any]:
    """Each output of the module as an array, with all samples along its first axis."""
    rows = []
    for sample in calibration:
        made = module(*sample)
        flat, _ = torch.utils._pytree.tree_flatten(made)
        rows.append([one.detach().cpu().numpy() for one in flat])
    return [np.stack(column) for column in zip(*rows, strict=True)]


def check_weights(torch: Any, module: Any) -> None:
    """Raise ModelError for weights of a module that are NaN or infinite.

    A buffer may hold minus infinity, as masks of attention do.
    """
    buffers = {name for name, _ in module.named_buffers()}
    for name, values in module.state_dict().items():
        if not values.is_floating_point():
            continue
        if name in buffers:
            values = values[~torch.isneginf(values)]
        if not bool(torch.isfinite(values).all()):
            raise ModelError(
                f"the module's '{name}' has NaN or infinity; train it again, or load other weights"
            )
