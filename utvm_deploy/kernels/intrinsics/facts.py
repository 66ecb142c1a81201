"""The tensor intrinsics: what each computes, and the C routine that computes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from utvm_deploy.base.errors import CompileError
from utvm_deploy.kernels.contract.lazy_tvm import s_tir, tirx
from utvm_deploy.kernels.intrinsics.dsp_dot import COLUMNS, dot_text
from utvm_deploy.kernels.intrinsics.tir import Buffers, Tile, description_of, implementation_of
from utvm_deploy.kernels.isa.dsp import CONDITION
from utvm_deploy.targets.table import CORES, target_of

DSP, MVE = "dsp", "mve"
FAMILIES = (DSP, MVE)
#: The begin of every name.
PREFIX = "utvm_"
#: The least depth that a routine takes, and the most: DSP keeps two widened rows on the stack.
LEAST_DEPTH, MOST_DEPTH = 4, 192
_DOT = (
    *("const int8_t *a", "const int8_t *b", "int32_t *c", "int32_t a_pitch"),
    *("int32_t b_pitch", "int32_t c_pitch", "int32_t rows", "int32_t columns"),
)
_TAPS = (
    *("const int8_t *a", "const int8_t *b", "int32_t *c", "int32_t a_row", "int32_t a_pixel"),
    *("int32_t b_row", "int32_t b_pixel", "int32_t channels"),
)


@dataclass(frozen=True)
class Dot:
    """``c[m, n] += sum(a[m, k] * b[n, k])`` over k, from int8 to int32."""

    family: str
    rows: int  # of a
    columns: int  # rows of b
    depth: int

    def __post_init__(self) -> None:
        _check_family(self.family)
        if self.rows < 1 or self.columns < 2 or self.columns % COLUMNS:
            raise CompileError(
                f"the dot intrinsic has no tile of {self.rows} x {self.columns}; take at least one "
                "row and an even number of columns"
            )
        if not LEAST_DEPTH <= self.depth <= MOST_DEPTH:
            raise CompileError(
                f"the dot intrinsic has no depth of {self.depth}; split the reduction so that its "
                f"inner part has {LEAST_DEPTH} to {MOST_DEPTH} values"
            )

    @property
    def name(self) -> str:
        """The name under which TVM knows it."""
        return f"utvm_{self.family}_dot_{self.rows}x{self.columns}x{self.depth}"

    @property
    def function(self) -> str:
        """The C routine. Tiles of other sizes share it."""
        return f"utvm_{self.family}_dot_{self._at_once}x{self.depth}"

    @property
    def tiles(self) -> tuple[Tile, Tile, Tile]:
        """The buffers: a, b and c."""
        return (
            Tile("a", (self.rows, self.depth), "int8"),
            Tile("b", (self.columns, self.depth), "int8"),
            Tile("c", (self.rows, self.columns), "int32"),
        )

    @property
    def description(self) -> Any:
        """The PrimFunc that says what it computes."""
        a, b, c = self.tiles
        axes = ("m", self.rows, "S"), ("n", self.columns, "S"), ("k", self.depth, "R")
        return description_of(
            (a, b), c, axes, lambda o, m, n, k: _product(a.at(o, m, k), b.at(o, n, k)),
            lambda m, n, k: (m, n),
        )  # fmt: skip

    @property
    def implementation(self) -> Any:
        """The PrimFunc that calls the routine."""

        def call(o: Buffers) -> Any:
            a, b, c = self.tiles
            pitches = a.pitch(o, 0), b.pitch(o, 0), c.pitch(o, 0)
            starts = a.start(o), b.start(o), c.start(o)
            return tirx.call_extern(
                "int32", self.function, *starts, *pitches, self.rows, self.columns
            )

        *reads, output = self.tiles
        return implementation_of(reads, output, call, self.text)

    @property
    def text(self) -> str:
        """The C of the routine."""
        portable = _c("dot").replace("DEPTH", str(self.depth))
        if self.family == DSP:
            return dot_text(self.function, _DOT, self._at_once, self.depth, portable)
        body = _c("mve_dot_body").replace("DEPTH", str(self.depth))
        return _once("mve_dot") + _static(self.function, _DOT, MVE, body, portable)

    @property
    def _at_once(self) -> int:
        return 2 if self.rows % 2 == 0 else 1


@dataclass(frozen=True)
class Taps:
    """``c[n] += sum(a[y, x, n] * b[y, x, n])`` over y and x, from int8 to int32."""

    family: str
    height: int
    width: int
    channels: int

    def __post_init__(self) -> None:
        _check_family(self.family)
        if self.height < 1 or self.width < 2:
            raise CompileError(
                f"the taps intrinsic has no window of {self.height} x {self.width}; take one that "
                "is two columns wide or more"
            )
        if self.channels < 4 or self.channels % 4:
            raise CompileError(
                f"the taps intrinsic has no tile of {self.channels} channels; take a multiple of 4"
            )

    @property
    def name(self) -> str:
        """The name under which TVM knows it."""
        return f"utvm_{self.family}_taps_{self.height}x{self.width}x{self.channels}"

    @property
    def function(self) -> str:
        """The C routine. Tiles of other channels share it."""
        return f"utvm_{self.family}_taps_{self.height}x{self.width}"

    @property
    def tiles(self) -> tuple[Tile, Tile, Tile]:
        """The buffers: a, b and c."""
        shape = self.height, self.width, self.channels
        return (
            Tile("a", shape, "int8"),
            Tile("b", shape, "int8"),
            Tile("c", (self.channels,), "int32"),
        )

    @property
    def description(self) -> Any:
        """The PrimFunc that says what it computes."""
        a, b, c = self.tiles
        axes = ("n", self.channels, "S"), ("y", self.height, "R"), ("x", self.width, "R")
        return description_of(
            (a, b), c, axes, lambda o, n, y, x: _product(a.at(o, y, x, n), b.at(o, y, x, n)),
            lambda n, y, x: (n,),
        )  # fmt: skip

    @property
    def implementation(self) -> Any:
        """The PrimFunc that calls the routine."""

        def call(o: Buffers) -> Any:
            a, b, c = self.tiles
            pitches = (one.pitch(o, axis) for one in (a, b) for axis in (0, 1))
            starts = a.start(o), b.start(o), c.start(o)
            return tirx.call_extern("int32", self.function, *starts, *pitches, self.channels)

        *reads, output = self.tiles
        return implementation_of(reads, output, call, self.text)

    @property
    def text(self) -> str:
        """The C of the routine."""
        body, portable = (
            _c(name).replace("HEIGHT", str(self.height)).replace("WIDTH", str(self.width))
            for name in (f"{self.family}_taps_body", "taps")
        )
        helpers = _once("dsp_taps") if self.family == DSP else _MVE_HEADER
        return helpers + _static(self.function, _TAPS, self.family, body, portable)


Intrinsic = Dot | Taps
_KINDS: dict[str, type[Dot] | type[Taps]] = {"dot": Dot, "taps": Taps}
_NAME = re.compile(r"utvm_(dsp|mve)_(dot|taps)_([0-9]{1,6})x([0-9]{1,6})x([0-9]{1,6})")
_CONDITIONS = {DSP: CONDITION, MVE: "defined(__ARM_FEATURE_MVE)"}
_MVE_HEADER = "#if defined(__ARM_FEATURE_MVE)\n#include <arm_mve.h>\n#endif\n"


@cache
def register(intrinsic: Intrinsic) -> str:
    """Register an intrinsic with TVM, and return its name there."""
    s_tir.TensorIntrin.register(
        intrinsic.name, intrinsic.description, intrinsic.implementation, override=True
    )
    return intrinsic.name


def is_available(name: str) -> bool:
    """Whether TVM can replace loops by the intrinsic of this name; registers it if it is ours."""
    if (intrinsic := _named(name)) is not None:
        register(intrinsic)
    return s_tir.TensorIntrin.get(name, allow_missing=True) is not None


def _named(name: str) -> Intrinsic | None:
    """The intrinsic of this package that has the name; None if none has."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    family, kind, *sizes = found.groups()
    try:
        one: Intrinsic = _KINDS[kind](family, *map(int, sizes))
    except CompileError:  # for sizes that no routine has
        return None
    return one if one.name == name else None


