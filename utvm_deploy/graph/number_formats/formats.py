"""A number format, and the checks that it keeps what it promises."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from textwrap import dedent, indent
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.base.errors import PluginError
from utvm_deploy.base.python_file import said_of

Codes: TypeAlias = NDArray[np.unsignedinteger[Any]]
Floats: TypeAlias = NDArray[np.float32]

#: The operations that a format may have -> the names of their operands. ``fma`` is ``a * b + c``,
#: rounded once; ``less`` gives 1 where ``a < b``, and else 0.
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide"), ("a", "b")),
    **dict.fromkeys(("maximum", "minimum", "less"), ("a", "b")),
    "fma": ("a", "b", "c"),
}
#: Those that a format may lack, by their names in NumPy -> C's operators of float32. Maxima and
#: minima are the first operand only if it is beyond the second one.
BY_FLOAT: Mapping[str, str] = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "maximum": ">",
    "minimum": "<",
    "less": "<",
    "less_equal": "<=",
    "equal": "==",
    "not_equal": "!=",
}
COMPARISONS = ("less", "less_equal", "equal", "not_equal")
#: TVM's nodes -> what they are here, and those whose operands are swapped.
_KINDS = ("Add", "Sub", "Mul", "Div", "Max", "Min", "LT", "LE", "EQ", "NE")
NODES: Mapping[str, str] = dict(zip(_KINDS, BY_FLOAT, strict=True))
SWAPPED: Mapping[str, str] = {"GT": "less", "GE": "less_equal"}
#: Our functions of two numbers.
OF_TWO = ("powf", "atan2f", "fmodf", "hypotf", "copysignf")
_APART = """\
#if defined(__GNUC__)
#define UTVM_APART __attribute__((noinline, unused)) static
#else
#define UTVM_APART static inline
#endif"""
#: Bits of a number at least and at most; a number is kept in one or two bytes.
FEWEST_BITS, MOST_BITS = 4, 16
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
#: Floats of each kind that the checks encode, and pairs of numbers for operations.
_SAMPLES = 4096


@dataclass(frozen=True)
class Function:
    """A function of numbers: the body of its function in C99, and the same with NumPy arrays.

    Both give equal bits. The C may call ``utvm_bits_of(float)`` and ``utvm_float_of(uint32_t)``,
    and the format's own helpers. NumPy's function takes arrays of one dimension, and gives one.
    ``short_where`` is a condition of the preprocessor: where it holds, a long body is a short one.
    """

    c: str
    numpy: Callable[..., Any]
    short_where: str = ""


