"""Steps of a recurrent layer as a loop: equal calls in equal order, with other places in the arena.

A file has a GRU, an LSTM or a WHILE as a sequence of equal steps. Their calls stay the layers that
are counted, compared and timed. In C, a step is written once: its functions take the number of the
step, and where a place differs from step to step, it follows from that number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from utvm_deploy.base.repeats import Repeat, repeats
from utvm_deploy.compiler.c_text import integer
from utvm_deploy.compiler.compiled.memory_use import MemoryPool
from utvm_deploy.compiler.compiled.model import Loop
from utvm_deploy.compiler.emission.pools import pool_arguments, pool_parameters
from utvm_deploy.compiler.lowering.program import Program, constant_of
from utvm_deploy.kernels.contract.call import ScalarArgument, TensorArgument

#: A loop that saves fewer calls is not worth its code.
LEAST_SAVED = 4
_LARGEST_UINT16 = 0xFFFF


def loops_of(program: Program) -> tuple[Loop, ...]:
    """The loops of a program: steps with the same constants, of which each reads from the last."""
    if not program.has_loops:
        return ()
    readers = _readers(program)
    keys = [_key(program, index) for index in range(len(program.layers))]
    # A first step that begins from a constant lacks some calls: the others are whole.
    found = [
        Repeat(one.first + one.length % one.period, one.period, one.steps * one.period)
        for one in repeats(keys)
    ]
    return tuple(
        Loop(one.first, one.period, one.steps, _made(program, one, readers))
        for one in found
        if (one.steps - 1) * one.period >= LEAST_SAVED and _is_recurrent(program, one)
    )


def _key(program: Program, index: int) -> Hashable:
    """What equal calls have in common."""
    layer, tensors = program.layers[index], program.graph.tensors
    operator = layer.step.operator
    if any(tensors[number].rows is not None for number in operator.outputs):
        return index  # a strip equals no other call
    texts: list[Hashable] = [operator.kind, layer.kernel.function.name]
    for argument in layer.step.call.arguments:
        constant = constant_of(program, index, argument)
        if isinstance(argument, ScalarArgument):
            texts.append(argument.name)  # where a part of a tensor begins may be one of them
        elif constant is not None:
            texts.append(hashlib.sha256(constant[1].tobytes()).digest())
        else:
            assert isinstance(argument, TensorArgument)
            texts.append((argument.tensor in program.plan.in_pool,))
    return (*texts, len(program.plan.scratch[index]))


def _is_recurrent(program: Program, one: Repeat) -> bool:
    """Whether its second step reads what its first step made, directly or by way of views."""
    steps = [
        program.layers[one.first + step * one.period : one.first + (step + 1) * one.period]
        for step in range(2)
    ]
    made, read = (
        {
            place
            for layer in layers
            for argument in layer.step.call.arguments
            if isinstance(argument, TensorArgument)
            for place in _places(program, argument.tensor)
            if (argument.tensor in layer.step.operator.outputs) == is_made
        }
        for layers, is_made in ((steps[0], True), (steps[1], False))
    )
    return not made.isdisjoint(read)


def _places(program: Program, tensor: int) -> Iterable[tuple[bool, int]]:
    """The words of the arena, or of the pool, that a tensor begins in."""
    if program.graph.tensors[tensor].data is None:
        yield tensor in program.plan.in_pool, program.plan.tensors[tensor]


def _readers(program: Program) -> dict[int, list[int]]:
    """Tensor -> the calls that read it, also by way of views, or, for what a run leaves, a last."""
    calls = {layer.step.operator.outputs: index for index, layer in enumerate(program.layers)}
    found: dict[int, list[int]] = {}
    for number in (*program.graph.outputs, *(left for _, left in program.graph.states)):
        found.setdefault(number, []).append(len(calls))
    for operator in reversed(program.graph.operators):
        call = calls.get(operator.outputs)
        readers = [call] if call is not None else []
        if call is None:  # a view
            readers = [one for number in operator.outputs for one in found.get(number, ())]
        for read in operator.inputs:
            if read is not None:
                found.setdefault(read, []).extend(readers)
    return found


def _made(program: Program, one: Repeat, readers: dict[int, list[int]]) -> tuple[int, ...]:
    """The calls of a loop whose outputs are read after it."""
    end = one.first + one.steps * one.period
    made = tuple(
        index
        for index in range(one.first, end)
        if any(
            reader >= end
            for number in program.layers[index].step.operator.outputs
            for reader in readers.get(number, ())
        )
    )
    return made or (end - 1,)


@dataclass
class LoopText:
    """The C of one loop: how its functions find their places."""

    loop: Loop
    _columns: dict[tuple[int, ...], int] = field(default_factory=dict)

    @property
    def calls_of_step(self) -> range:
        """The calls of the first step, which have functions."""
        return range(self.loop.first, self.loop.first + self.loop.period)

    def calls(self, index: int) -> range:
        """The call ``index`` of the first step, in each step."""
        loop = self.loop
        return range(index, index + loop.steps * loop.period, loop.period)

    def number(self, numbers: Sequence[int]) -> str:
        """C for the number in each step: one, a multiple of the step, or from a table."""
        first, each = numbers[0], numbers[1] - numbers[0]
        if each == 0 and all(one == first for one in numbers):
            return integer(first)
        is_linear = all(one == first + step * each for step, one in enumerate(numbers))
        if is_linear and min(numbers) >= 0:
            return f"{first} {'+' if each > 0 else '-'} step * {abs(each)}u"
        column = self._columns.setdefault(tuple(numbers), len(self._columns))
        return f"{self._table}[step][{column}]"

    @property
    def _table(self) -> str:
        return f"places_{self.loop.first}"

    @property
    def table(self) -> str:
        """The table of the numbers that do not follow from the step by a multiplication."""
        if not self._columns:
            return ""
        low, high = min(map(min, self._columns)), max(map(max, self._columns))
        c_type = "uint16_t" if low >= 0 and high <= _LARGEST_UINT16 else "int32_t"
        rows = "".join(
            f"    {{{', '.join(map(integer, row))}}},\n" for row in zip(*self._columns, strict=True)
        )
        size = f"[{self.loop.steps}][{len(self._columns)}]"
        return f"static const {c_type} {self._table}{size} = {{\n{rows}}};\n\n"


def own_functions(count: int, loops: Sequence[Loop]) -> list[int]:
    """The calls that have a function each: those of a loop's first step, and all others."""
    rolled = {
        index
        for loop in loops
        for index in range(loop.first + loop.period, loop.first + loop.steps * loop.period)
    }
    return [index for index in range(count) if index not in rolled]


