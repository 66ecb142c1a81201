"""Backends that compute any region of MAXIMUM and MINIMUM, as generated C.

They cover a share of the operators, by the names of their outputs, and take turns with two kinds of
C: operator by operator with scratch, or one loop whose output may be in the place of its input.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

from utvm_deploy.backends import (
    Array,
    Backend,
    CText,
    KernelCall,
    Match,
    Operation,
    Pattern,
    call,
    op,
)

KINDS = ("MAXIMUM", "MINIMUM")


def chance(text: str) -> float:
    """A number from 0 to 1 that depends on a text alone."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


def line(operation: Operation, a: str, b: str) -> str:
    sign = ">" if operation.kind == "MAXIMUM" else "<"
    return f"({a} {sign} {b} ? {a} : {b})"


def build(match: Match) -> KernelCall | str:
    """Loops over the operators, or one loop over the elements."""
    tensors = match.graph.tensors
    made = f"{match.graph.name} {match.kind} {match.outputs}"
    if len(match.operators) > 2 and chance(f"refused {made}") < 0.1:
        return "it is not its day"
    places = {n: f"input_{i}" for i, n in enumerate(match.inputs)}
    places |= {n: f"output_{i}" for i, n in enumerate(match.outputs)}
    used = {n for one in match.operators for n in one.inputs if n is not None}
    tables = {f"table_{n}": data for n in used if (data := tensors[n].data) is not None}
    places |= {n: f"table_{n}" for n in used if f"table_{n}" in tables}
    count = math.prod(match.last.result.shape)
    if chance(made) < 0.5:
        return one_loop(match, places, tables, count)
    inside = [n for one in match.operators for n in one.outputs if n not in places]
    places |= {n: f"(scratch + {i * count})" for i, n in enumerate(inside)}
    body = ""
    for one in match.operations:
        a, b, c = (f"{places[n]}[i]" for n in (*one.operator.inputs, *one.operator.outputs))
        body += f"for (int32_t i = 0; i < {count}; i++) {{ {c} = {line(one, a, b)}; }}\n"
    return call(
        match, "loops", body + "return 0;", tables=tables, scratch_bytes=len(inside) * count
    )


def one_loop(
    match: Match, places: Mapping[int, str], tables: Mapping[str, Array], count: int
) -> KernelCall:
    """One loop: of each element, all is read before something is written."""
    body = ""
    for number in (*match.inputs, *(int(name.removeprefix("table_")) for name in tables)):
        body += f"const int8_t v{number} = {places[number]}[i];\n"
    for one in match.operations:
        a, b, c = (f"v{n}" for n in (*one.operator.inputs, *one.operator.outputs))
        body += f"const int8_t {c} = {line(one, a, b)};\n"
    body += "".join(f"{places[n]}[i] = v{n};\n" for n in match.outputs)
    text = f"for (int32_t i = 0; i < {count}; i++) {{\n{body}}}\nreturn 0;"
    return call(match, "one_loop", text, tables=tables, in_place=True)


def covering(name: str, share: float) -> Backend:
    """A backend that covers a share of all operators."""

    def covers(operation: Operation) -> bool:
        made = f"{name} {operation.graph.name} {operation.result.name}"
        return operation.kind in KINDS and chance(made) < share

    return Backend(name, (), CText(""), covers=covers, build=build)


def with_patterns(name: str) -> Backend:
    """A backend with directed patterns of two outputs, and a chain."""
    top = op("MAXIMUM")
    both = Pattern((op("MINIMUM").reading(top), op("MAXIMUM").reading(top), top), build)
    chain = Pattern(("MINIMUM", "MAXIMUM"), build)
    return Backend(name, (both, chain), CText(""))
