"""One small Relax expression for each operator that the Relax road supports.

``OPERATORS`` has them; ``module_of`` puts any number of them into one module with an output each,
so that one image, and one boot of a board, serves many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

Array = NDArray[Any]
op = relax.op

#: Bounds of the difference from TVM's LLVM build: bytes are equal; two units in the last place;
#: relative to the largest element, for sums and for whole models.
EXACT, ULP, SUM, WHOLE = "equal bytes", "2 ULP", "1e-5 relative", "1e-4 relative"
_RELATIVE = {SUM: 1e-5, WHOLE: 1e-4}


@dataclass(frozen=True)
class Given:
    """An input: its shape, and what its elements are drawn from."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float = -2.0
    high: float = 2.0

    def drawn(self, rng: np.random.Generator) -> Array:
        """Random elements."""
        if self.dtype == "float32":
            return rng.uniform(self.low, self.high, self.shape).astype(np.float32)
        return rng.integers(int(self.low), int(self.high), self.shape).astype(self.dtype)


@dataclass(frozen=True)
class Case:
    """One operator on inputs of its own."""

    name: str
    inputs: tuple[Given, ...]
    make: Callable[..., Any]
    bound: str = ULP


def constant(*shape: int, dtype: str = "float32", low: float = -1.0, high: float = 1.0) -> Any:
    """A constant with the same random elements in each process."""
    rng = np.random.default_rng(sum(shape) + len(shape))
    return relax.const(Given(shape, dtype, low, high).drawn(rng))


def _batch_norm(x: Any) -> Any:
    scale, shift, mean, variance = (constant(4, low=low, high=3) for low in (0.5, -1.0, -1.0, 0.5))
    return op.nn.batch_norm(x, scale, shift, mean, variance, axis=1, training=False)[0]


def _sum_of_topk(x: Any) -> Any:
    both = op.topk(x, 2, largest=False)
    return op.add(both[0], op.astype(both[1], "float32"))


X = Given((2, 5, 4))
POSITIVE = Given((2, 5, 4), low=0.1, high=4)
IMAGE = Given((1, 4, 7, 6))  # NCHW
BYTES = Given((2, 16), "int8", -128, 128)


def _unary(name: str, make: Callable[[Any], Any], given: Given = X, bound: str = ULP) -> Case:
    return Case(name, (given,), make, bound)


def _image(name: str, make: Callable[[Any], Any], bound: str = SUM) -> Case:
    return Case(name, (IMAGE,), make, bound)