@dataclass(frozen=True, eq=False)
class NumberFormat:
    """A format: what a number is in memory, and how it is computed with."""

    name: str
    bits: int
    encode: Function  # of float32 ``x``
    decode: Function  # of a number ``x``, to float32
    operations: Mapping[str, Function] = field(default_factory=dict)
    helpers: str = ""  # C text, in front of the functions

    @property
    def dtype(self) -> str:
        """NumPy's type of the numbers as they are in memory."""
        return "uint8" if self.bits <= 8 else "uint16"

    @property
    def computes(self) -> bool:
        """Whether it has arithmetic, and is not for storage alone."""
        return bool(self.operations)

    def symbol(self, function: str) -> str:
        """The C name of one of its functions."""
        return f"utvm_{self.name}_{function}"

    @property
    def functions(self) -> dict[str, Function]:
        """All of them, by name."""
        return {"encode": self.encode, "decode": self.decode, **self.operations}

    def c_text(self) -> str:
        """The C of all functions; that of ``kernels/c/math/bits.h`` goes before it."""
        code = f"{self.dtype}_t"
        parts = [_APART, self.helpers.strip("\n")] if self.computes else [self.helpers.strip("\n")]
        for name, function in self.functions.items():
            given = "float x" if name == "encode" else f"{code} x"
            if name in OPERATIONS:
                given = ", ".join(f"{code} {one}" for one in OPERATIONS[name])
            made = "float" if name == "decode" else code
            body = indent(dedent(function.c).strip(), "    ")
            # Calls of long functions from unrolled loops would be many times their code.
            is_long = self.computes and function.c.count(";") > 1
            kind = "UTVM_APART" if is_long else "static inline"
            if is_long and function.short_where:
                kind = f"#if {function.short_where}\nstatic inline\n#else\nUTVM_APART\n#endif"
            space = "\n" if "\n" in kind else " "
            parts.append(f"{kind}{space}{made} {self.symbol(name)}({given}) {{\n{body}\n}}")
        return "\n\n".join(filter(None, parts)) + "\n"

    def by_float_texts(self, code: str) -> list[str]:
        """The C of the functions by way of float32 that ``code`` calls."""
        called = re.findall(rf"\b{self.symbol('')}(\w+)\(", code)
        return [self._by_float(one) for one in sorted({*called} - self.functions.keys())]

    def _by_float(self, name: str) -> str:
        """The C of a function that the format lacks: it computes on float32."""
        code, encode = f"{self.dtype}_t", self.symbol("encode")
        if name == "of_integer":
            given, value = "int32_t x", "(float)x"
        else:
            operands = "ab" if name in BY_FLOAT or name in OF_TWO else "a"
            given = ", ".join(f"{code} {one}" for one in operands)
            floats = [f"{self.symbol('decode')}({one})" for one in operands]
            value = f"utvm_{name}({', '.join(floats)})"
            if name in BY_FLOAT:
                value = f" {BY_FLOAT[name]} ".join(floats)
                value += f" ? {floats[0]} : {floats[1]}" if name in ("maximum", "minimum") else ""
        value = value if name in COMPARISONS else f"{encode}({value})"
        return f"static inline {code} {self.symbol(name)}({given}) {{\n    return {value};\n}}\n"

    def encoded(self, values: NDArray[Any]) -> Codes:
        """Float32 as numbers. PluginError for an ``encode`` that breaks its promise."""
        made = self.by_numpy("encode", values)
        if made.dtype.kind not in "iu":
            raise self.wrong(f"encode gives {made.dtype}; return an array of integers")
        if made.size and (int(made.min()) < 0 or int(made.max()) >= 1 << self.bits):
            beyond = int(made.max()) if int(made.max()) >= 1 << self.bits else int(made.min())
            raise self.wrong(f"encode gives {beyond}, which {self.bits} bits cannot hold")
        return made.astype(self.dtype)

    def decoded(self, codes: NDArray[Any]) -> Floats:
        """Numbers as float32. PluginError for a ``decode`` that breaks its promise."""
        made = self.by_numpy("decode", codes)
        if made.dtype != np.float32:
            raise self.wrong(f"decode gives {made.dtype}; return an array of float32")
        return made

    def rounded(self, values: NDArray[Any]) -> Floats:
        """The float32 of the nearest numbers, as the format encodes them."""
        return self.decoded(self.encoded(values))

    def computed(self, operation: str, *operands: NDArray[Any]) -> Codes:
        """An operation by its NumPy form, or by way of float32 if the format lacks it."""
        if operation in self.operations:
            made = self.by_numpy(operation, *operands)
            return made.astype("bool" if operation == "less" else self.dtype)
        first, second = (self.decoded(one) for one in operands)
        with np.errstate(all="ignore"):
            if operation in ("maximum", "minimum"):
                is_first = first > second if operation == "maximum" else first < second
                return self.encoded(np.where(is_first, first, second))
            found: Codes = getattr(np, operation)(first, second)
        return found if operation in COMPARISONS else self.encoded(found)

    def by_numpy(self, name: str, *operands: NDArray[Any]) -> NDArray[Any]:
        """What a function gives for arrays of one shape; PluginError if it gives no such array."""
        shape = np.broadcast_shapes(*(one.shape for one in operands))
        arrays = [np.broadcast_to(one, shape).reshape(-1) for one in operands]
        try:
            with np.errstate(all="ignore"):
                made = self.functions[name].numpy(*arrays)
        except Exception as error:  # anything may be wrong in somebody else's code
            raise self.wrong(f"{name} of NumPy raised {said_of(error)}; correct it") from error
        if not isinstance(made, np.ndarray) or made.shape != arrays[0].shape:
            raise self.wrong(f"{name} of NumPy gives {_shown(made)}; return an array of its shape")
        return made.reshape(shape)

    def wrong(self, what: str) -> PluginError:
        """The error for a format that is not what it says."""
        return PluginError(f"number format {self.name}: {what}")


