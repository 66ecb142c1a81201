"""A float PyTorch module, quantized by PT2E with our quantizer.

nn.Module ──export──▶ ATen graph ──PT2E──▶ ExportedProgram with integers ──frontend──▶ .tflite
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError, UtvmError
from utvm_deploy.base.results import plain_object
from utvm_deploy.frontend.relax.torch_evaluation import check_evaluation
from utvm_deploy.frontend.tflite import load_bytes
from utvm_deploy.frontend.torch.export import is_quantized, load_torch, program_to_tflite
from utvm_deploy.frontend.torch.modules import check_module, export_error, quiet_torch
from utvm_deploy.quality.datasets import ModelInput
from utvm_deploy.quality.quantizing.facts import (
    FEW_SAMPLES,
    INT8,
    PT2E_SAMPLES,
    FloatOperator,
    OutputError,
    QuantizedFile,
    Range,
    declared_range,
    quality,
    too_wide,
)
from utvm_deploy.quality.quantizing.model_steps import float_operators
from utvm_deploy.quality.quantizing.samples import Watch
from utvm_deploy.quality.quantizing.sqnr import output_errors
from utvm_deploy.quality.quantizing.torch.calibration import example_of, samples
from utvm_deploy.quality.quantizing.torch.decompositions import decomposed
from utvm_deploy.quality.quantizing.torch.quantizer import pt2e_quantizer
from utvm_deploy.quality.quantizing.torch.shared_ranges import share_ranges, tie_ends


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedModule(QuantizedFile):
    """A PyTorch module after quantization: the .tflite file, and the program that PT2E made."""

    data: bytes = field(repr=False)
    program: Any = field(repr=False)  # torch.export.ExportedProgram
    scheme: str
    samples: int
    float_operators: tuple[FloatOperator, ...]
    # Of PT2E's program against the module, on the samples that it was calibrated on.
    outputs: tuple[OutputError, ...]
    warnings: tuple[str, ...]

    @property
    def headline(self) -> str:
        """Scheme, size, what stayed float, and the error."""
        how = quality(self.float_operators, self.outputs)
        return f"{self.scheme}: {len(self.data):,} bytes, {how}, {self.samples} samples"

    def to_dict(self) -> dict[str, Any]:
        """What ``utvm quantize --json`` prints, as far as it is known of a module."""
        facts = {
            "scheme": self.scheme,
            "samples": self.samples,
            "bytes": len(self.data),
            "float_operators": [asdict(one) for one in self.float_operators],
            "outputs": self.table,
            "warnings": list(self.warnings),
            "ok": True,
            "output": None,
        }
        return plain_object("utvm.quantize/1", facts)


def quantize_module(
    module: Any,
    data: Any,
    *,
    scheme: str = INT8,
    input_range: tuple[float, float] | None = None,
    example_inputs: Any = None,
    name: str = "module",
) -> QuantizedModule:
    """Quantize an ``nn.Module``; its inputs and outputs stay float.

    ``data`` is a tensor or an array with samples along its first axis, or a tuple of them for
    several inputs. It may also be an iterable, such as a ``DataLoader``; labels are ignored.
    ``input_range`` is the smallest and the largest value of inputs; by default, samples say it.
    ``example_inputs`` has the shapes that the model gets; by default, that is one sample.

    Raises ModelError for data that do not fit, and for what PyTorch cannot export.
    """
    torch = load_torch()
    declared = declared_range(input_range)
    if isinstance(data, Iterator):
        data = list(islice(data, PT2E_SAMPLES))
    # An exported graph has no modes, and refuses to be asked for one.
    was_training = module.training
    try:
        if was_training:
            module.eval()
        example = example_of(module, data, example_inputs)
        calibration = list(samples(data, example))
        check_module(torch, module, example)
        with torch.no_grad(), quiet_torch():
            program = quantized_program(torch, module, calibration, example, scheme, declared)
            if not is_quantized(program):
                raise ModelError(
                    "PT2E quantizes none of the module's operators; compile the module as float32"
                )
            compared = calibration[:FEW_SAMPLES]
            real, quantized = (
                eager_outputs(torch, of, compared) for of in (module, program.module())
            )
    except UtvmError:
        raise
    except Exception as exc:  # of many classes
        told = export_error(exc)
        raise ModelError(f"PyTorch cannot export and quantize the module: {told}") from exc
    finally:
        if was_training:
            module.train()
    with quiet_torch():
        made = program_to_tflite(program, name, "made from a PyTorch module")
    names = [str(one) for one in program.graph_signature.user_outputs]
    return QuantizedModule(
        made,
        program,
        scheme,
        len(calibration),
        tuple(float_operators(load_bytes(made, name))),
        tuple(output_errors(names, real, quantized)),
        tuple(_warnings(calibration, program, declared)),
    )


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


def _warnings(calibration: Any, program: Any, declared: Range | None) -> Iterator[str]:
    """What is suspicious about the samples."""
    count = len(calibration)
    if count < FEW_SAMPLES:
        samples_ = "1 sample" if count == 1 else f"{count} samples"
        yield (
            f"calibrated on {samples_}; values that none of them reaches are cut off, so give "
            f"{FEW_SAMPLES} or more"
        )
    names = [str(name) for name in program.graph_signature.user_inputs]
    arrays = [part.numpy()[np.newaxis] for part in calibration[0]]
    inputs = [
        ModelInput(name, array.shape, str(array.dtype))
        for name, array in zip(names, arrays, strict=False)
    ]
    watch = Watch(inputs, declared)
    for sample in calibration:
        watch.see([part.numpy()[np.newaxis] for part in sample[: len(inputs)]])
    yield from watch.about_values()


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
