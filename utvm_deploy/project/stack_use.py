"""The most stack that a model's C takes, along its call graph.

GCC writes what each function takes and whom it calls (``-fcallgraph-info``). Two things are added:
what the assembly of a naked function pushes, and whom the table of layers calls. What cannot be
bounded is a note: recursion, calls through unknown pointers, functions of the C library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

#: What GCC calls a call through a pointer.
INDIRECT = "__indirect_call"

_NODE = re.compile(r'^node: \{ title: "([^"]*)" label: "([^"]*)"')
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)"')
_BYTES = re.compile(r"\\n(\d+) bytes \(([^)]*)\)")
_NAKED = re.compile(r"UTVM_NAKED static void (\w+)\(.*?^\}", re.MULTILINE | re.DOTALL)
_INSTRUCTION = re.compile(r'^\s*"\s*(\w[\w.]*)\s+([^"@]*?)(?:\\n)?"', re.MULTILINE)
_REGISTER = re.compile(r"([rsdq])(\d+)")
_REGISTER_BYTES = {"r": 4, "s": 4, "d": 8, "q": 16}


@dataclass(frozen=True)
class StackFunction:
    """A function: the bytes of its frame (None: unknown), and the functions that it calls."""

    name: str
    frame_bytes: int | None
    calls: tuple[str, ...]


@dataclass(frozen=True)
class StackUse:
    """The call path that takes the most stack, from the outermost function on."""

    path: tuple[StackFunction, ...]
    total_bytes: int
    # What is not in ``total_bytes``, as sentences.
    notes: tuple[str, ...]

    @property
    def is_known(self) -> bool:
        """Whether the compiler said anything."""
        return any(one.frame_bytes is not None for one in self.path)


def call_graph(texts: Iterable[str]) -> dict[str, StackFunction]:
    """The functions of what GCC wrote for each source; a static one is ``FILE:NAME`` there."""
    frames: dict[str, int | None] = {}
    calls: dict[str, list[str]] = {}
    for text in texts:
        for line in text.splitlines():
            if node := _NODE.match(line):
                taken = _BYTES.search(node[2])
                bounded = taken is not None and taken[2] != "dynamic"
                if bounded and taken is not None:
                    frames[node[1]] = int(taken[1])
                else:
                    frames.setdefault(node[1], None)
            elif edge := _EDGE.match(line):
                calls.setdefault(edge[1], []).append(edge[2])
    return {
        name: StackFunction(name, frame, tuple(dict.fromkeys(calls.get(name, ()))))
        for name, frame in frames.items()
    }


def with_assembly(
    functions: Mapping[str, StackFunction], sources: Iterable[str]
) -> dict[str, StackFunction]:
    """The functions with the bytes that the assembly of naked ones takes of the stack."""
    pushed = {
        found[1]: _pushed_bytes(found[0]) for text in sources for found in _NAKED.finditer(text)
    }
    return {
        name: replace(one, frame_bytes=(one.frame_bytes or 0) + pushed[plain_name(name)])
        if plain_name(name) in pushed
        else one
        for name, one in functions.items()
    }


def with_table(functions: Mapping[str, StackFunction], prefix: str) -> dict[str, StackFunction]:
    """The functions, where those that run the model call the layers by a table."""
    layers = tuple(name for name in functions if re.fullmatch(r"layer_\d+", plain_name(name)))
    own = (f"{prefix}_{one}" for one in ("run", "push_rows", "run_layer"))
    callers = (*own, "run_layers")  # the last one of a model that trains
    return {
        name: replace(
            one, calls=tuple(c for c in (*one.calls, *layers) if c != INDIRECT or not layers)
        )
        if name in callers and INDIRECT in one.calls
        else one
        for name, one in functions.items()
    }


def deepest(functions: Mapping[str, StackFunction], root: str) -> StackUse:
    """The path from ``root`` that takes the most; a cycle is walked once, and noted."""
    notes: dict[str, None] = {}
    known: dict[str, tuple[int, tuple[str, ...]]] = {}

    def below(name: str, open_calls: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
        if name in known:
            return known[name]
        function = functions.get(name, StackFunction(name, None, ()))
        caller = plain_name(open_calls[-1]) if open_calls else ""
        if name == INDIRECT:
            notes[f"{caller} calls functions through a pointer; what they take is not counted"] = (
                None
            )
            return 0, ()
        if function.frame_bytes is None:
            notes[f"what {plain_name(name)} takes is not known, and not counted"] = None
        deepest_call: tuple[int, tuple[str, ...]] = (0, ())
        for called in function.calls:
            if called == name or called in open_calls:
                notes[f"{plain_name(called)} calls itself; it is counted once"] = None
                continue
            deepest_call = max(
                deepest_call, below(called, (*open_calls, name)), key=lambda one: one[0]
            )
        total = (function.frame_bytes or 0) + deepest_call[0]
        known[name] = total, (name, *deepest_call[1])
        return known[name]

    total, path = below(root, ())
    steps = (functions.get(name, StackFunction(name, None, ())) for name in path)
    return StackUse(tuple(steps), total, tuple(notes))


def plain_name(name: str) -> str:
    """A function's name without the file in front of a static one."""
    return name.rpartition(":")[2]


def stack_use(folder: Path, assembly: Iterable[str], prefix: str) -> StackUse:
    """Of ``PREFIX_run``, from the ``*.ci`` files that GCC wrote into ``folder``.

    A model whose input is pushed row by row has ``PREFIX_push_rows`` instead.
    ``assembly`` are the sources whose naked functions the compiler took.
    """
    texts = (path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.ci")))
    functions = with_table(with_assembly(call_graph(texts), assembly), prefix)
    roots = (f"{prefix}_run", f"{prefix}_push_rows")
    return deepest(functions, next((one for one in roots if one in functions), roots[0]))


def _pushed_bytes(text: str) -> int:
    """The most that the assembly has on the stack at once, in order of its text."""
    taken = most = 0
    for operation, operands in _INSTRUCTION.findall(text):
        name = operation.split(".")[0]
        if name in ("push", "vpush"):
            taken += _register_bytes(operands)
        elif name in ("pop", "vpop"):
            taken -= _register_bytes(operands)
        elif name == "addi" and operands.startswith("sp, sp, "):
            taken -= int(operands.rpartition(" ")[2])
        elif name in ("sub", "subs", "add", "adds") and operands.startswith("sp"):
            amount = re.search(r"#(\w+)", operands)
            size = int(amount[1], 0) if amount else 0
            taken += size if name.startswith("sub") else -size
        most = max(most, taken)
    return most


def _register_bytes(operands: str) -> int:
    total = 0
    for part in operands.strip(" {}").split(","):
        first, _, last = (one.strip() for one in part.partition("-"))
        begin, end = _REGISTER.fullmatch(first), _REGISTER.fullmatch(last)
        if begin is None:
            total += 4  # lr or pc
            continue
        count = int(end[2]) - int(begin[2]) + 1 if end else 1
        total += count * _REGISTER_BYTES[begin[1]]
    return total