def all_codes(own: NumberFormat) -> Codes:
    """Every number of the format."""
    return np.arange(1 << own.bits).astype(own.dtype)


def sample_floats() -> Floats:
    """Floats of all magnitudes, the special ones, and those between two numbers of 16 bits."""
    random = np.random.default_rng(22)
    bits = random.integers(0, 1 << 32, 4 * _SAMPLES, np.uint64).astype(np.uint32).view(np.float32)
    special = np.array([0, -0.0, 1, np.inf, -np.inf, np.nan, 65520, 1e-45, 3.4e38], np.float32)
    high = random.integers(0, 1 << 16, _SAMPLES).astype(np.uint32) << 16
    halves = np.concatenate([high | low for low in (0x7FFF, 0x8000, 0x8001, 0x1000, 0xF000)])
    normal = random.standard_normal(4 * _SAMPLES).astype(np.float32)
    return np.concatenate([special, bits, halves.astype(np.uint32).view(np.float32), normal])


def same(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Where bits are equal, or both are not a number."""
    if one.dtype.kind != "f":
        equal: NDArray[np.bool_] = one == other
        return equal
    bits, both = f"u{one.dtype.itemsize}", np.isnan(one) & np.isnan(other)
    found: NDArray[np.bool_] = (one.view(bits) == other.view(bits)) | both
    return found


def check_format(own: NumberFormat) -> None:
    """PluginError unless the format is well formed, and its NumPy functions keep their promises."""
    if not isinstance(own.name, str) or not _NAME.fullmatch(own.name):
        raise PluginError(
            f"number format {own.name!r}: a name has small letters, digits and _; it begins with a "
            "letter and has at most 31"
        )
    if not isinstance(own.bits, int) or not FEWEST_BITS <= own.bits <= MOST_BITS:
        raise own.wrong(f"it has {own.bits!r} bits; give {FEWEST_BITS} to {MOST_BITS}")
    for name, function in own.functions.items():
        if name not in (*OPERATIONS, "encode", "decode"):
            raise own.wrong(f"there is no operation {name!r}; there are {', '.join(OPERATIONS)}")
        if not isinstance(function, Function) or not callable(function.numpy):
            raise own.wrong(f"{name} is not a Function; give Function(c=..., numpy=...)")
        if not isinstance(function.c, str):
            raise own.wrong(f"the C of {name} is not a text; give the body of a C function")
    own.encoded(sample_floats())
    codes = all_codes(own)
    values = own.decoded(codes)
    again = own.rounded(values)
    if (wrong := np.flatnonzero(~same(values, again))).size:
        code = int(codes[wrong[0]])
        raise own.wrong(
            f"{code:#x} is {values[code]:.9g}, and encode and decode make {again[code]:.9g} of "
            "that; encode must give a number whose value is exact"
        )


def _shown(made: object) -> str:
    if isinstance(made, np.ndarray):
        return f"an array of shape {made.shape}"
    return f"an object of type {type(made).__name__}"


def is_table(values: NDArray[Any]) -> bool:
    """Whether a constant is a table of float32 with two dimensions or more, such as weights."""
    return values.dtype == np.float32 and sum(extent > 1 for extent in values.shape) > 1


def packed(values: NDArray[Any], own: NumberFormat) -> Codes | None:
    """A table as numbers of the format; None unless each of its values is one."""
    if not is_table(values):
        return None
    codes = own.encoded(values)
    return codes if own.decoded(codes).tobytes() == values.tobytes() else None
