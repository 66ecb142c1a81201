"""Float ONNX models in the form that quantizes best: layers in steps, Gelu in one piece.

A quantizer that sees LSTM as one operator leaves it in float32. Unrolled, its products are int8. So
are the steps of a normalization.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.onnx_rewrites.known_values import with_known_values
from utvm_deploy.frontend.onnx_rewrites.pipeline import without_composed
from utvm_deploy.frontend.qdq.operators import Array

#: Recurrent kinds -> gates, in ONNX's order.
_GATES: Mapping[str, int] = {"GRU": 3, "LSTM": 4, "RNN": 1}
RECURRENT = frozenset(_GATES)
#: Normalizations -> their first dimension, if no attribute says it.
_NORMS: Mapping[str, int] = {
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"), -1),
    "InstanceNormalization": 2,
}
#: Operators that are taken apart before they are quantized.
COMPOSED = frozenset((*_GATES, *_NORMS))
#: From this version on, ReduceMean has its dimensions as an input.
_AXES_AS_INPUT = 18
#: Elements of a first state that is computed at import.
_MOST_STATE = 1 << 16
_ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "RNN": ("Tanh",),
}


def prepared(onnx: Any, proto: Any) -> Any:
    """A copy of a float model that computes the same with operators that can be quantized.

    Raises ModelError for a recurrent layer without a fixed number of steps or constant weights.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(without_composed(onnx, proto, is_for_integers=True))
    _fuse_gelu(onnx, copy)
    made = unrolled(onnx, copy, COMPOSED)
    _multiply_by_inverse_roots(onnx, made)
    return made


def unrolled(
    onnx: Any, proto: Any, kinds: Collection[str] = RECURRENT, *, is_quantized: bool = False
) -> Any:
    """A copy of a float model with the steps of its recurrent layers as operators.

    ``kinds`` says which of ``COMPOSED`` are taken apart; without such, it is the model itself.
    Raises ModelError as ``prepared`` does.
    """
    if not any(node.op_type in kinds for node in proto.graph.node):
        return proto
    # Exporters compute the first states from the shape of the input. Quantized weights stay so.
    known = proto if is_quantized else with_known_values(onnx, proto, _MOST_STATE)
    copy = onnx.ModelProto()
    copy.CopyFrom(known)
    _unroll(onnx, copy, kinds)
    return copy


