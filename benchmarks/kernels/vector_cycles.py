"""What the vectors of a RISC-V core have to do in a model, layer by layer.

    python benchmarks/kernels/vector_cycles.py MODEL.tflite... [--board BOARD] [--vlen 128 256]

The assembly of each kernel is walked with the numbers that its driver calls it with: its branches
depend on nothing else. An instruction counts the bits of its widest operand, sources or result,
over those of the datapath. So the cycles are what the datapath is busy, with no pause between two
instructions. A vector instruction counts as many elements as the vector's length says. Scalar
instructions, copies of windows and pools are not in cycles and elements.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.arena.plan import is_view
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import ConstantArgument, is_native
from utvm_deploy.kernels.contract.driver import Argument, Driver, Index
from utvm_deploy.kernels.native.rvv.blocks import FRAME

#: Bits of a datapath.
WIDTHS = (64, 128)
_FUNCTION = re.compile(r"UTVM_NAKED static void (\w+)\((.*?)#else", re.DOTALL)
_LINE = re.compile(r'^\s*"(.*)\\n"', re.MULTILINE)
_TYPE = re.compile(r"e(\d+), m(\d)")
#: Of these, an operand is twice as wide as the elements.
_WIDENING = ("vw", "vnclip")


class CountingDriver(Driver):
    """Counts the calls of a driver, by their function and numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[tuple[str, tuple[int, ...]]] = Counter()
        self._times = 1

    @contextmanager
    def loop(self, counter: str, extent: int) -> Iterator[Index]:
        """A loop whose calls count ``extent`` times."""
        self._times *= extent
        yield Index()
        self._times //= extent

    def call(self, function: str, *arguments: Argument) -> None:
        """Pointers count as 0."""
        numbers = tuple(one if isinstance(one, int) else 0 for one in arguments)
        self.calls[function, numbers] += self._times


class Walk:
    """A routine, run for its branches; values that it loads are 0, but for the table's bytes."""

    def __init__(
        self, lines: Sequence[str], arguments: Sequence[int], vlen: int, table: bytes = b""
    ) -> None:
        self._table = table
        self._registers = Counter({f"a{n}": one for n, one in enumerate(arguments[:8])})
        self._stack = {FRAME + 4 * n: one for n, one in enumerate(arguments[8:])}
        self._vlen, self._vl, self._sew, self._lmul = vlen, 0, 8, 1
        self.instructions, self.elements, self.bits = 0, 0, Counter[int]()
        labels = {line[:-1]: at for at, line in enumerate(lines) if line.endswith(":")}
        at = 0
        while lines[at] != "ret":
            name, _, rest = lines[at].partition(" ")
            at += 1
            if name.startswith(".") or name.endswith(":"):
                continue
            self.instructions += 1
            target = self._step(name, rest.split(", "), rest)
            if target:
                at = labels[target[:-1]]

    def _step(self, name: str, operands: Sequence[str], text: str) -> str:
        """One instruction; the label that it branches to, if it does."""
        r, first = self._registers, operands[0]
        values = [int(one, 0) if one.lstrip("-").isdigit() else r[one] for one in operands[1:]]
        if name.startswith("v"):
            self._vector(name, first, values, text)
        elif name == "j":
            return first
        elif name.startswith("b"):
            value = r[first]
            taken = {
                "bnez": value != 0,
                "beqz": value == 0,
                "bltz": value < 0,
                "blez": value <= 0,
                "bne": name == "bne" and value != values[0],
            }[name]
            return operands[-1] if taken else ""
        elif name == "lbu":
            r[first] = self._table[r[operands[1].partition("(")[2][:-1]]]
        elif name in ("lw", "lb"):
            at = int(operands[1].partition("(")[0])
            r[first] = self._stack.get(at, 0) if operands[1].endswith("(sp)") and at >= FRAME else 0
        elif name == "csrr":
            r[first] = self._vl
        elif name in _ARITHMETIC and first != "sp":
            r[first] = _ARITHMETIC[name](*values)
        return ""

    def _vector(self, name: str, first: str, values: Sequence[int], text: str) -> None:
        if name == "vsetvli":
            sew, lmul = _TYPE.search(text).groups()  # type: ignore[union-attr]
            self._sew, self._lmul = int(sew), int(lmul)
            if text.split(", ")[1] != "zero":
                self._vl = min(values[0], self._vlen * self._lmul // self._sew)
            self._registers[first] = self._vl
            self._registers["zero"] = 0
            return
        memory = re.fullmatch(r"v[ls]e(\d+)\.v", name)
        bits = self._sew * self._vl
        if memory:
            bits = int(memory[1]) * self._vl
        elif name.startswith(_WIDENING):
            bits *= 2
        elif moved := re.fullmatch(r"vmv(\d)r\.v", name):
            bits = int(moved[1]) * self._vlen
        self.elements += self._vl
        for width in WIDTHS:
            self.bits[width] += -(-bits // width)


_ARITHMETIC = {
    "li": lambda one: one,
    "mv": lambda one: one,
    "add": lambda one, other: one + other,
    "addi": lambda one, other: one + other,
    "sub": lambda one, other: one - other,
    "slli": lambda one, other: one << other,
    "srli": lambda one, other: one >> other,
    "neg": lambda one: -one,
}


def routines(texts: Sequence[str]) -> Mapping[str, list[str]]:
    """Function -> its assembly."""
    found = (one for text in texts for one in _FUNCTION.findall(text))
    return {name: _LINE.findall(body) for name, body in found}


def main() -> int:
    """Print a row for each layer that has such assembly, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--board", default="qemu_rv32imcv")
    parser.add_argument("--vlen", type=int, nargs="+", default=[128])
    args = parser.parse_args()
    core = load_board(args.board).cpu.kernel_core
    for path in args.models:
        graph = simplify(load_model(path))
        for vlen in args.vlen:
            total: Counter[str] = Counter()
            for operator in graph.operators:
                if is_view(graph, operator):
                    continue
                call = lower(graph, operator, core)
                kernel, constants = call.kernel, call.arguments
                tables = (a.data for a in constants if isinstance(a, ConstantArgument))
                table = next((one.tobytes() for one in tables if one.dtype == np.int8), b"")
                if not is_native(kernel):
                    continue
                assembly, driver = routines(kernel.texts(core)), CountingDriver()
                kernel.drive(driver)
                row: Counter[str] = Counter()
                for (function, numbers), times in driver.calls.items():
                    if function in assembly:
                        walk = Walk(assembly[function], numbers, vlen, table)
                        row["instructions"] += times * walk.instructions
                        row["elements"] += times * walk.elements
                        for width, cycles in walk.bits.items():
                            row[f"{width} bits"] += times * cycles
                print(kernel.name, vlen, dict(row))
                total += row
            print(path.stem, f"vectors of {vlen} bits:", dict(total))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