def family_of(core: str) -> str:
    """The family of intrinsics for a core, such as "cortex-m7".

    For cores with neither DSP nor Helium, such as "host": "dsp", whose C runs everywhere.
    """
    return MVE if core in CORES and CORES[core].mve else DSP


def fitting_family(core: str) -> str:
    """The family whose instructions a core has; empty if its native kernels are of other families.

    A core without native kernels has the one of ``family_of``, whose C runs everywhere.
    """
    native = target_of(core).families_of(CORES[core]) if core in CORES else ()
    family = family_of(core)
    return family if not native or family in native else ""


def _product(left: Any, right: Any) -> Any:
    return left.astype("int32") * right.astype("int32")


def _check_family(family: str) -> None:
    if family not in FAMILIES:
        raise CompileError(
            f"there are no tensor intrinsics of family {family!r}; take {' or '.join(FAMILIES)}"
        )


def _c(name: str) -> str:
    texts = resources.files("utvm_deploy.kernels.intrinsics")
    return texts.joinpath(f"c/{name}.h").read_text("ascii")


def _once(name: str) -> str:
    """A C text that a file may have several times."""
    guard = f"UTVM_INTRINSIC_{name.upper()}"
    return f"#ifndef {guard}\n#define {guard}\n{_c(name)}#endif\n"


def _static(name: str, parameters: tuple[str, ...], family: str, body: str, portable: str) -> str:
    """The C function with a body for the cores of a family, and one for all others."""
    return (
        f"static void {name}({', '.join(parameters)}) {{\n"
        f"#if {_CONDITIONS[family]}\n{body}#else\n{portable}#endif\n}}\n"
    )