class _Nodes:
    """Nodes that take the place of one."""

    def __init__(self, onnx: Any, node: Any, constants: dict[str, Any]) -> None:
        self.onnx, self.node, self.constants = onnx, node, constants
        self.made: list[Any] = []
        self.prefix = node.name or next(name for name in node.output if name)

    def constant(self, data: Array) -> str:
        """A new initializer's name."""
        name = f"{self.prefix}_constant_{len(self.constants)}"
        self.constants[name] = self.onnx.numpy_helper.from_array(np.ascontiguousarray(data), name)
        return name

    def value(self, position: int) -> Array | None:
        """A constant input; None if it is absent."""
        name = self.node.input[position] if position < len(self.node.input) else ""
        if not name:
            return None
        if name not in self.constants:
            raise ModelError(
                f"input {position} of {self.node.op_type} '{self.prefix}' is computed; only "
                "constant weights and biases are supported"
            )
        array: Array = self.onnx.numpy_helper.to_array(self.constants[name])
        return array

    def add(self, kind: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        """A node; the name of its output, or a list of them."""
        names = [f"{self.prefix}_{kind}_{len(self.made)}_{i}" for i in range(count)]
        self.made.append(self.onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if count == 1 else names

    def rename(self, made: str, name: str) -> None:
        """Give what was made the name that the model expects."""
        for node in self.made:
            for names in (node.input, node.output):
                for position, one in enumerate(names):
                    names[position] = name if one == made else one


def _unroll(onnx: Any, model: Any, kinds: Collection[str]) -> None:
    """Replace operators of these kinds by their steps, in place."""
    graph = model.graph
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {
        value.name: [d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
    }
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    version = max((one.version for one in model.opset_import if not one.domain), default=1)
    nodes = []
    for node in graph.node:
        steps = _Nodes(onnx, node, constants)
        if node.op_type in kinds and node.op_type in _GATES:
            _recurrent(steps, shapes.get(node.input[0], []))
        elif node.op_type in kinds and not any(node.output[1:]):
            _normalization(steps, len(shapes.get(node.input[0], [])), version)
        nodes.extend(steps.made or [node])
    written = {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.initializer[:]
    graph.initializer.extend(t for name, t in constants.items() if name not in written)
    del graph.value_info[:]


def _normalization(steps: _Nodes, rank: int, version: int) -> None:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias; nothing where the rank is unknown."""
    node, add = steps.node, steps.add
    if not rank:
        return
    given = {a.name: steps.onnx.helper.get_attribute_value(a) for a in node.attribute}
    axes = list(range(given.get("axis", _NORMS[node.op_type]) % rank, rank))
    is_by_channel = node.op_type == "InstanceNormalization"

    def mean(of: str) -> str:
        if version < _AXES_AS_INPUT:
            return str(add("ReduceMean", of, axes=axes))
        return str(add("ReduceMean", of, steps.constant(np.array(axes))))

    def parameter(name: str) -> str:
        if not is_by_channel:
            return name
        return str(add("Reshape", name, steps.constant(np.array([-1, *[1] * (rank - 2)]))))

    x, *parameters = node.input
    is_centred = node.op_type in ("LayerNormalization", "InstanceNormalization")
    centred = add("Sub", x, mean(x)) if is_centred else x
    epsilon = steps.constant(np.array([given.get("epsilon", 1e-5)], np.float32))
    variance = add("Add", mean(add("Mul", centred, centred)), epsilon)
    made = add("Mul", centred, add("Reciprocal", add("Sqrt", variance)))
    for kind, name in zip(("Mul", "Add"), filter(None, parameters), strict=False):
        made = add(kind, made, parameter(name))
    steps.made[-1].output[0] = node.output[0]


def _multiply_by_inverse_roots(onnx: Any, model: Any) -> None:
    """x * (1 / sqrt(y)) for x / sqrt(y): no integer kernel divides by what is computed."""
    graph = model.graph
    roots = {node.output[0] for node in graph.node if node.op_type == "Sqrt"}
    nodes = []
    for node in graph.node:
        if node.op_type == "Div" and node.input[1] in roots:
            inverse = f"{node.output[0]}_inverse_root"
            nodes.append(onnx.helper.make_node("Reciprocal", [node.input[1]], [inverse]))
            node.op_type, node.input[1] = "Mul", inverse
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _recurrent(steps: _Nodes, shape: list[int]) -> None:
    """One recurrent layer, of one or two directions."""
    node = steps.node
    helper = steps.onnx.helper
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    direction = given.get("direction", b"forward").decode()
    layout = given.get("layout", 0)
    directions = 2 if direction == "bidirectional" else 1
    names = tuple(a.decode() for a in given.get("activations", ()))
    place = f"{node.op_type} '{steps.prefix}'"
    if names and names != _ACTIVATIONS[node.op_type] * directions:
        raise ModelError(f"{place} has the activations {names}; only ONNX's defaults are supported")
    if len(shape) != 3 or not all(shape):
        raise ModelError(f"the input of {place} has no fixed shape; export with fixed shapes")
    odd = [name for name in ("clip", "input_forget") if given.get(name)]
    if odd or (len(node.input) > 7 and node.input[7]):
        raise ModelError(f"{place} has {odd[0] if odd else 'peepholes'}, which is not supported")
    batch, count = (shape[0], shape[1]) if layout else (shape[1], shape[0])
    _check_lengths(steps, place, count)
    weights, recurrent, bias = (steps.value(i) for i in (1, 2, 3))
    if weights is None or recurrent is None:
        raise ModelError(f"{place} has no weights")
    units = recurrent.shape[-1]
    gates = _GATES[node.op_type]
    if bias is None:
        bias = np.zeros((directions, 2 * gates * units), np.float32)
    first = [_first_states(steps, position, directions, layout) for position in (5, 6)]
    time_axis = 1 if layout else 0
    rows, last = [], []
    for way in range(directions):
        is_reverse = direction == "reverse" or way == 1
        cell = _Cell(steps, weights[way], recurrent[way], bias[way], units)
        inputs = cell.inputs(node.input[0], count, time_axis)
        order = range(count)[::-1] if is_reverse else range(count)
        hidden, memory = (
            one[way] if one else steps.constant(np.zeros((batch, units), np.float32))
            for one in first
        )
        made: dict[int, str] = {}
        for step in order:
            hidden, memory = cell.step(node.op_type, inputs[step], hidden, memory, given)
            made[step] = hidden
        rows.append([made[step] for step in range(count)])
        last.append((hidden, memory))
    _write_outputs(steps, rows, last, layout)


def _check_lengths(steps: _Nodes, place: str, count: int) -> None:
    """Raise ModelError if a sequence may end before the last step; some exporters say that none."""
    name = steps.node.input[4] if len(steps.node.input) > 4 else ""
    if name and (name not in steps.constants or np.any(steps.value(4) != count)):
        raise ModelError(
            f"{place} has sequence_lens that are not all {count}, the steps of its input; export "
            "it without them, for sequences of one length"
        )


def _first_states(steps: _Nodes, position: int, directions: int, layout: int) -> list[str]:
    """The first state of each direction; none where it is left out, and begins as zeros."""
    name = steps.node.input[position] if position < len(steps.node.input) else ""
    if not name:
        return []
    axis = 1 if layout else 0
    if name in steps.constants:
        value = steps.onnx.numpy_helper.to_array(steps.constants[name]).astype(np.float32)
        return [steps.constant(np.take(value, way, axis)) for way in range(directions)]
    sizes = steps.constant(np.ones(directions, np.int64))
    parts = [name]
    if directions > 1:
        parts = steps.add("Split", name, sizes, axis=axis, count=directions)
    gone = steps.constant(np.array([axis]))
    return [steps.add("Squeeze", part, gone) for part in parts]


def _write_outputs(
    steps: _Nodes, rows: list[list[str]], last: list[tuple[str, str]], layout: int
) -> None:
    """Y of all steps, and the last states, in ONNX's shapes."""
    outputs = [*steps.node.output, "", "", ""]
    direction_axis = 2 if layout else 1
    if outputs[0]:
        ways = []
        for row in rows:
            # (batch, units) of each step: an axis for time, and one for the direction
            axes = steps.constant(np.array([1, direction_axis] if layout else [0, 1]))
            parts = [steps.add("Unsqueeze", name, axes) for name in row]
            ways.append(steps.add("Concat", *parts, axis=1 if layout else 0))
        joined = ways[0] if len(ways) == 1 else steps.add("Concat", *ways, axis=direction_axis)
        steps.rename(joined, outputs[0])
    for position in (0, 1):
        if outputs[1 + position]:
            axis = 1 if layout else 0
            number = steps.constant(np.array([axis]))
            parts = [steps.add("Unsqueeze", pair[position], number) for pair in last]
            joined = parts[0] if len(parts) == 1 else steps.add("Concat", *parts, axis=axis)
            steps.rename(joined, outputs[1 + position])


class _Cell:
    """One direction of a recurrent layer."""

    def __init__(
        self, steps: _Nodes, weights: Array, recurrent: Array, bias: Array, units: int
    ) -> None:
        self.steps, self.units = steps, units
        self.gates = weights.shape[0] // units
        self.weights, self.recurrent = weights, recurrent
        self.bias = bias[: self.gates * units], bias[self.gates * units :]
        # Weights and biases of some gates, which all steps share.
        self._back: dict[tuple[int, int | None], list[str]] = {}

    def inputs(self, x: str, count: int, time_axis: int) -> list[str]:
        """The products of all inputs, one for each step."""
        steps = self.steps
        axis = steps.constant(np.array([time_axis]))
        sizes = steps.constant(np.ones(count, np.int64))
        rows = [x] if count == 1 else steps.add("Split", x, sizes, axis=time_axis, count=count)
        turned, bias = steps.constant(self.weights.T), steps.constant(self.bias[0])
        return [steps.add("Gemm", steps.add("Squeeze", row, axis), turned, bias) for row in rows]

    def step(
        self, kind: str, x: str, hidden: str, memory: str, given: Mapping[str, Any]
    ) -> tuple[str, str]:
        """The next hidden state and memory."""
        steps = self.steps
        rules: Mapping[str, Callable[[], tuple[str, str]]] = {
            "GRU": lambda: (self._gru(x, hidden, bool(given.get("linear_before_reset"))), memory),
            "LSTM": lambda: self._lstm(x, hidden, memory),
            "RNN": lambda: (steps.add("Tanh", steps.add("Add", x, self._of(hidden))), memory),
        }
        return rules[kind]()

    def _of(self, hidden: str, first: int = 0, last: int | None = None) -> str:
        """The product of the hidden state with the weights of some gates."""
        part = slice(first * self.units, None if last is None else last * self.units)
        if (first, last) not in self._back:
            parts = self.recurrent[part].T, self.bias[1][part]
            self._back[first, last] = [self.steps.constant(one) for one in parts]
        return str(self.steps.add("Gemm", hidden, *self._back[first, last]))

    def _parts(self, x: str, count: int) -> list[str]:
        sizes = self.steps.constant(np.full(count, self.units))
        made: list[str] = self.steps.add("Split", x, sizes, axis=1, count=count)
        return made

    def _lstm(self, x: str, hidden: str, memory: str) -> tuple[str, str]:
        add = self.steps.add
        i, o, f, c = self._parts(add("Add", x, self._of(hidden)), 4)
        kept = add("Mul", add("Sigmoid", f), memory)
        new = add("Mul", add("Sigmoid", i), add("Tanh", c))
        memory = add("Add", kept, new)
        return add("Mul", add("Sigmoid", o), add("Tanh", memory)), memory

    def _gru(self, x: str, hidden: str, is_linear_first: bool) -> str:
        add = self.steps.add
        sizes = self.steps.constant(np.array([2 * self.units, self.units]))
        gates_x, new_x = add("Split", x, sizes, axis=1, count=2)
        z, r = self._parts(add("Add", gates_x, self._of(hidden, 0, 2)), 2)
        z, r = add("Sigmoid", z), add("Sigmoid", r)
        if is_linear_first:
            candidate = add("Mul", r, self._of(hidden, 2))
        else:
            candidate = self._of(add("Mul", r, hidden), 2)
        new = add("Tanh", add("Add", new_x, candidate))
        # (1 - z) * new + z * hidden
        return str(add("Add", new, add("Mul", z, add("Sub", hidden, new))))


def _fuse_gelu(onnx: Any, model: Any) -> None:
    """Replace x * 0.5 * (1 + erf(x / sqrt(2))), in the orders that exporters write, by Gelu."""
    graph = model.graph
    known = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            known[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    makers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    outputs = {value.name for value in graph.output}

    def number(name: str) -> float | None:
        data = known.get(name)
        return float(data.reshape(-1)[0]) if data is not None and data.size == 1 else None

    def only_reader(name: str, kind: str) -> Any:
        found = readers.get(name, [])
        is_one = len(found) == 1 and found[0].op_type == kind and name not in outputs
        return found[0] if is_one else None

    def other(node: Any, name: str) -> str:
        return str(node.input[1] if node.input[0] == name else node.input[0])

    for erf in [node for node in graph.node if node.op_type == "Erf"]:
        scaled = makers.get(erf.input[0])
        added = only_reader(erf.output[0], "Add")
        if scaled is None or added is None or number(other(added, erf.output[0])) != 1.0:
            continue
        factor = next((n for n in scaled.input if number(n) is not None), None)
        if factor is None:
            continue
        x = other(scaled, factor)
        size = number(factor) or 0.0
        wanted = {"Div": 2**0.5, "Mul": 2**-0.5}.get(scaled.op_type, 0.0)
        product = only_reader(added.output[0], "Mul")
        if abs(size - wanted) > 1e-4 or product is None:
            continue
        with_x = other(product, added.output[0])
        half = makers.get(with_x)
        last = only_reader(product.output[0], "Mul")
        gone = [erf, added, product]
        if with_x == x and last is not None and number(other(last, product.output[0])) == 0.5:
            gone.append(last)
        elif half is not None and half.op_type == "Mul" and x in half.input:
            if number(other(half, x)) != 0.5:
                continue
            last = product
        elif number(with_x) == 0.5 and last is not None and other(last, product.output[0]) == x:
            gone.append(last)
        else:
            continue
        made = onnx.helper.make_node(
            "Gelu", [x], [last.output[0]], name=f"{erf.name}_gelu", domain="com.microsoft"
        )
        place = list(graph.node).index(last)
        graph.node.remove(last)
        graph.node.insert(place, made)
        for node in gone:
            if node is not last:
                graph.node.remove(node)
        if not any(o.domain == "com.microsoft" for o in model.opset_import):
            model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    _remove_unread(graph)


def _remove_unread(graph: Any) -> None:
    """Remove nodes whose results nothing reads."""
    while True:
        read = {name for node in graph.node for name in node.input}
        read.update(value.name for value in graph.output)
        unread = [n for n in graph.node if not read.intersection(n.output)]
        if not unread:
            return
        for node in unread:
            graph.node.remove(node)