OPERATORS: Sequence[Case] = (
    _image("conv2d_nchw", lambda x: op.nn.conv2d(x, constant(5, 4, 3, 3), padding=1)),
    Case(
        "conv2d_nhwc",
        (Given((1, 7, 6, 4)),),
        lambda x: op.nn.conv2d(
            x, constant(3, 3, 4, 5), strides=2, data_layout="NHWC", kernel_layout="HWIO"
        ),
        SUM,
    ),
    _image("depthwise", lambda x: op.nn.conv2d(x, constant(4, 1, 3, 3), padding=1, groups=4)),
    _image("grouped", lambda x: op.nn.conv2d(x, constant(6, 2, 3, 3), groups=2)),
    Case("conv1d", (Given((1, 4, 9)),), lambda x: op.nn.conv1d(x, constant(3, 4, 3)), SUM),
    Case(
        "conv1d_nwc",
        (Given((1, 9, 4)),),
        lambda x: op.nn.conv1d(
            x, constant(3, 4, 5), padding=2, data_layout="NWC", kernel_layout="WIO"
        ),
        SUM,
    ),
    _image(
        "conv2d_transpose",
        lambda x: op.nn.conv2d_transpose(x, constant(4, 3, 3, 3), strides=2, padding=1),
    ),
    Case(
        "conv3d",
        (Given((1, 2, 4, 5, 4)),),
        lambda x: op.nn.conv3d(x, constant(3, 2, 2, 2, 2)),
        SUM,
    ),
    Case(
        "conv2d_of_two_inputs",
        (IMAGE, Given((5, 4, 3, 3))),
        lambda x, w: op.nn.conv2d(x, w, padding=1),
        SUM,
    ),
    Case("matmul", (Given((3, 7)), Given((7, 5))), op.matmul, SUM),
    Case("batch_matmul", (Given((2, 3, 7)), Given((2, 7, 5))), op.matmul, SUM),
    Case(
        "linear",
        (Given((3, 7)),),
        lambda x: op.linear(x, constant(5, 7), constant(5)),
        SUM,
    ),
    Case(
        "einsum",
        (Given((2, 3, 4)), Given((2, 4, 5))),
        lambda a, b: op.einsum((a, b), "bij,bjk->bki"),
        SUM,
    ),
    _image("max_pool2d", lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)), EXACT),
    _image("avg_pool2d", lambda x: op.nn.avg_pool2d(x, (2, 2), (2, 2)), ULP),
    _image("adaptive_avg_pool2d", lambda x: op.nn.adaptive_avg_pool2d(x, (2, 3))),
    _unary("softmax", lambda x: op.nn.softmax(x, axis=-1), bound=SUM),
    _unary("log_softmax", lambda x: op.nn.log_softmax(x, axis=-1), bound=SUM),
    _unary("layer_norm", lambda x: op.nn.layer_norm(x, constant(4), constant(4), -1), bound=SUM),
    _unary("rms_norm", lambda x: op.nn.rms_norm(x, constant(4), -1), bound=SUM),
    _image("group_norm", lambda x: op.nn.group_norm(x, constant(4), constant(4), 2, 1, [2, 3])),
    _image("instance_norm", lambda x: op.nn.instance_norm(x, constant(4), constant(4), 1, [2, 3])),
    _image("batch_norm", _batch_norm),
    _unary("gelu", op.nn.gelu, bound=SUM),
    _unary("gelu_tanh", op.nn.gelu_tanh, bound=SUM),
    _unary("silu", op.nn.silu, bound=SUM),
    _unary("sigmoid", op.sigmoid, bound=SUM),
    # LLVM's tanh is TVM's rational approximation, which is up to 4 units off.
    _unary("tanh", op.tanh, bound=SUM),
    _unary("erf", op.erf, bound=SUM),
    _unary("exp", op.exp),
    _unary("log", op.log, POSITIVE),
    _unary("sqrt", op.sqrt, POSITIVE),
    _unary("rsqrt", op.rsqrt, POSITIVE),
    Case("power", (POSITIVE, X), op.power, ULP),
    _unary("sin", op.sin),
    _unary("cos", op.cos),
    _unary("atan", op.atan),
    _unary("abs", op.abs, bound=EXACT),
    Case("floor_mod", (X, POSITIVE), op.floor_mod, SUM),
    _unary("round", op.round, bound=EXACT),
    Case("add_broadcast", (X, Given((5, 1))), op.add, EXACT),
    Case("multiply_broadcast", (X, Given((4,))), op.multiply, EXACT),
    Case(
        "where",
        (X, Given((2, 5, 4))),
        lambda x, y: op.where(op.greater(x, y), x, relax.const(-np.inf, "float32")),
        EXACT,
    ),
    Case("concat", (X, Given((2, 3, 4))), lambda x, y: op.concat([x, y], axis=1), EXACT),
    _unary("split", lambda x: op.concat(list(reversed(list(_parts(x)))), axis=1), bound=EXACT),
    _unary("reshape", lambda x: op.reshape(x, (4, 10)), bound=EXACT),
    _unary("permute_dims", lambda x: op.permute_dims(x, [2, 0, 1]), bound=EXACT),
    _unary("strided_slice", lambda x: op.strided_slice(x, [1], [4], [0], [-2]), bound=EXACT),
    _unary(
        "take_constant",
        lambda x: op.take(x, relax.const(np.array([3, 0, 1], np.int64)), axis=1),
        bound=EXACT,
    ),
    Case("take", (X, Given((3,), "int64", 0, 5)), lambda x, i: op.take(x, i, axis=1), EXACT),
    Case(
        "gather_elements",
        (X, Given((2, 3, 4), "int64", 0, 5)),
        lambda x, i: op.gather_elements(x, i, axis=1),
        EXACT,
    ),
    _unary("pad", lambda x: op.nn.pad(x, [0, 0, 1, 2, 2, 1], pad_value=-np.inf), bound=EXACT),
    *(
        _image(
            f"resize2d_{method}",
            lambda x, method=method: op.image.resize2d(x, (9, 11), method=method),
        )
        for method in ("linear", "nearest_neighbor", "cubic")
    ),
    _unary("sum", lambda x: op.sum(x, axis=[1]), bound=SUM),
    _unary("mean", lambda x: op.mean(x, axis=[0, 2], keepdims=True), bound=SUM),
    _unary("variance", lambda x: op.variance(x, axis=[1]), bound=SUM),
    _unary("argmax", lambda x: op.argmax(x, axis=1), bound=EXACT),
    _unary("cumsum", lambda x: op.cumsum(x, axis=1), bound=SUM),
    _unary("sort", lambda x: op.sort(x, axis=-1), bound=EXACT),
    _unary("argsort", lambda x: op.argsort(op.round(x), axis=1, descending=True), bound=EXACT),
    _unary("topk", lambda x: op.topk(x, 2, axis=1, ret_type="values"), bound=EXACT),
    _unary("topk_indices", lambda x: op.topk(op.round(x), 3, ret_type="indices"), bound=EXACT),
    _unary("topk_both", _sum_of_topk, bound=EXACT),
    _unary("cumsum_exclusive", lambda x: op.cumsum(x, exclusive=True, axis=-1), bound=SUM),
    _unary("cumprod", lambda x: op.cumprod(x, axis=0), bound=SUM),
    _unary("tile", lambda x: op.tile(x, (1, 2, 2)), bound=EXACT),
    Case(
        "broadcast_to",
        (Given((5, 1)),),
        lambda x: op.broadcast_to(x, (2, 5, 4)),
        EXACT,
    ),
    Case(
        "one_hot",
        (Given((3, 2), "int64", 0, 5),),
        lambda x: op.one_hot(
            x, tvm.tirx.FloatImm("float32", 1.0), tvm.tirx.FloatImm("float32", 0.0), 5
        ),
        EXACT,
    ),
    Case(
        "attention",
        (Given((1, 3, 2, 4)), Given((1, 5, 2, 4)), Given((1, 5, 2, 4))),
        op.nn.attention,
        SUM,
    ),
    Case(
        "int8_matmul",
        (BYTES, Given((16, 3), "int8", -128, 128)),
        lambda a, b: op.matmul(a, b, out_dtype="int32"),
        EXACT,
    ),
    Case(
        "int8_conv2d",
        (Given((1, 4, 7, 6), "int8", -128, 128),),
        lambda x: op.nn.conv2d(
            x, constant(5, 4, 3, 3, dtype="int8", low=-128, high=128), out_dtype="int32"
        ),
        EXACT,
    ),
    _unary(
        "quantize",
        lambda x: op.quantize(x, relax.const(np.float32(0.02)), relax.const(np.int8(3)), 0, "int8"),
        bound=EXACT,
    ),
    Case(
        "dequantize",
        (BYTES,),
        lambda x: op.dequantize(
            x, relax.const(np.float32(0.02)), relax.const(np.int8(3)), 0, "float32"
        ),
        ULP,
    ),
    _unary("clip", lambda x: op.clip(x, -0.5, 1.25), bound=EXACT),
    _image("prelu", lambda x: op.nn.prelu(x, constant(4), axis=1), ULP),
    Case("bool_output", (X, Given((2, 5, 4))), op.less, EXACT),
)


