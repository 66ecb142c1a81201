"""Quantizes operators that ai-edge-quantizer leaves float, where an integer kernel exists.

DEQUANTIZE, float operator, QUANTIZE becomes one integer operator. Between two such operators no
float tensor remains, because each gets a scale from the calibrated range of its output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.graph.model import Array
from utvm_deploy.quality.quantizing.facts import DTYPES, INT16X8, Range, Recipe
from utvm_deploy.quality.quantizing.tflite import rules

# A narrower range would have a scale that kernels cannot multiply by.
_LEAST_RANGE = 1e-6
_LOWEST = -128


@dataclass
class Rewriting:
    """Quantizes the float operators of a ``ModelT`` that a recipe gives one scheme.

    ``rewritten`` has the kind and the first output of each.
    """

    model: Any
    scheme: str
    ranges: Mapping[str, Range]
    recipe: Recipe

    def __post_init__(self) -> None:
        self.graph = self.model.subgraphs[0]
        self.dtype = schema.INT16 if self.scheme == INT16X8 else schema.INT8
        # A float tensor -> the integer tensor of the same values.
        self.integers: dict[int, int] = {}
        self.operators: list[Any] = []
        self.rewritten: list[tuple[str, str]] = []

    def run(self) -> None:
        """Rewrite every operator that can be, in their order."""
        wanted = self._wanted()
        for operator in list(self.graph.operators):
            kind = schema.kind_of(self.model, operator)
            if kind == "DEQUANTIZE" and self._tensor(operator.inputs[0]).type in schema.INTEGERS:
                self.integers[int(operator.outputs[0])] = int(operator.inputs[0])
            rule = None if kind in ("QUANTIZE", "DEQUANTIZE") else self._rule(operator, kind)
            if rule is None or not self._rewrite(operator, kind, rule, wanted):
                self.operators.append(operator)
        self.graph.operators = self.operators

    def _wanted(self) -> dict[int, Any]:
        """Float tensors that the file quantizes anyway, and the quantization that they get."""
        wanted = {}
        for operator in self.graph.operators:
            if schema.kind_of(self.model, operator) == "QUANTIZE":
                target = self._tensor(operator.outputs[0])
                if target.type == self.dtype:
                    wanted[int(operator.inputs[0])] = target.quantization
        return wanted

    def _rule(self, operator: Any, kind: str) -> rules.Rule | None:
        """The rule for a float operator; None for all others, and for those that stay float."""
        outputs = schema.numbers(operator.outputs)
        if not outputs:
            return None
        scheme = self.recipe.operators.get(self._name(outputs[0]), self.recipe.scheme)
        if scheme != self.scheme:
            return None
        rule = rules.rule_of(kind, DTYPES[scheme])
        is_float = any(self._is_float(number) for number in schema.numbers(operator.inputs))
        if rule is None or not is_float:
            return None
        has_float_outputs = all(self._is_float(number) for number in outputs)
        return rule if has_float_outputs or rule.output == rules.NO_OUTPUT else None

    def _rewrite(
        self, operator: Any, kind: str, rule: rules.Rule, wanted: Mapping[int, Any]
    ) -> bool:
        """Put the integer operator in the place of the float one; False if it cannot be."""
        inputs, outputs = schema.numbers(operator.inputs), schema.numbers(operator.outputs)
        data = [
            place for place, number in enumerate(inputs) if number >= 0 and self._is_float(number)
        ]
        sources = [n for p in data if self._is_constant(n := inputs[p]) is False]
        known = all(n in self.integers or self._name(n) in self.ranges for n in sources)
        if not sources or not known:
            return False
        first = self._parameters(sources[0])
        # Of int16, the float model has shown that nothing is negative.
        is_byte = self.dtype == schema.INT8
        if rule.needs_lowest_zero_point and is_byte and int(first.zeroPoint[0]) != _LOWEST:
            return False
        params = [self._output(number, rule, first, wanted) for number in outputs]
        if any(one is None for one in params):
            return False
        compared = None
        if rule.output == rules.NO_OUTPUT and len(data) > 1:
            compared = self._widest([inputs[place] for place in data])
            if float(compared.scale[0]) >= 1:  # LiteRT compares smaller scales only
                return False
        for place in data:
            shared = params[0] if rule.output == rules.SHARED else None
            if compared is not None and self.dtype == schema.INT16:
                shared = compared  # LiteRT compares int16 as it is stored
            if rule.output == rules.FROM_INPUT and self._is_constant(inputs[place]):
                shared = first
            inputs[place] = self._integer(inputs[place], shared)
        operator.inputs = inputs
        self.operators.append(operator)
        self.rewritten.append((kind, self._name(outputs[0])))
        if rule.output != rules.NO_OUTPUT:
            operator.outputs = [
                self._made(number, one) for number, one in zip(outputs, params, strict=True)
            ]
        return True

    def _output(self, number: int, rule: rules.Rule, first: Any, wanted: Mapping[int, Any]) -> Any:
        """The quantization of an output; None if its range is not known."""
        if rule.output in (rules.FROM_INPUT, rules.NO_OUTPUT):
            return first
        if rule.output == rules.FIXED:
            if self.dtype == schema.INT16:
                return schema.quantization([rules.FIXED_INT16_SCALE], [0])
            return schema.quantization([rule.scale], [rule.zero_point])
        return wanted.get(number) or self._calibrated(number)

    def _calibrated(self, number: int) -> Any:
        known = self.ranges.get(self._name(number))
        return None if known is None else self._of_range(known.low, known.high)

    def _of_range(self, low: float, high: float) -> Any:
        low, high = min(low, 0.0), max(high, 0.0)
        if low == high:  # always zero: a usual scale, because a tiny one is undefined in kernels
            high = 1.0
        if self.dtype == schema.INT16:
            return schema.quantization([max(-low, high, _LEAST_RANGE) / 32767], [0])
        scale = max(high - low, _LEAST_RANGE) / 255
        return schema.quantization([scale], [round(_LOWEST - low / scale)])

    def _parameters(self, number: int) -> Any:
        """The quantization that a computed float tensor has, or gets."""
        known = self.integers.get(number)
        if known is None:
            return self._calibrated(number)
        params = self._tensor(known).quantization
        if self._tensor(known).type == self.dtype:
            return params
        # Of the other integer type: the same range of real numbers.
        limits = np.iinfo(np.int8 if self._tensor(known).type == schema.INT8 else np.int16)
        low, high = (
            float(params.scale[0]) * (limit - int(params.zeroPoint[0]))
            for limit in (limits.min, limits.max)
        )
        return self._of_range(low, high)

    def _widest(self, numbers: Sequence[int]) -> Any:
        """The quantization of the largest scale that one of these float tensors has, or gets."""
        params = []
        for number in numbers:
            array = schema.constant(self.model, self._tensor(number))
            params.append(self._parameters(number) if array is None else self._of_constant(array))
        return max(params, key=lambda one: float(one.scale[0]))

    def _of_constant(self, array: Array) -> Any:
        return self._of_range(float(array.min()), float(array.max()))

    def _integer(self, number: int, shared: Any) -> int:
        """The integer tensor for a float one, of the ``shared`` quantization if there is one."""
        tensor = self._tensor(number)
        array = schema.constant(self.model, tensor)
        if array is not None:
            return self._constant(tensor, array, shared)
        params = shared or self._parameters(number)
        known = self.integers.get(number)
        if known is not None and self._is_like(known, params):
            return known
        name = tensor.name + b"_quantized_%d" % len(self.graph.tensors)
        made = schema.new_tensor(self.model, self.graph, tensor, name, self.dtype, params)
        # An integer tensor of another scale is requantized, without a float tensor in between.
        source = number if known is None else known
        self.operators.append(schema.operator(self.model, "QUANTIZE", 2, source, made))
        if shared is None:
            self.integers[number] = made
        return made

    def _constant(self, tensor: Any, array: Array, shared: Any) -> int:
        params = shared or self._of_constant(array)
        dtype = np.dtype(DTYPES[self.scheme])
        limits = np.iinfo(dtype)
        steps = np.rint(array.astype(np.float64) / float(params.scale[0])) + int(
            params.zeroPoint[0]
        )
        name = tensor.name + b"_quantized_%d" % len(self.graph.tensors)
        made = schema.new_tensor(self.model, self.graph, tensor, name, self.dtype, params)
        stored = np.clip(steps, limits.min, limits.max).astype(dtype)
        schema.set_constant(self.model, self._tensor(made), stored)
        return made

    def _made(self, number: int, params: Any) -> int:
        """The integer output in the place of a float one, and a DEQUANTIZE for who reads that."""
        tensor = self._tensor(number)
        name = tensor.name + b"_quantized_%d" % len(self.graph.tensors)
        made = schema.new_tensor(self.model, self.graph, tensor, name, self.dtype, params)
        self.operators.append(schema.operator(self.model, "DEQUANTIZE", 2, made, number))
        self.integers[number] = made
        return made

    def _tensor(self, number: int) -> Any:
        return self.graph.tensors[number]

    def _name(self, number: int) -> str:
        return schema.name_of(self.model, number)

    def _is_float(self, number: int) -> bool:
        return number >= 0 and self._tensor(number).type == schema.FLOAT32

    def _is_like(self, number: int, params: Any) -> bool:
        tensor = self._tensor(number)
        return tensor.type == self.dtype and schema.is_equal(tensor.quantization, params)

    def _is_constant(self, number: int) -> bool:
        return schema.constant(self.model, self._tensor(number)) is not None
