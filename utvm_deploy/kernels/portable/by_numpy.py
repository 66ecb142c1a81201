"""What a PrimFunc computes, by NumPy: in float64, or with the numbers of a format.

A block's independent elements are computed at once, and its reduction step by step. So each sum has
its terms in the order of the kernels. Only what TVM's operators are made of is known: blocks in
loops, without loops of other kinds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from utvm_deploy.base.errors import VerifyError
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.number_formats import NumberFormat
from utvm_deploy.graph.number_formats.formats import NODES, SWAPPED, all_codes
from utvm_deploy.kernels.contract.host_c import Call, computed_by_c
from utvm_deploy.kernels.contract.lazy_tvm import s_tir, tirx, tvm
from utvm_deploy.kernels.contract.math_functions import MATH_FUNCTIONS, math_texts

_REDUCED = 2  # TVM's number for a block's dimension that is summed up
_INTEGERS: Mapping[str, Callable[..., Any]] = {
    **{kind: getattr(np, name) for kind, name in NODES.items()},
    "GT": np.greater,
    "GE": np.greater_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Mod": np.fmod,
    "LShift": np.left_shift,
    "RShift": np.right_shift,
    "BitwiseAnd": np.bitwise_and,
    "Div": lambda a, b: (np.divide if np.asarray(a).dtype.kind == "f" else _quotient)(a, b),
}
_FLOAT64: Mapping[str, Callable[..., Any]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp10": lambda x: np.power(10.0, x),
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    **{one: getattr(np, f"arc{one[1:]}") for one in ("acos", "asin", "atan", "atan2")},
    **{one: getattr(np, f"arc{one[1:]}") for one in ("acosh", "asinh", "atanh")},
    "erf": np.vectorize(math.erf),
    "erfc": np.vectorize(math.erfc),
    "pow": np.power,
    "nearbyint": np.rint,
}


def computed(function: Any, arrays: Sequence[Array], own: NumberFormat | None) -> None:
    """Compute a PrimFunc; ``arrays`` are its parameters, of which the last ones are written.

    Its float32 is float64, or a format's numbers. Parameters of another type are converted as they
    are read and written. Raises VerifyError for what NumPy has no form of.
    """
    module = tvm.IRModule({"main": function})
    passes = [tirx.transform.BindTarget(tvm.target.Target("c")), tirx.transform.LowerIntrin()]
    lowered = tvm.transform.Sequential(passes)(module)["main"]
    run = _Run(own)
    run.buffers.update(zip(lowered.params, arrays, strict=True))
    with np.errstate(all="ignore"):
        run.statement(lowered.body, [])


class _Run:
    """Buffers, and the values of variables."""

    def __init__(self, own: NumberFormat | None) -> None:
        self._own = own
        self.buffers: dict[Any, Array] = {}
        self._values: dict[Any, Any] = {}

    def statement(self, of: Any, loops: list[Any]) -> None:
        """A statement within loops, which begin with the outermost."""
        if isinstance(of, tirx.SeqStmt):
            for one in of.seq:
                self.statement(one, loops)
        elif isinstance(of, tirx.For) and int(of.min) == 0:
            self.statement(of.body, [*loops, of])
        elif isinstance(of, s_tir.SBlockRealize):
            self._block(of, loops)
        elif isinstance(of, tirx.BufferStore) and not loops:
            self._store(of)
        elif isinstance(of, tirx.Bind) and not loops:
            self._values[of.var] = self._value(of.value)
        else:
            raise _no_form(type(of).__name__)

    def _block(self, realize: Any, loops: list[Any]) -> None:
        block = realize.block
        for buffer in block.alloc_buffers:
            is_number = str(buffer.dtype) == "float32"
            dtype = self._dtype if is_number else str(buffer.dtype)
            self.buffers[buffer] = np.zeros([int(one) for one in buffer.shape], dtype)
        pairs = list(zip(block.iter_vars, realize.iter_values, strict=True))
        reduced = [value for one, value in pairs if int(one.iter_type) == _REDUCED]
        steps = [one for one in loops if any(_reads(value, one.loop_var) for value in reduced)]
        wide = [one for one in loops if one not in steps]
        for axis, loop in enumerate(wide):
            shape = [1] * len(wide)
            shape[axis] = -1
            self._values[loop.loop_var] = np.arange(int(loop.extent)).reshape(shape)
        for number, place in enumerate(itertools.product(*(range(int(s.extent)) for s in steps))):
            self._values.update(zip((one.loop_var for one in steps), place, strict=True))
            for one, value in pairs:
                self._values[one.var] = self._value(value)
            if not np.all(self._value(realize.predicate)):
                raise _no_form("a block with a condition")
            if number == 0 and block.init is not None:
                self.statement(block.init, [])
            self.statement(block.body, [])

    @property
    def _dtype(self) -> str:
        return "float64" if self._own is None else self._own.dtype

    def _store(self, store: Any) -> None:
        array = self.buffers[store.buffer]
        value = self._value(store.value)
        if str(store.buffer.dtype) == "float32" and self._own and array.dtype == np.float32:
            value = self._own.decoded(np.asarray(value, self._own.dtype))
        # All elements of the loops, also where the value is the same for some.
        places = np.broadcast_arrays(*(self._value(one) for one in store.indices), value)
        array[tuple(places[:-1])] = places[-1]

    def _load(self, load: Any) -> Any:
        array = self.buffers[load.source]
        # A choice computes both sides, and one of them may lie outside.
        places = (np.clip(self._value(one), 0, extent - 1)
                  for one, extent in zip(load.indices, array.shape, strict=True))  # fmt: skip
        value = array[tuple(places)]
        return self._number(value) if _is_float(load) else value

    def _number(self, value: Any) -> Any:
        """What was read from an array, which may be one of float32."""
        if self._own is None:
            return np.asarray(value, np.float64)
        is_number = value.dtype == self._own.dtype
        return value if is_number else self._own.encoded(np.asarray(value, np.float32))

    def _value(self, of: Any) -> Any:
        kind = type(of).__name__
        if kind == "Var":
            return self._values[of]
        if kind == "IntImm":
            return int(of.value)
        if kind == "FloatImm":
            return self._number(np.array(of.value, np.float32))
        if kind == "TensorLoad":
            return self._load(of)
        if kind in ("Let", "Cast", "Select", "Not"):
            return getattr(self, f"_{kind.lower()}")(of)
        if kind == "Call":
            return self._call(of)
        if kind not in _INTEGERS:
            raise _no_form(kind)
        if _is_float(of.a) and self._own is not None:
            return self._operation(of, kind)
        return _INTEGERS[kind](self._value(of.a), self._value(of.b))

    def _operation(self, of: Any, kind: str) -> Any:
        assert self._own is not None
        a, b = (of.b, of.a) if kind in SWAPPED else (of.a, of.b)
        function = SWAPPED.get(kind) or NODES[kind]
        return self._own.computed(function, self._value(a), self._value(b))

    def _let(self, of: Any) -> Any:
        self._values[of.var] = self._value(of.value)
        return self._value(of.body)

    def _not(self, of: Any) -> Any:
        return np.logical_not(self._value(of.a))

    def _select(self, of: Any) -> Any:
        return np.where(*map(self._value, (of.condition, of.true_value, of.false_value)))

    def _cast(self, of: Any) -> Any:
        value, dtype = np.asarray(self._value(of.value)), str(of.ty)
        if _is_float(of):
            return value if _is_float(of.value) else self._number(value.astype(np.float32))
        if _is_float(of.value) and self._own is not None:
            value = self._own.decoded(value)
        return value.astype(dtype)

    def _call(self, of: Any) -> Any:
        name, arguments = str(of.op.name).rpartition(".")[2], list(of.args)
        if name == "if_then_else":
            return np.where(*map(self._value, arguments))
        if name == "likely":
            return self._value(arguments[0])
        if "extern" in name:
            name = str(arguments.pop(0).value).removeprefix("utvm_")
        if self._own is not None and name in self._own.operations:
            return self._own.computed(name, *map(self._value, arguments))
        if not _is_float(of) or (name not in MATH_FUNCTIONS and name not in _FLOAT64):
            raise _no_form(name)
        values = [np.asarray(self._value(one)) for one in arguments]
        if self._own is None:
            plain = name.removesuffix("f") if name in MATH_FUNCTIONS else name
            return (_FLOAT64.get(plain) or getattr(np, plain))(*values)
        if len(values) == 1:
            return _table(self._own, name)[values[0]]
        return _by_c(self._own, name, values)


def _quotient(a: Any, b: Any) -> Any:
    """The integer part of a quotient of integers, as C has it."""
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def _is_float(value: Any) -> bool:
    return str(value.ty) == "float32"


def _reads(expression: Any, variable: Any) -> bool:
    import tvm_ffi

    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (tirx.Var, found.append))
    return any(one.same_as(variable) for one in found)


def _no_form(what: str) -> VerifyError:
    return VerifyError(
        f"NumPy has no form of {what}, which a layer has, so there is nothing to compare with"
    )


@lru_cache(maxsize=64)
def _table(own: NumberFormat, name: str) -> Array:
    """What a function of one number gives for each number of the format."""
    return _by_c(own, name, [all_codes(own)])


def _by_c(own: NumberFormat, name: str, values: Sequence[Array]) -> Array:
    """By our function of float32 (docs/reference/float.md), whose C has equal bits on all cores."""
    floats = tuple(own.decoded(one) for one in np.broadcast_arrays(*values))
    function = f"utvm_{name}"
    text = "\n".join(math_texts(f"{function}("))
    (made,) = computed_by_c(text, [Call(function, floats, "float32")], name)
    return own.encoded(made)