def _parts(x: Any) -> Any:
    whole = op.split(x, [2, 3], axis=1)
    return (relax.TupleGetItem(whole, index) for index in range(3))


def module_of(cases: Sequence[Case]) -> tvm.IRModule:
    """One module with the inputs of all cases, and an output of each."""
    builder = relax.BlockBuilder()
    parameters = [
        [
            relax.Var(f"{case.name}_{index}", relax.TensorType(given.shape, given.dtype))
            for index, given in enumerate(case.inputs)
        ]
        for case in cases
    ]
    with builder.function("main", [one for some in parameters for one in some]):
        with builder.dataflow():
            results = [
                builder.emit(case.make(*some)) for case, some in zip(cases, parameters, strict=True)
            ]
            output = builder.emit_output(results if len(results) > 1 else results[0])
        builder.emit_func_output(output)
    return builder.get()


def inputs_of(cases: Sequence[Case], seed: int) -> list[Array]:
    """Random inputs for ``module_of``."""
    rng = np.random.default_rng(seed)
    return [given.drawn(rng) for case in cases for given in case.inputs]


def expected(module: tvm.IRModule, inputs: Sequence[Array]) -> list[Array]:
    """What TVM's own LLVM build of the module computes."""
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    made = machine["main"](*(tvm.runtime.tensor(array) for array in inputs))
    return [one.numpy() for one in ([made] if hasattr(made, "numpy") else made)]


def problem(bound: str, made: Array, wanted: Array) -> str:
    """How an output differs from LLVM's by more than its bound; empty if it does not."""
    if made.shape != wanted.shape:
        return f"shape {made.shape}, not {wanted.shape}"
    if wanted.dtype != np.float32 or bound == EXACT:
        wrong = int(np.sum(made.view(np.uint8) != wanted.astype(made.dtype).view(np.uint8)))
        return f"{wrong} bytes differ" if wrong else ""
    if not np.array_equal(np.isfinite(made), np.isfinite(wanted)):
        return "other elements are finite"
    finite = np.isfinite(wanted)
    difference = np.abs(made[finite].astype(np.float64) - wanted[finite])
    scale = (
        2 * np.spacing(np.abs(wanted[finite]))
        if bound == ULP
        else _RELATIVE[bound] * max(np.abs(wanted[finite]).max(initial=0.0), 1e-30)
    )
    return f"{np.max(difference / scale):.3g} times the bound" if (difference > scale).any() else ""
