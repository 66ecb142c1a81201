"""A QDQ model -> a .tflite file that computes the same in integers.

An operator on real numbers is written when the QuantizeLinear after it gives the quantization of
its result. A Relu or Clip between them becomes its clamp. Where TFLite's rounding differs from that
of the model's runtime, a result may be one step away (docs/guides/other-formats.md).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.qdq import spectra as qdq_spectra
from utvm_deploy.frontend.qdq.constants import FOLDS
from utvm_deploy.frontend.qdq.emission import EMITTERS, FLOAT_ONLY, INT8_ONLY, Operators
from utvm_deploy.frontend.qdq.functions import LOGIC
from utvm_deploy.frontend.qdq.job import Step, activation, all_at_once, constant
from utvm_deploy.frontend.qdq.layout import MOVERS, with_real_fill
from utvm_deploy.frontend.qdq.operators import Array, Node, QdqModel
from utvm_deploy.frontend.qdq.tflite_write import FileTensor, ModelFile, options_of
from utvm_deploy.frontend.qdq.values import (
    Constant,
    Flattened,
    Pending,
    Quantized,
    Raw,
    Scale,
    Storage,
    Value,
    plain_scale,
)

#: Everything that the converter knows.
KNOWN = tuple(sorted({*EMITTERS, *MOVERS, "QuantizeLinear", "DequantizeLinear"}))
#: A type of the model's activations -> that of the file; unsigned ones are moved by half a range.
_STORED = {"int8": "int8", "uint8": "int8", "int16": "int16", "uint16": "int16"}
_OFFSETS = {"uint8": 128, "uint16": 32768}
#: Further types of constants.
_CONSTANT_TYPES = ("int32", "int4", "uint4")
#: Types of inputs that hold steps of a scale, and of those that hold what they mean.
_QUANTIZED_INPUTS = ("int8", "uint8", "int16")
_PLAIN_INPUTS = ("float32", "int32", "int64", "bool")


def _takes_bias(product: Value, bias: Value) -> bool:
    if not isinstance(product, Pending) or not isinstance(bias, Constant):
        return False
    is_bare = product.node.kind == "MatMul" and len(product.arguments) == 2
    return is_bare and isinstance(product.arguments[1], Constant)


def convert(model: QdqModel, description: str) -> bytes:
    """The .tflite file; raises ModelError, and UnsupportedOperator naming every operator."""
    return _Converter(qdq_spectra.with_power(model), description).run()


def types_of(kind: str) -> tuple[str, ...]:
    """The element types in which an operator can be written."""
    if kind in MOVERS or kind in ("QuantizeLinear", "DequantizeLinear"):
        return ("int8", "int16", "float32")
    if kind in FLOAT_ONLY:
        return ("float32",)
    return ("int8", "float32") if kind in INT8_ONLY else ("int8", "int16", "float32")


class _Converter:
    def __init__(self, model: QdqModel, description: str) -> None:
        self.model = model
        self.file = ModelFile(description)
        self.store = Storage(self.file)
        self.operators = Operators(self.store, model.shapes)
        self.values: dict[str, Value] = {
            name: Constant(data) for name, data in model.constants.items()
        }
        # Names that stand for integers; everything else stands for the reals that they mean.
        self.integers: dict[str, str] = {}
        self.inputs: dict[str, int] = {}
        for name, dtype in zip(model.inputs, model.input_types, strict=True):
            self._input(name, dtype)

    def run(self) -> bytes:
        """The .tflite file; UnsupportedOperator, with all of them, for what has none."""
        problems: list[UnsupportedOperator] = []
        failed: set[str] = set()
        for node in self.model.nodes:
            # What hangs on a failure is not another failure.
            if failed.intersection(node.inputs):
                failed.update(node.outputs)
                continue
            try:
                self._node(node)
            except UnsupportedOperator as exc:
                problems.append(exc)
                failed.update(node.outputs)
        if problems:
            raise all_at_once(problems)
        for name in self.model.outputs:
            self._output(name)
        self._give_used_inputs_types()
        return self.file.to_bytes()

    def _input(self, name: str, dtype: str) -> None:
        self.values[name] = Raw(name)
        if dtype not in (*_QUANTIZED_INPUTS, *_PLAIN_INPUTS):
            known = ", ".join((*_QUANTIZED_INPUTS, *_PLAIN_INPUTS))
            raise ModelError(f"model input '{name}' is {dtype}; inputs can be {known}")
        number = self.file.tensor(FileTensor(name, self.model.shapes[name], dtype))
        self.file.inputs.append(number)
        self.inputs[name] = number
        if dtype == "uint8" and not self._is_dequantized(name):
            # Pixels, of which CAST makes numbers.
            self.values[name] = Quantized(number, self.model.shapes[name], False)
        elif dtype in _QUANTIZED_INPUTS:
            self.integers[name] = dtype

    def _is_dequantized(self, name: str) -> bool:
        """Whether an input has a scale."""
        nodes = self.model.nodes
        return any(one.kind == "DequantizeLinear" and name == one.inputs[0] for one in nodes)

    def _give_used_inputs_types(self) -> None:
        for name, number in self.inputs.items():
            tensor = self.file.tensors[number]
            if name in self.integers and not tensor.scales:
                raise ModelError(
                    f"model input '{name}' is {tensor.dtype}, but nothing says its scale"
                )

    def _node(self, node: Node) -> None:
        if node.kind == "QuantizeLinear":
            self._quantize(node)
        elif node.kind == "DequantizeLinear":
            self._dequantize(node)
        elif node.kind in ("Relu", "Clip") and isinstance(self._value(node, 0), Pending):
            self._clamp(node)
        elif node.kind in MOVERS:
            values = [self._settled(node, i) if n else None for i, n in enumerate(node.inputs)]
            dtype = self.integers.get(node.inputs[0], "") if node.inputs else ""
            if dtype and node.kind == "Pad":
                values = with_real_fill(self.store, values, _OFFSETS.get(dtype, 0))
            step = Step(self.store, node, tuple(values), self.model.shapes, node.outputs[0])
            results = MOVERS[node.kind](step)
            for name, value in zip(node.outputs, results, strict=False):
                self.values[name] = value
                if dtype and node.kind not in ("ArgMax", "ArgMin", "Cast"):
                    self.integers[name] = dtype
        elif node.kind in EMITTERS:
            self._postpone(node)
            made = self.values[node.outputs[0]]
            if node.kind in LOGIC and isinstance(made, Pending):
                name = node.outputs[0]
                self.values[name] = self.operators.emitted(made, name, plain_scale("bool"))
        else:
            raise node.unsupported(
                "there is no such operator here; `utvm inspect --supported --format onnx` lists "
                "those that there are"
            )

    def _value(self, node: Node, position: int) -> Value:
        name = node.inputs[position] if position < len(node.inputs) else ""
        if name not in self.values:
            raise node.damaged(f"input {position} '{name}' is made by nothing before it")
        return self.values[name]

    def _settled(self, node: Node, position: int) -> Value:
        """An input that is written; what nothing quantizes has an implied scale, or is float32."""
        value = self._value(node, position)
        if isinstance(value, Pending):
            value = self.operators.emitted(value, value.node.outputs[0])
            self.values[node.inputs[position]] = value
        elif isinstance(value, Raw) and value.name not in self.integers:
            value = Quantized(self.inputs[value.name], self.model.shapes[value.name], False)
        return value

    def _postpone(self, node: Node) -> None:
        if node.kind == "Add" and len(node.inputs) == 2:
            # A product, and what is added to it: a bias.
            operands = self._value(node, 0), self._value(node, 1)
            for product, bias in (operands, operands[::-1]):
                if _takes_bias(product, bias) and isinstance(product, Pending):
                    merged = (*product.arguments[:2], bias)
                    self.values[node.outputs[0]] = replace(product, arguments=merged)
                    return
        for name in node.inputs:
            if name in self.integers:
                raise node.unsupported(
                    f"it computes with the integers of '{name}'; put a DequantizeLinear before it"
                )
        arguments = tuple(self._settled(node, i) if n else None for i, n in enumerate(node.inputs))
        known = [value.real for value in arguments if isinstance(value, Constant)]
        if len(known) == len(arguments) and node.kind in FOLDS:
            self.values[node.outputs[0]] = Constant(FOLDS[node.kind](node, *known))
            return
        low, high = -math.inf, math.inf
        if node.kind in ("Relu", "Clip"):
            low, high = self._limits(node)
        self.values[node.outputs[0]] = Pending(node, arguments, low, high)

    def _limits(self, node: Node) -> tuple[float, float]:
        if node.kind == "Relu":
            return 0.0, math.inf
        limits = [node.number("min", -math.inf), node.number("max", math.inf)]
        for position in (1, 2):
            if position < len(node.inputs) and node.inputs[position]:
                known = constant(node, self._value(node, position), "limits")
                limits[position - 1] = float(np.asarray(known.real).reshape(-1)[0])
        return limits[0], limits[1]

    def _clamp(self, node: Node) -> None:
        """A Relu or Clip behind an operator that is not written yet."""
        before = self._value(node, 0)
        assert isinstance(before, Pending)
        low, high = self._limits(node)
        self.values[node.outputs[0]] = replace(
            before,
            low=min(max(before.low, low), high),
            high=max(min(before.high, high), low),
        )

    def _parameters(
        self, node: Node, dtype: str = "uint8", others: tuple[str, ...] = ("int32",)
    ) -> tuple[Array, Array, str, int]:
        """Scales, zero points of int8, the type that the model says, and the axis.

        ``dtype`` is the type where the model says none. ``others`` are allowed, too.
        """
        scales = constant(node, self._value(node, 1), "scales").data.astype(np.float32)
        zeros: Array = np.zeros(scales.shape, np.int64)
        dtype = node.text("zero_point_type", dtype)
        if len(node.inputs) > 2 and node.inputs[2]:
            known = constant(node, self._value(node, 2), "zero points").data
            dtype, zeros = str(known.dtype), known.astype(np.int64)
        if dtype not in (*_STORED, *others):
            known_types = ", ".join(_STORED)
            raise node.unsupported(f"it quantizes to {dtype}; only {known_types} are supported")
        if scales.size == 0 or scales.size != zeros.size:
            raise node.damaged(f"it has {scales.size} scales and {zeros.size} zero points")
        if not (np.isfinite(scales).all() and (scales > 0).all()):
            raise node.damaged("a scale is not a positive number")
        zeros = zeros - _OFFSETS.get(dtype, 0)
        if _STORED.get(dtype) == "int16" and np.any(zeros):
            raise node.unsupported(
                f"its {dtype} has a zero point off the middle; quantize activations symmetrically "
                "(onnxruntime: extra_options={'ActivationSymmetric': True})"
            )
        return scales.reshape(-1), zeros.reshape(-1), dtype, node.integer("axis", 1)

    def _quantize(self, node: Node) -> None:
        scales, zeros, dtype, axis = self._parameters(node)
        name = node.outputs[0]
        value = self._value(node, 0)
        if dtype != "int32":
            self.integers[name] = dtype
        if isinstance(value, Constant):
            shape = [1] * value.data.ndim
            if scales.size > 1:
                shape[axis] = -1
            steps = np.rint(value.real / scales.reshape(shape)) + zeros.reshape(shape)
            bounds = np.iinfo(_STORED.get(dtype, dtype))
            data = np.clip(steps, bounds.min, bounds.max).astype(bounds.dtype)
            self.values[name] = Constant(data, scales, zeros, axis if scales.size > 1 else None)
            return
        if scales.size != 1 or dtype == "int32":
            raise node.unsupported("it quantizes an activation by channel, or to int32")
        scale = Scale(float(scales[0]), int(zeros[0]), _STORED[dtype])
        self.values[name] = self._written(node, value, scale, name)

    def _written(self, node: Node, value: Value, scale: Scale, name: str) -> Value:
        """The value, quantized."""
        if isinstance(value, Pending):
            return self.operators.emitted(value, name, scale)
        if isinstance(value, Raw):
            source = self.inputs[value.name]
            made = self.store.activation(name, self.model.shapes[value.name], scale)
            self.file.operator("QUANTIZE", [source], [made.tensor], options_of("QUANTIZE", {}))
            return made
        settled = activation(node, value)
        if isinstance(settled, Flattened):
            return replace(settled, image=self.store.requantized(settled.image, scale, name))
        return self.store.requantized(settled, scale, name)

    def _dequantize(self, node: Node) -> None:
        name = node.outputs[0]
        value = self._value(node, 0)
        given = self.integers.get(node.inputs[0], "uint8")
        if isinstance(value, Constant) and value.scales is None:
            given = str(value.data.dtype)
        if node.integer("block_size", 0):
            raise node.unsupported(
                f"it has scales of blocks of {node.integer('block_size', 0)}; only one scale, or "
                "one for each channel, is supported; quantize it so, or keep activations float32"
            )
        scales, zeros, _, axis = self._parameters(node, given, _CONSTANT_TYPES)
        if isinstance(value, Constant):
            if value.scales is not None:
                self.values[name] = value
                return
            offset = _OFFSETS.get(str(value.data.dtype))
            if offset is not None:
                moved = value.data.astype(np.int32) - offset
                value = Constant(moved.astype(_STORED[str(value.data.dtype)]))
            by_axis = axis % max(value.data.ndim, 1) if scales.size > 1 else None
            if by_axis is not None and value.data.shape[by_axis : by_axis + 1] != (scales.size,):
                raise node.damaged(f"it has {scales.size} scales for {value.data.shape}")
            self.values[name] = Constant(value.data, scales, zeros, by_axis)
            return
        if scales.size != 1:
            raise node.unsupported("an activation has one scale per channel")
        if isinstance(value, Quantized) and self.store.scale_of(value).dtype == "uint8":
            raise node.unsupported(
                "operators move the model's uint8 input before it; put it at the input itself, or "
                "use a Cast to float32"
            )
        if isinstance(value, Raw):
            if value.name not in self.integers:
                raise node.damaged(f"it reads '{value.name}', which is of real numbers")
            scale = Scale(float(scales[0]), int(zeros[0]), _STORED[self.integers[value.name]])
            value = self._integer_input(value.name, scale)
        self.values[name] = value

    def _integer_input(self, name: str, scale: Scale) -> Quantized:
        """A model input that is quantized already."""
        number, dtype = self.inputs[name], self.integers[name]
        shape = self.model.shapes[name]
        zero = scale.zero_point + _OFFSETS.get(dtype, 0)
        self.file.tensors[number] = replace(
            self.file.tensors[number], scales=(scale.scale,), zero_points=(zero,)
        )
        value = Quantized(number, shape, False)
        if dtype == "uint8":
            value = self.store.activation(f"{name}_int8", shape, scale)
            self.file.operator("QUANTIZE", [number], [value.tensor], options_of("QUANTIZE", {}))
        self.values[name] = value
        return value

    def _output(self, name: str) -> None:
        value = self.values.get(name)
        if isinstance(value, Pending):
            value = self.operators.emitted(value, name)
        if not isinstance(value, Quantized | Flattened):
            raise ModelError(f"model output '{name}' is not computed by any operator")
        made = self.store.plain(value)
        dtype = self.integers.get(name, "float32")
        is_plain = not self.store.scale_of(made).is_quantized
        if dtype in ("int8", "int16") or is_plain:
            if made.tensor in (*self.file.inputs, *self.file.outputs):
                raise ModelError(f"model output '{name}' is another input or output, unchanged")
            self.file.outputs.append(made.tensor)
            return
        if dtype == "uint16":
            raise ModelError(f"model output '{name}' is uint16; let it be int16 or float32")
        scale = self.store.scale_of(made)
        kind, tensor = "DEQUANTIZE", FileTensor(f"{name}_output", made.shape, "float32")
        if dtype == "uint8":
            kind = "QUANTIZE"
            tensor = replace(
                tensor,
                dtype="uint8",
                scales=(scale.scale,),
                zero_points=(scale.zero_point + _OFFSETS[dtype],),
            )
        number = self.file.tensor(tensor)
        self.file.operator(kind, [made.tensor], [number], options_of(kind, {}))
        self.file.outputs.append(number)