def loops_text(name: str, count: int, loops: Sequence[Loop], pools: Sequence[MemoryPool]) -> str:
    """``NAME_run_layer`` and ``NAME_run`` of a model with loops."""
    taken, given = pool_parameters(pools), pool_arguments(pools)
    find, saved = "", 0
    runs, done = "", 0
    for loop in loops:
        size = loop.steps * loop.period
        at, end = loop.first - saved, loop.first + size
        find += f"""\
    if (index >= {end}u) {{
        at -= {size - loop.period}u;
    }} else{f" if (index >= {loop.first}u)" if loop.first else ""} {{
        step = (index - {loop.first}u) / {loop.period}u;
        at = {at}u + (index - {loop.first}u) % {loop.period}u;
    }}
"""
        runs += _calls(done, at, given)
        runs += f"""\
    for (uint32_t step = 0; step < {loop.steps}u; step++) {{
        for (uint32_t at = {at}u; at < {at + loop.period}u; at++) {{
            layers[at](arena, step{given});
        }}
    }}
"""
        done, saved = at + loop.period, saved + size - loop.period
    runs += _calls(done, count - saved, given)
    return f"""\
void {name}_run_layer(uint32_t index, uint8_t *arena{taken}) {{
    uint32_t at = index;
    uint32_t step = 0;
{find}    if (index < {name.upper()}_LAYER_COUNT) {{
        layers[at](arena, step{given});
    }}
}}

void {name}_run(uint8_t *arena{taken}) {{
{runs}}}
"""


def _calls(first: int, end: int, given: str) -> str:
    if first == end:
        return ""
    return f"""\
    for (uint32_t at = {first}u; at < {end}u; at++) {{
        layers[at](arena, 0{given});
    }}
"""
